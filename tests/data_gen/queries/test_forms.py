"""Short questions: one table, two steps at most, and a script that prints what gold says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from front import command

pd = pytest.importorskip("pandas")

from random import Random  # noqa: E402

from assay.task import read_tasks  # noqa: E402
from data_gen.queries.lake import (  # noqa: E402
    Lake,
    divided,
    open_lake,
)
from data_gen.queries.lake_build import SHORT, fits, script, short_lake  # noqa: E402
from data_gen.queries.lake_checks import validate  # noqa: E402
from data_gen.queries.lake_questions import question_for  # noqa: E402
from data_gen.queries.pipeline import Question  # noqa: E402
from data_gen.splits import SPLITS  # noqa: E402

main = command("tasks", "lake")
KIND = ("Turm", "Hof", "Haus", "Scheune", "Mühle", "Kirche", "Stall", "Tor", "Wall")


def frame(shift: int, rows: int = 120) -> Any:
    rng = Random(shift)
    height = [round(rng.uniform(3, 90), 2) for _ in range(rows)]
    return pd.DataFrame(
        {
            "Name": [f"n{shift} {i}" for i in range(rows)],
            "Kind": [rng.choice(KIND) for _ in range(rows)],
            f"Height {shift}": [h if i % 9 else None for i, h in enumerate(height)],
            f"Weight {shift}": [round(rng.gauss(50, 9), 1) for _ in range(rows)],
        }
    )


def write_lake(folder: Path, tables: int = 8) -> Path:
    """Tables in the forms that a short script can load, and one that it cannot."""
    folder.mkdir(parents=True)
    for n in range(tables):
        table, name = frame(n), folder / f"survey{n}"
        if n % 4 == 0:
            table.to_csv(f"{name}.csv", index=False)
        elif n % 4 == 1:
            table.to_csv(f"{name}.csv", index=False, sep=";", decimal=",")
        elif n % 4 == 2:
            table.to_json(f"{name}.jsonl", orient="records", lines=True, force_ascii=False)
        else:
            head = "Table of things\nSource: see the notes\n"
            Path(f"{name}.tsv").write_text(head + table.to_csv(index=False, sep="\t"), "utf-8")
    frame(50).to_excel(folder / "book.xlsx", index=False)
    for path in [folder, *folder.iterdir()]:
        path.chmod(0o755)
    return folder


def test_short_tasks_are_proved_split_by_table_and_have_twins(tmp_path: Path) -> None:
    lake, out = write_lake(tmp_path / "lake"), tmp_path / "out"
    words = ["--lakes", str(lake), "--short", "--obscured", "--count", "12", "--out", str(out)]
    shares = ["--heldout-share", "0.25", "--validation-share", "0.3"]
    assert main([*words, *shares, "--seed", "2", "--workers", "1"]) in (
        0,
        2,
    )  # 2: a constant pays among few tasks
    parts = {n: read_tasks(out / f"{n}.jsonl") for n in ("train", "validation", "heldout")}
    sides = [{str(k) for t in tasks for k in t.meta["keys"]} for tasks in parts.values()]
    assert all(sides) and sum(map(len, sides)) == len(set.union(*sides))
    twins = read_tasks(out / "train_obscured.jsonl")
    tasks = [t for found in parts.values() for t in found]
    assert {t.meta["plain"] for t in twins} <= {t.id for t in tasks} and twins
    for task in [*tasks, *twins]:
        assert task.tools == ("lake_script",) and len(task.meta["keys"]) == 1
        steps = [s["kind"] for s in task.gold["subtasks"]]
        assert len([k for k in steps if k not in ("load", "clean")]) <= 2
        assert task.gold["pipeline"].count("print(") == len(steps)
        assert "book.xlsx" not in task.gold["pipeline"]
    plain = {t.id: t.gold["pipeline"] for t in tasks}
    assert all(t.gold["pipeline"] != plain[t.meta["plain"]] for t in twins)


def short(folder: Path) -> Lake:
    return short_lake(open_lake(folder))


def question(lake: Lake, kind: str, start: int) -> Question:
    """The first question of a kind that is short, from a seed on."""
    for seed in range(start, start + 500):
        try:
            found = question_for(lake.tables, kind, seed, lake.links)
        except ValueError:
            continue
        if not fits(lake, found):
            return replace(found, script=script(lake, found))
    raise AssertionError(kind)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return short(write_lake(tmp_path_factory.mktemp("short") / "lake", 4))


@pytest.mark.parametrize("kind", SHORT.kinds)
def test_a_script_that_prints_other_values_is_refused(lake: Lake, kind: str) -> None:
    for start in range(0, 40_000, 1000):
        found = question(lake, kind, start)
        values, why = validate(found, lake.folder)
        assert why != "the short script differs", (found.script, values)
        if values is not None:
            break
    else:
        pytest.fail(f"no question of kind {kind} is a task")
    for broken in (
        found.script.replace("print(len(t))", "print(len(t) + 1)", 1),
        found.script + "print(0)\n",
        found.script.replace("import pandas as pd", "import panda as pd"),
        found.script.rpartition("print(")[0],
    ):
        assert validate(replace(found, script=broken), lake.folder)[1] == "the short script differs"


def test_only_plain_tables_are_asked_about(tmp_path: Path) -> None:
    folder = write_lake(tmp_path / "lake", 3)
    wide = frame(60).assign(**{f"more {i}": range(120) for i in range(12)})
    wide.to_csv(folder / "wide.csv", index=False)
    found = short(folder)
    assert {t.path for t in found.tables} == {"survey0.csv", "survey1.csv", "survey2.jsonl"}
    assert found.refused["wide.csv"].startswith("--short: ")
    assert list(found.links) == [(), (), ()]


def test_a_share_of_the_tables_is_held_out(tmp_path: Path) -> None:
    lake = open_lake(write_lake(tmp_path / "lake"))
    for seed in range(6):
        split = divided([lake], [], 0.4, 0.3, seed)
        sides = [{t.key for one in split[n] for t in one.tables} for n in SPLITS]
        assert sum(map(len, sides)) == len(set.union(*sides)) == len(lake.tables)
        again = divided([lake], [], 0.4, 0.3, seed)["heldout"]
        assert {t.key for one in again for t in one.tables} == sides[2]


def test_a_share_is_below_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--lakes", str(tmp_path), "--out", str(tmp_path / "out"), "--heldout-share", "1"])
    assert "1: wanted a share from 0 to below 1" in capsys.readouterr().err
