# ruff: noqa: E402
"""`assay tasks dare --tables`: databases of a folder from the command to their gold."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from assay.fingerprints import column_hashes

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from dare_worlds import prices
from front import command
from harness import warm_pool

from assay.task import Task, read_tasks
from data_gen.certificate import Refusal
from data_gen.dare.agents import faithful_code, read_question, short_code
from data_gen.dare.build import inputs_of, question_rows, without_repeats
from data_gen.dare.layout import csv_bytes, read_entries
from data_gen.dare.sources import listed, sources
from data_gen.dare.targets import Built
from data_gen.dare.wording import ROWS
from data_gen.overlap import kin_of_databases
from rewards.dare.score import score_table_row
from rollouts.event_loop import asyncio_run

main = command("tasks")
SPLITS = ("train", "validation", "heldout")


def houses(rows: int = 400) -> Any:
    frame = prices(rows)
    return frame.assign(id=range(rows), copy=frame["price"] * 2 + 1)


def sales(years: int = 60) -> Any:
    rng = random.Random(2)
    rows = [
        {
            "year": 1940 + i,
            "shop": shop,
            "visitors": 50 + 3 * i + rng.randint(0, 40),
            "staff": rng.randint(2, 9),
            "amount": round(add + 4.0 * i + rng.gauss(0, 8), 3),
        }
        for i in range(years)
        for shop, add in (("north", 10.0), ("south", 300.0), ("west", 700.0))
    ]
    return pd.DataFrame(rows)


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
    # with texts as Python's strings, as the build has them, pandas names no months
    assert pd.get_option("mode.string_storage") == "auto"


def test_short_modelling_tasks_say_all_in_one_line(built: Path) -> None:
    tasks = all_tasks(built / "modelling")
    assert {task.track for task in tasks} == {"reg-MM", "time-XF", "time-CF"}
    for task in tasks:
        text = str(task.prompt[-1]["content"])
        asked = read_question(text)
        assert asked is not None and len(text) < 400
        assert [asked.train, asked.val] == list(task.files)  # and no metadata.txt
        head = (built / "modelling" / task.files[asked.train]).read_text().splitlines()
        named = {asked.target, *asked.numbers, *asked.words, *asked.keys, asked.time} - {""}
        assert named <= {*head[0].split(",")} and len(head) <= ROWS + 1


def test_a_faithful_script_is_exact_on_every_built_if_task(built: Path) -> None:
    async def go() -> list[float | None]:
        scores: list[float | None] = []
        for name, write in (("full", faithful_code), ("mini", short_code)):
            for task in all_tasks(built / name):
                if task.track.endswith("-IF"):
                    files = {n: (built / name / p).read_bytes() for n, p in task.files.items()}
                    code = write(task.gold["recipe"])
                    result = await warm_pool().run(code, files, ["prediction.csv"])
                    assert result.status == "ok", result.stderr
                    answer = {"prediction_csv": result.files["prediction.csv"].decode()}
                    scores.append(score_table_row(task.gold, answer).outcome)
        return scores

    scores = asyncio_run(go())
    assert len(scores) >= 3 and {*scores} == {1.0}


def test_the_same_seed_gives_the_same_bytes(built: Path, tmp_path: Path) -> None:
    assert build(built / "in", tmp_path, *SHORT) == 0
    for name in ("train.jsonl", "heldout.jsonl", "question_list.json", "certificate.json"):
        assert (tmp_path / name).read_bytes() == (built / "mini" / name).read_bytes()


def test_a_build_is_a_copy_that_can_be_imported_and_remade(built: Path, tmp_path: Path) -> None:
    """A build is in the official format. `--remake`: a stale answer and foreign versions are
    replaced by this machine's."""
    tasks = all_tasks(built / "full")
    assert main(["dare", "--import", str(built / "full"), "--out", str(tmp_path / "I")]) == 0
    again = {t.id: t.gold for t in read_tasks(tmp_path / "I" / "tasks.jsonl")}
    assert again == {t.id: t.gold for t in tasks}
    rows = [json.loads(json.dumps(t.to_json())) for t in tasks]
    for row in rows:
        if row["track"].endswith("-IF"):
            header = row["gold"]["truth_csv"].partition("\n")[0]
            row["gold"] |= {"truth_csv": f"{header}\n1,0\n", "made_with": {"numpy": "0.1"}}
    stale = built / "full" / "stale.jsonl"
    stale.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["dare", "--remake", str(stale), "--out", str(tmp_path)]) == 0
    stale.unlink()
    made = read_tasks(tmp_path / "tasks.jsonl")
    assert [t.gold["truth_csv"] for t in made] == [t.gold["truth_csv"] for t in tasks]
    versions = next(t.gold["made_with"] for t in made if t.track.endswith("-IF"))
    assert versions["pandas"] == pd.__version__
    assert all((tmp_path / p).is_file() for task in made for p in task.files.values())
    assert main(["dare", "--remake", str(built / "no.jsonl"), "--out", str(tmp_path)]) == 2


