"""`assay export NAME --tasks FILE --out DIR`: our tasks for other trainers and harnesses.

harbor       one Harbor task directory for each task, with a scorer that needs no Assay; the same
             tasks, settings and installed packages give the same bytes
verifiers    an environment of verifiers that loads these tasks and scores by them
trl          a reward function, a dataset and tools for TRL's GRPOTrainer
inspect      an inspect_ai task, evaluated with `inspect eval`
gym          a resource server of NeMo Gym

trl, inspect and gym offer tools of your own (`--env`, or a family's environment), in a fresh
environment for each episode. Tasks that a form cannot run are listed in `refused.jsonl`.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import json
import re
import shlex
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import assay
from assay import console
from assay.console import add_filter, task_filter
from assay.family import (
    Answer,
    Family,
    family_named,
    family_of,
    gold_answer,
    load_object,
    require_families,
    score_answer,
    use_families,
)
from assay.files import atomic_write_set
from assay.syntax import parse_python
from assay.task import (
    RIGHT,
    Task,
    TaskError,
    json_text,
    read_tasks,
    refuse_without_gold,
    write_jsonl,
)
from data_gen.certificate import REFUSED
from data_gen.exports.episodes import FORMS, Taken, in_form, refused_tools, write_set
from rewards.adapters import MESSAGES, PARTS, message_of
from rollouts.environments import ENVIRONMENTS, EnvironmentFactory
from rollouts.environments import NAME as ENV_NAME
from rollouts.tools import Tool

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


def options() -> console.Parser:
    made = console.parser("export", __doc__)
    made.add_argument("form", choices=("harbor", *FORMS), help="what to write")
    console.add_tasks(made)
    console.add_family(made)
    made.add_argument(
        "--env", action="append", default=[], metavar="FILE.py:NAME", help="tools of your own"
    )
    console.add_out(made, "folder to write into", required=True)
    add_filter(made)
    console.add_limit(made)
    made.add_argument("--base", default=BASE, help="harbor: image to build on, pinned")
    made.add_argument(
        "--seconds", type=int, default=1800, help="harbor: time that an agent has for a task"
    )
    made.add_argument(
        "--package",
        action="append",
        default=[],
        metavar="NAME==VERSION",
        help="harbor: also installed in the image, for agents; may be repeated",
    )
    return made


def main(argv: list[str]) -> int:
    """Exit status 0; 3 when some tasks could not be exported. Raises `TaskError`."""
    args = options().parse_args(argv)
    use_families(args.family)
    tasks = [(task, path) for path in args.tasks for task in read_tasks(path)]
    asked = task_filter(args)
    if asked and not any(asked.accepts(task) for task, _ in tasks):
        asked.select((task for task, _ in tasks), "--tasks")
    tasks = [(task, path) for task, path in tasks if asked.accepts(task)]
    tasks = tasks[: args.limit] if args.limit else tasks
    require_families(task for task, _ in tasks)
    refuse_without_gold((task for task, _ in tasks), "--tasks")
    env = [load_object(spec, ENV_NAME, "--env")[1] for spec in args.env]
    settings = Settings(args.base, args.seconds, tuple(args.package))
    taken: list[Taken | Path] = []
    refused: list[dict[str, str]] = []
    offered: dict[str, Tool] = {}
    with atomic_write_set(args.out) as new:
        for task, path in tasks:
            try:
                if args.form == "harbor":
                    taken.append(_directory(task, path.parent, settings, env, new))
                else:
                    taken.append(in_form(args.form, task, path.parent, env, offered))
            except TaskError as error:
                refused.append({"id": task.id, "why": str(error)})
        if not taken:
            why = refused[0]["why"] if refused else "there are no tasks"
            raise TaskError(f"nothing to export: {why}")
        what = f"{len(taken)} task directories"
        if args.form != "harbor":
            write_set(args.form, [one for one in taken if isinstance(one, Taken)], env, new)
            what = f"{len(taken)} tasks; {FORMS[args.form][1].format(out=args.out)}"
        write_jsonl(new / REFUSED, refused)
    print(f"{args.out}: {what}", file=sys.stderr)
    if refused:
        print(f"{len(refused)} left out; {args.out / REFUSED} says why", file=sys.stderr)
    return console.UNSCORED if refused else console.DONE


def _directory(task: Task, root: Path, settings: Settings, env: Sequence[str], new: Path) -> Path:
    """Write one task's directory below `new`. An agent of Harbor has a shell; functions of a user,
    and the state behind them, are not in its container, so that tasks with such are refused.
    Built-in tools stand for what a shell does as well."""
    equipped = EnvironmentFactory(root, env=list(env) or None).equip(task)
    if own := [name for name in equipped.tools if name not in ENVIRONMENTS]:
        raise TaskError(refused_tools(equipped, own, "harbor"))
    target = new / directory_name(task)
    try:
        write_directory(target, directory(task, root, settings))
    except TaskError:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return target


# --- one Harbor directory: gold stands in `solution/` and `tests/` alone, which an agent never sees


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
    said = instruction(task, handed).encode("utf-8", "surrogatepass")
    yield "instruction.md", said, False
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
        for inner in [place] if place.is_file() else sorted(place.rglob("*")):
            if inner.is_file():
                yield str(target / inner.relative_to(place)), inner


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
    for name in map(shlex.quote, sorted(handed.gold)):
        lines.append(f"cp /solution/gold/{name} {FOLDER}/{name}")
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


# --- what a scorer needs where there is no Assay: its modules, and packages at their versions

OURS = ("assay", "rewards", "configs", "rollouts")
_HOME = ("data_gen", "train")  # what builds and trains; a scorer does without
_HEAVY = ("torch", "transformers", "vllm", "jax")
LEFT_OUT = "STAYS_HOME"  # names modules that a scoring module's default settings do without
OWN = "own_family"  # the module that a family's file becomes


@dataclass(frozen=True)
class Carried:
    """A scorer, ready to travel. `modules`: source by module name, with whether it is a package;
    `packages`: pip requirements at the versions here; entries are `module:name`."""

    modules: dict[str, tuple[bytes, bool]]
    packages: tuple[str, ...]
    family: str = ""
    score: str = ""
    trusted: str = ""
    weights: str = ""

    def place(self, name: str) -> str:
        """Where a module lies below the scorer's folder."""
        path = name.replace(".", "/")
        return f"vendor/{path}/__init__.py" if self.modules[name][1] else f"vendor/{path}.py"


