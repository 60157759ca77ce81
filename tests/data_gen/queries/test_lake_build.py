"""Generated lake questions: gold that holds, questions that are refused, splits that do not mix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from front import command
from small_lake import make_lake

from data_gen.queries.lake import open_lake
from data_gen.queries.lake_checks import validate
from data_gen.queries.pipeline import LakeStep, Question, run
from rewards.krama.answer import score_response

main = command("tasks", "lake")


def table(rows: int, shift: int) -> str:
    lines = ["Name,Kind,Area,Year,Height,Weight"]
    one, two = 3 + shift / 100, 7 + shift / 100  # other quantities, not another draw of the same
    for i in range(rows):
        lines.append(
            f"n{i},{'abcde'[i * 7 % 5]},{'xyz'[i % 3]},{1990 + i % 25},"
            f"{10 + (i * 37 + shift) % 101 / one:.2f},{5 + (i * i * 13 + shift) % 97 / two:.2f}"
        )
    return "\n".join(lines) + "\n"


def lakes(tmp_path: Path) -> tuple[Path, Path]:
    one, two = make_lake(tmp_path / "one", settled=True), make_lake(tmp_path / "two", settled=True)
    (one / "things.csv").write_text(table(300, 5), encoding="utf-8")
    (two / "others.csv").write_text(table(280, 31), encoding="utf-8")
    return one, two


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_generated_tasks_hold(tmp_path: Path) -> None:
    one, two = lakes(tmp_path)
    for out in ("a", "b"):
        command = ["--lakes", str(one), "--heldout", str(two), "--count", "15"]
        assert main([*command, "--out", str(tmp_path / out)]) == 0
    files = ("train.jsonl", "heldout.jsonl", "certificate.json")
    same = [(tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes() for f in files]
    assert same == [True] * 3
    train, held = rows(tmp_path / "a" / "train.jsonl"), rows(tmp_path / "a" / "heldout.jsonl")
    assert len(train) == 12
    assert len(held) == 3
    assert len({t["gold"]["answer_type"] for t in train}) == 6
    assert not {d for t in train for d in t["meta"]["tables"]} & {
        d for t in held for d in t["meta"]["tables"]
    }
    for task in train:
        gold = task["gold"]
        score = score_response(gold["answer_type"], gold["answer"], {"answer": gold["answer"]})
        assert score.outcome == 1.0
        fixed = gold["answer_type"] in ("list_approximate", "string_approximate")
        assert (gold.get("ordered") is True) == fixed == ("ordered" in gold["subtasks"][-1])
        assert all(s["step"] and s["query"] for s in gold["subtasks"])
    # the pipeline as it stands in the gold, run by a plain interpreter beside the lake
    (tmp_path / "data").symlink_to(one)
    code = train[0]["gold"]["pipeline"]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["main-task"] == train[0]["gold"]["answer"]


def question(code: str, value: str, kind: str = "numeric_exact", margin: str = "1.0") -> Question:
    load = LakeStep(
        "load", "Load", "t = pd.read_csv('data/things.csv')", "Rows?", "len(t)", "numeric_exact"
    )
    last = LakeStep("finish", "Finish", code, "?", value, kind)
    return Question("What?", (load, last), "shape", margin)


@pytest.mark.parametrize(
    ("code", "value", "kind", "margin", "why"),
    [
        ("", "float(t['Height'].iloc[0])", "numeric_exact", "1.0", "unstable"),
        ("", "float(t['Height'].mean())", "numeric_exact", "1e-5", "ambiguous"),
        ("", "0", "numeric_exact", "1.0", "trivial"),
        ("", "['a', 'a']", "list_exact", "1.0", "trivial"),
        ("", "'What?'[:4]", "string_exact", "1.0", "trivial"),
        ("", "float('nan')", "numeric_approximate", "1.0", "not finite"),
        ("", "t.nothing", "numeric_exact", "1.0", "pipeline failed (AttributeError)"),
        ("", "float(t['Height'].mean())", "numeric_approximate", "1.0", ""),
    ],
)
def test_what_is_refused(
    tmp_path: Path, code: str, value: str, kind: str, margin: str, why: str
) -> None:
    lake = open_lake(lakes(tmp_path)[0])
    assert validate(question(code, value, kind, margin), lake.folder)[1] == why


def test_a_step_that_changes_nothing_is_refused(tmp_path: Path) -> None:
    lake = open_lake(lakes(tmp_path)[0])
    made = question("", "float(t['Height'].mean())")
    idle = LakeStep(
        "filter", "Keep all", "t = t[t['Height'] > 0]", "?", "len(t)", "numeric_exact", True
    )
    steps = (made.steps[0], idle, made.steps[1])
    found = validate(Question("What?", steps, "s", "1.0"), lake.folder)
    assert found == (None, "a step changes nothing")
    assert run(made, lake.folder)["subtask-1"] == 300


def test_a_gold_pipeline_has_no_hand_on_the_builder(tmp_path: Path) -> None:
    """Code that got into a pipeline runs in the sandbox: no file of the host, no shared state."""
    lake, mark = open_lake(lakes(tmp_path)[0]), tmp_path / "ran"
    tmp_path.chmod(0o777)
    attack = f"import sys, pathlib, data_gen\npathlib.Path({str(mark)!r}).write_text('x')"
    assert validate(question(attack, "len(t)"), lake.folder)[1].startswith("pipeline failed (")
    here = "import os\nos.environ['ASSAY_TAINT'] = 'x'\njson.dumps.__globals__['taint'] = 1"
    run(question(here, "len(t)"), lake.folder)
    assert "ASSAY_TAINT" not in os.environ and "taint" not in json.dumps.__globals__
    write = f"try:\n    open({str(mark)!r}, 'w')\nexcept OSError:\n    pass"
    run(question(write, "len(t)"), lake.folder)
    assert not mark.exists()


def test_tables_are_typed(tmp_path: Path) -> None:
    found = {t.path: t for t in open_lake(lakes(tmp_path)[0]).tables}
    things = found["things.csv"]
    assert (things.numbers, things.groups, things.names, things.years) == (
        ("Height", "Weight"),
        ("Kind", "Area"),
        ("Name",),
        ("Year",),
    )
    assert found["sites.csv"].totals == ("Samples",)
    assert "skiprows=1" in found["sites.csv"].reading.code()


def test_a_folder_without_tables_is_said_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--lakes", str(tmp_path), "--out", str(tmp_path / "o")]) == 2
    assert "no usable table" in capsys.readouterr().err
