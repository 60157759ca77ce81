"""Every operator is described in words."""

from __future__ import annotations

from rewards.gold import OPERATORS
from rewards.gold.catalog import described


def test_every_operator_is_described_with_an_example() -> None:
    for operator in OPERATORS.values():
        assert described(operator)["summary"].endswith(".")
        assert described(operator)["example"]["text"]
        assert (operator.dj is None) == ("difference" not in described(operator))
