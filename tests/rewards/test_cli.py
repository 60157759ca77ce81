import io
import json

import pytest
from front import command
from places import tables

from rewards.score import score_lines

TABLES = tables("rewards")

main = command("score")

TASK = {"input_text": "a x@y.z b", "reference_status": "KEEP", "reference_text": "a  b"}
GOLD = "<status>KEEP</status><clean_text>a b</clean_text>"


def row(**changes):
    return {"id": "1", "family": "refinement", "task": TASK, "output": GOLD} | changes


def run(rows, tmp_path, *extra):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(line + "\n" for line in rows), encoding="utf-8")
    status = main([str(source), "--out", str(target), *extra])
    return status, [json.loads(line) for line in target.read_text("utf-8").splitlines()]


def test_rows_are_scored_in_order(tmp_path):
    rows = [row(), row(id="2", output="a b"), row(id="3", output="a b", parsing="release")]
    status, out = run(map(json.dumps, rows), tmp_path)
    assert status == 0
    assert [(r["id"], r["outcome"], r["why"]) for r in out] == [
        ("1", 1.0, "ok"),
        ("2", 0.0, "no_answer"),
        ("3", 1.0, "ok"),
    ]
    assert set(out[0]) == {"id", "outcome", "reward", "parts", "why"}


@pytest.mark.parametrize(("line", "message"), TABLES["a_bad_row_is_named_and_the_rest_goes_on"])
def test_a_bad_row_is_named_and_the_rest_goes_on(line, message, tmp_path):
    status, out = run([line, "", json.dumps(row(id="good"))], tmp_path)
    assert status == 3
    assert message in out[0]["error"]
    assert (out[1]["id"], out[1]["reward"]) == ("good", 1.0)


def test_bytes_that_are_not_text_spoil_only_their_row(tmp_path):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(b"\xff\xfe\n" + json.dumps(row()).encode() + b"\n")
    assert main([str(source), "--out", str(target)]) == 3
    assert json.loads(target.read_text("utf-8").splitlines()[1])["outcome"] == 1.0


def test_standard_streams(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(row()) + "\n"))
    assert main(["-"]) == 0
    assert json.loads(capsys.readouterr().out)["reward"] == 1.0


def test_a_missing_file_is_named(capsys, tmp_path):
    assert main([str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl" in capsys.readouterr().err


def test_surrogates_in_an_output_are_scored():
    line = json.dumps(row(output="<status>KEEP</status><clean_text>\ud800</clean_text>"))
    assert next(score_lines([line]))["outcome"] == 0.0
