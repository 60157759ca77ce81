"""A whole small chain, run a second time, gives the same weights and the same scored rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from assay_command import assay, rows
from slurm_runs import toy_tasks

from assay.record import NAME, Made, read_record

FEW = ("engine.device=cpu", "engine.threads=1", "engine.dtype=float32")


@pytest.mark.slow  # six processes that load torch
def test_sft_rl_and_evaluation_give_the_same_results(tmp_path: Path, tiny_folder: Path) -> None:
    toy_tasks(tmp_path / "tasks.jsonl", 8)
    toy_tasks(tmp_path / "heldout.jsonl", 6, "q")
    first, again = (_chain(tmp_path, tiny_folder, folder) for folder in ("a", "b"))
    assert "a/S/model" in first[1].inputs
    for one, two in zip(first[:2], again[:2], strict=True):
        assert "tasks.jsonl" in one.inputs
        weights = [name for name in one.outputs if name.endswith(".safetensors")]
        assert weights
        assert [one.outputs[name] for name in weights] == [two.outputs.get(n) for n in weights]
    assert "heldout.jsonl" in first[2].inputs
    assert _scored(tmp_path / "a/E") == _scored(tmp_path / "b/E")


def _scored(folder: Path) -> list[dict[str, Any]]:
    """The rows of an evaluation without their times."""
    found = rows(folder / "rows.jsonl")
    assert len(found) == 6
    return [{k: v for k, v in row.items() if k != "seconds"} for row in found]


def _chain(here: Path, model: Path, folder: str) -> list[Made]:
    common = ("data=tasks.jsonl", *FEW)
    sft = ("sft.epochs=1", "sft.batch_size=4", f"model.path={model}")
    rl = ("rl.steps=1", "rl.prompts_per_step=2", "rl.mini_batch=2", "rl.rollouts_per_prompt=2")
    rl = (*rl, "rl.max_new_tokens=8", f"model.path={folder}/S/model")
    evaluated = ("--model", f"{folder}/R/model", "--tasks", "heldout.jsonl")
    for command in (
        ("sft", *common, *sft, "--out", f"{folder}/S"),
        ("grpo", *common, *rl, "--out", f"{folder}/R"),
        ("eval", *evaluated, "--out", f"{folder}/E"),
    ):
        assay(here, *command)
    return [read_record(here / folder / name / NAME)[0] for name in ("S", "R", "E")]
