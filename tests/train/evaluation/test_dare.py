"""`assay eval --tasks dare:PLACE`: a scripted solver, an endpoint, the paper's tables by hand, and
DSBench's own number."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas")
pytest.importorskip("sklearn")

from chat_server import Body, serving
from dare_worlds import prices
from front import command, results
from places import tables
from tiny_model import write_tiny_tokenizer

from assay.task import Score, Task, TaskError, read_tasks, with_absolute_files
from rollouts.trajectory import Trajectory
from train.evaluation import dare

pytestmark = pytest.mark.usefixtures("warm_sandbox")
main, tasks_main = command("eval"), command("tasks")
TABLES = tables("dare")


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with both variants of one small table, in the official format."""
    top = tmp_path_factory.mktemp("official")
    (top / "in").mkdir()
    prices(260).to_csv(top / "in" / "t.csv", index_label="id")
    words = ["dare", "--tables", str(top / "in"), "--databases", "1", "--workers", "1"]
    assert tasks_main([*words, "--out", str(top / "full")]) == 0
    return top / "full"


def test_tables_of_a_solver(official: Path, tmp_path: Path) -> None:
    write_tiny_tokenizer(tmp_path / "tok")
    words = ["--tasks", f"dare:{official}", "--model", "solver:reference", "--no-baselines"]
    words += [f"server.tokenizer={tmp_path / 'tok'}", "sampling.max_new_tokens=9000"]
    words += ["tools.brief=true", "tools.turns=2", "tools.run_s=60", "--out", str(tmp_path / "a")]
    assert main(words) == 0
    found = results(tmp_path / "a")["benchmarks"]["dare"]
    track = next(t for name, t in found["tracks"].items() if name.endswith("-IF"))
    assert (track["score"], track["exact"], track["attempts"], track["usable"]) == (100.0, 1, 1, 1)
    assert found["model_perf_file_exists"] > 10 and len(found["tracks"]) == 2
    assert "| track | tasks |" in (tmp_path / "a" / "table.md").read_text()


