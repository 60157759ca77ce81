"""What a long stage says where there is no terminal."""

from __future__ import annotations

import io

import pytest

from data_gen import progress
from data_gen.progress import Progress


def test_lines_with_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    now = iter([0.0, 5.0, 20.0, 30.0, 40.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with Progress("facts", "documents", 4_000, out) as made:
        made.add(500)
        made.add(500)
        made.add(3_000)
    assert out.getvalue().splitlines() == [
        "facts: 1,000 of 4,000 documents, 50 a second, 0:01:00 left",
        "facts: 4,000 of 4,000 documents, 100 a second",
    ]


def test_short_work_says_nothing() -> None:
    out = io.StringIO()
    with Progress("facts", "documents", to=out) as made:
        made.add(3)
    assert out.getvalue() == ""
