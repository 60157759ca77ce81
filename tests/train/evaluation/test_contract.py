"""How many tokens one message of a benchmark may have."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
from mixed_tasks import refinement, table

from rollouts.engines.server.process import EMBEDDED
from rollouts.prompts import ChatTokenizer
from train.evaluation import cdr, dare
from train.evaluation.answering import _say_context  # pyright: ignore[reportPrivateUsage]


def asked(**given: object) -> Namespace:
    usual = {"max_new_tokens": 0, "turns": 0, "run_s": 0.0, "max_length": 0}
    return Namespace(**usual | {"engine": EMBEDDED, "device": "cpu"} | given)


@pytest.mark.parametrize(
    ("given", "text", "episode"),
    [
        ({}, 4096, 4096),
        ({"engine": "vllm"}, 32_768, 16_384),
        ({"engine": "sglang"}, 32_768, 16_384),
        ({"max_new_tokens": 32_768}, 32_768, 32_768),
        ({"engine": "vllm", "max_new_tokens": 9}, 9, 9),
    ],
)
def test_a_folder_model_has_the_papers_bounds_but_for_a_cpu(
    tiny_folder: Path, given: dict[str, object], text: int, episode: int
) -> None:
    words = ChatTokenizer(tiny_folder)
    task = refinement(1, "KEEP", 0)
    task.gold["instance_id"] = "i"
    assert cdr.plan(task, asked(**given), words).tokens == text
    assert dare.plan(table(), asked(**given), words).tokens == episode


def test_an_endpoint_has_its_own_bound_or_the_papers(tiny_folder: Path) -> None:
    task = refinement(1, "KEEP", 0)
    task.gold["instance_id"] = "i"
    assert cdr.plan(task, asked(), None).tokens == 0
    assert dare.plan(table(), asked(), None).tokens == 16_384


def test_a_model_that_reads_less_than_it_may_write_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 8192}')
    _say_context([tmp_path], [96, 32_768])
    assert "reads 8,192 tokens: an answer, which may have 32,768" in capsys.readouterr().out
    for folders, rooms in (([tmp_path], [4096]), ([], [32_768]), ([tmp_path / "x"], [32_768])):
        _say_context(folders, rooms)
    assert capsys.readouterr().out == ""
