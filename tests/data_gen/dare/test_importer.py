# ruff: noqa: E402
"""Official databases: a copy of the release is found and used as far as it is whole, what is
evaluation is known by content, licences have one name, DSBench's tasks come in the same form."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
np = pytest.importorskip("numpy")
pytest.importorskip("sklearn")

from dare_copy import write_copy
from front import command
from make_published import TEXTS, row_of, texts_of
from places import SHARED, tables

from assay.task import TaskError, read_tasks
from data_gen.dare import sources
from data_gen.dare.importer import find_copy, licence_of
from data_gen.dare.layout import Entry, read_entries
from data_gen.dare.models import read, solve
from data_gen.dare.sources import Published, same_as_published, sketches_of, tables_in
from data_gen.describe import allowed, family, is_open, spdx
from rewards.dare.score import score_table_row
from train.run.data import training_tasks

main = command("tasks")
OFFICIAL = SHARED / "dare/tasks"
NAMES = ("ann_flats_class", "bob_shops_ts")
LICENCES = tables("dare_build")["a_licence_has_one_name"]  # as it is said, SPDX, family, is it open


def ids(folder: Path) -> list[str]:
    return [task.id for task in read_tasks(folder / "tasks.jsonl")]


def refused(folder: Path) -> dict[str, dict[str, Any]]:
    lines = (folder / "refused.jsonl").read_text("utf-8").splitlines()
    return {row["name"]: row for row in map(json.loads, lines)}


def run(place: Path | str, out: Path, *more: str) -> int:
    return main(["dare", "--import", str(place), "--out", str(out), *more])


def test_a_copy_is_found_where_it_lies(tmp_path: Path) -> None:
    sides = ("eval", "train")
    copies = [write_copy(tmp_path, NAMES, n, where=side) for n, side in enumerate(sides)]
    assert [find_copy(str(tmp_path), side) for side in sides] == copies
    assert find_copy(str(copies[0] / "question_list.json"), "eval") == copies[0]


def test_a_whole_copy_is_imported_whole_or_as_far_as_it_is_asked_for(tmp_path: Path) -> None:
    write_copy(tmp_path, NAMES)
    assert run(tmp_path, tmp_path / "T") == 0 and refused(tmp_path / "T") == {}
    tasks = read_tasks(tmp_path / "T" / "tasks.jsonl")
    assert [t.track for t in tasks] == ["class-IF", "class-MM", "time-XF", "time-CF"]
    (tmp_path / "ids").write_text("bob_shops_ts:CF\n")
    assert run(tmp_path, tmp_path / "I", "--ids", str(tmp_path / "ids")) == 0
    assert ids(tmp_path / "I") == ["bob_shops_ts:CF"]
    assert run(tmp_path, tmp_path / "L", "--list") == 0
    listed = read_tasks(tmp_path / "L" / "index.jsonl")
    for bare, whole in zip(listed, tasks, strict=True):
        assert (bare.id, bare.prompt, bare.meta) == (whole.id, whole.prompt, whole.meta)
        assert bare.files == whole.files and "truth_csv" not in bare.gold


def test_a_missing_file_leaves_out_what_needs_it(tmp_path: Path) -> None:
    home = write_copy(tmp_path, (*NAMES, "cem_cars_reg", "dan_dogs_class", "eva_eggs_class"))
    (entry,) = (e for e in read_entries(home) if e.name == NAMES[0])
    for file in (
        "ann_flats_class/source/train_v2.csv",
        "bob_shops_ts/source/train.csv",
        "eva_eggs_class/verify/ground_truth.csv",
    ):
        (home / "databases" / file).unlink()
    shutil.rmtree(home / "databases" / "cem_cars_reg")
    pointer = home / "databases" / "dan_dogs_class" / "source" / "val_v1.csv"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    kept = ["ann_flats_class:IF", "dan_dogs_class:MM", "eva_eggs_class:IF"]
    assert run(home, tmp_path / "T") == 0 and ids(tmp_path / "T") == kept
    found = refused(tmp_path / "T")
    assert {name for name, row in found.items() if row["used"]} == {k[:-3] for k in kept}
    assert len(found) == 5 and len(found["bob_shops_ts"]["why"]) == 2
    assert run(home, tmp_path / "S", "--strict") == 2
    assert not (tmp_path / "S" / "tasks.jsonl").exists()
    (entry.folder / "verify" / "simulated_pred_local.csv").unlink()  # it can be made again
    assert entry.missing("v1") == [] == entry.missing("v1", again=True)
    (entry.folder / "source" / "train_v1_no_err.csv").unlink()
    assert entry.missing("v1") == ["source/train_v1_no_err.csv"]


def test_nothing_hidden_may_be_needed(tmp_path: Path) -> None:
    home = write_copy(tmp_path, NAMES)
    listing = home / "question_list.json"
    rows = json.loads(listing.read_text())
    for name in ("train_v1_no_err.csv", "../verify/ground_truth.csv"):
        needed = [*rows[0]["needed_files_v1"], name]
        listing.write_text(json.dumps([rows[0] | {"needed_files_v1": needed}]))
        with pytest.raises(TaskError, match=re.escape(repr(name))):
            read_entries(home)[0].needed("v1")


# --- what is evaluation ---


def test_what_is_evaluation_is_no_training_task_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a copy whose first database is a published evaluation database."""
    top = write_copy(tmp_path / "release", NAMES)
    (first,) = (e for e in read_entries(top) if e.name == NAMES[0])
    hashed = {
        p.name: subprocess.check_output(["git", "hash-object", p], text=True).strip()
        for p in (first.folder / "source").iterdir()
    }
    known = [row_of(first, hashed)]
    monkeypatch.setattr(sources, "_rows", lambda: known)
    for name in ("_files", "published_tables"):
        monkeypatch.setattr(sources, name, getattr(sources, name).__wrapped__)
    listing = top / "question_list.json"
    listing.write_text(listing.read_text().replace("ann_flats_class", "new_name_class"))
    home = first.folder.rename(first.folder.with_name("new_name_class"))
    assert run(top, tmp_path / "T", "--split", "train") == 0
    assert ids(tmp_path / "T") == ["bob_shops_ts:XF", "bob_shops_ts:CF"]
    assert refused(tmp_path / "T")["new_name_class"]["why"][0].startswith("evaluation: ")
    tasks = read_tasks(tmp_path / "T" / "tasks.jsonl")
    assert training_tasks(str(tmp_path / "T" / "tasks.jsonl")) == tasks
    assert run(top, tmp_path / "E") == 0
    with pytest.raises(TaskError, match="published"):
        training_tasks(str(tmp_path / "E" / "tasks.jsonl"))
    for path in (home / "source").glob("*.csv"):  # other files, the same table
        frame: Any = pd.read_csv(path)
        frame.sample(frac=1, random_state=1).to_csv(path, index=False, quoting=1)
    listing.write_text(listing.read_text().replace("Clean the table", "Another question"))
    assert run(top, tmp_path / "U", "--split", "train") == 0
    assert "columns" in refused(tmp_path / "U")["new_name_class"]["why"][0]


