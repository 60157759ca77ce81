"""TRL's GRPO trainer takes our reward function as it is: one step of a tiny model, on a CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="trl is not installed; nothing of Assay needs it")

from front import command

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


def test_a_step_of_sft_on_what_select_wrote(tiny_folder: Path, tmp_path: Path) -> None:
    """The parquet of `assay select`, tool calls included, goes into TRL's SFT trainer as it is."""
    from datasets import load_dataset
    from trl import SFTConfig, SFTTrainer

    main = command("select")

    call = '<tool_call>\n{"name": "python_executor", "arguments": {"code": "1"}}\n</tool_call>'
    said = [
        {"role": "user", "content": "Solve it."},
        {"role": "assistant", "content": call},
        {"role": "tool", "name": "python_executor", "content": "{}"},
        {"role": "assistant", "content": "Done."},
    ]
    shape = {"type": "object", "properties": {"code": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "python_executor", "parameters": shape}}
    row = {"track": "class-IF", "sample": 0, "outcome": 1.0, "reward": 1.1, "tokens": 9}
    row |= {"wall_s": 1.0, "messages": said, "tools": [tool], "ids": [1, 2], "loss_mask": [0, 1]}
    row["tool_calls"] = []
    source, out = tmp_path / "r.jsonl", tmp_path / "s.parquet"
    source.write_text("".join(json.dumps(row | {"task_id": f"t{i}"}) + "\n" for i in range(4)))
    assert main(["--rollouts", str(source), "--strategy", "fv", "--out", str(out)]) == 0
    data = load_dataset("parquet", data_files=str(out), split="train", cache_dir=str(tmp_path))
    more = {"output_dir": str(tmp_path / "o"), "per_device_train_batch_size": 2, "max_length": 400}
    settings = SFTConfig(**COMMON | more)
    trainer = SFTTrainer(model=str(tiny_folder), args=settings, train_dataset=data)
    shown = trainer.processing_class.decode(trainer.train_dataset[0]["input_ids"])
    assert "python_executor" in shown and "Done." in shown
    assert trainer.train().training_loss > 0
