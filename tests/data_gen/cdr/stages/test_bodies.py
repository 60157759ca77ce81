"""A worded unit gives the lines that its rows and tasks have, whatever its texts hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from assay.task import json_line
from configs.cdr import InstructConfig
from data_gen.cdr.records import Record
from data_gen.cdr.rows import PlannedRow, planned_instances, tasks_of
from data_gen.cdr.stages.bodies import Sizes, packed, unpacked
from data_gen.cdr.tracks import Instance
from data_gen.cdr.write import Written, word
from rewards.gold import Step, execute

STEPS = ("clean_email_mapper", "words_num_filter")
PARAMS = {"words_num_filter": {"min_num": 3}}
MODES = ("direct", "few_shot", "plan_first", "state_aware")
TEXTS = {
    "plain": "Write to ana@acme.io about the words in here, and to bob@acme.io.",
    "control": "\x00\x01 mail ana@acme.io \\u0001 \\u000 and \x02\x03 more words",
    "line ends": "one\u2028two ana@acme.io three\u0085four",
    "surrogate": "lone \ud800 ana@acme.io with é and some words",
    "quotes": '"split": "train", "text": "" ana@acme.io a b c',
}


def unit(text: str, name: str = "d1", group: bool = False) -> list[PlannedRow]:
    recipe = [Step(step, dict(PARAMS.get(step, {}))) for step in STEPS]
    done = execute(text, recipe)
    row = Instance(
        "main",
        f"i-{name}",
        Record(name, "web", text, source="src", licence="CC0"),
        STEPS,
        done.status,
        done.text,
        PARAMS,
        {"filter_name": "words_num_filter"},
        "r",
        "r__v",
        "filter-then-clean",
        domain="web",
    )
    if not group:
        return planned_instances([row], True, 3)
    rows = [
        replace(
            row,
            track="order_sensitivity",
            id=f"{row.id}-{slot}",
            slot=slot,
            group="g",
            full_run=done.full_run_text,
        )
        for slot in ("front", "middle")
    ]
    return planned_instances(rows, True, 3)


def direct(rows: list[PlannedRow], done: Written, sides: list[str], config: InstructConfig) -> Any:
    """The lines made one by one."""
    files: list[tuple[str, bytes]] = []
    for planned, row, asked, side in zip(rows, done.rows, done.asked, sides, strict=True):
        files.append((f"tracks/{row['source_track']}.jsonl", json_line(row)))
        tasks = tasks_of(planned, row, asked, side, config.mode) if side else []
        files += [(f"{side}.jsonl", json_line(task.to_json())) for task in tasks]
    return files


def written(files: list[tuple[str, bytes]]) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for name, data in files:
        sizes[name] += len(data)
    return sizes


def counted(rows: list[PlannedRow], sizes: list[Sizes], side: str) -> Counter[str]:
    """What is known of the files before the lines are made."""
    found: Counter[str] = Counter()
    for planned, size in zip(rows, sizes, strict=True):
        for name, count in size.in_files(planned.track, side):
            found[name] += count
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("text", list(TEXTS))
@pytest.mark.parametrize("count", [1, 4])
def test_lines_are_those_of_rows_and_tasks(mode: Any, text: str, count: int) -> None:
    config = InstructConfig(mode=mode, variants_per_task=count)
    for group in (False, True):
        rows = unit(TEXTS[text], group=group)
        done = word(rows, config, {})
        assert not done.refused
        data, sizes = packed(rows, done, config)
        for side in ("train", "validation", "heldout", ""):
            sides = [side] * len(rows)
            files = unpacked(data, sides, config).files
            assert files == direct(rows, done, sides, config)
            assert counted(rows, sizes, side) == written(files)


@pytest.mark.parametrize("name", ["d\x01", "\\u0002", "\ud800", "d \u2028"])
def test_names_that_look_like_marks_change_nothing(name: str) -> None:
    config = InstructConfig()
    rows = unit(TEXTS["plain"], name)
    done = word(rows, config, {})
    found = unpacked(packed(rows, done, config)[0], ["train"], config)
    assert found.files == direct(rows, done, ["train"], config)


def test_rows_of_all_prompts_and_counts() -> None:
    config = InstructConfig(all_prompts=True, variants_per_task=2)
    rows = unit(TEXTS["plain"])
    done = word(rows, config, {})
    found = unpacked(packed(rows, done, config)[0], ["train"], config)
    names = [name for name, _ in found.files]
    assert (
        names
        == ["tracks/agnostic_m.jsonl", "tracks_all_prompts/agnostic_m.jsonl"] + ["train.jsonl"] * 2
    )
    assert found.counts["split train"] == found.counts["rows"] == 1
    assert found.counts["tasks of train agnostic_m"] == 2
    status = done.rows[0]["reference_status"]
    assert found.counts[f"filter and status of train words_num_filter:{status}"] == 2
    assert sum(n for name, n in found.counts.items() if name.startswith("styles of train")) == 2
    nowhere = unpacked(packed(rows, done, config)[0], [""], config)
    assert nowhere.counts["split unused"] == 1 and len(nowhere.files) == 2
