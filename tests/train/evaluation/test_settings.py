"""What an evaluation records of how its model was asked."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from train.evaluation.settings import asked_how, thinking


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"chat_template_kwargs": {"enable_thinking": True}}, True),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"chat_template_kwargs": {"other": 1}}, None),
        ({"chat_template_kwargs": None}, None),
        ({}, None),
    ],
)
def test_thinking_is_what_the_request_says(fields: dict[str, Any], said: bool | None) -> None:
    args = Namespace(model="http://host/v1", request_fields=fields)
    assert thinking(args) is said


def test_thinking_of_a_folder_is_what_its_template_is_given(tmp_path: Path) -> None:
    (tmp_path / "chat_template_kwargs.json").write_text(json.dumps({"enable_thinking": False}))
    assert thinking(Namespace(model=str(tmp_path), request_fields={})) is False
    on = {"chat_template_kwargs": {"enable_thinking": True}}
    assert thinking(Namespace(model=str(tmp_path), request_fields=on)) is True


def test_a_comparison_names_how_models_were_asked_and_not_which() -> None:
    meta = {"settings": {"mode": "direct", "model": "a", "weights": "b"}, "thinking": True}
    assert asked_how(meta) == {"mode": "direct", "thinking": True, "words": "ours"}
    words = {"refinement": {"source": "release", "hash": "ab", "known": "Bench 1"}}
    assert asked_how(meta | {"words": words})["words"] == "Bench 1"
    assert asked_how({}) == {"thinking": None, "words": "ours"}
