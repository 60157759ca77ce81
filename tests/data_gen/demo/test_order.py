"""Order groups: both tracks, the same text, golds that differ where the order decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.task import Task, read_tasks
from data_gen.corpora import read_corpus
from data_gen.demo.cli import order
from data_gen.demo.order import OrderSettings, build_order_tasks
from data_gen.demo.refinements import BRIEF
from data_gen.demo.wording import read_requirement
from rewards.gold import execute
from rewards.parse import normalise

FEW = OrderSettings(train_sft=8, train_rl=20, heldout=4, validation=2, mapper_share=0.5, brief=True)


@pytest.fixture(scope="module")
def splits() -> dict[str, list[Task]]:
    return build_order_tasks(read_corpus(None), FEW, 0)


def test_half_of_the_groups_swap_two_mappers(splits: dict[str, list[Task]]) -> None:
    tasks = splits["train_rl"]
    assert [t.track for t in tasks].count("order_m") == len(tasks) / 2
    for task in tasks:
        swapped = task.track == "order_m"
        assert task.meta["has_filter"] != swapped
        assert task.meta["order_slot"] in (
            ("canonical", "swap_0_1") if swapped else ("pre", "post")
        )
        assert task.prompt[0]["content"] == BRIEF
        run = execute(task.gold["input_text"], read_requirement(task.meta["requirement"]))
        assert (run.status, run.text) == (task.gold["status"], task.gold["text"])


def test_siblings_share_the_text_and_differ_where_the_order_decides(
    splits: dict[str, list[Task]],
) -> None:
    for tasks in splits.values():
        for one, other in zip(tasks[::2], tasks[1::2], strict=True):
            assert one.group == other.group and one.track == other.track
            assert one.gold["input_text"] == other.gold["input_text"]
            assert one.gold["recipe"] == other.gold["recipe"][::-1]
            same = normalise(one.gold["text"]) == normalise(other.gold["text"])
            assert same == (not one.meta["sensitive"])


def test_swapped_mappers_leave_the_sentence_once_or_twice(splits: dict[str, list[Task]]) -> None:
    for task in (t for t in splits["train_rl"] if t.track == "order_m"):
        text = normalise(task.gold["text"])
        half = text[: (len(text) - 1) // 2]
        twice = text == f"{half} {half}"
        assert twice == (task.meta["order_slot"] == "swap_0_1")
        assert task.gold["status"] == "KEEP"


@pytest.mark.parametrize(
    ("asked", "groups"), [([], 2), (["validation=1"], 1), (["validation=0"], 0)]
)
def test_validation_is_a_third_of_heldout_unless_it_is_set(
    asked: list[str], groups: int, tmp_path: Path
) -> None:
    small = ["train_sft=2", "train_rl=2", "heldout=6", *asked]
    assert order(["--out", str(tmp_path / "made"), *small]) == 0
    written = tmp_path / "made" / "validation.jsonl"
    assert written.is_file() == (groups > 0)
    assert not groups or len(read_tasks(written)) == 2 * groups
