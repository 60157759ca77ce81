"""What the user wants of her tables: checked in one sentence, and done."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from front import command  # noqa: E402

from assay.task import TaskError, read_tasks  # noqa: E402
from data_gen.dare.wishes import task_types  # noqa: E402
from data_gen.describe import read_describe  # noqa: E402

main = command("tasks")


def houses(rows: int = 320, seed: int = 5) -> Any:
    rng = random.Random(seed)
    day = pd.Series(pd.date_range("2019-01-01", periods=rows)).dt.strftime("%Y-%m-%d")
    frame = pd.DataFrame({"id": range(rows), "sold_on": day})
    frame["size"] = [round(rng.gauss(90, 20), 1) for _ in range(rows)]
    frame["age"] = [rng.randint(0, 80) for _ in range(rows)]
    frame["town"] = [rng.choice(["Ulm", "Bonn", "Trier"]) for _ in range(rows)]
    frame["price"] = [
        round(s * 3 - a + rng.gauss(0, 9), 2)
        for s, a in zip(frame["size"], frame["age"], strict=True)
    ]
    frame["rent"] = [round(p / 25 + rng.gauss(0, 1), 2) for p in frame["price"]]
    frame["price_in_dollars"] = (frame["price"] * 1.09).round(2)
    return frame


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("wishes") / "in"
    top.mkdir()
    houses().to_csv(top / "houses.csv", index=False)
    return top


def run(tables: Path, out: Path, *words: str) -> int:
    told = ["dare", "--tables", str(tables), "--out", str(out), "--workers", "1"]
    return main([*told, "--databases", "2", *words])


def recipes(out: Path) -> list[dict[str, Any]]:
    found = sorted(out.glob("databases/*/verify/all_metadata.json"))
    return [json.loads(p.read_text())["question"] for p in found]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--target", "prise"], "no such column; the nearest: price"),
        (["--target", "id"], "an identifier or a running number"),
        (["--target", "price", "--target", "town"], "name them apart"),
        (["--target", "town", "--task-types", "reg"], "no task of reg can ask for it"),
        (["--features", "size,agee"], "--features agee: table houses has no such column"),
        (["--features", "size"], "give two features or more"),
        (["--target", "price", "--features", "price,age"], "cannot be a feature"),
        (["--time", "town"], "its values are no times, such as 'Bonn'"),
        (["--time", "sold_on", "--task-types", "class,reg"], "leaves no series"),
        (["--task-types", "clas"], "did you mean 'class'"),
        (["--task-types", "series,IF"], "series has XF and CF"),
        (["--licence", "MIT"], "no table gave a task"),
    ],
)
def test_what_cannot_be_had_is_said_in_one_sentence(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert run(tables, tmp_path, *words) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "train.jsonl").exists()


def test_a_wished_target_leaves_its_copies_out(tables: Path, tmp_path: Path) -> None:
    words = ("--target", "price_in_dollars", "--task-types", "MM")
    assert run(tables, tmp_path, *words) == 0
    (found,) = recipes(tmp_path)
    assert found["target"] == ["price_in_dollars"] and "price" not in found["related_features"]
    (task,) = read_tasks(tmp_path / "train.jsonl")
    assert task.track == "reg-MM" and task.meta["licence"] == "unknown"


def test_features_that_give_the_target_away_are_refused(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--target", "price", "--features", "size,price_in_dollars", "--task-types", "MM")
    assert run(tables, tmp_path, *words) == 2
    assert "price_in_dollars gives the target away" in capsys.readouterr().err


def test_several_targets_features_and_words_of_the_user(tables: Path, tmp_path: Path) -> None:
    about = tmp_path / "about.yaml"
    about.write_text(
        "title: Houses sold\nlicence: CC0-1.0\ncolumns:\n  size: floor area in square metres\n"
        "  age: age of the house in years\n"
    )
    words = ["--target", "price", "--target", "rent", "--features", "size,age,town"]
    out = tmp_path / "T"
    assert run(tables, out, *words, "--describe", str(about), "--licence", "CC0") == 0
    (found,) = recipes(out)
    assert found["target"] == ["price", "rent"]
    assert set(found["related_features"]) == {"size", "age", "town"}
    tasks = {t.track: t for t in read_tasks(out / "train.jsonl")}
    assert set(tasks) == {"reg-IF", "reg-MM"} and tasks["reg-IF"].meta["licence"] == "CC0-1.0"
    question = str(tasks["reg-IF"].prompt[0]["content"])
    used = [w for c, w in found["column_words"].items() if f"`{c}`" not in question]
    assert used and all(w in question for w in used)
    said = (out / tasks["reg-IF"].files["metadata.txt"]).read_text()
    assert said.startswith("Houses sold") and "size: floor area in square metres (number" in said


def test_the_time_column_is_the_users(tables: Path, tmp_path: Path) -> None:
    frame = houses()
    frame["price"] = [50 + 9 * ((i // 7) % 5) + random.Random(i).gauss(0, 1) for i in range(320)]
    folder = tmp_path / "in"
    folder.mkdir()
    frame.drop(columns="price_in_dollars").rename(columns={"sold_on": "when"}).to_csv(
        folder / "h.csv", index=False
    )
    words = ("--target", "price", "--time", "when", "--task-types", "XF")
    assert run(folder, tmp_path / "T", *words) in (0, 2)
    for found in recipes(tmp_path / "T"):
        assert found["time_column"] == "when" and found["target"] == ["price"]


def test_with_several_tables_a_column_is_named_with_its_table(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    houses().to_csv(folder / "houses.csv", index=False)
    houses(seed=9).to_csv(folder / "flats.csv", index=False)
    assert run(folder, tmp_path / "a", "--target", "price") == 2
    assert "write TABLE:COLUMN; the tables are called: flats, houses" in capsys.readouterr().err
    assert run(folder, tmp_path / "a", "--target", "flat:price") == 2
    assert "nearest to that: flats" in capsys.readouterr().err
    assert run(folder, tmp_path / "b", "--target", "flats:rent", "--task-types", "reg,MM") == 0
    assert [r["target"] for r in recipes(tmp_path / "b")] == [["rent"]]
    rows = [json.loads(x) for x in (tmp_path / "b" / "refused.jsonl").read_text().splitlines()]
    assert ["no --target names it"] in [row["why"] for row in rows]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", "colums: {}", "did you mean 'columns'"),
        ("a.yaml", "columns: [a]", "wanted names with values"),
        ("a.yaml", "columns: {a: [1]}", "wanted words"),
        ("a.yaml", "a: [", "no YAML"),
    ],
)
def test_a_description_that_cannot_be_used(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(TaskError, match=said):
        read_describe(tmp_path / name)


def test_a_description_may_be_plain_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Title: Houses\nLicence: MIT\nSold in Ulm.\n- `size`: area\n")
    found = read_describe(tmp_path / "a.txt")[""]
    assert (found.title, found.licence, found.about) == ("Houses", "MIT", "Sold in Ulm.")
    assert found.columns == {"size": "area"}


def test_a_description_of_an_unknown_column_or_table_is_refused(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    about = tmp_path / "about.yaml"
    about.write_text("columns: {sise: words}")
    assert run(tables, tmp_path / "T", "--describe", str(about)) == 2
    assert "--describe sise: table houses has no such column; the nearest: size" in (
        capsys.readouterr().err
    )
    about.write_text("tables: {house: {title: x}}")
    assert run(tables, tmp_path / "T", "--describe", str(about)) == 2
    assert "no table 'house'; did you mean 'houses'" in capsys.readouterr().err


def test_kinds_of_tasks_are_families_tracks_or_both() -> None:
    assert task_types("class") == {"class": ("IF", "MM")}
    assert task_types("MM,XF") == {"class": ("MM",), "reg": ("MM",), "ts": ("XF",)}
    assert task_types("reg,series,IF,CF") == {"reg": ("IF",), "ts": ("CF",)}
