"""Every task that lies beside the checkout in ../shared, with answers: right, wrong, broken.

Nothing of it is copied; without the folder there are no tasks, and the tests skip.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from places import SHARED

from assay.task import Task


@dataclass(frozen=True)
class Try:
    """One answer to a task, and what `assay score` wants to know of it besides the gold."""

    name: str
    text: str = ""
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    row: dict[str, Any] = field(default_factory=dict[str, Any])


def every_task() -> Iterator[tuple[Task, list[Try]]]:
    yield from _cdr()
    yield from _dare()
    yield from _krama()


def _task(name: str, family: str, track: str, gold: dict[str, Any]) -> Task:
    prompt = [{"role": "user", "content": f"Task {name}."}]
    return Task(name, family, track, "test", prompt, gold)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.is_file():
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines)


# --- documents -----------------------------------------------------------------------------------


def _cdr() -> Iterator[tuple[Task, list[Try]]]:
    for number, (kind, gold) in enumerate(_documents(SHARED / "cdr" / "conformance")):
        yield _task(f"{kind}-{number}", "refinement", kind, gold), list(_cleaned(gold))


def _documents(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for row in _lines(folder / "recipes.jsonl.gz"):
        yield (
            row["kind"],
            {"input_text": row["input_text"], "status": row["status"], "text": row["output_text"]},
        )
    for row in _lines(folder / "order_m.jsonl.gz"):
        for order in ("canonical", "swapped"):
            yield (
                "order_m",
                {"input_text": row["input_text"], "status": "KEEP", "text": row[f"{order}_text"]},
            )
    for row in _lines(folder / "scorer.jsonl.gz"):
        if row["kind"] == "score_file":
            for seen in row["predictions"]:
                yield (
                    str(seen["source_track"]),
                    {
                        "input_text": seen["input_text"],
                        "status": seen["reference_status"],
                        "text": seen["reference_text"],
                    },
                )


def _cleaned(gold: dict[str, Any]) -> Iterator[Try]:
    status, other = gold["status"], {"KEEP": "DROP", "DROP": "KEEP"}[gold["status"]]
    for name, said, text in [
        ("right", status, gold["text"]),
        ("wrong", other, gold["text"]),
        ("part", status, gold["input_text"]),
    ]:
        yield Try(name, f"<status>{said}</status><clean_text>{text}</clean_text>")
    yield Try("broken", f"<status>{status}</status><clean_text>{gold['text']}")
    yield Try("empty")


# --- tables --------------------------------------------------------------------------------------

VARIANTS = {"class": ("IF", "MM"), "reg": ("IF", "MM"), "ts": ("XF", "CF")}


def _dare() -> Iterator[tuple[Task, list[Try]]]:
    from rewards.dare.score import read_gold

    for folder in sorted((SHARED / "dare" / "tasks" / "databases").glob("*")):
        for variant in VARIANTS[folder.name.rpartition("_")[2]]:
            gold = read_gold({"task_dir": str(folder), "variant": variant})
            shown = {
                "task_type": gold.task_type,
                "truth_csv": gold.truth_csv,
                "key_columns": list(gold.key_columns),
                "targets": list(gold.targets),
            }
            task = _task(f"{folder.name}-{variant}", "table", gold.task_type, shown)
            yield task, list(_predicted(gold.truth_csv))


def _predicted(truth: str) -> Iterator[Try]:
    lines = truth.splitlines(keepends=True)
    for name, said in [
        ("right", truth),
        ("wrong", lines[0] + lines[1] + "".join(lines[1:-1])),
        ("part", "".join(lines[:-1])),
        ("broken", lines[0] + '"\x00,,,,\n'),
    ]:
        files = {"prediction.csv": said.encode()}
        yield Try(name, "It is in the file.", files, {"prediction_csv": said})
    yield Try("empty", "I could not.")


# --- questions over lakes ------------------------------------------------------------------------


def _krama() -> Iterator[tuple[Task, list[Try]]]:
    from data_gen.krama.importer import end_to_end, read_workload, sub_task

    for name in ("verified", "other"):
        path = SHARED / "krama" / "data" / f"workload_{name}.json"
        for entry in read_workload(path) if path.is_file() else []:
            made = [end_to_end(entry, "lake", "full", [])]
            made += [sub_task(entry, step, "lake", "full", []) for step in entry.steps]
            for task in made:
                yield task, list(_answered(task.gold["answer"]))


def _answered(gold: Any) -> Iterator[Try]:
    wrong = "no such thing" if isinstance(gold, str) else [gold, gold]
    for name, answer in [("right", gold), ("wrong", wrong), ("broken", {"a": None})]:
        said = {"answer": answer}
        yield Try(name, json.dumps(said), {}, {"response": said})
        left = {"answer.json": json.dumps({"response": said}).encode()}
        yield Try(f"{name} in a file", "done", left, {"response": said})
    yield Try("empty", "", {}, {"response": {}})
