# ruff: noqa: E402
"""`assay tasks dare --tables`: databases of a folder from the command to their gold."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.fingerprints import column_hashes

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
pytest.importorskip("aiohttp")

from chat_server import serving
from dare_worlds import prices, sold_houses
from front import command
from harness import warm_pool

from assay.task import Task, read_tasks
from data_gen.dare.agents import (
    baseline_code,
    drawn_code,
    forest_code,
    reference_code,
)
from data_gen.dare.build import question_rows, without_repeats
from data_gen.dare.layout import csv_bytes, read_entries
from data_gen.dare.sources import sources
from data_gen.dare.targets import Built
from rewards.dare.score import score_table_row
from rollouts.event_loop import asyncio_run

main = command("tasks")
SPLITS = ("train", "validation", "heldout")


def houses() -> Any:
    frame = prices()
    size = frame["size"].where(frame.index % 9 > 0)  # some are missing
    return frame.assign(id=frame.index, size=size, copy=frame["price"] * 2 + 1)


def sales() -> Any:
    rng = random.Random(2)
    rows = [
        (1940 + i, shop, 50 + 3 * i + rng.randint(0, 40), add + 4.0 * i + rng.gauss(0, 8))
        for i in range(60)
        for shop, add in (("north", 10.0), ("south", 300.0), ("west", 700.0))
    ]
    return pd.DataFrame(rows, columns=["year", "shop", "visitors", "amount"]).round(3)


def build(tables: Path, out: Path, *words: str) -> int:
    told = ["dare", "--tables", str(tables), "--out", str(out), "--workers", "1"]
    return main([*told, *words])


SHORT = ("--short", "--databases", "2", "--validation-share", "0")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Full and short databases of one table, and short modelling tasks of a table and a series."""
    top = tmp_path_factory.mktemp("dare")
    for name in ("in", "two"):
        (top / name).mkdir()
        (top / name / "houses.csv").write_bytes(csv_bytes(houses()))
    (top / "two" / "sales.csv").write_bytes(csv_bytes(sales()))
    words = ("--databases", "2", "--validation-share", "0")
    assert build(top / "in", top / "full", *words) == 0
    assert build(top / "in", top / "mini", *SHORT) == 0
    words = ("--short", "--task-types", "MM,XF,CF", "--databases", "4")
    words += ("--target", "houses:price", "--target", "sales:amount")
    assert build(top / "two", top / "modelling", *words) == 0
    return top


def all_tasks(folder: Path) -> list[Task]:
    files = (folder / f"{name}.jsonl" for name in SPLITS)
    return [task for file in files if file.is_file() for task in read_tasks(file)]


@pytest.mark.parametrize("name", ["full", "mini", "modelling"])
def test_built_databases_are_whole_and_score_their_own_gold(built: Path, name: str) -> None:
    tasks = all_tasks(built / name)
    for entry in read_entries(built / name):
        assert entry.recipe["target"] != ["price"] or "copy" not in entry.recipe["related_features"]
    for task in tasks:
        found = score_table_row(task.gold, {"prediction_csv": task.gold["truth_csv"]})
        assert (found.outcome, found.why) == (1.0, "ok")
        assert "no_err" not in " ".join(task.files)
        assert "verify" not in " ".join(task.files.values())
        assert all((built / name / path).is_file() for path in task.files.values())
    proof = json.loads((built / name / "certificate.json").read_text())
    assert proof["ok"] and proof["dare"]["databases"] == len(read_entries(built / name))
    assert sum(proof["tasks"].values()) == len(tasks) and proof["proof"]["agreed"]


def scores(folder: Path, tasks: list[Task], write: Callable[[Task], str]) -> list[Any]:
    """What a scripted agent's code scores on tasks."""

    async def go() -> list[Any]:
        found: list[Any] = []
        for task in tasks:
            files = {n: (folder / p).read_bytes() for n, p in task.files.items()}
            result = await warm_pool().run(write(task), files, ["prediction.csv"])
            assert result.status == "ok", result.stderr
            answer = {"prediction_csv": result.files["prediction.csv"].decode()}
            found.append(score_table_row(task.gold, answer))
        return found

    return asyncio_run(go())


def test_a_script_that_does_what_is_stated_is_exact_on_every_built_if_task(built: Path) -> None:
    made: list[float | None] = []
    for name in ("full", "mini"):
        asked = [t for t in all_tasks(built / name) if t.track.endswith("-IF")]
        made += [score.outcome for score in scores(built / name, asked, reference_code)]
    assert len(made) >= 3 and {*made} == {1.0}


@pytest.mark.parametrize("write", [reference_code, drawn_code, forest_code, baseline_code])
def test_every_script_of_short_modelling_tasks_runs(built: Path, write: Any) -> None:
    top = built / "modelling"
    assert min(score.reward for score in scores(top, all_tasks(top), write)) >= 0.1


def test_the_same_seed_gives_the_same_bytes(built: Path, tmp_path: Path) -> None:
    assert build(built / "in", tmp_path, *SHORT) == 0
    for name in ("train.jsonl", "heldout.jsonl", "question_list.json", "certificate.json"):
        assert (tmp_path / name).read_bytes() == (built / "mini" / name).read_bytes()


