"""A line per input of a build, and refused.jsonl."""

from __future__ import annotations

import io
import json
from pathlib import Path

from data_gen.tally import SHOWN, Input, lines, say_inputs


def test_every_input_has_a_line_and_refused_ones_come_first(tmp_path: Path) -> None:
    inputs = [Input("a.csv", 4, licence="MIT"), Input("b.csv", 0, ("no numbers", "no numbers"))]
    said = io.StringIO()
    say_inputs(inputs, tmp_path, said)
    assert said.getvalue().splitlines() == [
        "b.csv: refused, licence unknown: no numbers",
        "a.csv: used, 4 tasks, licence MIT",
        "inputs: 1 used, 1 refused",
    ]
    rows = [json.loads(line) for line in (tmp_path / "refused.jsonl").read_text().splitlines()]
    assert [(row["name"], row["used"], row["why"]) for row in rows] == [
        ("b.csv", False, ["no numbers"])
    ]


def test_an_input_used_in_part_keeps_its_reasons(tmp_path: Path) -> None:
    say_inputs([Input("a.csv", 2, ("column x is a key",))], tmp_path, io.StringIO())
    (row,) = map(json.loads, (tmp_path / "refused.jsonl").read_text().splitlines())
    assert row["used"] and row["tasks"] == 2 and row["why"] == ["column x is a key"]


def test_of_many_inputs_some_are_printed_and_all_are_counted(tmp_path: Path) -> None:
    said = lines([Input(f"{i}.csv", 1) for i in range(SHOWN + 3)], tmp_path)
    assert len(said) == SHOWN + 2
    assert said[-2].startswith("… and 3 more inputs") and said[-1].startswith(
        f"inputs: {SHOWN + 3}"
    )


def test_files_about_the_data_have_a_line_and_are_not_refused(tmp_path: Path) -> None:
    over = "passed over 1 file that is about the data or hidden: tables.yaml"
    said = lines(
        [Input("in/a.csv", 1), Input("in/.", 0, (over,)), Input(".", 0, (over,))], tmp_path
    )
    assert f"in: {over}" in said and f"the folder: {over}" in said
    assert said[-1] == "inputs: 1 used, 0 refused"
