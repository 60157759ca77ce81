"""Tasks with two targets, from the command that builds them to scores, a solver and the audit."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("duckdb")
pytest.importorskip("transformers")

import pandas as pd
from front import command
from tiny_model import write_tiny_tokenizer

from assay.family import score_answer
from assay.task import Answer, Task, read_tasks

KINDS = {"reg": ("price", "rent"), "class": ("heating", "lift")}


def flats() -> Any:
    """Two prices and two labels that size, age and floor explain, with noise of their own."""
    draw = random.Random(5)
    rows: list[dict[str, Any]] = []
    for i in range(420):
        size, age, floor = draw.gauss(90, 25), draw.randint(0, 80), draw.randint(0, 9)
        row = {"id": i, "size": round(size, 1), "age": age, "floor": floor}
        row["town"] = draw.choice(["Ulm", "Bonn", "Trier"])
        row["price"] = round(size * 3 - age + draw.gauss(0, 9), 2)
        row["rent"] = round(size / 9 + floor * 2 + draw.gauss(0, 3), 2)
        warm = age + draw.gauss(0, 8)
        row["heating"] = "gas" if warm < 30 else "oil" if warm < 58 else "coal"
        row["lift"] = "lift" if floor + draw.gauss(0, 1.5) > 4 else "stairs"
        rows.append(row)
    return pd.DataFrame(rows)


@pytest.fixture(scope="module", params=KINDS)
def built(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    top = tmp_path_factory.mktemp(request.param)
    (top / "in").mkdir()
    flats().to_csv(top / "in" / "flats.csv", index=False)
    words = ["dare", "--tables", str(top / "in"), "--databases", "1", "--workers", "1"]
    for target in KINDS[request.param]:
        words += ["--target", target]
    words += ["--features", "size,age,floor,town", "--out", str(top / "T")]
    assert command("tasks")(words) == 0
    return request.param, top / "T"


def tasks_of(built: tuple[str, Path]) -> dict[str, Task]:
    return {t.track: t for t in read_tasks(built[1] / "train.jsonl")}


def scored(task: Task, frame: Any) -> float | None:
    files = {"prediction.csv": frame.to_csv(index=False).encode()}
    return score_answer(task, Answer(files=files)).outcome


def test_question_gold_and_files_hold_both(built: tuple[str, Path]) -> None:
    kind, folder = built
    targets = KINDS[kind]
    for track, task in tasks_of(built).items():
        assert track.startswith(kind)
        question = str(task.prompt[0]["content"])
        assert all(f"`{name}`" in question for name in targets)
        assert list(task.gold["targets"]) == list(targets)
        truth = pd.read_csv(io.StringIO(task.gold["truth_csv"]))
        assert list(truth.columns) == ["row_id", *targets]
        if track.endswith("MM"):
            train, test = (_read(folder / task.files[n]) for n in sorted(task.files) if "v2" in n)
            assert set(targets) <= set(train.columns) and not set(targets) & set(test.columns)
    told = json.loads((folder / "certificate.json").read_text("utf-8"))
    assert told["dare"]["several_targets"] == 1


def _read(path: Path) -> Any:
    from data_gen.dare.layout import read_table

    return read_table(path)


def test_each_target_counts_alike(built: tuple[str, Path]) -> None:
    kind, _ = built
    one, two = KINDS[kind]
    for task in tasks_of(built).values():
        truth = pd.read_csv(io.StringIO(task.gold["truth_csv"]))
        assert scored(task, truth) == 1.0
        swapped = truth.assign(**{two: truth[two].sample(frac=1, random_state=1).to_numpy()})
        half = scored(task, swapped)
        assert half is not None and 0.5 <= half < 0.85
        constant = truth.assign(**{two: truth[two].mode()[0]})
        assert scored(task, constant) == pytest.approx(0.5, abs=0.21)
        assert scored(task, truth[["row_id", one]]) in (0.0, 0.5)  # not usable, or half of it


@pytest.mark.slow
def test_a_solver_that_does_what_is_stated_is_right_on_both(
    built: tuple[str, Path], tmp_path: Path
) -> None:
    kind, folder = built
    write_tiny_tokenizer(tmp_path / "tok")
    words = ["--tasks", f"dare:{folder / 'train.jsonl'}", "--model", "solver:reference"]
    words += [
        f"server.tokenizer={tmp_path / 'tok'}",
        "sampling.max_new_tokens=9000",
        "tools.brief=true",
    ]
    assert command("eval")([*words, "tools.turns=2", "--out", str(tmp_path / "E")]) == 0
    rows = json.loads((tmp_path / "E" / "results.json").read_text("utf-8"))["rows"]
    found = {row["track"]: row for row in rows}
    assert {row["slices"]["targets"] for row in rows} == {"2"}
    assert f"{kind}-MM" in found
    if f"{kind}-IF" in found:
        assert found[f"{kind}-IF"]["outcome"] == 1.0


@pytest.mark.slow
def test_no_cheat_earns_more_than_its_bound(built: tuple[str, Path], tmp_path: Path) -> None:
    words = ["--tasks", str(built[1] / "train.jsonl"), "--out", str(tmp_path / "audit.jsonl")]
    assert command("audit")(words) == 0
