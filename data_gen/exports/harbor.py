"""`assay export harbor`: one Harbor task directory for each task.

Gold stands in `solution/` and `tests/` alone, which an agent never sees. The same tasks, settings
and installed packages give the same bytes.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from assay.family import Answer, Family, family_named, family_of, gold_answer, score_answer
from assay.task import RIGHT, Task, TaskError, json_text
from data_gen.exports.carried import Carried, carry
from rewards.adapters import PARTS
from rewards.adapters.words import MESSAGES, message_of

BASE = "python:3.11.13-slim-bookworm"
SCHEMA = "1.4"
TEXT = "answer.txt"
FOLDER = "/app"
SCORE = Path(__file__).with_name("forms") / "harbor_score.py"
_SHOWN = ("domain", "licence", "source", "document", "language", "difficulty")
_HAND_IN = """
## Handing in

Work in `/app`; the files of this task lie there. {what}
"""


@dataclass(frozen=True)
class HandIn:
    """How a task is answered: the file with the text ("": none), and files by name."""

    text: str
    files: tuple[str, ...]
    gold: Mapping[str, bytes]


@dataclass(frozen=True)
class Settings:
    """`base`: the image; `packages`: what an agent finds installed, pinned; `seconds`: the time it
    has."""

    base: str = BASE
    seconds: int = 1800
    packages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if ":" not in self.base or self.base.endswith(":latest"):
            raise TaskError(f"--base {self.base}: pin it, as in {BASE}")
        for package in self.packages:
            if "==" not in package:
                raise TaskError(f"--package {package}: pin it, as in pandas==2.2.3")


def directory_name(task: Task) -> str:
    """The family, and a hash of the task: it tells nothing of gold, and two tasks never share
    one."""
    return f"{task.family}-{task.content_hash()[:16]}"


def hand_in(family: Family, task: Task) -> HandIn:
    """How the task is handed in, with its gold. Raises `TaskError` where gold has to be run."""
    if (message := message_of(task)) is not None:
        return HandIn(TEXT, (), {TEXT: message.encode("utf-8", "surrogatepass")})
    gold = gold_answer(family, task)
    if gold is None:
        raise TaskError(f"task {task.id}: its gold has to be run first, so there is no solution")
    files = dict(gold.files)
    for name in files:
        if "/" in name or name in ("", ".", "..", TEXT):
            raise TaskError(f"task {task.id}: gold leaves a file {name!r}; use a plain name")
    text = TEXT if gold.text or not files else ""
    said = {TEXT: gold.text.encode("utf-8", "surrogatepass")} if text else {}
    return HandIn(text, tuple(sorted(files)), {**said, **files})


def instruction(task: Task, handed: HandIn) -> str:
    """What the agent reads: the task's messages, and where its answer belongs."""
    messages = [str(m["content"]) for m in task.prompt]
    what: list[str] = []
    if handed.text:
        what += [MESSAGES[task.family].form] if task.family in MESSAGES else []
        what.append(
            f"Write the answer that is asked for, in the form that is asked for, to "
            f"`{FOLDER}/{handed.text}`: what a reply would hold, and nothing else."
        )
    if handed.files:
        named = ", ".join(f"`{FOLDER}/{name}`" for name in handed.files)
        what.append(f"Leave the result in {named}.")
    return "\n\n".join(messages).rstrip() + "\n" + _HAND_IN.format(what=" ".join(what))


def directory(task: Task, root: Path, settings: Settings) -> Iterator[tuple[str, bytes, bool]]:
    """(path, bytes, executable) of every file of a task's directory, in a fixed order.

    `root` is the folder of the tasks file. Raises `TaskError` for a task that cannot be exported.
    """
    family = family_of(task)
    handed = hand_in(family, task)
    load = _carried(family.name, family.origin)
    _refuse_wrong_gold(family, task, handed)
    yield "task.toml", _toml(task, settings).encode(), False
    yield (
        "instruction.md",
        instruction(task, handed).encode("utf-8", "surrogatepass"),
        False,
    )
    files = dict(_task_files(task, root))
    yield "environment/Dockerfile", _dockerfile(load, settings, bool(files)).encode(), False
    for name, path in sorted(files.items()):
        yield f"environment/files/{name}", path.read_bytes(), False
    yield "solution/solve.sh", _solve(handed).encode(), True
    for name, data in sorted(handed.gold.items()):
        yield f"solution/gold/{name}", data, False
    yield "tests/test.sh", b"#!/bin/bash\ncd / && exec python3 -I /tests/score.py\n", True
    yield "tests/score.py", SCORE.read_bytes(), False
    yield "tests/about.json", json_text(_about(task, handed, load), indent=1), False
    for name, (source, _) in sorted(load.modules.items()):
        yield f"tests/{load.place(name)}", source, False


