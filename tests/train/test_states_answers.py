"""Order tasks whose answers write their states: through SFT, RL, evaluation and the viewer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from assay.task import Task, write_jsonl  # noqa: E402
from data_gen.corpora import read_corpus  # noqa: E402
from data_gen.demo.order import OrderSettings, build_order_tasks  # noqa: E402
from rewards.cdr.score import gold_answer  # noqa: E402
from train.cli.eval import main as evaluate  # noqa: E402
from train.cli.grpo import main as grpo  # noqa: E402
from train.cli.sft import main as sft  # noqa: E402
from train.cli.view import main as view  # noqa: E402
from train.run.log import read_metrics  # noqa: E402

ENGINE = ["engine.dtype=float32", "engine.threads=1", "validation=null"]
RL = ["rl.prompts_per_step=4", "rl.mini_batch=4", "rl.rollouts_per_prompt=2", "rl.steps=3"]
RL += ["rl.max_new_tokens=12", "rl.max_length=480", "rl.save_every=9"]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Task]]:
    few = OrderSettings(4, 4, 2, 0, mapper_share=0.5, max_chars=90, brief=True, states=True)
    made = build_order_tasks(read_corpus(None), few, 0)["train_rl"]
    file = tmp_path_factory.mktemp("order") / "train_rl.jsonl"
    write_jsonl(file, (task.to_json() for task in made))
    return file, made


def rows(folder: Path) -> list[dict[str, object]]:
    files = sorted(folder.glob("*.jsonl"))
    return [json.loads(line) for f in files for line in f.read_text().splitlines()]


def test_states_are_learned_asked_scored_and_shown(
    tiny_folder: Path, tmp_path: Path, tasks: tuple[Path, list[Task]]
) -> None:
    file, made = tasks
    words = [*ENGINE, "--tasks", str(file), "--seed", "1"]
    model = ["--model", str(tiny_folder), "--out", str(tmp_path / "sft")]
    assert sft([*words, *model, "sft.batch_size=4"]) == 0

    start = ["--model", str(tmp_path / "sft" / "model"), "--out", str(tmp_path / "rl")]
    assert grpo([*words, *start, *RL]) == 0
    asked = {str(row["task_id"]) for row in rows(tmp_path / "rl" / "rollouts")}
    assert asked <= {task.id for task in made} and len(read_metrics(tmp_path / "rl")) == 3

    target = ["--out", str(tmp_path / "gold"), "--tasks", str(file), "--no-baselines"]
    assert evaluate(["--model", "gold", *target]) == 0
    results = rows(tmp_path / "gold")
    found = {str(row["task_id"]): row for row in results if "task_id" in row}
    for task in made:
        row = found[task.id]
        assert (row["outcome"], row["reward"], row["said"]) == (1.0, 1.0, task.gold["status"])
        assert row["output"] == gold_answer(task.gold)
    page = tmp_path / "view.html"
    assert view([str(tmp_path / "gold"), "--tasks", str(file), "--out", str(page)]) == 0
    assert "no_answer" not in page.read_text() and page.stat().st_size > 10_000
