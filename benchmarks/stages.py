"""Stages of an experiment: `assay` commands whose finished folders are kept, so that a benchmark of
many training runs can be stopped and go on."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def part(source: Path, name: str, count: int, more: Sequence[str] = ()) -> Path:
    """A file beside `source` of its first `count` lines and of `more`."""
    target = source.with_name(name)
    lines = source.read_text(encoding="utf-8").splitlines()[:count]
    target.write_text("".join(f"{line}\n" for line in (*lines, *more)), encoding="utf-8")
    return target


def spent(note: Path) -> float:
    """Processor seconds of a training run so far; NaN where it has not begun."""
    return float(json.loads(note.read_text())["seconds"]) if note.is_file() else math.nan


def done(note: Path) -> bool:
    return note.is_file() and bool(json.loads(note.read_text())["done"])


def assay(*words: object, note: Path | None = None) -> None:
    """One `assay` command, shown and run; its processor seconds are added up in `note`. Ends the
    script with the command's status where it fails or was stopped."""
    print("$ assay", *words, flush=True)
    before = os.times()
    command = [sys.executable, str(ROOT / "assay.py"), *map(str, words)]
    status = subprocess.run(command, cwd=ROOT).returncode
    after = os.times()
    took = after.children_user - before.children_user
    took += after.children_system - before.children_system
    if note is not None:
        note.parent.mkdir(parents=True, exist_ok=True)
        seconds = took + (spent(note) if note.is_file() else 0.0)
        note.write_text(json.dumps({"seconds": seconds, "done": status == 0}))
    if status:
        sys.exit(status)


@dataclass(frozen=True)
class Stages:
    """The training runs in one folder, all of one seed. `extra` are settings of every run."""

    folder: Path
    seed: int
    extra: tuple[str, ...] = ()

    def train(self, name: str, command: str, data: Path, settings: Sequence[str]) -> None:
        """`assay sft` or `assay grpo` into `folder/NAME`; a finished run is kept, a stopped one
        goes on. `NAME.spent.json` has its processor seconds, without those of a killed part."""
        note = self.folder / f"{name}.spent.json"
        if not done(note):
            words = (f"data={data}", f"out={self.folder / name}", f"seed={self.seed}")
            assay(command, *words, *settings, *self.extra, note=note)
        shutil.rmtree(self.folder / name / "checkpoints", ignore_errors=True)  # 2 GB a run
