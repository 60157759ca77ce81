"""Stages of an experiment: `assay` commands whose finished folders are kept, so that a benchmark of
many training runs can be stopped and go on."""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from train.evaluation.stats import Interval

ROOT = Path(__file__).resolve().parents[1]
ROUNDING = "engine.rounding=nearest"  # what most tables in docs/results were made with
EPOCHS = "sft.epochs="
FOREIGN = {"sft": ("rl.", "reward."), "grpo": ("sft.",)}  # settings that a command does not have


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def part(source: Path, name: str, count: int, more: Sequence[str] = ()) -> Path:
    """A file beside `source` of its first `count` lines and of `more`."""
    target = source.with_name(name)
    lines = source.read_text(encoding="utf-8").splitlines()[:count]
    target.write_text("".join(f"{line}\n" for line in (*lines, *more)), encoding="utf-8")
    return target


def seeds_of(out: Path) -> list[int]:
    """The seeds that have a folder `seedS` in `out`."""
    return sorted(int(folder.name[4:]) for folder in out.glob("seed*"))


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
    command = [sys.executable, "-m", "assay", *map(str, words)]
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


def options(
    about: str | None,
    arms: Sequence[str],
    *,
    splits: Sequence[str] = ("validation", "heldout"),
    seeds: Sequence[int] = (0, 1, 2),
) -> argparse.ArgumentParser:
    """The options that the drivers share. `about` is a driver's docstring; no `--split` where it
    has no splits to choose from."""
    parser = argparse.ArgumentParser(description=(about or "").split("\n\n")[0])
    parser.add_argument("--out", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(seeds))
    parser.add_argument("--arms", nargs="+", choices=list(arms), default=list(arms))
    if splits:
        parser.add_argument("--split", choices=list(splits), default=splits[0])
    parser.add_argument("--model", help="instead of SmolLM2-135M-Instruct")
    parser.add_argument("--table", action="store_true", help="only print what is finished")
    parser.add_argument("settings", nargs="*", help="key=value, for every training run")
    return parser


def level(found: Interval) -> str:
    """A value and its interval, as a cell of a table."""
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


def change(found: Interval) -> str:
    """A difference and its interval, with signs."""
    return f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


@dataclass(frozen=True)
class Stages:
    """The training runs in one folder, all of one seed. `extra` are settings of every run that has
    them."""

    folder: Path
    seed: int
    extra: tuple[str, ...] = ()

    def train(self, name: str, command: str, data: Path, settings: Sequence[str]) -> None:
        """`assay sft` or `assay grpo` into `folder/NAME`; a finished run is kept, a stopped one
        goes on. `NAME.spent.json` has its processor seconds, without those of a killed part."""
        note = self.folder / f"{name}.spent.json"
        if not done(note):
            words = (f"data={data}", f"out={self.folder / name}", f"seed={self.seed}", ROUNDING)
            extra = [word for word in self.extra if not word.startswith(FOREIGN[command])]
            assay(command, *words, *settings, *extra, note=note)
        shutil.rmtree(self.folder / name / "checkpoints", ignore_errors=True)  # 2 GB a run


@dataclass(frozen=True)
class Place:
    """The folders of a run whose seeds share their tasks: `tasks/`, and `seedS/ARM` for a training
    run. `model` is the untouched model; `extra` are settings of every training run."""

    out: Path
    seed: int
    model: str
    extra: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return self.out / f"seed{self.seed}"

    def tasks(self, family: str, *words: str) -> Path:
        """The folder of `assay tasks FAMILY`, built once."""
        folder = self.out / "tasks"
        if not (folder / "certificate.json").is_file():
            assay("tasks", family, "--out", folder, *words)
        return folder

    def train(
        self, name: str, command: str, data: Path, start: str, settings: Sequence[str]
    ) -> None:
        """A training run from `start`, kept where it is finished."""
        words = (f"model.path={start}", *settings)
        Stages(self.folder, self.seed, self.extra).train(name, command, data, words)

    def trained(self, name: str) -> str:
        """The model of an arm."""
        return self.model if name == "untouched" else str(self.folder / name / "model")


Some = TypeVar("Some", bound=Any)  # a `Place`, of this file or of a benchmark


def lasting(place: Some, times: float) -> Some:
    """`place` whose SFT has `times` as many epochs as a start, at least one. A start has one epoch,
    or what `extra` says for every run."""
    found = [word.removeprefix(EPOCHS) for word in place.extra if word.startswith(EPOCHS)]
    count = max(1, round(times * int(found[-1] if found else 1)))
    return replace(place, extra=(*place.extra, f"{EPOCHS}{count}"))
