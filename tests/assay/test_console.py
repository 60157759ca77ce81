"""What a long command says of itself."""

from __future__ import annotations

import io

import pytest

from assay import console
from assay.console import Layout, Parser, Progress


def test_a_log_gets_lines_with_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "EVERY_S", 0.0)
    said = io.StringIO()
    with Progress("facts", "documents", 4_000, said, done=1_000) as bar:
        bar.note("outcome 0.41")
        bar.add(1_000)
        bar.add(2_000)
    bytes_ = io.StringIO()
    Progress("score", "rows", 1000, bytes_).add(300, place=250)  # of 1000 bytes
    assert bytes_.getvalue().splitlines()[-1].startswith("score: 300 rows:  25%")
    lines = said.getvalue().splitlines()
    assert "2000/4000" in lines[1] and "4000/4000" in lines[-1]
    assert all("facts" in line and "documents/s" in line and "0.41" in line for line in lines[1:])


def test_work_that_is_soon_done_says_nothing() -> None:
    said = io.StringIO()
    with Progress("facts", "documents", 5, said) as bar:
        bar.add(5)
    assert said.getvalue().strip() == ""


def test_help_names_the_defaults_that_say_something() -> None:
    parser = Parser(prog="x", formatter_class=Layout)
    parser.add_argument("folder", nargs="?", default="runs", help="a folder")
    parser.add_argument("files", nargs="*", default=["a"], help="files")
    parser.add_argument("--seed", default=0, help="of draws")
    parser.add_argument("--all", action="store_true", help="everything")
    said = " ".join(parser.format_help().split())
    assert "a folder (default: runs) files files" in said and said.count("(default:") == 2