def test_an_endpoint_that_fails_is_no_wrong_answer(official: Path, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")

    def reply(body: Body) -> int | str:
        return 400 if "val_v1" in str(body["messages"]) else "I cannot."

    with serving(reply) as (url, _):
        words = ["--tasks", f"dare:{official}", "--model", url, "--no-baselines"]
        assert main([*words, "--out", str(tmp_path / "e")]) == 3
    found = results(tmp_path / "e")["benchmarks"]["dare"]
    tracks = {name.partition("-")[2]: track for name, track in found["tracks"].items()}
    scores = {name: (track["score"], track["no_outcome"]) for name, track in tracks.items()}
    assert scores == {"IF": (None, 1), "MM": (0.0, 0)}
    assert found["total_mean_of_tracks"] == 0.0 and found["failure_categories"]["code error"] == 1


# --- the paper's tables by hand ------------------------------------------------------------------


def row(track: str, task: str, strict: float, release: float, **more: Any) -> dict[str, Any]:
    readings = {"strict": strict, "release": release}
    return {
        "track": track,
        "task_id": task,
        "source": task,
        "outcome": strict,
        "parts": {"exists": 1.0, "usable": float(strict > 0)},
        "tokens_out": 100 if track.endswith("-IF") else 40,
        "tool_calls": 2,
        "turns": 2,
        "more": {"readings": readings, "failure_category": None, "errors": {}},
        **more,
    }


ROWS = [
    row("class-IF", "a", 1.0, 1.0),
    row("class-MM", "b", 0.0, 1.0),  # a repeated key: the published harness pays for it
    row("time-XF", "c", 0.5, 0.5),
    row("time-CF", "d", 0.0, 0.0),
]


CAUSES = TABLES["failures and their causes"]


@pytest.mark.parametrize(("stop", "last_call", "usable", "outcome", "cause"), CAUSES)
def test_failures_have_a_cause(
    stop: Any, last_call: str, usable: float, outcome: float, cause: str | None
) -> None:
    played = Trajectory("a", 0, [], [], [], [], stop, "", 0, notes={"last_call": last_call})
    score = Score(outcome, outcome, {"usable": usable})
    assert dare.category(Task("a", "table", "reg-IF", "", [], {}), played, score) == cause


def test_both_readings_and_costs_stand_in_one_table() -> None:
    tracks = dare.by_track(ROWS)
    assert tracks["class-MM"]["readings"] == {"strict": 0.0, "release": 100.0}
    total = dare.totals(tracks, ROWS)
    assert total["total_mean_of_tracks"] == total["readings"]["strict"]["total_mean_of_tracks"]
    assert total["readings"]["strict"]["total_mean_of_tracks"] == 37.5
    release = total["readings"]["release"]
    # what is not IF: 50 where a file exists, 75 above zero
    assert (release["total_mean_of_tracks"], release["model_perf_file_exists"]) == (62.5, 50.0)
    assert release["model_perf_above_zero"] == 75.0
    cost = dare.costs(ROWS, {"a": 600, "b": 200, "c": 220, "d": 240})
    assert [cost[kind]["attempts"] for kind in ("IF", "MM", "overall")] == [1, 3, 4]
    assert cost["MM"]["prompt_tokens"] == 220 and cost["overall"]["prompt_tokens"] == 315
    assert cost["overall"]["tokens"] == 55 and dare.costs(ROWS, {})["IF"]["prompt_tokens"] is None


def test_what_counts_as_exact_and_what_its_interval_is_clustered_by() -> None:
    def found(rows: list[tuple[str, float, str]]) -> dict[str, Any]:
        made = [row("class-IF", t, o, o) | {"source": table} for t, o, table in rows]
        return dare.by_track(made)["class-IF"]

    last_bit = found([("a", 0.9999999999999998, "a"), ("b", 0.9, "b")])
    assert last_bit["exact"] == 1
    assert last_bit["exact_interval"] == pytest.approx([9.45, 90.55], abs=0.01)
    assert found([("a", 1.0, "a"), ("b", 0.0, "a")])["exact_interval"] is None


# --- DSBench's own number ------------------------------------------------------------------------

NAME = "own-houses"
# the share of rows that are right, row by row, as scripts of competitions compare
SCRIPT = """
import argparse, csv, os
p = argparse.ArgumentParser()
for name in ("path", "name", "answer_file", "predict_file"):
    p.add_argument("--" + name)
a = p.parse_args()
rows = [list(csv.DictReader(open(f))) for f in (a.answer_file, a.predict_file)]
right = sum(x["id"] == y["id"] and x["y"] == y["y"] for x, y in zip(*rows))
open(os.path.join(a.path, a.name, "result.txt"), "w").write(str(right / len(rows[0])))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DSBench's `data_modeling` folder with one competition, whose baseline scores 0.5; `T` beside
    it has its task."""
    top = tmp_path_factory.mktemp("dsbench") / "data_modeling"
    files = TABLES["a_competition"] | {"evaluation/{}_eval.py": SCRIPT}
    for path, text in files.items():
        file = top / path.format(NAME)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    words = ["dare", "--import-dsbench", str(top / "data"), "--out", str(top.parent / "T")]
    assert tasks_main(words) == 0
    return top


# a table of predictions → the share: in another order, below the baseline, a row missing, …
PREDICTIONS = TABLES["shares_of_the_way"]


def test_the_share_of_the_way_from_the_baseline_to_the_best(home: Path, tmp_path: Path) -> None:
    (read,) = read_tasks(home.parent / "T" / "tasks.jsonl")
    task = with_absolute_files(read, home.parent / "T")
    assert dare.relative_gap(home, task, None) == 0.0
    found = {text: dare.relative_gap(home, task, text.encode()) for text in PREDICTIONS}
    assert found == pytest.approx(PREDICTIONS)
    # a script that fails scores nothing, and a copy that lacks files is told
    copy = shutil.copytree(home, tmp_path / "copy")
    script = copy / "evaluation" / f"{NAME}_eval.py"
    script.write_text("raise SystemExit(1)")
    assert dare.relative_gap(copy, task, next(iter(PREDICTIONS)).encode()) == 0.0
    script.unlink()
    with pytest.raises(TaskError, match=r"own-houses_eval\.py is not there"):
        dare.relative_gap(copy, task, None)


def test_an_evaluation_says_both_numbers(home: Path, tmp_path: Path) -> None:
    place = home.parent / "T"
    words = ["--tasks", f"dare:{place}", "--model", "gold", "--out", str(tmp_path / "E")]
    assert main([*words, f"dare.dsbench={home}"]) == 0
    text = (tmp_path / "E" / "table.md").read_text("utf-8")
    assert "DARE-bench's metric; by DSBench's own number 100.00" in text
    assert results(tmp_path / "E")["rows"][0]["more"]["relative_gap"] == 1.0
