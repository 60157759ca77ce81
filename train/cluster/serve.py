# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownVariableType=false
"""Serve a checkpoint and evaluate it in parts, each on a GPU of its own: what the jobs run."""

from __future__ import annotations

import importlib.util
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from assay.files import write_bytes
from assay.task import TaskError, json_text
from configs.loader import ConfigError
from rollouts.engines.server.process import EMBEDDED, devices
from train.evaluation.results import RESULTS

Run = Callable[[list[str]], int]
WORDS = "part.json"  # what a part was asked, for the job that puts them together
OURS = ("--out", "--part", "--gather")


def run_part(out: Path, index: int, parts: int, words: Sequence[str], run: Run) -> int:
    """Part `index` of `parts`, into `out/part-INDEX`. A finished one is not run again."""
    if not 0 <= index < parts:
        raise ConfigError(f"--index {index}: wanted 0 to {parts - 1}, as --parts says")
    refuse_words(words)
    folder = out / f"part-{index}"
    if (folder / RESULTS).is_file():
        print(f"part {index} is done already: {folder}")
        return 0
    asked = [*words, *engine_words(words)]
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / WORDS, json_text({"parts": parts, "words": asked}))
    return run(["eval", *asked, "--out", str(folder), "--part", f"{index}/{parts}"])


def gather(out: Path, parts: int, run: Run) -> int:
    """All parts as one evaluation in `out`. Raises `TaskError` naming what is missing."""
    folders = [out / f"part-{index}" for index in range(parts)]
    missing = [folder.name for folder in folders if not (folder / RESULTS).is_file()]
    if missing:
        raise TaskError(f"{out}: not finished: {', '.join(missing)}; submit the array again")
    asked = [json.loads((folder / WORDS).read_text(encoding="utf-8")) for folder in folders]
    for folder, other in zip(folders, asked, strict=True):
        if other != asked[0]:
            raise TaskError(f"{folder} was asked something else than {folders[0]}: see {WORDS}")
    found = ["eval", *asked[0]["words"], "--out", str(out), "--gather", *map(str, folders)]
    return run(found)


def refuse_words(words: Sequence[str]) -> None:
    """Raises `ConfigError` for options that the job itself sets, and without a model."""
    for word in words:
        if word.split("=")[0] in OURS:
            raise ConfigError(f"{word}: the job itself sets it; remove it")
    if not _model(words):
        raise ConfigError("no --model among the words of the evaluation; give a model's folder")


def engine_words(words: Sequence[str]) -> list[str]:
    """The engine, where none was asked for: a server that is installed, if there is a GPU for it
    and the model is a folder."""
    named = any(word.split("=")[0] == "server.kind" for word in words)
    if named or devices() == [""] or not Path(_model(words)).is_dir():
        return []
    for kind in ("vllm", "sglang"):
        if importlib.util.find_spec(kind) is not None:
            return [f"server.kind={kind}"]
    print(f"neither vllm nor sglang is installed: server.kind={EMBEDDED}")
    return []


def _model(words: Sequence[str]) -> str:
    """What stands behind --model; empty without it."""
    after = (b for a, b in itertools.pairwise(words) if a == "--model")
    joined = (word.partition("=")[2] for word in words if word.startswith("--model="))
    return next(itertools.chain(after, joined), "")
