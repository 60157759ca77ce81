"""TRL's GRPO trainer takes our reward function as it is: one step of a tiny model, on a CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="trl is not installed; nothing of Assay needs it")


from assay.task import Task
from rewards.adapters import trl_reward
from rewards.score import score_row

pytestmark = pytest.mark.slow
COMMON: dict[str, Any] = {
    **{"max_steps": 1, "use_cpu": True, "bf16": False, "report_to": [], "save_strategy": "no"},
    **{"disable_tqdm": True, "gradient_checkpointing": False},
}


def test_a_step_with_our_reward(tiny_folder: Path, tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    golds = [{"input_text": f"ax{i}", "status": "KEEP", "text": f"a{i}"} for i in range(2)]
    prompt = [{"role": "user", "content": "Delete the x."}]
    tasks = [Task(f"t{i}", "refinement", "x", "train", prompt, g) for i, g in enumerate(golds)]
    rows = [{"prompt": prompt, "task": json.dumps(task.to_json())} for task in tasks]
    seen: list[tuple[dict[str, Any], list[float | None]]] = []

    def reward(**given: Any) -> list[float | None]:
        seen.append((given, trl_reward(**given)))
        return seen[-1][1]

    settings = GRPOConfig(
        **COMMON | {"output_dir": str(tmp_path), "per_device_train_batch_size": 4},
        **{"num_generations": 4, "max_completion_length": 8, "logging_steps": 1},
    )
    data, model = Dataset.from_list(rows), str(tiny_folder)
    trainer = GRPOTrainer(model=model, reward_funcs=reward, args=settings, train_dataset=data)
    trainer.train()
    ((given, rewards),) = seen
    assert len(rewards) == 4
    for said, text, found in zip(given["completions"], given["task"], rewards, strict=True):
        gold = Task.from_json(json.loads(text)).gold
        row = {"id": 1, "family": "refinement", "task": gold, "output": said[-1]["content"]}
        assert found == score_row(row)["reward"]
    logged = [row for row in trainer.state.log_history if "reward" in row]
    assert logged[0]["reward"] == pytest.approx(sum(r or 0.0 for r in rewards) / 4)
