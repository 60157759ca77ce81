"""`assay execute` as a user runs it: rows in and out, and how rows and files can be bad."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from front import command
from places import tables

TABLES = tables("gold")

main = command("execute")


EMAIL = [{"operator": "clean_email_mapper"}]
# Every `<` looks for its `>` to the end of the line: quadratic, longer than anyone waits.
ENDLESS = {"input_text": "<" * 400_000, "recipe": [{"operator": "clean_html_mapper"}]}


def write(path: Path, rows: list[Any]) -> Path:
    lines = [r if isinstance(r, str) else json.dumps(r) for r in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def run(rows: list[Any], tmp_path: Path, *options: str) -> tuple[int, list[dict[str, Any]]]:
    source, target = write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    return main([str(source), str(target), *options]), read(target)


def test_bad_rows_are_answered_and_the_others_go_on(tmp_path: Path) -> None:
    good = {"id": "g", "input_text": "x", "recipe": EMAIL}
    bad, ids, wanted = zip(*TABLES["bad_rows_are_answered"], strict=True)
    status, out = run([row for b in bad for row in (b, good)], tmp_path)
    assert status == 3
    assert [r["status"] for r in out[1::2]] == ["KEEP"] * len(bad)
    assert [(r["id"], list(r)) for r in out[::2]] == [(i, ["id", "error"]) for i in ids]
    assert [w for w, r in zip(wanted, out[::2], strict=True) if w not in r["error"]] == []


def test_word_list_profile_states_and_gzip(tmp_path: Path) -> None:
    rows, statuses = zip(*TABLES["rows_under_profile_dj"], strict=True)
    source, target = tmp_path / "in.jsonl.gz", tmp_path / "out.jsonl"
    with gzip.open(source, "wt", encoding="utf-8") as stream:
        stream.write("\n\n".join(json.dumps(row | {"id": n}) for n, row in enumerate(rows)))
    assert main([str(source), str(target), "--profile", "dj", "--states"]) == 0
    out = read(target)
    assert tuple(r["status"] for r in out) == statuses
    assert out[0]["trace"][0]["stats"] == {"stopwords_ratio": 0.5}
    assert out[0]["states"] == ["The cat", "The cat"]


def test_recipe_file_in_three_spellings(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [{"id": 1, "input_text": "a@b.co 1.2.3.4"}])
    for text in TABLES["spellings_of_a_recipe_file"]:
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text(text)
        target = tmp_path / "out.jsonl"
        assert main([str(source), str(target), "--recipe", str(recipe)]) == 0
        assert read(target)[0]["reference_text"] == " IP"


def test_fields_of_any_name_and_what_else_a_row_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("- clean_email_mapper\n- words_num_filter: {min_num: 2}\n")
    one = {"doc_id": "a", "body": "one a@b.co two", "language": "en", "status": "mine"}
    options = ["--recipe", str(recipe), "--id", "doc_id", "--text", "body"]
    status, out = run([one, {"doc_id": "b", "body": "one"}], tmp_path, *options)
    said = {"status": "KEEP", "reference_text": "one  two", "reference_text_full_run": "one  two"}
    assert status == 0 and out[0].pop("trace")
    assert out[0] == {"doc_id": "a", "language": "en", **said}
    assert "2 rows: kept 1, dropped 1, failed 0" in capsys.readouterr().err


def test_rows_that_kill_are_found_wherever_they_stand_in_a_batch(tmp_path: Path) -> None:
    rows: list[Any] = [{"id": i, "input_text": "a@b.co", "recipe": EMAIL} for i in range(70)]
    for at in (0, 1, 63, 69):
        rows[at] = {"id": f"endless {at}", **ENDLESS}
    status, out = run(rows, tmp_path, "--deadline", "0.3", "--workers", "2")
    assert status == 3
    failed = [r for r in out if "error" in r]
    assert [r["id"] for r in failed] == [f"endless {at}" for at in (0, 1, 63, 69)]
    assert all("infrastructure: timeout" in r["error"] for r in failed)
    assert [r["error"].split(":")[0] for r in failed] == ["line 1", "line 2", "line 64", "line 70"]
    assert sum(r.get("reference_text") == "" for r in out) == 66