def _refuse_wrong_gold(family: Family, task: Task, handed: HandIn) -> None:
    text = handed.gold.get(TEXT, b"").decode("utf-8", "replace")
    files = {name: handed.gold[name] for name in handed.files}
    score = score_answer(task, Answer(text, files=files))
    if score.outcome is None or score.outcome < RIGHT:
        raise TaskError(
            f"task {task.id}: its gold as it is handed in scores {score.outcome} ({score.why}), "
            "so it cannot be a solution"
        )


@lru_cache(maxsize=64)
def _carried(name: str, origin: str) -> Carried:
    del origin  # part of what is remembered by
    return carry(family_named(name))


def _about(task: Task, handed: HandIn, load: Carried) -> dict[str, Any]:
    """What the scorer reads: the task with its gold, the modules, the entries."""
    return {
        "parts": sorted(PARTS.get(task.family, ())),
        "task": replace(task, files={}).to_json(),
        "text": handed.text,
        "files": list(handed.files),
        "modules": {name: load.place(name) for name in sorted(load.modules)},
        "packages": list(load.packages),
        "family": load.family,
        "score": load.score,
        "trusted": load.trusted,
        "weights": load.weights,
    }


def _task_files(task: Task, root: Path) -> Iterator[tuple[str, Path]]:
    """(path below the working folder, file) of all that the task names."""
    for name, text in task.files.items():
        place = (root / text).resolve()
        if not place.exists():
            raise TaskError(
                f"task {task.id}: its file {name!r} is not at {root / text}; build the tasks again"
            )
        known = MESSAGES.get(task.family)
        target = PurePosixPath(known.places.get(name, name) if known else name)
        if target.is_absolute() or ".." in target.parts:
            raise TaskError(f"task {task.id}: a file named {name!r}; use a plain name")
        if place.is_file():
            yield str(target), place
            continue
        for inner in sorted(place.rglob("*")):
            if inner.is_file():
                yield f"{target}/{inner.relative_to(place).as_posix()}", inner


def _dockerfile(load: Carried, settings: Settings, files: bool) -> str:
    lines = [f"FROM {settings.base}", "ENV PYTHONDONTWRITEBYTECODE=1"]
    if packages := sorted({*load.packages, *settings.packages}):
        lines.append(f"RUN pip install --no-cache-dir {' '.join(packages)}")
    lines.append(f"WORKDIR {FOLDER}")
    if files:
        lines.append(f"COPY files/ {FOLDER}/")
    return "\n".join(lines) + "\n"


def _solve(handed: HandIn) -> str:
    """Puts gold where an answer belongs."""
    lines = ["#!/bin/bash", "set -e"]
    lines += [
        f"cp /solution/gold/{shlex.quote(name)} {FOLDER}/{shlex.quote(name)}"
        for name in sorted(handed.gold)
    ]
    return "\n".join(lines) + "\n"


def _toml(task: Task, settings: Settings) -> str:
    about = {"assay_family": task.family, "assay_id": task.id, "assay_track": task.track}
    about |= {name: task.meta[name] for name in _SHOWN if isinstance(task.meta.get(name), str)}
    shown = "\n".join(f"{name} = {_text(str(value))}" for name, value in about.items())
    return f"""schema_version = "{SCHEMA}"

[task]
name = {_text(f"assay/{directory_name(task)}")}
description = {_text(f"A task of the family {task.family}, scored against gold")}
keywords = ["assay", {_text(task.family)}]

[metadata]
{shown}

[verifier]
timeout_sec = 120.0

[agent]
timeout_sec = {float(settings.seconds)}

[environment]
network_mode = "no-network"
build_timeout_sec = 600.0
cpus = 1
memory_mb = 4096
storage_mb = 2048
workdir = "{FOLDER}"
"""


def _text(value: str) -> str:
    """A basic string of TOML."""
    clean = value.encode("utf-8", "replace").decode("utf-8")
    return re.sub("\x7f", r"\\u007F", json.dumps(clean, ensure_ascii=False))


def write_directory(target: Path, files: Iterable[tuple[str, bytes, bool]]) -> None:
    for name, data, runs in files:
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o755 if runs else 0o644)
