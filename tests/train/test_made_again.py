"""A whole small chain, run again from its records, gives the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from assay_command import assay
from slurm_runs import toy_tasks

from rewards.provenance import NAME, read_record

FEW = ("engine.device=cpu", "engine.threads=1", "engine.dtype=float32")


@pytest.mark.slow  # nine processes that load torch
def test_sft_rl_and_evaluation_are_made_again_from_their_records(
    tmp_path: Path, tiny_folder: Path
) -> None:
    toy_tasks(tmp_path / "tasks.jsonl", 8)
    common = ("data=tasks.jsonl", *FEW)
    sft = ("sft.epochs=1", "sft.batch_size=4")
    assay(tmp_path, "sft", *common, *sft, f"model.path={tiny_folder}", "--out", "S")
    rl = ("rl.steps=1", "rl.prompts_per_step=2", "rl.mini_batch=2", "rl.rollouts_per_prompt=2")
    rl = (*rl, "rl.max_new_tokens=8")
    assay(tmp_path, "grpo", *common, *rl, "model.path=S/model", "--out", "R")
    toy_tasks(tmp_path / "heldout.jsonl", 6, "q")
    assay(tmp_path, "eval", "--model", "R/model", "--tasks", "heldout.jsonl", "--out", "E")
    for name in ("S", "R", "E"):
        record = read_record(tmp_path / name / NAME)
        assert {"tasks.jsonl", "heldout.jsonl"} & set(record.made[0].inputs)
        said = assay(tmp_path, "verify", name, "--replay", f"again/{name}")
        assert "made again the same" in said
    assert "S/model" in read_record(tmp_path / "R" / NAME).made[0].inputs
