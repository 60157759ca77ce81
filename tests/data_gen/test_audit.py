"""`assay audit` over files of mixed families, own ones too."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from leaky import leaky_file
from own_families import family_file

from assay import family as families
from assay import main
from assay import scorer_timeout as guard
from assay.task import Task, read_tasks, write_jsonl

pytestmark = pytest.mark.usefixtures("no_family_of_another_test")


GOLD = {"input_text": "axb", "status": "KEEP", "text": "ab"}
REFINED = Task("r", "refinement", "toy", "train", [{"role": "user", "content": "x"}], GOLD)


def mixed(folder: Path, path: Path) -> Path:
    """One file with tasks of an own family, of refinement and of lake questions."""
    out = folder / "out"
    words = ["--family", str(path), "--out", str(out)]
    assert main(["tasks", "reverse", *words]) == 0
    asked = replace(
        REFINED, id="a", family="answer", gold={"answer_type": "numeric_exact", "answer": 12}
    )
    tasks = [*read_tasks(out / "train.jsonl"), REFINED, asked]
    write_jsonl(folder / "mixed.jsonl", (task.to_json() for task in tasks))
    return folder / "mixed.jsonl"


def test_a_mixed_file_is_audited_by_family(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = family_file(tmp_path)
    file = mixed(tmp_path, path)
    capsys.readouterr()
    words = ["audit", "--tasks", str(file), "--family", str(path)]
    assert main([*words, "--json", "--out", str(tmp_path / "rows.jsonl")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] and report["tasks"] == 8
    assert {n: f["tasks"] for n, f in report["families"].items()} == {
        "answer": 1,
        "refinement": 1,
        "reverse": 6,
    }
    earns = report["families"]["refinement"]["earns"]
    assert (earns["gold"]["outcome"], earns["cheat copy"]["outcome"]) == (1.0, 0.0)
    assert 0 < earns["cheat copy"]["reward"] < 1
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert {row["id"] for row in rows} >= {"r", "a", "reverse-0"}
    assert all(row["scores"]["gold"]["outcome"] == 1.0 for row in rows)
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "reverse: 6 tasks" in said and said.endswith("every law holds\n")


def test_a_broken_law_exits_1_and_names_the_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = replace(REFINED, gold=GOLD | {"text": "ab", "status": "NO"})
    write_jsonl(tmp_path / "t.jsonl", [REFINED.to_json(), replace(bad, id="bad").to_json()])
    assert main(["audit", "--tasks", str(tmp_path / "t.jsonl")]) == 1
    said = capsys.readouterr().out
    assert "broken: gold: task bad: " in said and "task r" not in said


def test_an_output_that_the_own_scorer_fails_on_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = family_file(tmp_path)
    file = mixed(tmp_path, good)
    families._added.clear()  # pyright: ignore[reportPrivateUsage]
    (tmp_path / "b").mkdir()
    score = "    right = answer.text.strip() == task.gold["
    bad = family_file(tmp_path / "b", score, "    if 'NaN' in answer.text: 1 / 0\n" + score)
    assert main(["audit", "--tasks", str(file), "--family", str(bad)]) == 1
    assert "scorer of reverse raised ZeroDivisionError" in capsys.readouterr().out


def test_a_scorer_that_hangs_ends_the_audit_of_its_family(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = mixed(tmp_path, family_file(tmp_path))
    families._added.clear()  # pyright: ignore[reportPrivateUsage]
    (tmp_path / "b").mkdir()
    score = "    right = answer.text.strip() == task.gold["
    bad = family_file(tmp_path / "b", score, "    while True: pass\n" + score)
    monkeypatch.setattr(guard, "SECONDS", 0.05)
    assert main(["audit", "--tasks", str(file), "--family", str(bad)]) == 1
    said = capsys.readouterr().out
    assert "its scorer failed on 5 tasks; 1 were not examined" in said


def test_two_files_that_share_content_exit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    write_jsonl(one, [REFINED.to_json()])
    write_jsonl(two, [replace(REFINED, id="twin", split="heldout").to_json()])
    assert main(["audit", "--tasks", str(one)]) == 0
    assert main(["audit", "--tasks", str(one), str(two)]) == 1
    assert "share 1 contents (1 of them exactly), as in tasks r and twin" in capsys.readouterr().out


def test_tasks_that_cannot_be_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "t.jsonl"
    write_jsonl(file, [replace(REFINED, family="nobody").to_json()])
    assert main(["audit", "--tasks", str(file)]) == 2
    assert "no family 'nobody'" in capsys.readouterr().err
    assert main(["audit", "--tasks", str(file), str(file)]) == 2
    assert "given twice" in capsys.readouterr().err
    assert main(["audit", "--tasks", str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(("leak", "status"), [("none", 0), ("echo", 1), ("null", 1)])
def test_a_policy_that_earns_more_than_its_floor_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], leak: str, status: int
) -> None:
    path = leaky_file(tmp_path, leak)
    assert main(["tasks", "leaky", "--family", str(path), "--out", str(tmp_path / "out")]) == 0
    words = ["--tasks", str(tmp_path / "out" / "train.jsonl"), "--family", str(path)]
    capsys.readouterr()
    assert main(["audit", *words]) == status
    said = capsys.readouterr().out
    assert ("broken: floor: " in said) is bool(status)
    if leak == "echo":
        assert "broken: floor: the prompt (sums): a mean reward of 0.800 over 24 tasks" in said
    assert main(["audit", *words, "--json"]) == status
    found = json.loads(capsys.readouterr().out)["families"]["leaky"]
    assert found["scorer_calls"] > 0
    row = next(r for r in found["without_work"] if r["policy"] == "the prompt")
    assert row["floor"] == {"outcome": 0.5, "reward": 0.5, "beyond": 0.5}
    assert row["above_floor"] == (1.0 if leak == "echo" else 0.0)


def test_the_same_seed_prints_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golds = [GOLD | {"input_text": f"a{i}xb", "text": f"a{i}b"} for i in range(5)]
    tasks = [replace(REFINED, id=f"r{i}", gold=gold) for i, gold in enumerate(golds)]
    write_jsonl(tmp_path / "t.jsonl", (task.to_json() for task in tasks))
    words = ["audit", "--tasks", str(tmp_path / "t.jsonl"), "--json", "--seed"]
    said: list[str] = []
    for seed in ("3", "3"):
        assert main([*words, seed]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert main([*words[:3], "--attacks", "-1"]) == 2
    assert "must be 0 or more" in capsys.readouterr().err
