"""What a long command says of itself."""

from __future__ import annotations

import io

from rewards.progress import LINE_S, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_log_gets_a_plain_line_now_and_then() -> None:
    said, clock = io.StringIO(), Clock()
    with Progress("assay score", 1000, said, clock) as bar:
        bar.update(10, 10)
        assert said.getvalue() == ""
        clock.now = LINE_S
        bar.update(290, 250)
        bar.update(10, 260)
    assert said.getvalue() == "assay score: 300 rows, 10 rows/s, 25 %, 0:01:30 left\n"


def test_a_terminal_gets_a_bar_that_is_drawn_over() -> None:
    said, clock = Terminal(), Clock()
    with Progress("assay score", 100, said, clock) as bar:
        clock.now = 3.0
        bar.update(50)
        clock.now = 6.0
        bar.update(50)
    parts = said.getvalue().split("\r\x1b[K")
    assert "50 %, 0:00:03 left [############............]" in parts[1]
    assert parts[-1] == "assay score: 100 rows, 17 rows/s, 100 % [########################]\n"


def test_work_that_is_soon_done_says_nothing() -> None:
    said, clock = Terminal(), Clock()
    with Progress("assay score", 5, said, clock) as bar:
        clock.now = 1.0
        bar.update(5)
    assert said.getvalue() == ""


def test_without_a_total_there_is_no_time_left() -> None:
    clock = Clock()
    bar = Progress("assay score", None, io.StringIO(), clock)
    clock.now = 2.0
    bar.update(5000)
    assert bar.line() == "assay score: 5,000 rows, 2,500 rows/s"
