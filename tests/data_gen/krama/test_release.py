"""A copy of the release: found, its tasks taken once, what it lacks left out and said."""

from __future__ import annotations

import json
from pathlib import Path

import front
import pytest
from krama_checkout import make_checkout, task

from assay.task import TaskError, read_tasks
from data_gen.krama.cli import build
from data_gen.krama.importer import find_copy, gathered

main = front.command("tasks", "krama")


def test_a_checkout_is_imported_with_its_lakes_left_in_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The release's workload folder also has files for a first try: the domains' own files
    decide."""
    place, out = make_checkout(tmp_path / "release"), tmp_path / "k"
    assert main(["--import", str(place), "--out", str(out), "--strict"]) == 0
    said = capsys.readouterr().out
    tasks = read_tasks(out / "tasks.jsonl")
    assert {t.id: t.gold["answer"] for t in tasks} == {
        "environment-easy-1": 2.5,
        "legal-easy-3": 1.5,
    }
    assert [t.id for t in read_tasks(out / "doubted.jsonl")] == ["legal-hard-1"]
    assert (out / tasks[0].files["lake"]).resolve() == place / "data/environment/input"
    assert not (out / "lakes").exists()
    assert "quick-start-questions.json: 2 tasks left out" in said
    assert "legal-hard-1 in 'answer_type'" in said
    again = tmp_path / "again"
    workloads = [str(p) for p in sorted((place / "workload").glob("*.json"))]
    words = ["--workload", *workloads, "--lakes", str(place / "data"), "--out", str(again)]
    assert main(words) == 0
    assert (again / "tasks.jsonl").read_bytes() == (out / "tasks.jsonl").read_bytes()


def test_a_workload_file_has_its_lakes_beside_it(tmp_path: Path) -> None:
    place = make_checkout(tmp_path / "release")
    one = place / "workload" / "quick-start-questions.json"
    assert find_copy(one).lakes == find_copy(place / "workload").lakes == place / "data"
    main(["--import", str(one), "--out", str(tmp_path / "k")])
    found = read_tasks(tmp_path / "k" / "tasks.jsonl")
    assert [t.gold["answer"] for t in found] == [7, 8]  # alone, it is asked
    with pytest.raises(TaskError, match="clone it and give the folder"):
        find_copy(tmp_path / "mitdbg/Kramabench")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError, match="give its checkout"):
        find_copy(tmp_path / "empty")
    (tmp_path / "empty" / "w.json").write_text("[]", encoding="utf-8")
    with pytest.raises(TaskError, match="no lakes are beside"):
        find_copy(tmp_path / "empty")


def write(path: Path, *rows: object) -> Path:
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def test_a_task_in_two_files_is_one_where_neither_says_anything_else(tmp_path: Path) -> None:
    whole = task("east-easy-1", "How many?", 3)
    less = {k: v for k, v in whole.items() if k != "runtime"}
    one, other = write(tmp_path / "a.json", less), write(tmp_path / "b.json", whole)
    found = gathered([one, other, other])
    assert [(e.id, e.seconds) for e in found.entries] == [("east-easy-1", 0.1)]
    assert found.said == [f"{one} and {other}: 1 task in both, taken once"]
    third = write(tmp_path / "c.json", whole | {"answer": 4})
    with pytest.raises(TaskError, match=r"is in .*a.json and, with another 'answer', in .*c.json"):
        gathered([one, third])
    with pytest.raises(TaskError, match="is there twice"):
        gathered([write(tmp_path / "d.json", whole, whole)])


def test_what_a_copy_lacks_is_left_out_and_said_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, out = make_checkout(tmp_path / "release"), tmp_path / "k"
    (place / "data/environment").rename(tmp_path / "elsewhere")
    gone = place / "data/legal/input/rain_amherst.csv"
    workload = place / "workload" / "legal.json"
    rows = json.loads(workload.read_text("utf-8"))
    write(workload, *rows, task("legal-easy-4", "x?", 1, data_sources=["rain_boston.csv"]))
    gone.unlink()
    words = ["--import", str(place), "--out", str(out)]
    assert main([*words, "--strict"]) == 2
    assert "--strict: environment: 1 tasks and 1 sub-tasks" in capsys.readouterr().err
    assert not out.exists()
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "environment: 1 tasks and 1 sub-tasks are left out: there is no lake" in said
    assert "legal: 2 of 3 tasks are left out" in said
    assert "legal-easy-3 (rain_amherst.csv)" in said
    assert [t.id for t in read_tasks(out / "tasks.jsonl")] == ["legal-easy-4"]
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    assert sorted(manifest["left_out"]) == ["environment-easy-1", "legal-easy-3", "legal-hard-1"]


def test_a_source_that_the_release_itself_lacks_leaves_no_task_out(tmp_path: Path) -> None:
    place = make_checkout(tmp_path / "release")
    known = task("wildfire-hard-21", "x?", 1, data_sources=["rain_boston.csv", "ZHVI.csv"])
    write(place / "workload" / "wildfire.json", known)
    (place / "data/legal").rename(place / "data/wildfire")
    manifest = build([place / "workload/wildfire.json"], place / "data", tmp_path / "k", "oracle")
    assert (manifest["counts"]["tasks"], manifest["left_out"]) == (1, {})


def test_sub_tasks_may_be_shown_other_files_than_their_task(tmp_path: Path) -> None:
    place, out = make_checkout(tmp_path / "release"), tmp_path / "k"
    assert main(["--import", str(place), "--out", str(out), "--subtask-mode", "oracle"]) == 0
    whole, part = read_tasks(out / "tasks.jsonl")[0], read_tasks(out / "subtasks.jsonl")[0]
    assert (whole.meta["mode"], part.meta["mode"]) == ("full", "oracle")
    assert sorted(p.name for p in (out / part.files["lake"]).iterdir()) == ["rain_amherst.csv"]
    assert len(list((out / whole.files["lake"]).iterdir())) == 4
