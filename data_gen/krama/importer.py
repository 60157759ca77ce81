"""KramaBench's workload files and lakes as tasks (specification notes, sections 2, 3, 7 and 9).

Accepts the irregularities of the published files: sources that are text, absent, `./`, globs or in
another case; missing steps; a sub-task id used twice; a list behind "Expected answer:".
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, cast

from assay.seeds import derive_seed
from assay.task import Task, TaskError
from rewards.krama.answer import ANSWER_TYPES, as_list
from rewards.krama.release import Mode
from rollouts.krama.words import KIND
from rollouts.words.templates import ours

TRIMMED_FILES = 10
STAR_FILES = 10  # gold files that oracle* shows at most, as the paper's closed systems took no more
LAKE = "lake"  # the key of `Task.files` that names the lake's folder

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
    seconds: float | None = None
    notes: Mapping[str, str] = field(default_factory=dict[str, str])
    plain: Any = None


def read_workload(path: Path) -> list[Entry]:
    """The tasks of one workload file. Raises `TaskError` naming file, position and field."""
    return [entry_of(row, path, number) for number, row in enumerate(read_rows(path), 1)]


def read_rows(path: Path) -> list[Any]:
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
    """One row of a workload file, the `number`-th. Raises `TaskError`."""
    return _entry(row, f"{path} task {number}", path.stem)


def _entry(row: Any, where: str, stem: str) -> Entry:
    _check(row, where)
    name = str(row["id"])
    domain = str(row.get("domain") or name.partition("-")[0] or stem)
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
    runtime = row.get("runtime")
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
        float(runtime) if isinstance(runtime, int | float) else None,
        {"note": str(row["note"])} if row.get("note") else {},
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


SYSTEM = (
    "You are an experienced data scientist. Answer the question from the files of a data lake. "
    "The files are in the folder data/. Do not assume that they are clean."
)


def end_to_end(entry: Entry, folder: str, mode: Mode, gold: Sequence[str]) -> Task:
    """The whole question over a lake folder; the sub-answers are kept in the gold."""
    gold_row = {
        "answer_type": entry.answer_type,
        "answer": entry.answer,
        "subtasks": [
            {
                "id": s.id,
                "step": s.step,
                "query": s.query,
                "answer_type": s.answer_type,
                "answer": s.answer,
            }
            for s in entry.steps
        ],
    } | _plain(entry.plain)
    return _task(
        entry, entry.id, f"krama-{entry.domain}", entry.query, gold_row, folder, mode, gold
    )


def sub_task(entry: Entry, step: Step, folder: str, mode: Mode, gold: Sequence[str]) -> Task:
    """One sub-question asked on its own; the prompt states the overall goal (section 7)."""
    question = ours(KIND).fill("part", question=entry.query, part=step.query)
    row = {"answer_type": step.answer_type, "answer": step.answer, "step": step.step}
    row |= _plain(step.plain)
    made = _task(entry, step.id, f"krama-{entry.domain}-sub", question, row, folder, mode, gold)
    return replace(made, group=entry.id)


def _plain(answer: Any) -> dict[str, Any]:
    """The answer that recall from memory would give, for the causes of failure."""
    return {} if answer is None else {"plain_answer": answer}


def _task(
    entry: Entry,
    name: str,
    track: str,
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
        track=track,
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