def table(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"price": rng.normal(100, 20, 300).round(2)})
    frame["area"], frame["rooms"] = rng.integers(1000, 90_000, 300), rng.integers(1, 6, 300)
    frame["day"] = pd.date_range("2019-01-01", periods=300).strftime("%Y-%m-%d")
    return frame.assign(name=[f"house {n}" for n in rng.integers(0, 200, 300)])


def test_copies_are_known_however_they_are_kept_and_nothing_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = table(0)
    kept = (Published("houses_reg", len(known), tuple(sketches_of(known))),)
    monkeypatch.setattr(sources, "published_tables", lambda: kept)
    days = pd.to_datetime(known["day"])
    for copy in (
        known.sample(frac=1, random_state=1)[["name", "area", "day", "price"]],
        known.sample(frac=0.97, random_state=2).rename(columns=str.upper).assign(extra=7),
        known.astype(str).assign(day=days),
        known.assign(day=days.dt.strftime("%d.%m.%Y")),
        known.assign(name=known["name"].str.upper(), area=known["area"].astype(float)),
    ):
        assert "houses_reg" in same_as_published(copy)
    counted = pd.DataFrame({"id": range(300), "rooms": known["rooms"], "one": [1.5] * 300})
    for other in (table(1).drop(columns="day"), counted, known.head(140)):
        assert same_as_published(other) == ""
    known.to_csv(tmp_path / "mine.csv", sep=";", decimal=",", index=False)
    ((_, load),) = tables_in(tmp_path / "mine.csv")
    with pytest.raises(ValueError, match=r"houses_reg.*tables\.yaml"):
        load()
    (tmp_path / "tables.yaml").write_text('"mine.csv": {published: false}')
    ((_, load),) = tables_in(tmp_path / "mine.csv")
    assert len(load()) == len(known)


