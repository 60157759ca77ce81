"""The record of what made a set of files, and `assay verify`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from assay_command import here as assay
from places import tables

from assay.record import (
    NAME,
    OUT,
    read_record,
)

TABLES = tables("assay")

TASKS = ("tasks", "demo", "--seed", "3", "train_sft=12", "train_rl=12", "heldout=6")
ROW = TABLES["record_row"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds a set of tasks, `T`, made by the command."""
    folder = tmp_path_factory.mktemp("built")
    assay(folder, *TASKS, "--out", "T")
    return folder


def test_a_set_of_tasks_carries_its_record(built: Path, tmp_path: Path) -> None:
    (one,) = read_record(built / "T" / NAME)
    assert one.command == (*TASKS, "--out", OUT)
    assert {"train_sft.jsonl", "heldout.jsonl", "certificate.json"} <= set(one.outputs)
    assert one.versions["python"] and one.inputs == {}
    assert "as recorded" in assay(built, "verify", "T")
    assay(tmp_path, *TASKS, "--out", "elsewhere/U")  # the same in any folder
    assert (tmp_path / "elsewhere/U" / NAME).read_bytes() == (built / "T" / NAME).read_bytes()


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