# --- tables as people keep them ---


def test_every_table_of_a_folder_is_a_source(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as db:
        db.execute('create table "a ""b""" (x, y)')
        db.execute("create table orders (x)")
        db.execute("insert into orders values (7)")
    (tmp_path / "sub").mkdir()
    pd.DataFrame({"z": [1]}).to_parquet(tmp_path / "sub" / "p.parquet")
    (tmp_path / "broken.sqlite").write_text("no database, but long enough to be looked into")
    (tmp_path / "notes.pdf").write_text("not a table")
    found = {s.title: s.load for s in sources([str(tmp_path)])}
    assert sorted(found) == ["broken", "notes.pdf", "p", 'shop a "b"', "shop orders"]
    assert found["shop orders"]()["x"].tolist() == [7] and len(found['shop a "b"']()) == 0
    for title in ("broken", "notes.pdf"):
        with pytest.raises(ValueError, match=r"\w"):
            found[title]()
    kinds = {one.kind for asked in listed().values() for one in asked}  # of the two packages
    assert len(listed()) > 100 and kinds == {"class", "reg", "series"}


def test_every_table_is_an_input_with_its_licence_and_reasons() -> None:
    found = [Built("dull", refused=[Refusal("small", "small")], licence="MIT")]
    found += [Built("good", [{}], refused=[Refusal("draft", "dull", "reg y")])]
    found += [Built("good", refused=[Refusal("enough", "enough", "x")]), Built("none")]
    row = {"source": "good", "question_v1": "x", "question_v2": ""}
    dull, good, none = inputs_of(found, [row, row])
    assert (dull.tasks, dull.licence, dull.why) == (0, "MIT", ("small",)) and not dull.used
    assert (good.tasks, good.licence, good.why) == (2, "unknown", ("reg y: dull", "x: enough"))
    assert none.why and not none.used


# --- copies, kin and repeats ---


def numbers(seed: int, rows: int = 300) -> Any:
    rng = random.Random(seed)
    frame = pd.DataFrame({c: [rng.gauss(0, 1) for _ in range(rows)] for c in "abcde"})
    return frame.assign(firm=[f"Firm {seed} {i // 10}" for i in range(rows)])


def database(top: Path, name: str, **files: Any) -> dict[str, str]:
    folder = top / name / "source"
    folder.mkdir(parents=True)
    for file, frame in files.items():
        frame.to_csv(folder / f"{file}.csv", index=False)
    return {"file_path": name, "source": name, "table_group": f"group-{name}"}


def test_tables_drawn_from_one_another_are_kin(tmp_path: Path) -> None:
    whole = numbers(0)
    drawn = whole.sample(frac=0.6, random_state=1)[[*"ecbda"]]
    units = whole.sample(frac=0.8, random_state=1).rename(columns=str.upper)
    units["FIRM"] = pd.factorize(units["FIRM"])[0] + 100
    units[["A", "B"]] *= 0.3048
    rows = [
        database(tmp_path, "whole", train_v2=whole),
        database(tmp_path, "drawn", train=drawn),
        database(tmp_path, "units", train=units),
        database(tmp_path, "parts", train=whole[["firm", "a"]], covariates_train=whole[[*"bcd"]]),
        database(tmp_path, "other", train_v2=numbers(1)),
    ]
    found = kin_of_databases(rows, tmp_path)
    alone = [name for name in found if found[name] == name and name != found["group-whole"]]
    assert alone == ["group-other"] and len(found) == len(rows)
    thin = database(tmp_path, "thin", train=whole[["firm", "a"]])
    copy = database(tmp_path, "copy", train=whole.sample(frac=0.8, random_state=1)[[*"abcde"]])
    found = kin_of_databases([thin, copy], tmp_path)  # one measured column says too little
    assert found["group-thin"] != found["group-copy"]


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
    for name, frame in (("whole", whole), ("part", whole.head(180)), ("other", numbers(1))):
        made = {**database(tmp_path, name, train_v2=frame), "task": "CF", "target": ["a"]}
        found.append(Built(name, [{**made, "features": [*"bcde"]}], column_hashes(frame)))
    rows, repeats = question_rows(found, tmp_path, 1)
    assert [row["file_path"] for row in rows] == ["whole", "other"] and len(repeats) == 1
    found[1].rows[0]["target"] = ["b"]  # another question of the same table
    rows, repeats = question_rows(found, tmp_path, 1)
    assert repeats == []
    assert rows[0]["table_group"] == rows[1]["table_group"] != rows[2]["table_group"]
