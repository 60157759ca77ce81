"""What a long command says of itself."""

from __future__ import annotations

import io

import pytest

from assay import console
from assay.console import EVERY_S, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_log_gets_lines_with_rate_and_time_left() -> None:
    said, clock = io.StringIO(), Clock()
    with Progress("facts", "documents", 4_000, said, clock) as bar:
        bar.add(500)
        clock.now = EVERY_S + 5
        bar.add(500)
        clock.now = 40.0
        bar.add(3_000)
    assert said.getvalue().splitlines() == [
        "facts: 1,000 of 4,000 documents, 50 a second, 0:01:00 left",
        "facts: 4,000 of 4,000 documents, 100 a second",
        "facts: 4,000 of 4,000 documents, 100 a second",
    ]


def test_a_total_of_bytes_gives_the_share_and_the_time_left() -> None:
    said, clock = io.StringIO(), Clock()
    bar = Progress("assay score", "rows", 1000, said, clock)
    bar.add(10, place=10)
    assert said.getvalue() == ""
    clock.now = 30.0
    bar.add(290, place=250)
    assert said.getvalue() == "assay score: 300 rows, 10 a second, 25%, 0:01:30 left\n"


def test_without_a_total_there_is_no_time_left() -> None:
    clock = Clock()
    bar = Progress("assay score", "rows", None, io.StringIO(), clock)
    bar.add(5000)
    assert bar.line(2.0) == "assay score: 5,000 rows, 2,500 a second"


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_work_that_is_soon_done_says_nothing(kind: type[io.StringIO]) -> None:
    said = kind()
    with Progress("facts", "documents", 5, said) as bar:
        bar.add(5)
    assert said.getvalue().strip() == ""


def test_a_terminal_gets_a_bar_that_is_drawn_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "FIRST_S", 0.0)
    said = Terminal()
    with Progress("facts", "documents", 4, said) as bar:
        bar.add(2)
        bar.add(2)
    last = said.getvalue().split("\r")[-1]
    assert "facts: 100%" in last and "4/4" in last and "\n" not in last.rstrip("\n")


def test_items_are_counted_as_they_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(console.progress(range(5), "counting", "numbers")) == [0, 1, 2, 3, 4]
    assert capsys.readouterr() == ("", "")


def test_what_is_known_so_far_stands_behind_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    bar = Progress("evaluating", "answers", 100, io.StringIO(), clock)
    bar.note("outcome 0.41")
    bar.add(50)
    assert bar.line(10.0) == "evaluating: 50 of 100 answers, 5 a second, 0:00:10 left, outcome 0.41"
    monkeypatch.setattr(console, "FIRST_S", 0.0)
    said = Terminal()
    with Progress("facts", "documents", 4, said) as drawn:
        drawn.note("outcome 0.41")
        drawn.add(4)
    assert "outcome 0.41" in said.getvalue()


def test_what_was_done_before_counts_but_not_in_the_rate() -> None:
    bar = Progress("SFT", "steps", 100, io.StringIO(), Clock(), done=40)
    bar.add(10)
    assert bar.line(10.0) == "SFT: 50 of 100 steps, 1 a second, 0:00:50 left"