def test_a_build_is_a_copy_that_can_be_imported_and_remade(built: Path, tmp_path: Path) -> None:
    """A build is in the official format. `--remake` replaces a stale answer by this machine's."""
    tasks = all_tasks(built / "full")
    assert main(["dare", "--import", str(built / "full"), "--out", str(tmp_path / "I")]) == 0
    again = {t.id: t.gold for t in read_tasks(tmp_path / "I" / "tasks.jsonl")}
    assert again == {t.id: t.gold for t in tasks}
    rows = [json.loads(json.dumps(t.to_json())) for t in tasks]
    for row in rows:
        if row["track"].endswith("-IF"):
            header = row["gold"]["truth_csv"].partition("\n")[0]
            row["gold"]["truth_csv"] = f"{header}\n1,0\n"
    stale = built / "full" / "stale.jsonl"
    stale.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["dare", "--remake", str(stale), "--out", str(tmp_path)]) == 0
    stale.unlink()
    made = read_tasks(tmp_path / "tasks.jsonl")
    assert [t.gold["truth_csv"] for t in made] == [t.gold["truth_csv"] for t in tasks]
    assert all((tmp_path / p).is_file() for task in made for p in task.files.values())


# --- what the user wants of her tables


def test_several_targets_features_and_words_of_the_user(tmp_path: Path) -> None:
    """And a question that an endpoint put into other words."""
    (tmp_path / "in").mkdir()
    sold_houses().to_csv(tmp_path / "in" / "houses.csv", index=False)
    (tmp_path / "about.txt").write_text(
        "Title: Houses sold\nLicence: MIT\nSold in Ulm.\n- `size`: floor area in square metres\n"
    )
    words = ["--target", "price", "--target", "rent", "--features", "size,age,town"]
    words += ["--databases", "2", "--describe", str(tmp_path / "about.txt"), "--licence", "MIT"]

    def other(body: dict[str, Any]) -> str:
        text = str(body["messages"][0]["content"]).rpartition("\n")[2]
        return text.replace("The columns are described", "Each column is described")

    out = tmp_path / "out"
    with serving(other) as (url, _):
        assert build(tmp_path / "in", out, *words, "--writer", url, "--writer-model", "m") == 0
    (found,) = (entry.recipe for entry in read_entries(out))
    assert found["target"] == ["price", "rent"]
    assert {*found["related_features"]} == {"size", "age", "town"}
    tasks = {t.track: t for t in read_tasks(out / "train.jsonl")}
    assert {*tasks} == {"reg-IF", "reg-MM"} and tasks["reg-IF"].meta["licence"] == "MIT"
    assert "Each column is described" in str(tasks["reg-MM"].prompt[0]["content"])
    said = (out / tasks["reg-IF"].files["metadata.txt"]).read_text()
    assert said.startswith("Houses sold") and "size: floor area in square metres (number" in said
    (score,) = scores(out, [tasks["reg-IF"]], reference_code)
    assert score.outcome == 1.0


# --- tables as people keep them ---


def test_every_table_of_a_folder_is_a_source(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as db:
        db.execute('create table "a ""b""" (x, y)')
        db.execute("create table orders (x)")
        db.execute("insert into orders values (7)")
    (tmp_path / "broken.sqlite").write_text("no database, but long enough to be looked into")
    (tmp_path / "notes.pdf").write_text("not a table")
    found = {s.title: s.load for s in sources([str(tmp_path)])}
    assert sorted(found) == ["broken", "notes.pdf", 'shop a "b"', "shop orders"]
    assert found["shop orders"]()["x"].tolist() == [7] and len(found['shop a "b"']()) == 0
    for title in ("broken", "notes.pdf"):
        with pytest.raises(ValueError, match=r"\w"):
            found[title]()


# --- copies, kin and repeats ---


def numbers(seed: int) -> Any:
    rng = random.Random(seed)
    frame = pd.DataFrame({c: [rng.gauss(0, 1) for _ in range(300)] for c in "abcde"})
    return frame.assign(firm=[f"Firm {seed} {i // 10}" for i in range(300)])


def test_what_asks_nearly_the_same_is_left_out_and_kin_stay_together(tmp_path: Path) -> None:
    row = {"task": "regression", "target": ["y"], "features": [*"abcde"], "table_group": "g"}
    others = [
        {"features": [*"abcd"]},  # nearly the same features
        {"features": [*"abxyz"]},
        {"target": ["y", "z"]},
        {"task": "classification"},
        {"table_group": "h"},
    ]
    kept, gone = without_repeats([row, *(row | one for one in others)])
    assert (len(kept), gone) == (5, [row | others[0]])
    whole, found = numbers(0), list[Built]()
    part = whole.sample(frac=0.8, random_state=1).rename(columns=str.upper)
    part["FIRM"] = pd.factorize(part["FIRM"])[0] + 100
    part[["A", "B"]] *= 0.3048
    for name, frame in (("whole", whole), ("part", part), ("again", whole), ("other", numbers(1))):
        (tmp_path / name / "source").mkdir(parents=True)
        frame.to_csv(tmp_path / name / "source" / "train_v2.csv", index=False)
        made = {"file_path": name, "source": name, "table_group": f"group-{name}", "task": "CF"}
        made |= {"target": ["A" if name == "part" else "a"], "features": [*"bcde"]}
        found.append(Built(name, [made], column_hashes(frame)))
    rows, repeats = question_rows(found, tmp_path, 1)
    assert [row["file_path"] for row in rows] == ["whole", "part", "other"] and len(repeats) == 1
    groups = [row["table_group"] for row in rows]
    assert groups[0] == groups[1] != groups[2]
