"""KramaBench's workload files and lakes as tasks (specification notes, sections 2, 3, 7 and 9).

Accepts the irregularities of the published files: sources that are text, absent, `./`, globs or in
another case; missing steps; a sub-task id used twice; a list behind "Expected answer:".

The release holds `workload/DOMAIN.json` and `data/DOMAIN/input/`. Its workload folder also has
files for a first try, named after no domain: they repeat tasks, also with other questions and
answers, and number others anew. A domain's own file decides.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, cast

from assay.task import Task, TaskError, derive_seed, with_relative_files, write_jsonl
from rewards.krama.answer import ANSWER_TYPES, as_list
from rewards.krama.release import LISTS_WHAT_IS_NOT_THERE, Mode
from rollouts.krama import LAKE, SYSTEM
from rollouts.words.krama import KIND
from rollouts.words.templates import ours

TRIMMED_FILES = 10
STAR_FILES = 10  # gold files that oracle* shows at most, as the paper's closed systems took no more

# Gold that the specification notes doubt (section 12): evaluated only when asked, never rewarded.
DOUBTED = {
    "archeology-hard-1": "ties after an unstable sort",
    "archeology-hard-2": "ties after an unstable sort",
    "archeology-hard-5": "needs an unstated rounding",
    "environment-hard-19": "needs an unstated convention",
    "legal-hard-1": "the reference keeps five rows a state",
    "legal-hard-2": "the reference keeps five rows a state",
    "legal-hard-15": "areas that cross states are counted once a state",
    "wildfire-easy-9": "contradicts its own last sub-task",
    "wildfire-hard-12": "read off a plot by eye",
    "wildfire-hard-18": "says the opposite of the regression",
    "wildfire-hard-20": "a fraction where a percentage is asked",
}
_STATUS = {
    "data_missing": "its data is not published",
    "not_reproduced": "not reproduced",
    "core_flagged": "reproduced, but doubtful",
}


@dataclass(frozen=True)
class Step:
    """A sub-task: what a correct pipeline must do, and a question whose answer proves it."""

    id: str
    step: str
    query: str
    answer_type: str
    answer: Any
    sources: tuple[str, ...]
    plain: Any = None


@dataclass(frozen=True)
class Entry:
    """One published task, read. `doubt` is why its gold is not trusted, "" when it is; `plain` the
    answer before names were exchanged, where that changed it."""

    id: str
    domain: str
    query: str
    answer_type: str
    answer: Any
    sources: tuple[str, ...]
    gold_files: tuple[str, ...]
    steps: tuple[Step, ...]
    doubt: str = ""
    plain: Any = None


def workload_rows(path: Path) -> list[Any]:
    """What one workload file holds, unread. Raises `TaskError`."""
    try:
        rows: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TaskError(f"{path}: {error.strerror}; give a workload file") from None
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(rows, list):
        raise TaskError(f"{path}: wanted an array of tasks")
    return cast("list[Any]", rows)


def entry_of(row: Any, path: Path, number: int) -> Entry:
    """One row of a workload file, the `number`-th. Raises `TaskError` naming file, position and
    field."""
    where = f"{path} task {number}"
    _check(row, where)
    name = str(row["id"])
    domain = str(row.get("domain") or name.partition("-")[0] or path.stem)
    steps: list[Step] = []
    for number, sub in enumerate(row.get("subtasks") or [], 1):
        _check(sub, f"{where} sub-task {number}")
        taken = {s.id for s in steps}
        unique = str(sub["id"])
        while unique in taken:  # one id is used twice in the published astronomy file
            unique += "b"
        steps.append(
            Step(
                unique,
                str(sub.get("step") or sub.get("task") or ""),
                str(sub["query"]),
                str(sub["answer_type"]),
                cleaned(sub["answer"]),
                _sources(sub),
            )
        )
    status = str(row.get("status") or "")
    doubt = _STATUS.get(status, status) or DOUBTED.get(name, "")
    return Entry(
        name,
        domain,
        str(row["query"]),
        str(row["answer_type"]),
        cleaned(row["answer"]),
        _sources(row),
        tuple(row.get("gold_files") or ()),
        tuple(steps),
        doubt,
    )


def _check(row: Any, where: str) -> None:
    if not isinstance(row, dict):
        raise TaskError(f"{where}: wanted an object")
    for name in ("id", "query", "answer", "answer_type"):
        if name not in row:
            raise TaskError(f"{where}: field {name!r} is missing")
    if row["answer_type"] not in ANSWER_TYPES:
        raise TaskError(
            f"{where}: answer_type {row['answer_type']!r} is none of {', '.join(ANSWER_TYPES)}"
        )


def _sources(row: Mapping[str, Any]) -> tuple[str, ...]:
    found: Any = row.get("data_sources") or []
    if isinstance(found, str):
        return (found,)
    return tuple(str(f) for f in cast("list[Any]", found)) if isinstance(found, list) else ()


_LEFTOVER = re.compile(r"^\s*expected answer:\s*", re.IGNORECASE)


def cleaned(answer: Any) -> Any:
    """The answer without the leftover prefix that one published list carries."""
    if isinstance(answer, str) and _LEFTOVER.match(answer):
        text = _LEFTOVER.sub("", answer)
        return as_list(text) if text.startswith("[") else text
    return answer


# --- a copy of the release

_LAKES = ("data", "lakes", "lake")  # folders that lakes lie in, beside the workload


def find_copy(place: Path) -> tuple[tuple[Path, ...], Path]:
    """(workload files, the folder of the lakes that belong to them) at a place: the release's
    checkout, its workload folder, or one workload file.

    Raises `TaskError` where there is no workload, or no folder of lakes beside it.
    """
    if not place.exists():
        raise TaskError(
            f"{place}: no such file or folder; the release is a git repository, mitdbg/Kramabench "
            "on GitHub: clone it and give the folder"
        )
    if place.is_file():
        workloads, home = (place,), place.parent
    else:
        home = place / "workload" if (place / "workload").is_dir() else place
        workloads = tuple(sorted(p for p in home.glob("*.json") if p.name != "manifest.json"))
    if not workloads:
        raise TaskError(
            f"{place}: neither workload/*.json of the release nor a workload file is there; give "
            "its checkout, or --workload and --lakes"
        )
    for folder in (root / name for root in (home, home.parent) for name in _LAKES):
        if folder.is_dir():
            return workloads, folder
    raise TaskError(
        f"{place}: no lakes are beside the workload ({home.parent / _LAKES[0]}/DOMAIN/input); "
        "fetch the release's data folder, or give --workload and --lakes"
    )


def gathered(workloads: Sequence[Path]) -> tuple[list[Entry], list[str]]:
    """The tasks of several workload files, each once; and lines about those that are left out.

    Of a domain whose own file (DOMAIN.json) is among them, that file's tasks are taken, and those
    of other files left out. A task that two files hold alike, or one with fewer fields, is one
    task. Raises `TaskError` naming both files and the field where they differ.
    """
    paths = list({path.resolve(): path for path in workloads}.values())
    read = [
        (path, row, entry_of(row, path, number))
        for path in paths
        for number, row in enumerate(workload_rows(path), 1)
    ]
    own = {path.stem: path for path, _, entry in read if path.stem == entry.domain}
    kept: dict[str, tuple[Path, dict[str, Any], Entry]] = {}
    aside: dict[tuple[Path, Path], list[str]] = {}
    for path, row, entry in read:
        home = own.get(entry.domain, path)
        if home != path:
            aside.setdefault((path, home), []).append(entry.id)
            continue
        there, other, _ = kept.setdefault(entry.id, (path, row, entry))
        if other is row:
            continue
        if there == path:
            raise TaskError(f"{path}: task {entry.id} is there twice; remove one")
        if differs := [name for name in row if name in other and row[name] != other[name]]:
            raise TaskError(
                f"task {entry.id} is in {there} and, with another {differs[0]!r}, in {path}; give "
                "one of the two files"
            )
        if len(row) > len(other):
            kept[entry.id] = path, row, entry
    said = [
        f"{path}: left out {', '.join(names)}: {home.name} is this domain's own file"
        for (path, home), names in aside.items()
    ]
    return [entry for *_, entry in kept.values()], said


def absent_files(entry: Entry, files: Sequence[str]) -> list[str]:
    """Sources of a task that match nothing in its lake; none of a task whose list names what the
    release itself does not have. A pattern that matches some files is taken for whole."""
    if entry.gold_files:
        there = set(files)
        return [name for name in entry.gold_files if name not in there]
    if entry.id in LISTS_WHAT_IS_NOT_THERE:
        return []
    return [s for s in entry.sources if s.strip("./ ") and not resolve([s], files)]


# --- lakes: found or unpacked, shown in part


def lake_files(folder: Path) -> list[str]:
    """Every file below `folder`, relative, with `/`, sorted."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def resolve(sources: Iterable[str], files: Sequence[str]) -> list[str]:
    """The lake's files that some sources mean; unknown ones are left out.

    A source is a path, a glob, a folder, or a base name, in any case; `./` means none in
    particular. A name whose ending differs from the disk's (omni2.txt, omni2.text) is found too.
    """
    found: dict[str, None] = {}
    for source in sources:
        wanted = source.strip().removeprefix("./").rstrip("/").lower()
        if not wanted:
            continue
        patterns = (wanted, f"*/{wanted}", f"{wanted}/*", f"*/{wanted}/*")
        hits = [f for f in files if any(_fits(f.lower(), p) for p in patterns)]
        if not hits:
            stem = wanted.rpartition(".")[0] or wanted
            hits = [f for f in files if f.lower().rpartition(".")[0] == stem]
        found |= dict.fromkeys(hits)
    return list(found)


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def view_files(
    mode: Mode, task_id: str, gold: Sequence[str], files: Sequence[str], cap: int = TRIMMED_FILES
) -> list[str]:
    """The lake's files a mode shows (paper, section 5; specification notes, section 9).

    Oracle: the gold files. Oracle*: the same, and of more than `STAR_FILES` a seeded sample of that
    many, so that such a task may have no answer any more. Trimmed: gold and seeded others, at most
    `cap` in all, but gold is never cut. A task whose gold files are unknown is shown everything.
    """
    if mode in ("full", "obscured") or not gold:
        return list(files)
    if mode == "oracle*" and len(gold) > STAR_FILES:
        return sorted(
            Random(derive_seed("krama-oracle*", task_id)).sample(sorted(gold), STAR_FILES)
        )
    if mode in ("oracle", "oracle*"):
        return sorted(gold)
    others = [f for f in files if f not in set(gold)]
    Random(derive_seed("krama-trimmed", task_id)).shuffle(others)
    return sorted([*gold, *others[: max(0, cap - len(gold))]])


