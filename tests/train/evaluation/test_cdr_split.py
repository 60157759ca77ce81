"""`cdr:DIR` asks the held-out rows of a build, whoever answers, and results have slices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from front import command

evaluate = command("eval")


def row(number: int, status: str, steps: list[str], slot: str) -> dict[str, Any]:
    text = f"Text {number} has x{number}@a.org in it."
    return {
        "instance_id": f"i{number}",
        "benchmark_track": "order_f",
        "benchmark_split": "single",
        "reports_refinement_gain": True,
        "track_family": "core_rule",
        "source_track": "order_f",
        "domain": "web" if number % 2 else "law",
        "scoring_profile": "text_refinement",
        "output_format": "tagged_text",
        "input_text": text,
        "operator_sequence": steps,
        "order_slot": slot,
        "reference_status": status,
        "reference_text": text,
        "difficulty_label": "hard" if number % 3 else "easy",
        "recipe_prompt_key": "k",
        "prompt_variants": [{"style_id": "qa", "style_label": "q", "user_requirement": "Clean."}],
    }


@pytest.fixture
def build(tmp_path: Path) -> Path:
    folder = tmp_path / "build"
    (folder / "tracks").mkdir(parents=True)
    rows = [
        row(i, "DROP" if i % 2 else "KEEP", ["text_length_filter", "clean_email_mapper"], "pre")
        for i in range(8)
    ]
    rows += [row(i, "KEEP", ["clean_email_mapper"], "") for i in range(8, 12)]
    (folder / "tracks" / "order_f.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    for name, numbers in (("train", range(4)), ("heldout", range(4, 12))):
        lines = "".join(json.dumps({"id": f"i{n}"}) + "\n" for n in numbers)
        (folder / f"{name}.jsonl").write_text(lines)
    return folder


@pytest.mark.parametrize("model", ["gold", "empty", "cheat:drop", "cheat:filter means drop"])
def test_only_held_out_rows_are_asked_and_said(
    build: Path, tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--tasks", f"cdr:{build}", "--model", model, "--out", str(tmp_path / "o")]
    assert evaluate([*words, "cdr.k=1"]) == 0
    found = json.loads((tmp_path / "o" / "results.json").read_text())
    assert {r["task_id"] for r in found["rows"]} == {f"i{n}#0" for n in range(4, 12)}
    assert found["meta"]["heldout"] and found["meta"]["rows_left_out"] == 4
    said = capsys.readouterr().out
    assert f"split: the held-out split of {build} (8 rows)" in said and "8 held-out tasks" in said


def test_all_rows_are_not_called_held_out(build: Path, tmp_path: Path) -> None:
    words = ["--tasks", f"cdr:{build}", "--model", "gold", "--out", str(tmp_path / "o")]
    assert evaluate([*words, "cdr.k=1", "cdr.all_rows=true"]) == 0
    found = json.loads((tmp_path / "o" / "results.json").read_text())
    assert len(found["rows"]) == 12 and not found["meta"]["heldout"]
    assert "training rows among them" in found["meta"]["splits"][0]
    page = (tmp_path / "o" / "report.html").read_text()
    assert "<h2>Results</h2>" in page and "training rows among them" in page


def test_rows_have_what_results_are_cut_by(build: Path, tmp_path: Path) -> None:
    words = ["--tasks", f"cdr:{build}", "--model", "cheat:drop", "--out", str(tmp_path / "o")]
    assert evaluate([*words, "cdr.k=1"]) == 0
    found = json.loads((tmp_path / "o" / "results.json").read_text())
    slices = found["tables"]["by_slice"]["refinement"]
    assert {name: sorted(values) for name, values in slices.items()} == {
        "track": ["order_f"],
        "gold status": ["DROP", "KEEP"],
        "kept": ["no filter", "with a filter"],
        "input characters": ["≤ 500"],
        "recipe steps": ["1", "2"],
        "filter": ["no filter", "with a filter"],
        "filter place": ["before the mappers"],
        "domain": ["law", "web"],
        "style": ["qa"],
        "difficulty": ["easy", "hard"],
        "mode": ["direct"],
    }
    shortcut = found["baselines"]["cheat:filter means drop"]["by_slice"]["refinement"]["filter"]
    assert shortcut["with a filter"]["mean_outcome"] == 0.5
    assert shortcut["no filter"]["mean_outcome"] == 1.0
