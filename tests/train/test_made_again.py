"""A whole small chain, run a second time, gives the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from assay_command import assay
from slurm_runs import toy_tasks

from rewards.provenance import NAME, Made, read_record

FEW = ("engine.device=cpu", "engine.threads=1", "engine.dtype=float32")
# Of the results of one run: those that hold no time.
SAME = (".safetensors", "samples.jsonl")


@pytest.mark.slow  # six processes that load torch
def test_sft_rl_and_evaluation_give_the_same_bytes(tmp_path: Path, tiny_folder: Path) -> None:
    toy_tasks(tmp_path / "tasks.jsonl", 8)
    toy_tasks(tmp_path / "heldout.jsonl", 6, "q")
    first, again = (_chain(tmp_path, tiny_folder, folder) for folder in ("a", "b"))
    assert "a/S/model" in first[1].inputs
    for one, two in zip(first, again, strict=True):
        assert {"tasks.jsonl", "heldout.jsonl"} & set(one.inputs)
        kept = [name for name in one.outputs if name.endswith(SAME)]
        assert kept and [one.outputs[n] for n in kept] == [two.outputs.get(n) for n in kept]


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
    return [read_record(here / folder / name / NAME).made[0] for name in ("S", "R", "E")]