def find_lake(lakes: Path, domain: str, out: Path) -> Path | None:
    """The folder of one domain's files, None where there is none; an archive is unpacked into `out`
    first, once."""
    for folder in (lakes / domain / "input", lakes / domain):
        if folder.is_dir():
            return folder.resolve()
    archive = lakes / f"{domain}.tar.gz"
    if not archive.is_file():
        return None
    target = out / "lakes" / domain
    if not target.is_dir():
        work = target.with_name(f".{domain}-{os.getpid()}")
        with tarfile.open(archive) as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(work, filter="data")
            else:  # Pythons before 3.11.4 know no filters
                tar.extractall(work)
        _readable(work)
        os.makedirs(target.parent, exist_ok=True)
        work.rename(target)
    inner = target / domain / "input"
    return (inner if inner.is_dir() else target).resolve()


def _readable(folder: Path) -> None:
    """Open to other users, as the sandbox's own id needs it."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def link_view(lake: Path, files: Sequence[str], target: Path) -> Path:
    """A folder that shows some of a lake's files, by hard links (copies across file systems)."""
    if target.is_dir():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    for name in files:
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(lake / name, place)
        except OSError:
            shutil.copyfile(lake / name, place)
    return target.resolve()


def write_tasks(path: Path, tasks: Sequence[Task]) -> None:
    """Write tasks with every file named relative to the tasks file."""
    write_jsonl(path, (with_relative_files(task, path.parent).to_json() for task in tasks))


