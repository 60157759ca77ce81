"""The running means of an evaluation, by hand."""

from __future__ import annotations

from train.evaluation.live import Tally


def test_means_classes_and_speed() -> None:
    now = [0.0]
    tally = Tally(lambda: now[0])
    assert tally.text() == ""
    rows = [
        {"outcome": 1.0, "reward": 1.0, "said": "KEEP", "tokens_out": 30},
        {"outcome": 0.0, "reward": 0.5, "said": "DROP", "tokens_out": 50},
        {"outcome": None, "reward": None, "said": None, "tokens_out": 0},
        {"outcome": 0.5, "reward": 0.3, "said": "KEEP", "tokens_out": 20},
    ]
    for row in rows:
        tally.add(row)
    now[0] = 10.0
    said = "outcome 0.50, reward 0.60, KEEP 50%, DROP 25%, no outcome 1, 10 tok/s"
    assert tally.text() == said
