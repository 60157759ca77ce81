"""A copy of the release is found where it lies and used as far as it is whole; what is evaluation
is known by content and never becomes a training task."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dare_copy import write_copy
from front import command
from hub_server import environment, hub_server
from make_published import row_of
from places import ROOT, SHARED

pytest.importorskip("pandas")

from assay.family import family_of
from assay.task import TaskError, read_tasks
from data_gen.dare import published
from data_gen.dare.importer import find_copy
from data_gen.dare.layout import read_entries
from train.run.data import training_tasks

main = command("tasks")
OFFICIAL = SHARED / "dare/tasks"
NAMES = ("ann_flats_class", "bob_shops_ts")


def ids(folder: Path) -> list[str]:
    return [task.id for task in read_tasks(folder / "tasks.jsonl")]


def jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def run(place: Path | str, out: Path, *more: str) -> int:
    return main(["dare", "--import", str(place), "--out", str(out), *more])


@pytest.mark.parametrize("inner", ["", "data/eval", "data/eval/question_list.json"])
def test_a_copy_is_found_from_its_root_its_folder_and_its_list(tmp_path: Path, inner: str) -> None:
    home = write_copy(tmp_path, NAMES)
    assert find_copy(str(tmp_path / inner), "eval") == home


def test_the_split_tells_two_folders_of_a_copy_apart(tmp_path: Path) -> None:
    test, train = write_copy(tmp_path, NAMES), write_copy(tmp_path, NAMES, 1, where="train")
    assert find_copy(str(tmp_path), "eval") == test
    assert find_copy(str(tmp_path), "train") == train
    write_copy(tmp_path, NAMES, 2, where="more/train")
    with pytest.raises(TaskError, match="name one of these folders"):
        find_copy(str(tmp_path), "train")
    with pytest.raises(TaskError, match=r"unpack data\.zip first"):
        (tmp_path / "packed").mkdir()
        (tmp_path / "packed" / "data.zip").write_bytes(b"")
        find_copy(str(tmp_path / "packed"), "train")


def test_a_whole_copy_is_imported_whole(tmp_path: Path, capsys: Any) -> None:
    write_copy(tmp_path, NAMES)
    assert run(tmp_path, tmp_path / "T") == 0
    tasks = read_tasks(tmp_path / "T" / "tasks.jsonl")
    assert [t.track for t in tasks] == ["class-IF", "class-MM", "time-XF", "time-CF"]
    slices = family_of(tasks[0]).slices(tasks[0])
    assert (slices["domain"], slices["licence"], slices["origin"]) == ("health", "MIT", "published")
    assert jsonl(tmp_path / "T" / "refused.jsonl") == []
    assert "left out" not in capsys.readouterr().err


def lacking(home: Path, name: str, *files: str) -> None:
    for file in files:
        (home / "databases" / name / file).unlink()


def test_a_missing_file_leaves_out_what_needs_it(tmp_path: Path, capsys: Any) -> None:
    home = write_copy(tmp_path, (*NAMES, "cem_cars_reg", "dan_dogs_class", "eva_eggs_class"))
    lacking(home, "ann_flats_class", "source/train_v2.csv")
    lacking(home, "bob_shops_ts", "source/train.csv")
    shutil.rmtree(home / "databases" / "cem_cars_reg")
    pointer = home / "databases" / "dan_dogs_class" / "source" / "val_v1.csv"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    lacking(home, "eva_eggs_class", "verify/ground_truth.csv")
    assert run(home, tmp_path / "T") == 0
    said = capsys.readouterr().err
    assert ids(tmp_path / "T") == ["ann_flats_class:IF", "dan_dogs_class:MM", "eva_eggs_class:IF"]
    assert "ann_flats_class: in part: missing_file: class-MM: source/train_v2.csv not there" in said
    assert "bob_shops_ts: left out: missing_file: time-XF: source/train.csv not there" in said
    assert "cem_cars_reg: left out: missing_file: its folder cannot be read" in said
    assert "databases: 0 whole, 3 in part, 2 left out" in said
    rows = jsonl(tmp_path / "T" / "refused.jsonl")
    assert {row["name"]: row["tasks"] for row in rows} == {
        **dict.fromkeys(("ann_flats_class", "dan_dogs_class", "eva_eggs_class"), 1),
        **dict.fromkeys(("bob_shops_ts", "cem_cars_reg"), 0),
    }
    assert run(home, tmp_path / "L", "--list") == 0
    assert "5 databases lack files; what is whole is asked" in capsys.readouterr().err
    assert run(home, tmp_path / "S", "--strict") == 2
    assert "5 of its databases lack files; bob_shops_ts: left out" in capsys.readouterr().err
    assert not (tmp_path / "S" / "tasks.jsonl").exists()


def test_the_answers_of_if_may_be_missing_but_not_what_they_are_made_from(tmp_path: Path) -> None:
    home = write_copy(tmp_path, NAMES)
    (entry, _) = read_entries(home)
    lacking(home, entry.name, "verify/simulated_pred_local.csv")
    assert entry.missing("v1") == [] == entry.missing("v1", again=True)
    lacking(home, entry.name, "source/train_v1_no_err.csv")
    assert entry.missing("v1") == ["source/train_v1_no_err.csv"]


def test_only_ids_that_are_asked_for_are_imported(tmp_path: Path) -> None:
    write_copy(tmp_path, NAMES)
    (tmp_path / "ids").write_text("bob_shops_ts:CF\n")
    assert run(tmp_path, tmp_path / "T", "--ids", str(tmp_path / "ids")) == 0
    assert ids(tmp_path / "T") == ["bob_shops_ts:CF"]
    assert run(tmp_path, tmp_path / "L", "--list") == 0
    listed = read_tasks(tmp_path / "L" / "index.jsonl")
    whole = read_tasks(tmp_path / "T" / "tasks.jsonl")[0]
    (same,) = (task for task in listed if task.id == whole.id)
    assert (same.prompt, same.meta, same.files) == (whole.prompt, whole.meta, whole.files)


def test_a_copy_on_the_hub_is_imported_by_name(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    write_copy(tmp_path / "set", NAMES, where="train")
    words = ["tasks", "dare", "--import", "own/tables", "--split", "train", "--out", "T"]
    with hub_server({"own/tables": tmp_path / "set"}) as (url, _):
        made = environment(url, tmp_path / "cache") | {"PYTHONPATH": str(ROOT)}
        ran = subprocess.run(
            [sys.executable, "-m", "assay", *words], cwd=tmp_path, env=made, timeout=120
        )
    assert ran.returncode == 0 and len(ids(tmp_path / "T")) == 4


@pytest.fixture
def evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy whose first database is a published evaluation database, and whose second is not."""
    home = write_copy(tmp_path / "release", NAMES)
    first, _ = read_entries(home)
    files = {p.name: published_hash(p) for p in (first.folder / "source").iterdir()}
    monkeypatch.setattr(published, "_rows", lambda: [row_of(first, files)])
    for name in ("_files", "published_tables"):
        monkeypatch.setattr(published, name, getattr(published, name).__wrapped__)
    return home


