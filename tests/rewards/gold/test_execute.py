"""`assay execute` as a user runs it: rows in and out, and how rows and files can be bad."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from front import command
from places import ROOT

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


def test_rows_keep_their_order_over_workers(tmp_path: Path) -> None:
    rows = [{"id": i, "input_text": f"{i} a@b.co", "recipe": EMAIL} for i in range(300)]
    status, out = run(rows, tmp_path, "--workers", "2")
    assert status == 0
    assert [(r["id"], r["reference_text"]) for r in out] == [(i, f"{i} ") for i in range(300)]
    assert list(out[0]) == ["id", "status", "reference_text", "reference_text_full_run", "trace"]


def test_bad_rows_are_answered_and_the_others_go_on(tmp_path: Path) -> None:
    good = {"id": "g", "input_text": "x", "recipe": EMAIL}
    bad: list[Any] = [
        "nonsense",
        "[1]",
        {"input_text": "x", "recipe": EMAIL},
        {"id": 1, "input-text": "x", "recipe": EMAIL},
        {"id": 2, "input_text": "x"},
        {"id": 3, "input_text": "x", "recipe": [{"operator": "clean_emails_mapper"}]},
        {"id": 4, "input_text": "x", "recipe": [{"operator": "clean_ip_mapper", "parms": {}}]},
        {"id": 5, "input_text": "x", "recipe": EMAIL, "profile": "dk"},
        {"id": 6, "input_text": "x", "recipe": [{"operator": "clean_ip_mapper", "params": []}]},
    ]
    status, out = run([row for b in bad for row in (b, good)], tmp_path)
    assert status == 3
    assert [r["status"] for r in out[1::2]] == ["KEEP"] * len(bad)
    errors = out[::2]
    assert all(list(r) == ["id", "error"] for r in errors)
    assert [r["id"] for r in errors] == [None, None, None, 1, 2, 3, 4, 5, 6]
    wanted = [
        "line 1: not valid JSON",
        "line 3: wanted a JSON object, got list",
        "line 5: field 'id' is missing",
        "field 'input_text' is missing, wanted a string; did you mean 'input-text'?",
        "field 'recipe' is missing",
        "did you mean 'clean_email_mapper'?",
        "recipe step 0: no field 'parms'; did you mean 'params'?",
        "field 'profile' is 'dk', wanted one of bench, dj",
        "recipe step 0: field 'params' is list, wanted an object",
    ]
    for row, part in zip(errors, wanted, strict=True):
        assert part.rstrip("?") in row["error"]


def test_endless_row_is_an_infrastructure_error_and_no_neighbour_is_lost(tmp_path: Path) -> None:
    rows: list[Any] = [{"id": i, "input_text": "a@b.co", "recipe": EMAIL} for i in range(9)]
    rows[4] = {"id": "endless", **ENDLESS}
    status, out = run(rows, tmp_path, "--deadline", "0.5")
    assert status == 3
    assert [r["id"] for r in out] == [0, 1, 2, 3, "endless", 5, 6, 7, 8]
    assert "line 5: infrastructure: timeout" in out[4]["error"]
    assert {r["reference_text"] for r in out if "error" not in r} == {""}


def test_word_list_profile_states_and_gzip(tmp_path: Path) -> None:
    stopwords = {"operator": "stopwords_filter", "params": {"word_list": ["the"]}}
    bare = {"operator": "stopwords_filter"}
    two_words = {"operator": "words_num_filter", "params": {"min_num": 2}}
    rows: list[dict[str, Any]] = [
        {"id": 1, "input_text": "The cat", "recipe": [stopwords, *EMAIL]},
        {"id": 2, "input_text": "The cat", "recipe": [bare], "word_list": ["cat"]},
        {"id": 3, "input_text": "a 😀", "recipe": [two_words]},
        {"id": 4, "input_text": "a 😀", "recipe": [two_words], "profile": "bench"},
    ]
    source, target = tmp_path / "in.jsonl.gz", tmp_path / "out.jsonl"
    with gzip.open(source, "wt", encoding="utf-8") as stream:
        stream.write("\n\n".join(map(json.dumps, rows)))
    assert main([str(source), str(target), "--profile", "dj", "--states"]) == 0
    out = read(target)
    assert [r["status"] for r in out] == ["KEEP", "KEEP", "DROP", "KEEP"]
    assert out[0]["trace"][0]["stats"] == {"stopwords_ratio": 0.5}
    assert out[0]["states"] == ["The cat", "The cat"]


def test_odd_characters_survive_standard_input_and_output() -> None:
    text = "\u2028\r\x85 \ud800 \0 é"
    row = json.dumps({"id": "r", "input_text": text, "recipe": EMAIL})
    command = [sys.executable, "-m", "rewards.gold.cli"]
    done = subprocess.run(command, input=row.encode(), capture_output=True, cwd=ROOT, check=False)
    assert done.returncode == 0
    assert json.loads(done.stdout)["reference_text"] == text


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    target.write_text("before")
    assert main([str(tmp_path / "missing.jsonl"), str(target)]) == 2
    assert target.read_text() == "before"
    source = write(tmp_path / "in.jsonl", [{"id": 1, "input_text": "x", "recipe": EMAIL}])
    assert main([str(source), str(tmp_path / "no" / "folder.jsonl")]) == 2
    assert main([str(source), str(target)]) == 0
    assert sorted(os.listdir(tmp_path)) == ["in.jsonl", "out.jsonl"]


def test_recipe_file_in_three_spellings(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [{"id": 1, "input_text": "a@b.co 1.2.3.4"}])
    for text in (
        "- clean_email_mapper\n- clean_ip_mapper: {repl: IP}\n",
        "profile: bench\nrecipe:\n- operator: clean_email_mapper\n"
        "- {operator: clean_ip_mapper, params: {repl: IP}}\n",
        "project_name: x\nprocess:\n- clean_email_mapper:\n- clean_ip_mapper:\n    repl: IP\n",
    ):
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text(text)
        target = tmp_path / "out.jsonl"
        assert main([str(source), str(target), "--recipe", str(recipe)]) == 0
        assert read(target)[0]["reference_text"] == " IP"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recepi: []\n", "no field 'recepi'; did you mean 'recipe'?"),
        ("recipe: 3\n", "wanted a list of steps"),
        ("- 3\n", "recipe step 0 is int"),
        ("a: [\n", "cannot be read as YAML"),
    ],
)
def test_bad_recipe_file_is_named(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(text)
    assert main(["-", "-", "--recipe", str(recipe)]) == 2
    said = capsys.readouterr().err
    assert f"{recipe}: " in said
    assert message in said
