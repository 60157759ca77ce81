"""The record of what made a set of files, and `assay verify`."""

from __future__ import annotations

import json
import platform
import shutil
from importlib import metadata
from pathlib import Path

import pytest
from assay_command import here as assay
from places import tables

from assay.record import (
    NAME,
    OUT,
    installed,
    read_record,
    write_records,
)
from assay.task import TaskError

TABLES = tables("assay")

TASKS = ("tasks", "demo", "--seed", "3", "train_sft=12", "train_rl=12", "heldout=6")
ROW = TABLES["record_row"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds a set of tasks, `T`, made by the command."""
    folder = tmp_path_factory.mktemp("built")
    assay(folder, *TASKS, "--out", "T")
    return folder


def test_a_set_of_tasks_carries_its_record(built: Path) -> None:
    (one,) = read_record(built / "T" / NAME)
    assert one.command == (*TASKS, "--out", OUT)
    assert {"train_sft.jsonl", "heldout.jsonl", "certificate.json"} <= set(one.outputs)
    assert one.versions["python"] and one.inputs == {}
    assert "as recorded" in assay(built, "verify", "T")


def test_the_same_command_gives_the_same_record_in_any_folder(built: Path, tmp_path: Path) -> None:
    assay(tmp_path, *TASKS, "--out", "elsewhere/U")
    assert (tmp_path / "elsewhere/U" / NAME).read_bytes() == (built / "T" / NAME).read_bytes()


def test_how_a_command_is_run_is_no_part_of_its_record(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    for folder, more in (("a", ()), ("b", ("--workers", "2")), ("c", ("--workers=2",))):
        (tmp_path / folder).mkdir()
        assay(tmp_path, "score", "rows.jsonl", *more, "--out", f"{folder}/scores.jsonl")
    first, *others = ((tmp_path / x / f"scores.jsonl.{NAME}").read_bytes() for x in "abc")
    assert others == [first, first]


def test_verify_says_what_changed_and_what_is_missing(built: Path, tmp_path: Path) -> None:
    shutil.copytree(built / "T", tmp_path / "T")
    assert "as recorded" in assay(tmp_path, "verify", "T")
    with open(tmp_path / "T" / "heldout.jsonl", "ab") as file:
        file.write(b" ")
    (tmp_path / "T" / "certificate.json").unlink()
    (tmp_path / "T" / "mine.txt").write_text("own notes")
    said = assay(tmp_path, "verify", "T", status=1)
    assert "heldout.jsonl: has changed since it was written" in said
    assert "certificate.json: is missing" in said
    assert "note: mine.txt: is not recorded" in said


def test_a_single_file_has_its_record_beside_it_with_its_inputs(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(ROW) + "\n")
    assay(tmp_path, "score", "rows.jsonl", "--out", "scores.jsonl")
    (one,) = read_record(tmp_path / f"scores.jsonl.{NAME}")
    assert list(one.inputs) == ["rows.jsonl"] and list(one.outputs) == ["scores.jsonl"]
    assert "as recorded" in assay(tmp_path, "verify", "scores.jsonl")
    rows.write_text("{}\n")
    said = assay(tmp_path, "verify", "scores.jsonl", status=1)
    assert "input rows.jsonl: has changed since it was used" in said
    rows.unlink()
    assert "input rows.jsonl: is not here" in assay(tmp_path, "verify", "scores.jsonl", status=1)


def test_a_second_command_in_a_folder_keeps_the_first_ones_record(tmp_path: Path) -> None:
    assay(tmp_path, *TASKS, "--out", "T")
    row = json.dumps(ROW) + "\n"
    (tmp_path / "rows.jsonl").write_text(row)
    assay(tmp_path, "score", "rows.jsonl", "--out", "T/scores.jsonl")
    assay(tmp_path, *TASKS[:3], "4", *TASKS[4:], "--out", "T")
    first = read_record(tmp_path / "T" / NAME)
    assert [one.command[3] for one in first] == ["4"]
    assert (tmp_path / "T" / f"scores.jsonl.{NAME}").is_file()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"assay_provenance": 1, "made": [3]}'])
def test_what_is_no_record_is_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(TaskError, match="no record of provenance"):
        read_record(tmp_path / NAME)


def test_inputs_in_a_settings_file_are_recorded(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text("{}\n")
    (tmp_path / "run.yaml").write_text(f"data:\n  tasks: [{tmp_path / 'data.jsonl'}]\n")
    out = tmp_path / "out"
    out.mkdir()
    (out / "x.txt").write_text("x")
    (path,) = write_records(["sft", "--config", str(tmp_path / "run.yaml"), "--out", str(out)])
    (one,) = read_record(path)
    assert set(one.inputs) == {str(tmp_path / "run.yaml"), str(tmp_path / "data.jsonl")}
    (tmp_path / "data.jsonl").write_text("other")
    said = assay(tmp_path, "verify", str(out), status=1)
    assert said.count("has changed since it was used") == 1


def test_verify_notes_packages_of_another_version(built: Path, tmp_path: Path) -> None:
    shutil.copytree(built / "T", tmp_path / "T")
    record = json.loads((tmp_path / "T" / NAME).read_text())
    record["made"][0]["versions"]["regex"] = "1.2.3"
    (tmp_path / "T" / NAME).write_text(json.dumps(record))
    report = json.loads(assay(tmp_path, "verify", "T", "--json"))
    assert report["ok"] and report["differences"] == []
    assert any(note.startswith("regex: made with 1.2.3, here ") for note in report["notes"])


def test_what_is_installed_is_named_and_what_is_not_is_left_out() -> None:
    found = installed(["regex", "no-such-package"])
    assert found == {"python": platform.python_version(), "regex": metadata.version("regex")}
