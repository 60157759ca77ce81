"""`assay eval --tasks dare:DIR` with a scripted solver: rows, tables, totals, failure causes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from places import SHARED

pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("torch")

from chat_server import serving
from front import command
from tiny_model import write_tiny_tokenizer

main = command("eval")
tasks_main = command("tasks")


DARE = SHARED / "dare/tasks"


def price_list(rows: int = 260) -> str:
    """A CSV of flats whose price follows from size and age, but for some noise."""
    draw = random.Random(5)
    lines = ["id,size,age,rooms,town,price"]
    for i in range(rows):
        size, age = draw.gauss(20, 6), draw.randint(1, 60)
        price = round(size * 3 - age * 0.5 + draw.gauss(0, 4), 3)
        town = draw.choice(["Ulm", "Bonn", "Köln"])
        lines.append(f"{i},{size},{age},{draw.randint(1, 9)},{town},{price}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with both variants of one small table, in the official format."""
    top = tmp_path_factory.mktemp("official")
    (top / "in").mkdir()
    (top / "in" / "t.csv").write_text(price_list(), encoding="utf-8")
    out = top / "full"
    assert (
        tasks_main(
            [
                "dare",
                "--tables",
                str(top / "in"),
                "--databases",
                "1",
                "--out",
                str(out),
                "--workers",
                "1",
            ]
        )
        == 0
    )
    return out


def test_tables_of_a_solver(
    official: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tiny_tokenizer(tmp_path / "tok")
    common = [
        "--tasks",
        f"dare:{official}",
        f"server.tokenizer={tmp_path / 'tok'}",
        "sampling.max_new_tokens=9000",
        "tools.brief=true",
        "tools.turns=2",
        "tools.run_s=60",
    ]
    assert (
        main([*common, "--model", "solver:reference", "--out", str(tmp_path / "a"), "sampling.n=2"])
        == 0
    )
    results = json.loads((tmp_path / "a" / "results.json").read_text())["benchmarks"]["dare"]
    track = next(t for name, t in results["tracks"].items() if name.endswith("-IF"))
    assert (track["score"], track["exact"], track["attempts"], track["usable"]) == (100.0, 2, 2, 2)
    assert results["model_perf_file_exists"] > 10 and len(results["tracks"]) == 2
    assert "| class-IF |" in capsys.readouterr().out or "reg-IF" in results["tracks"]
    assert main([*common, "--model", "solver:words", "--out", str(tmp_path / "b")]) == 0
    results = json.loads((tmp_path / "b" / "results.json").read_text())["benchmarks"]["dare"]
    assert results["failure_categories"]["code error"] == 2
    assert results["total_mean_of_tracks"] == 0
    made = sorted(official.glob("*.jsonl"), key=lambda p: p.stat().st_size)[-1]
    assert (
        main(
            [
                "--tasks",
                f"dare:{made}",
                *common[2:],
                "--model",
                "solver:words",
                "--out",
                str(tmp_path / "f"),
                "--limit",
                "1",
            ]
        )
        == 0
    )
    assert main([*common, "--model", "solver:nobody", "--out", str(tmp_path / "c")]) == 2


def test_an_endpoint_that_fails_is_no_wrong_answer(
    official: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("aiohttp")
    with serving(lambda body: 400 if "val_v1" in str(body["messages"]) else "I cannot.") as (
        url,
        _,
    ):
        command = ["--tasks", f"dare:{official}", "--model", url, "--out", str(tmp_path / "e")]
        assert main(command) == 3
    results = json.loads((tmp_path / "e" / "results.json").read_text())["benchmarks"]["dare"]
    scores = {name.partition("-")[2]: t for name, t in results["tracks"].items()}
    assert (scores["IF"]["score"], scores["IF"]["no_outcome"]) == (None, 1)
    assert (scores["MM"]["score"], scores["MM"]["no_outcome"]) == (0.0, 0)
    assert (
        results["total_mean_of_tracks"] == 0.0 and results["failure_categories"]["code error"] == 1
    )
    assert "1 of 2 answers have no outcome" in capsys.readouterr().err


def test_a_score_that_falls_short_of_one_by_a_rounding_is_exact() -> None:
    from train.evaluation.dare_tables import by_track

    row = {
        "track": "reg-IF",
        "task_id": "t",
        "parts": {},
        "tokens_out": 1,
        "tool_calls": 0,
        "turns": 1,
    }
    rows = [{**row, "outcome": o, "source": str(o)} for o in (0.9999999999999998, 0.9)]
    found = by_track(rows)["reg-IF"]
    assert found["exact"] == 1
    assert found["exact_interval"] == pytest.approx([9.45, 90.55], abs=0.01)


def test_repeats_of_a_task_and_tasks_of_a_table_make_no_interval_narrower() -> None:
    from train.evaluation.dare_tables import by_track

    row = {"track": "class-IF", "parts": {}, "tokens_out": 1, "tool_calls": 0, "turns": 1}

    def interval(tasks: int, repeats: int, table: str = "") -> list[float] | None:
        rows = [
            {**row, "task_id": str(t), "outcome": float(t % 2), "source": table or f"table {t}"}
            for t in range(tasks)
            for _ in range(repeats)
        ]
        return by_track(rows)["class-IF"]["exact_interval"]

    once, thrice = interval(40, 1), interval(40, 3)
    assert once and thrice
    assert thrice[1] - thrice[0] == pytest.approx(once[1] - once[0], rel=0.15)
    assert interval(40, 3, "one table") is None
