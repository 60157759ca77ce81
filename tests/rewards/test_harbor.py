"""Scores of what a verifier left."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import tables

from assay.family import score_answer
from assay.task import Answer, Score, Task
from rewards.harbor import REWARD, read_rewards

TABLES = tables("rewards")

TASK = Task("t", "harbor", "harbor", "train", [], {"oracle": {"reward": 1.0}})


def score(data: bytes) -> Score:
    return score_answer(TASK, Answer(files={REWARD: data}))


@pytest.mark.parametrize(("said", "outcome", "reward"), TABLES["numbers_are_read_by_name"])
def test_numbers_are_read_by_name(said: object, outcome: float, reward: float) -> None:
    made = score(json.dumps(said).encode())
    assert (made.outcome, made.reward) == (outcome, reward)


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[1]", b'{"reward": NaN}', b'{"reward": "1"}', b"\xff", b"[" * 99999, b"null"],
)
def test_what_no_verifier_wrote_earns_nothing(data: bytes) -> None:
    made = score(data)
    assert (made.outcome, made.reward) == (0.0, 0.0) and made.why.startswith("unreadable")
    with pytest.raises(ValueError):
        read_rewards(data)  # where an episode meets it, there is no outcome


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    made = score(data)
    assert made.outcome is not None and 0 <= made.outcome <= 1
