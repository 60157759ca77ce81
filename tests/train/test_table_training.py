"""The benchmark of table tasks: equal rows, the tasks that are asked, and its table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from assay.task import Task, read_tasks, write_jsonl  # noqa: E402
from benchmarks import table_training as bench  # noqa: E402
from benchmarks.stages import Place  # noqa: E402
from data_gen.dare.agents import choices, read_question, short_model_code  # noqa: E402

QUESTION = "train_v2.csv, val_v2.csv. Predict y: regression. Numbers: a, b. Save prediction.csv."
CALL = '<tool_call>{"code": "import pandas as pd\\nfrom sklearn.tree import X as M\\n"}</tool_call>'


def task(name: str, track: str) -> Task:
    prompt = [{"role": "user", "content": QUESTION}]
    meta = {"table_group": name.partition(":")[0]}
    return Task(name, "table", track, "validation", prompt, {}, (), meta=meta)


@pytest.fixture
def run(tmp_path: Path) -> Place:
    """A folder with tasks of two tracks."""
    tasks = [task(f"t{i % 20}:{i}", "class-MM") for i in range(60)]
    tasks += [task(f"s{i}:0", "time-CF") for i in range(5)]
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "certificate.json").write_text("{}")
    for name in ("train", "validation"):
        write_jsonl(tmp_path / "tasks" / f"{name}.jsonl", (t.to_json() for t in tasks))
    return Place(tmp_path, 0, "model")


def test_a_rare_track_is_asked_whole(run: Place) -> None:
    asked = read_tasks(bench.chosen_tasks(run.out / "tasks", "validation"))
    assert len(asked) == bench.MOST["validation"]
    assert sum(t.track == "time-CF" for t in asked) == 5


def test_a_seed_has_its_own_examples(run: Place) -> None:
    other = Place(run.out, 1, "model")
    assert sorted(bench.shuffled(run)) == sorted(bench.shuffled(other))
    assert bench.shuffled(run) == bench.shuffled(run) != bench.shuffled(other)


def test_strategies_are_cut_to_equal_rows(run: Place) -> None:
    run.folder.mkdir()
    for strategy, rows in (("av", 30), ("dv", 8)):
        whole = pa.table({"task_id": [f"t{i}" for i in range(rows)]})
        pq.write_table(whole, run.folder / f"{strategy}.whole.parquet")
        bench.cut(run, strategy, 8)
        found = pq.read_table(run.folder / f"{strategy}.parquet")["task_id"].to_pylist()
        assert len(set(found)) == 8 and set(found) <= {f"t{i}" for i in range(rows)}


def test_the_estimator_of_a_script_is_told() -> None:
    asked = read_question(QUESTION)
    assert asked is not None
    for choice in choices(asked):
        code = json.dumps({"code": short_model_code(asked, choice)})
        assert bench.estimator(code) == choice.model
    assert bench.estimator("import pandas as pd") == bench.estimator("") == "none"


def test_finished_arms_are_told(run: Place, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = read_tasks(bench.chosen_tasks(run.out / "tasks", "validation"))
    for folder, outcome in ((run.out / "default", 0.25), (run.folder / "rl", 0.75)):
        target = folder.with_name(f"{folder.name}.validation")
        target.mkdir(parents=True)
        (target / "results.json").write_text("{}")
        rows = [
            {"task_id": t.id, "outcome": outcome, "reward": 0.1 + outcome, "output": CALL}
            for t in tasks
        ]
        write_jsonl(target / "rows.jsonl", rows)
    (run.folder / "rl.spent.json").write_text(json.dumps({"seconds": 90.0, "done": True}))
    assert bench.main(["--out", str(run.out), "--table"]) == 0
    said = capsys.readouterr().out
    assert "| `rl` | 0 | 0.750 [0.750, 0.750] | 0.750 | — | — | 0.750 | 40/40 | 1.5 |" in said
    assert "| `default` → `rl` | 0 | +0.500 [+0.500, +0.500] |" in said
    assert "| `rl` | X 40 |" in said