def published_hash(path: Path) -> str:
    command_ = ["git", "hash-object", str(path)]
    return subprocess.run(command_, check=True, capture_output=True, text=True).stdout.strip()


def renamed(home: Path, old: str, new: str) -> None:
    rows = json.loads((home / "question_list.json").read_text())
    text = json.dumps(rows).replace(old, new)
    (home / "question_list.json").write_text(text)
    (home / "databases" / old).rename(home / "databases" / new)


def test_what_is_evaluation_is_no_training_task_whatever_it_is_called(
    evaluation: Path, tmp_path: Path, capsys: Any
) -> None:
    renamed(evaluation, "ann_flats_class", "new_name_class")
    assert run(evaluation, tmp_path / "T", "--split", "train") == 0
    assert ids(tmp_path / "T") == ["bob_shops_ts:XF", "bob_shops_ts:CF"]
    said = capsys.readouterr().err
    assert "new_name_class: left out: evaluation: train_v1.csv is a file of ann_flats_class" in said
    tasks = read_tasks(tmp_path / "T" / "tasks.jsonl")
    assert not any(task.meta.get("published") for task in tasks)
    assert {task.split for task in tasks} == {"train"}
    assert training_tasks(str(tmp_path / "T" / "tasks.jsonl")) == tasks
    assert run(evaluation, tmp_path / "E") == 0
    with pytest.raises(TaskError, match="is a published benchmark task"):
        training_tasks(str(tmp_path / "E" / "tasks.jsonl"))


def test_rows_in_another_order_and_format_are_the_same_table(
    evaluation: Path, tmp_path: Path
) -> None:
    import pandas as pd

    for path in (evaluation / "databases" / "ann_flats_class" / "source").glob("*.csv"):
        frame: Any = pd.read_csv(path)
        frame.sample(frac=1, random_state=1).to_csv(path, index=False, quoting=1)
    rows = json.loads((evaluation / "question_list.json").read_text())
    rows[0]["question_v1"] = "Another question"
    (evaluation / "question_list.json").write_text(json.dumps(rows))
    assert run(evaluation, tmp_path / "T", "--split", "train") == 0
    (row,) = jsonl(tmp_path / "T" / "refused.jsonl")
    assert "of its columns are those of ann_flats_class" in row["why"][0]


@pytest.mark.skipif(not OFFICIAL.is_dir(), reason="databases of the benchmark are not at hand")
def test_the_evaluation_folder_as_training_data_is_refused_whole(
    tmp_path: Path, capsys: Any
) -> None:
    assert run(OFFICIAL, tmp_path / "T", "--split", "train") == 2
    rows = jsonl(tmp_path / "T" / "refused.jsonl")
    assert len(rows) == len(read_entries(OFFICIAL))
    assert all(row["why"][0].startswith("evaluation: ") for row in rows)
    assert "no task is left" in capsys.readouterr().err
