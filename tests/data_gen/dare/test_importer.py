"""The licences of imported databases, by which tasks are chosen and tables are cut."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest
from front import command
from places import SHARED

pytest.importorskip("pandas")

from assay.family import family_of
from assay.task import Task, read_tasks
from data_gen.dare.importer import licence_of
from data_gen.licences import is_open, spdx

main = command("tasks")
DARE = SHARED / "dare/tasks"


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("CC0: Public Domain", "CC0-1.0"),
        ("Apache 2.0", "Apache-2.0"),
        ("apache-2.0", "Apache-2.0"),
        ("MIT", "MIT"),
        ("Attribution 4.0 International (CC BY 4.0)", "CC-BY-4.0"),
        ("Attribution-ShareAlike 3.0 Unported (CC BY-SA 3.0)", "CC-BY-SA-3.0"),
        ("CC BY-NC-SA 4.0", "CC-BY-NC-SA-4.0"),
        ("ODC Public Domain Dedication and Licence (PDDL)", "PDDL-1.0"),
        ("ODC Attribution License (ODC-By)", "ODC-By-1.0"),
        ("Open Database License (ODbL)", "ODbL-1.0"),
        ("DbCL-1.0", "DbCL-1.0"),
        ("Database: Open Database, Contents: Database Contents", "ODbL-1.0"),
        ("Community Data License Agreement - Sharing - Version 1.0", "CDLA-Sharing-1.0"),
        ("Community Data License Agreement - Permissive - Version 1.0", "CDLA-Permissive-1.0"),
        ("Community Data License Agreement", "Community Data License Agreement"),
        ("CC BY", "CC BY"),  # of which version nobody says
        ("GPL 2", "GPL 2"),
    ],
)
def test_a_licence_has_one_name(said: str, name: str) -> None:
    assert spdx(said) == name
    assert spdx(name) == name
    assert is_open(said) == is_open(name)


def database(folder: Path, **about: Any) -> Path:
    (folder / "verify").mkdir(parents=True)
    (folder / "verify" / "all_metadata.json").write_text(json.dumps(about), "utf-8")
    return folder


def test_the_page_of_the_source_says_the_licence(tmp_path: Path) -> None:
    page = {"data_info": {"licenseName": "MIT"}, "meta_data": {"licenses": [{"name": "CC0-1.0"}]}}
    assert licence_of(database(tmp_path / "a", **page)) == "MIT"
    listed = {"data_info": None, "meta_data": page["meta_data"]}
    assert licence_of(database(tmp_path / "b", **listed)) == "CC0-1.0"
    assert licence_of(database(tmp_path / "c", data_info={"licenseName": "Unknown"})) is None
    assert licence_of(database(tmp_path / "d", question={}, meta_data=[1])) is None
    assert licence_of(tmp_path / "a", "CC-BY-4.0") == "CC-BY-4.0"  # a person looked


@pytest.mark.skipif(not DARE.is_dir(), reason="databases of the benchmark are not at hand")
def test_pages_of_published_databases_say_what_a_person_found() -> None:
    with open(DARE / "licences.csv", encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            assert licence_of(DARE / "databases" / row["database"]) == row["spdx"], row


def test_tables_can_be_cut_by_licence_and_by_targets() -> None:
    gold = {"task_type": "reg-MM", "truth_csv": "row_id,a,b\n1,2,3\n", "targets": ["a", "b"]}
    task = Task("t", "table", "reg-MM", "eval", [], gold, meta={"licence": "CC0-1.0"})
    found = family_of(task).slices(task)
    assert (found["licence"], found["targets"]) == ("CC0-1.0", "2")
    bare = Task("t", "table", "reg-MM", "eval", [], {})
    assert family_of(bare).slices(bare)["licence"] == "unknown"


@pytest.mark.slow
def test_an_import_without_a_list_of_licences_knows_them(tmp_path: Path) -> None:
    """A build is in the official format; its metadata names a licence as a page would."""
    pytest.importorskip("sklearn")
    pytest.importorskip("duckdb")
    draw = random.Random(5)
    lines = ["id,size,age,town,price"]
    for i in range(300):
        size, age = round(draw.gauss(90, 20), 1), draw.randint(0, 80)
        town = draw.choice(["Ulm", "Bonn", "Trier"])
        lines.append(f"{i},{size},{age},{town},{size * 3 - age + draw.gauss(0, 9):.2f}")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "houses.csv").write_text("\n".join(lines) + "\n", "utf-8")
    built = tmp_path / "built"
    words = ["dare", "--tables", str(tmp_path / "in"), "--target", "price", "--workers", "1"]
    assert main([*words, "--databases", "1", "--out", str(built)]) == 0
    for path in built.glob("databases/*/verify/all_metadata.json"):
        about = json.loads(path.read_text("utf-8"))
        path.write_text(json.dumps(about | {"data_info": {"licenseName": "Apache 2.0"}}), "utf-8")
    assert main(["dare", "--import", str(built), "--out", str(tmp_path / "T")]) == 0
    tasks = read_tasks(tmp_path / "T" / "tasks.jsonl")
    assert tasks and {task.meta["licence"] for task in tasks} == {"Apache-2.0"}