@pytest.mark.skipif(not OFFICIAL.is_dir(), reason="published databases are not at hand")
def test_published_databases_are_what_is_shipped_and_score_their_answers(tmp_path: Path) -> None:
    entries = read_entries(OFFICIAL)
    shipped = {row["name"]: row for row in json.loads(sources.FILE.read_text("utf-8"))}
    texts = {row["name"]: row for row in json.loads(TEXTS.read_text("utf-8"))}
    solved = 0
    for entry in entries:
        assert {**shipped[entry.name], "files": []} == row_of(entry, {})
        train = entry.folder / "source" / f"train_v1_no_err.{entry.recipe.get('save_file_type')}"
        # other versions than the pins may differ on a known database
        if entry.family == "ts" or train.stat().st_size > 60_000 or "milapgohil" in entry.name:
            continue
        test = entry.folder / "source" / f"val_v1{train.suffix}"
        answer = {"prediction_csv": solve(read(train), read(test), dict(entry.recipe))}
        task = {"task_dir": str(entry.folder), "variant": "IF"}
        assert score_table_row(task, answer).outcome == 1.0
        solved += 1
    assert len(shipped) == 162 and solved >= 6
    assert all(row["questions"] == texts[row["name"]]["questions"] for row in texts_of(entries))
    assert run(OFFICIAL, tmp_path / "T", "--split", "train") == 2  # nothing is left to train on
    found = refused(tmp_path / "T")
    assert len(found) == len(entries)
    assert all(row["why"][0].startswith("evaluation: ") for row in found.values())
    by_name = {entry.name: entry for entry in entries}
    with open(OFFICIAL / "licences.csv", encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            assert licence_of(by_name[row["database"]]) == row["spdx"], row


# --- licences ---


@pytest.mark.parametrize(("said", "name", "kind", "free"), LICENCES)
def test_a_licence_has_one_name(said: str, name: str, kind: str, free: bool) -> None:
    assert spdx(said) == name == spdx(name) and family(said) == family(name) == kind
    assert is_open(said) == is_open(name) == allowed(said, ["open"]) == free
    assert allowed(said, [kind]) and allowed(said, ["GPL"]) == (kind == "gpl")


def test_the_page_of_the_source_says_the_licence() -> None:
    page = {"data_info": {"licenseName": "MIT"}, "meta_data": {"licenses": [{"name": "CC0-1.0"}]}}
    assert licence_of(Entry(Path(), {}, {}, page)) == "MIT"
    assert licence_of(Entry(Path(), {}, {}, page | {"data_info": None})) == "CC0-1.0"
    assert licence_of(Entry(Path(), {}, {}, {"data_info": {"licenseName": "Unknown"}})) is None
    assert licence_of(Entry(Path(), {}, {}, page), "CC-BY-4.0") == "CC-BY-4.0"  # a person looked


# --- DSBench ---


def test_dsbench_becomes_the_same_format_and_what_cannot_be_read_is_listed(tmp_path: Path) -> None:
    top, out = tmp_path / "data", tmp_path / "o"
    numbers, labels = "id,y\n7,1.5\n9,2.5\n", "id,x,y\n7,0.2,b\n9,0.1,a\n"
    for name, train, answer in (  # about rows 9 and 7
        ("Playground S1", "id,x,y\n1,0.5,a\n2,0.7,b\n", labels),
        ("fine", "id,x,y\n1,0.5,1.25\n2,0.7,2.5\n", numbers),
        ("twice", "id,x,y\n1,0.5,1.25\n", numbers + "7,1.5\n"),
        ("short", "id,x,y\n1,0.5,1.25\n", "id,y\n7,1.5\n"),
    ):
        for path, text in (
            (f"data_resplit/{name}/train.csv", train),
            (f"data_resplit/{name}/test.csv", "id,x\n9,0.1\n7,0.2\n"),
            (f"data_resplit/{name}/sample_submission.csv", "id,y\n9,a\n7,a\n"),
            (f"answers/{name}/test_answer.csv", answer),
        ):
            (top / path).parent.mkdir(parents=True, exist_ok=True)
            (top / path).write_text(text)
    assert main(["dare", "--import-dsbench", str(top), "--out", str(out)]) == 0
    found = {t.track: t for t in read_tasks(out / "tasks.jsonl")}
    assert found["class-MM"].gold["truth_csv"] == "row_id,y\n1,a\n2,b\n"
    assert found["reg-MM"].gold["truth_csv"] == "row_id,y\n1,2.5\n2,1.5\n" and len(found) == 2
    assert all(task.meta["published"] for task in found.values())
    assert refused(out).keys() == {"twice", "short"}