# --- tasks

_SUBTASK = ("id", "step", "query", "answer_type", "answer")


def end_to_end(entry: Entry, folder: str, mode: Mode, gold: Sequence[str]) -> Task:
    """The whole question over a lake folder; the sub-answers are kept in the gold."""
    gold_row = {
        "answer_type": entry.answer_type,
        "answer": entry.answer,
        "subtasks": [{name: getattr(s, name) for name in _SUBTASK} for s in entry.steps],
    } | _plain(entry.plain)
    return _task(entry, entry.id, "", entry.query, gold_row, folder, mode, gold)


def sub_task(entry: Entry, step: Step, folder: str, mode: Mode, gold: Sequence[str]) -> Task:
    """One sub-question asked on its own; the prompt states the overall goal (section 7)."""
    question = ours(KIND).fill("part", question=entry.query, part=step.query)
    row = {"answer_type": step.answer_type, "answer": step.answer, "step": step.step}
    row |= _plain(step.plain)
    made = _task(entry, step.id, "-sub", question, row, folder, mode, gold)
    return replace(made, group=entry.id)


def _plain(answer: Any) -> dict[str, Any]:
    """The answer that recall from memory would give, for the causes of failure."""
    return {} if answer is None else {"plain_answer": answer}


def _task(
    entry: Entry,
    name: str,
    kind: str,
    question: str,
    gold: dict[str, Any],
    folder: str,
    mode: Mode,
    gold_files: Sequence[str],
) -> Task:
    if entry.doubt:
        gold = {**gold, "doubt": entry.doubt}
    return Task(
        id=name,
        family="answer",
        track=f"krama-{entry.domain}{kind}",
        split="test",
        prompt=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}],
        gold=gold,
        tools=("ds_guru_few_shot",),  # an evaluation may put another agent here
        files={LAKE: folder},
        meta={
            "benchmark": "krama",
            "published": True,  # never in a training split
            "domain": entry.domain,
            "difficulty": "hard" if "-hard-" in entry.id else "easy",
            "mode": mode,
            "parent": entry.id if name != entry.id else None,
            "gold_files": list(gold_files),
        },
    )
