"""The operator page is what the code would write today."""

from __future__ import annotations

from places import ROOT

from rewards.gold import OPERATORS
from rewards.gold.docs import render

PAGE = ROOT / "docs" / "operators.md"


def test_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), (
        "run: python -m rewards.gold.docs > docs/operators.md"
    )


def test_every_operator_is_described_with_an_example() -> None:
    for operator in OPERATORS.values():
        assert operator.summary.endswith(".")
        assert operator.example[0]
        assert (operator.dj is None) == (operator.difference == "")
