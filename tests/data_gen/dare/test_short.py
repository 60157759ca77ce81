"""`--short` with MM, XF and CF: short questions over few columns, whole databases."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("pyarrow")

from front import command  # noqa: E402

from assay.task import Task, TaskError, read_tasks  # noqa: E402
from data_gen.dare.agents import read_question  # noqa: E402
from data_gen.dare.layout import csv_bytes  # noqa: E402
from data_gen.dare.targets import Looked  # noqa: E402
from data_gen.dare.wishes import FAMILIES, task_types  # noqa: E402
from data_gen.dare.wording import MOST, ROWS, few_columns, short_kinds, unfit_series  # noqa: E402
from rewards.dare.score import score_table_row  # noqa: E402

main = command("tasks")


def houses(rows: int = 400) -> Any:
    rng = random.Random(5)
    frame = pd.DataFrame(
        {
            "size": [rng.gauss(20, 6) for _ in range(rows)],
            "age": [rng.randint(1, 60) for _ in range(rows)],
            "rooms": [rng.randint(1, 9) for _ in range(rows)],
            "town": [rng.choice(["Ulm", "Bonn", "Hof"]) for _ in range(rows)],
        }
    )
    noise = pd.Series([rng.gauss(0, 4) for _ in range(rows)])
    return frame.assign(price=(frame["size"] * 3 - frame["age"] * 0.5 + noise).round(3))


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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("short")
    (top / "in").mkdir()
    (top / "in" / "houses.csv").write_bytes(csv_bytes(houses()))
    (top / "in" / "sales.csv").write_bytes(csv_bytes(sales()))
    words = ["dare", "--tables", str(top / "in"), "--short", "--workers", "1"]
    words += ["--task-types", "MM,XF,CF", "--databases", "6", "--out", str(top / "T")]
    words += ["--target", "houses:price", "--target", "sales:amount"]
    assert main(words) == 0
    return top / "T"


def all_tasks(folder: Path) -> list[Task]:
    files = [folder / f"{name}.jsonl" for name in ("train", "validation", "heldout")]
    return [task for file in files for task in read_tasks(file)]


def test_short_tasks_are_whole(built: Path) -> None:
    tasks = all_tasks(built)
    assert {task.track for task in tasks} == {"reg-MM", "time-XF", "time-CF"}
    for task in tasks:
        text = str(task.prompt[-1]["content"])
        asked = read_question(text)
        assert asked is not None and len(text) < 400
        assert [asked.train, asked.val] == list(task.files)  # and no metadata.txt
        head = (built / task.files[asked.train]).read_text().splitlines()
        named = {asked.target, *asked.numbers, *asked.words, *asked.keys, asked.time} - {""}
        assert named <= set(head[0].split(",")) and len(head) <= ROWS + 1
        found = score_table_row(task.gold, {"prediction_csv": task.gold["truth_csv"]})
        assert (found.outcome, found.why) == (1.0, "ok")


def test_what_mini_builds() -> None:
    plain = {"class": ("IF",), "reg": ("IF",)}
    assert short_kinds(FAMILIES, "") == plain
    assert short_kinds(task_types("class"), "class") == {"class": ("IF",)}
    assert short_kinds(task_types("MM,CF"), "MM,CF")["ts"] == ("CF",)
    with pytest.raises(TaskError, match="two folders"):
        short_kinds(task_types("IF,MM"), "IF,MM")
    with pytest.raises(TaskError, match="name the tracks"):
        short_kinds(task_types("series"), "series")


def test_few_columns_keeps_targets_and_names_that_can_be_listed() -> None:
    frame = pd.DataFrame({f"c{i}": range(700) for i in range(12)})
    frame = frame.assign(**{"two words": range(700), "many": list(map(str, range(700))), "y": 1.5})
    kinds = {c: "categorical" if c == "many" else "numerical" for c in frame.columns}
    found = few_columns(Looked(frame, kinds), ["y"], random.Random(0))
    assert found is not None and len(found.frame) == ROWS and "y" in found.kinds
    assert len(found.kinds) == MOST + 1 and not {"two words", "many"} & set(found.kinds)
    assert few_columns(Looked(frame[["c1", "y"]], kinds), ["y"], random.Random(0)) is None
    assert few_columns(Looked(frame, kinds), ["two words"], random.Random(0)) is None


def test_a_series_that_is_too_long_is_refused() -> None:
    assert "too many" in unfit_series(100_000, ["y"])
    assert "two words" in unfit_series(200, ["y", "two words"])
    assert unfit_series(200, ["y", "year.of"]) == ""
