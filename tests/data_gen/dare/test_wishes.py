# ruff: noqa: E402
"""What the user wants of her tables: checked in one sentence, and done."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
pytest.importorskip("aiohttp")

from chat_server import serving
from dare_worlds import sold_houses
from front import command
from tiny_model import write_tiny_tokenizer

from assay.family import score_answer
from assay.task import Answer, Task, read_tasks
from data_gen.describe import read_describe
from data_gen.rewording import FILE

main = command("tasks")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("wishes") / "in"
    top.mkdir()
    sold_houses().to_csv(top / "houses.csv", index=False)
    return top


def run(tables: Path, out: Path, *words: str) -> int:
    told = ["dare", "--tables", str(tables), "--out", str(out), "--workers", "1"]
    return main([*told, "--databases", "2", *words])


def recipes(out: Path) -> list[dict[str, Any]]:
    found = sorted(out.glob("databases/*/verify/all_metadata.json"))
    return [json.loads(p.read_text())["question"] for p in found]


def test_a_wished_target_leaves_its_copies_out_and_its_question_is_reworded(
    tables: Path, tmp_path: Path
) -> None:
    words = ["--target", "price_in_dollars", "--task-types", "MM"]

    def other(body: dict[str, Any]) -> str:
        text = str(body["messages"][0]["content"]).rpartition("\n")[2]
        return text.replace("The columns are described", "Each column is described")

    with serving(other) as (url, _):
        assert run(tables, tmp_path, *words, "--writer", url, "--writer-model", "m") == 0
    (found,) = recipes(tmp_path)
    assert found["target"] == ["price_in_dollars"] and "price" not in found["related_features"]
    (task,) = read_tasks(tmp_path / "train.jsonl")
    assert task.track == "reg-MM" and task.meta["licence"] == "unknown"
    assert "Each column is described" in str(task.prompt[0]["content"])
    proof = json.loads((tmp_path / "certificate.json").read_text())
    assert proof["dare"]["reworded"]["reworded"] == 1 and (tmp_path / FILE).is_file()


@pytest.fixture(scope="module")
def two(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tasks with two targets, some features, and words of the user."""
    about = tables.parent / "about.yaml"
    about.write_text(
        "title: Houses sold\nlicence: CC0-1.0\ncolumns:\n  size: floor area in square metres\n"
        "  age: age of the house in years\n"
    )
    words = ["--target", "price", "--target", "rent", "--features", "size,age,town"]
    out = tables.parent / "T"
    assert run(tables, out, *words, "--describe", str(about), "--licence", "CC0") == 0
    return out


def test_several_targets_features_and_words_of_the_user(two: Path) -> None:
    (found,) = recipes(two)
    assert found["target"] == ["price", "rent"]
    assert {*found["related_features"]} == {"size", "age", "town"}
    tasks: dict[str, Task] = {t.track: t for t in read_tasks(two / "train.jsonl")}
    assert {*tasks} == {"reg-IF", "reg-MM"} and tasks["reg-IF"].meta["licence"] == "CC0-1.0"
    question = str(tasks["reg-IF"].prompt[0]["content"])
    used = [w for c, w in found["column_words"].items() if f"`{c}`" not in question]
    assert used and all(w in question for w in used)
    said = (two / tasks["reg-IF"].files["metadata.txt"]).read_text()
    assert said.startswith("Houses sold") and "size: floor area in square metres (number" in said
    certificate = json.loads((two / "certificate.json").read_text("utf-8"))
    assert certificate["dare"]["several_targets"] == 1
    for task in tasks.values():  # each target counts alike
        assert all(f"`{name}`" in str(task.prompt[0]["content"]) for name in found["target"])
        truth = pd.read_csv(io.StringIO(task.gold["truth_csv"]))
        assert list(truth.columns) == ["row_id", "price", "rent"]
        mixed = truth.assign(rent=truth["rent"].sample(frac=1, random_state=1).to_numpy())
        for frame, low, high in ((truth, 1.0, 1.0), (mixed, 0.45, 0.85)):
            files = {"prediction.csv": frame.to_csv(index=False).encode()}
            assert low <= (score_answer(task, Answer(files=files)).outcome or 0.0) <= high


@pytest.mark.slow
def test_a_solver_that_does_what_is_stated_is_right_on_both_and_no_cheat_is(
    two: Path, tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    write_tiny_tokenizer(tmp_path / "tok")
    words = ["--tasks", f"dare:{two / 'train.jsonl'}", "--model", "solver:reference"]
    words += [f"server.tokenizer={tmp_path / 'tok'}", "sampling.max_new_tokens=9000"]
    words += ["tools.brief=true", "tools.turns=2", "--out", str(tmp_path / "E")]
    assert command("eval")(words) == 0
    rows = json.loads((tmp_path / "E" / "results.json").read_text("utf-8"))["rows"]
    assert {row["slices"]["targets"] for row in rows} == {"2"}
    assert {row["track"]: row["outcome"] for row in rows}["reg-IF"] == 1.0
    words = ["--tasks", str(two / "train.jsonl"), "--out", str(tmp_path / "audit.jsonl")]
    assert command("audit")(words) == 0


def test_with_several_tables_a_column_is_named_with_its_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, seed in (("houses", 5), ("flats", 9)):
        sold_houses(seed=seed).to_csv(folder / f"{name}.csv", index=False)
    for target in ("price", "flat:price"):
        assert run(folder, tmp_path / "a", "--target", target) == 2
        said = capsys.readouterr().err
        assert "TABLE:COLUMN" in said and "flats, houses" in said
    assert run(folder, tmp_path / "b", "--target", "flats:rent", "--task-types", "reg,MM") == 0
    assert [r["target"] for r in recipes(tmp_path / "b")] == [["rent"]]
    rows = [json.loads(x) for x in (tmp_path / "b" / "refused.jsonl").read_text().splitlines()]
    assert "in_houses" in {row["name"] for row in rows if not row["used"]}


def test_a_description_may_be_plain_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Title: Houses\nLicence: MIT\nSold in Ulm.\n- `size`: area\n")
    found = read_describe(tmp_path / "a.txt")[""]
    assert (found.title, found.licence, found.about) == ("Houses", "MIT", "Sold in Ulm.")
    assert found.columns == {"size": "area"}
