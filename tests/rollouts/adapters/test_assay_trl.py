"""The exported TRL file: rewards are `assay score`'s, and the real trainer takes a step on them."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from travelling import demo_tasks, exported, own_tasks, tasks_file, texts

from rewards.cli import main as score_command


def adapter(folder: Path) -> Any:
    """The exported file as a module."""
    spec = importlib.util.spec_from_file_location("assay_trl", folder / "assay_trl.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["assay_trl"] = module
    spec.loader.exec_module(module)
    return module


def test_rewards_are_those_of_assay_score_on_a_thousand_answers(tmp_path: Path) -> None:
    tasks = [*demo_tasks(60)[:60], *own_tasks(40)]
    folder = exported("trl", tmp_path, tasks)
    file = adapter(folder)
    by_id = {task.id: task for task in tasks}
    rows = file.rows()
    ids = [json.loads(row["task"])["id"] for row in rows]
    pairs = [(i, text) for i, name in enumerate(ids) for text in texts(by_id[name], tasks[i - 1])]
    assert len(pairs) >= 1000
    outputs = tmp_path / "outputs.jsonl"
    outputs.write_text(
        "".join(json.dumps({"id": ids[i], "output": text}) + "\n" for i, text in pairs)
    )
    scores = tmp_path / "scores.jsonl"
    words = [str(outputs), "--tasks", str(tasks_file(tmp_path, tasks)), "--out", str(scores)]
    assert score_command([*words, "--workers", "1"]) == 0
    ours = [json.loads(line)["reward"] for line in scores.read_text().splitlines()]
    said = [[{"role": "assistant", "content": text}] for _, text in pairs]
    assert file.reward(said, [rows[i]["task"] for i, _ in pairs]) == ours
    assert file.reward([text for _, text in pairs], [rows[i]["task"] for i, _ in pairs]) == ours
    assert {0.0, 1.0} < set(ours)


def test_a_workbench_pays_the_answer_that_was_handed_in_last(tmp_path: Path) -> None:
    folder = exported("trl", tmp_path, demo_tasks(6))
    file = adapter(folder)
    row = file.rows()[0]
    bench = file.Workbench()
    assert "hand_in" in bench.reset(**row)
    assert bench.get_reward() == 0.0
    bench.hand_in(row["gold"])
    assert bench.get_reward() == 1.0
    bench.hand_in("no")
    assert bench.get_reward() == 0.0
    assert bench.run_python("print(6 * 7)").strip() == "42"
    bench.reset(**row)
    assert bench.get_reward() == 0.0  # nothing is left of the episode before


def arguments(out: Path) -> Any:
    from trl import GRPOConfig

    return GRPOConfig(
        output_dir=str(out),
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        max_steps=1,
        learning_rate=1e-2,
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        seed=0,
    )


def test_the_real_trainer_takes_a_step_on_these_rewards(tmp_path: Path, tiny_folder: Path) -> None:
    trl = pytest.importorskip("trl", reason="trl is not installed; `make test-interop`")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = exported("trl", tmp_path, demo_tasks(6))
    file = adapter(folder)
    seen: list[list[float | None]] = []

    def reward(completions: list[Any], task: list[str], **other: Any) -> list[float | None]:
        made = file.reward(completions, task)
        seen.append(made)
        # A random model earns nothing; what tells its answers apart is their length.
        return [value + 0.01 * len(str(c)) for value, c in zip(made, completions, strict=True)]

    model = AutoModelForCausalLM.from_pretrained(tiny_folder)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = trl.GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=arguments(tmp_path / "run"),
        train_dataset=file.dataset(),
        processing_class=AutoTokenizer.from_pretrained(tiny_folder),
    )
    trainer.train()
    assert seen and all(len(group) == 4 and None not in group for group in seen)
    logged = trainer.state.log_history[0]
    assert math.isfinite(logged["loss"]) and logged["grad_norm"] > 0
    after = trainer.model.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)
