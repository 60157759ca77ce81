"""The lake benchmark: its settings are read, its tables pair answers by task and by twin."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks import lake_training as bench
from configs.schema import GrpoRunConfig, SftRunConfig
from data_gen.queries.lake_build import options
from rollouts.environments import ENVIRONMENTS
from train.run.settings import load_run


@pytest.mark.parametrize("name", bench.ARMS)
def test_the_settings_of_every_arm_are_read(name: str) -> None:
    load_run(SftRunConfig, None, [*bench.ENGINE, *bench.SFT])
    config = load_run(GrpoRunConfig, None, [*bench.ENGINE, *bench.RL, *bench.ARMS[name]])
    assert (config.reward["answer"]["subtasks"] > 0) == (name == "rl_credit")
    words = options().parse_args([*bench.TASKS, *bench.SHARES, "--out", "x"])
    assert words.short and words.obscured and words.heldout_share and "lake_script" in ENVIRONMENTS


def write(file: Path, rows: list[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def answered(out: Path, seed: int, name: str, split: str, right: dict[str, float]) -> None:
    folder = bench.answers(out, seed, name, split)
    more = {"category": "recalled"}
    rows = [
        {"task_id": task, "outcome": value, "parts": {"subtask_credit": 0.5}, "more": more}
        | {"tokens_out": 80}
        for task, value in reversed(right.items())
    ]
    write(folder / "rows.jsonl", rows)
    (folder / "results.json").write_text("{}")


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """Answers of two arms to three held-out tasks over two tables, and to two twins."""
    meta = [{"tables": ["t1"]}, {"tables": ["t1"]}, {"tables": ["t2"]}]
    kinds = ("numeric_exact", "string_exact", "list_exact")
    tasks = [
        {"id": f"q{n}", "gold": {"answer_type": kind}, "meta": one}
        for n, (kind, one) in enumerate(zip(kinds, meta, strict=True))
    ]
    write(tmp_path / "tasks" / "heldout.jsonl", tasks)
    twins = [
        {"id": f"q{n}-obscured", "gold": tasks[n]["gold"], "meta": {"plain": f"q{n}"}}
        for n in (2, 0)
    ]
    write(tmp_path / "tasks" / "heldout_obscured.jsonl", twins)
    for seed in (0, 1):
        answered(tmp_path, seed, "sft", "heldout", {"q0": 0.0, "q1": 0.0, "q2": 1.0})
        answered(tmp_path, seed, "rl_credit", "heldout", {"q0": 1.0, "q1": 0.0, "q2": 1.0})
    answered(tmp_path, 0, "sft", "heldout_obscured", {"q2-obscured": 0.5, "q0-obscured": 0.0})
    return tmp_path


def test_answers_stand_in_the_order_of_tasks_with_their_table(finished: Path) -> None:
    found = bench.answers_of(finished, 0, "sft", "heldout")
    assert [(a.plain, a.table, a.outcome) for a in found] == [
        ("q0", "t1", 0.0),
        ("q1", "t1", 0.0),
        ("q2", "t2", 1.0),
    ]
    twins = bench.answers_of(finished, 0, "sft", "heldout_obscured")
    assert [(a.plain, a.table, a.outcome) for a in twins] == [("q2", "t2", 0.5), ("q0", "t1", 0.0)]
    assert bench.answers_of(finished, 0, "rl", "heldout") == []


def test_the_table_pairs_answers_by_task_and_twins_with_their_plain_task(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split in ("heldout", "heldout_obscured"):
        assert bench.main(["--out", str(finished), "--table", "--split", split]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert any(line.startswith("| sft | all | 0.333 [") and "2 of 6" in line for line in shown)
    assert any(line.startswith("| sft → rl_credit | 0 1 | +0.333 [") for line in shown)
    assert any(line.startswith("| sft | 0 | -0.250 [") for line in shown)
    assert "| sft: plain answers given to twins | | 2 of 2 | | |" in shown


def test_training_tasks_are_shared_out_once(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"id": f"q{n}"} for n in range(bench.EXAMPLES + 9)]
    write(tmp_path / "train.jsonl", rows)
    found = [[json.loads(line)["id"] for line in part.open()] for part in bench.halves(tmp_path)]
    assert [len(ids) for ids in found] == [bench.EXAMPLES, 9]
    assert sorted([*found[0], *found[1]]) == sorted(row["id"] for row in rows)
    assert bench.halves(tmp_path)[0].read_text().startswith(json.dumps({"id": found[0][0]}))


@dataclass(frozen=True)
class Trains:
    """A place that notes what it would train, on how many tasks, each run of 60 seconds."""

    folder: Path
    done: list[tuple[str, str, str, int, str]]
    seed: int = 0
    model: str = "untouched"
    extra: tuple[str, ...] = ()

    def trained(self, name: str) -> str:
        return name

    def train(self, name: str, command: str, data: Path, start: str, settings: Any) -> None:
        if name in [run[0] for run in self.done]:
            return
        epochs = ["", *(w for w in (*settings, *self.extra) if w.startswith("sft.epochs="))][-1]
        count = len(data.read_text().splitlines())
        self.done.append((name, command, start, count, epochs))
        (self.folder / f"{name}.spent.json").write_text(json.dumps({"seconds": 60, "done": True}))


def test_controls_take_the_time_of_what_they_are_held_against(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[dict[str, Any]] = [{"id": f"q{n}"} for n in range(bench.EXAMPLES + 32)]
    write(tmp_path / "tasks" / "train.jsonl", rows)
    asked = {json.loads(line)["id"] for line in bench.halves(tmp_path / "tasks")[1].open()}
    write(tmp_path / "rl" / "rollouts" / "step-1.jsonl", [{"task_id": name} for name in asked])
    monkeypatch.setattr(bench, "tasks_of", lambda place: tmp_path / "tasks")
    monkeypatch.setattr(bench, "gold", lambda place, tasks: tasks)
    place = Trains(tmp_path, [])
    for name in ("sft_more", "gold_more"):
        bench.train_arm(place, name)  # pyright: ignore[reportArgumentType]
    few, every = bench.EXAMPLES, bench.EXAMPLES + 32
    # 60 s are an epoch of 128 examples; of 160 an epoch is 75 s: two minutes are 1.6 of these
    assert place.done == [
        ("sft", "sft", "untouched", few, "sft.epochs=1"),
        ("rl", "grpo", "sft", 32, ""),
        ("sft_more", "sft", "untouched", few, "sft.epochs=2"),
        ("rl_credit", "grpo", "sft", 32, ""),
        ("all_gold", "sft", "untouched", every, "sft.epochs=2"),
        ("gold_rl", "grpo", "all_gold", 32, ""),
        ("gold_more", "sft", "untouched", every, "sft.epochs=2"),
    ]
