"""A worded unit gives the lines that its rows and tasks have, whatever its texts hold."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from assay.task import json_line
from configs.cdr import CdrConfig, InstructConfig
from data_gen.cdr.lines import Lines, lines_of
from data_gen.cdr.records import Record, Replays
from data_gen.cdr.rows import tasks_of
from data_gen.cdr.units import MAIN, ORDER, Instance, RowPlan, executed
from data_gen.cdr.write import Written, word
from rewards.gold import execute

PARAMS = {"words_num_filter": {"min_num": 3}}
PLAN = RowPlan(
    MAIN,
    "agnostic_m",
    "main",
    ("r__v",),
    ("clean_email_mapper", "words_num_filter"),
    filter_params=PARAMS,
    threshold_meta={"filter_name": "words_num_filter"},
    recipe_id="r",
    recipe_type="filter-then-clean",
)
GROUP = [
    replace(
        PLAN,
        kind=ORDER,
        track="order_f",
        made_as="order_sensitivity",
        names=(slot,),
        slot=slot,
        family_id="f",
    )
    for slot in ("front", "middle")
]
MODES = ("direct", "few_shot", "plan_first", "state_aware")
TEXTS = {
    "plain": "Write to ana@acme.io about the words in here, and to bob@acme.io.",
    "control": "\x00\x01 mail ana@acme.io \\u0001 \\u000 and \x02\x03 more words",
    "line ends": "one\u2028two ana@acme.io three\u0085four",
    "surrogate": "lone \ud800 ana@acme.io with é and some words",
    "quotes": '"split": "", "split": "train", "text": "" ana@acme.io a b c',
}


def unit(text: str, name: str = "d1", group: bool = False) -> list[Instance]:
    record = Record(name, "web", text, source="src", licence="CC0")
    plans = GROUP if group else [PLAN]
    status = execute(text, PLAN.steps).status
    return [executed(Instance(plan, record, status), Replays()) for plan in plans]


def made(rows: list[Instance], done: Written, config: InstructConfig) -> list[Lines]:
    """The lines, as they are when they were on disk."""
    return pickle.loads(pickle.dumps(lines_of(rows, done, CdrConfig(instruct=config))))


def direct(rows: list[Instance], done: Written, side: str, config: InstructConfig) -> Any:
    """The lines made one by one."""
    files: list[tuple[str, bytes]] = []
    for one, row, asked in zip(rows, done.rows, done.asked, strict=True):
        files.append((f"tracks/{row['source_track']}.jsonl", json_line(row)))
        tasks = tasks_of(one, row, asked, side, config.mode) if side else []
        if side:
            files.append((f"{side}.jsonl", b"".join(json_line(t.to_json()) for t in tasks)))
    return files


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("text", list(TEXTS))
@pytest.mark.parametrize("count", [1, 4])
def test_lines_are_those_of_rows_and_tasks(mode: Any, text: str, count: int) -> None:
    config = InstructConfig(mode=mode, variants_per_task=count)
    for group in (False, True):
        rows = unit(TEXTS[text], group=group)
        done = word(rows, config, {})
        assert not done.refused
        lines = made(rows, done, config)
        for side in ("train", "validation", "heldout", ""):
            files = [file for one in lines for file in one.files(side)]
            assert files == direct(rows, done, side, config)


@pytest.mark.parametrize("name", ["d\x01", "\\u0002", '", "split": "', "\ud800", "d \u2028"])
def test_names_that_look_like_json_change_nothing(name: str) -> None:
    config = InstructConfig()
    rows = unit(TEXTS["plain"], name)
    done = word(rows, config, {})
    (line,) = made(rows, done, config)
    assert list(line.files("train")) == direct(rows, done, "train", config)


def test_rows_of_all_prompts_and_counts() -> None:
    config = InstructConfig(all_prompts=True, variants_per_task=2)
    rows = unit(TEXTS["plain"])
    done = word(rows, config, {})
    (line,) = made(rows, done, config)
    names = [name for name, _ in line.files("train")]
    assert names == [
        *("tracks/agnostic_m.jsonl", "tracks_all_prompts/agnostic_m.jsonl", "train.jsonl")
    ]
    counts = Counter(line.counted("train"))
    assert counts["split train"] == counts["rows"] == 1
    assert counts["tasks of train agnostic_m"] == 2
    status = done.rows[0]["reference_status"]
    assert counts[f"filter and status of train words_num_filter:{status}"] == 2
    assert sum(n for name, n in counts.items() if name.startswith("styles of train")) == 2
    nowhere = Counter(line.counted(""))
    assert nowhere["split unused"] == 1 and len(list(line.files(""))) == 2