def carry(family: Family) -> Carried:
    """What the family's scorer needs. Raises `TaskError` for what cannot be taken along."""
    if family.origin.partition(":")[0].endswith(".py"):
        return _of_file(family)
    quicker = family.audited.trusted
    entries = [family.score, family.weights, *([quicker] if quicker else [])]
    names = [_name_of(entry, family) for entry in entries]
    modules = [name.partition(":")[0] for name in names]
    # modules that the scoring module says its default settings do not ask for
    left_out = {n for one in modules for n in getattr(importlib.import_module(one), LEFT_OUT, ())}
    wanted = [(one, f"family {family.name}") for one in modules]
    trusted = names[2] if quicker else ""
    return Carried(*_load(family, wanted, left_out), "", names[0], trusted, names[1])


def _name_of(entry: Any, family: Family) -> str:
    name = str(getattr(entry, "__qualname__", "<"))
    if "<" in name or "." in name:
        raise TaskError(
            f"family {family.name}: {entry!r} has no name in a module, so it cannot be exported; "
            "make it a plain function of the module"
        )
    return f"{entry.__module__}:{name}"


def _of_file(family: Family) -> Carried:
    """A family of one's own: its file, whole, beside what that imports."""
    path, _, name = family.origin.rpartition(":")
    source = Path(path).read_bytes()
    wanted = [("assay.family", path), *((one, path) for one in _imports(source, path, whole=True))]
    modules, packages = _load(family, wanted)
    return Carried({**modules, OWN: (source, False)}, packages, f"{OWN}:{name}")


def _load(
    family: Family, wanted: Sequence[tuple[str, str]], left_out: Collection[str] = ()
) -> tuple[dict[str, tuple[bytes, bool]], tuple[str, ...]]:
    """(our modules, packages) of some modules, each with what says that it is wanted, and of all
    that they import. Raises `TaskError` for what cannot be taken along."""
    modules: dict[str, tuple[bytes, bool]] = {}
    packages: set[str] = set()
    waiting = [*reversed(wanted)]
    while waiting:
        name, where = waiting.pop()
        top = name.partition(".")[0]
        if name in left_out or top in sys.stdlib_module_names or top in _HOME:
            continue
        if top not in OURS:
            packages.add(_package(top, f"family {family.name}: {where}"))
        elif name not in modules and (path := _spec(name)) is not None:
            source = Path(path).read_bytes()
            modules[name] = source, Path(path).name == "__init__.py"
            waiting += [(name.rpartition(".")[0], path)] if "." in name else []
            waiting += [(one, path) for one in _imports(source, path, name not in _base())]
    return modules, tuple(sorted(packages))


def _package(top: str, where: str) -> str:
    """The pip requirement of the package that a module belongs to."""
    if top in _HEAVY:
        raise TaskError(f"{where} imports {top}, too big to travel")
    found = _owners().get(top)
    if not found:
        raise TaskError(
            f"{where} imports {top}, which is neither Assay's nor an installed package; put what "
            "it needs into the family's own file"
        )
    return f"{found[0]}=={importlib.metadata.version(found[0])}"


@lru_cache(maxsize=1)
def _owners() -> Mapping[str, list[str]]:
    """The packages that bring a module, by its name: every installed package is looked at once."""
    return importlib.metadata.packages_distributions()


@lru_cache(maxsize=1)
def _base() -> frozenset[str]:
    """What `assay.family` imports: what those modules import inside of functions is for building
    and auditing, not for scoring."""
    found: set[str] = set()
    waiting = ["assay", "assay.family"]
    while waiting:
        name = waiting.pop()
        path = _spec(name)
        if name in found or path is None:
            continue
        found.add(name)
        inner = _imports(Path(path).read_bytes(), path, whole=False)
        waiting += [n for n in inner if n.partition(".")[0] in OURS]
    return frozenset(found)


def _spec(name: str) -> str | None:
    """The path of one of our modules; None where the name is a class or function inside of one."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec is not None and spec.origin else None


def _imports(source: bytes, path: str, whole: bool) -> Iterator[str]:
    """Modules that a source imports, and names that may be modules; `whole`: also those that are
    imported inside of functions."""
    for node in _statements(parse_python(source, path), whole):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif node.level:
            raise TaskError(f"{path} line {node.lineno}: a relative import cannot travel")
        elif node.module and node.module != "__future__":
            yield node.module
            if node.module == "assay":  # whose names are loaded from where they are
                names = (alias.name for alias in node.names if alias.name in assay.PUBLIC)
                yield from (assay.PUBLIC[name].partition(":")[0] for name in names)
            if node.module.partition(".")[0] in OURS:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _statements(tree: ast.AST, whole: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        elif whole or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _statements(node, whole)
