"""The reward of every visible task is one number: `assay score`, TRL's adapter, verl's reward loop.

verl's is its own reward worker, which calls our function; our loop scores in place (test_loop.py).
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from visible import SHARED, Try, every_task

from assay.task import Task
from rewards.adapters import FILES, SCORED_TEXT, trl_reward, verl_compute_score
from rewards.krama.episode import MAX_CHARS
from rewards.score import main as assay_score

pytest.importorskip("pandas", reason="tables are scored with the extra `sandbox`")
pytestmark = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the visible tasks (../shared) are not beside this checkout"
)
EVERY = 25  # in the quick run each route sees one task in so many; the slow run sees them all


def chosen(every: int) -> list[tuple[Task, Try]]:
    return [
        (task, one)
        for i, (task, tries) in enumerate(every_task())
        if i % every == 0
        for one in tries
        if len(one.text) <= MAX_CHARS  # of a longer message only the end is read
    ]


def scored(pairs: list[tuple[Task, Try]], folder: Path) -> list[dict[str, Any]]:
    """What the command says."""
    rows = [
        {"id": i, "family": task.family, "task": task.gold, "output": one.text, **one.row}
        for i, (task, one) in enumerate(pairs)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    assert assay_score([str(folder / "rows.jsonl"), "--out", str(folder / "scores.jsonl")]) == 0
    return [json.loads(line) for line in (folder / "scores.jsonl").open(encoding="utf-8")]


def check_adapters(every: int, folder: Path) -> None:
    pairs = chosen(every)
    wanted = scored(pairs, folder)
    texts = [json.dumps(task.to_json()) for task, _ in pairs]
    said = [
        [{"role": "tool", "content": "x"}, {"role": "assistant", "content": one.text}]
        for _, one in pairs
    ]
    by_trl = trl_reward(said, task=texts, files=[one.files for _, one in pairs])
    seen: Counter[tuple[str, str]] = Counter()
    for (task, one), text, want, trl in zip(pairs, texts, wanted, by_trl, strict=True):
        info = {SCORED_TEXT: one.text, FILES: one.files}
        verl = verl_compute_score(task.track, "x", text, info)
        got = (trl, verl["score"], verl["acc"], verl["valid"])
        assert got == (want["reward"], want["reward"], want["outcome"], 1.0), (task.id, one.name)
        if one.name.startswith("right"):
            assert want["outcome"] == 1.0, (task.id, one.name)
        seen[task.family, one.name.split()[0]] += 1
    for family in ("refinement", "table", "answer"):
        assert min(seen[family, name] for name in ("right", "wrong", "broken", "empty")) >= 1


WHOLE = pytest.param(1, marks=pytest.mark.slow)  # every visible task


@pytest.mark.parametrize("every", [EVERY, WHOLE])
def test_the_adapters_agree(every: int, tmp_path: Path) -> None:
    check_adapters(every, tmp_path)


async def by_reward_worker(folder: Path, pairs: list[tuple[Task, Try]]) -> list[dict[str, Any]]:
    """verl's reward worker, configured as a run configures it."""
    import numpy as np
    import torch
    from verl import DataProto
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

    from configs.loader import load
    from configs.schema import GrpoRunConfig
    from train.backends.verl.compose import compose
    from train.backends.verl.overrides import overrides

    config = compose(overrides(load(GrpoRunConfig, None, [f"model.path={folder}"]), folder))
    worker = RewardLoopWorker(config)
    found = []
    for task, one in pairs:
        ids = torch.tensor([worker.input_tokenizer.encode("what a tool printed")])
        info = {"index": 0, SCORED_TEXT: one.text, FILES: one.files}
        data = DataProto.from_dict(
            {"prompts": ids, "responses": ids, "attention_mask": torch.ones_like(ids)},
            {
                "data_source": np.array([task.track], object),
                "reward_model": np.array([{"ground_truth": json.dumps(task.to_json())}], object),
                "extra_info": np.array([info], object),
            },
        )
        found.append(await worker.compute_score(data))
    return found


def check_verl(every: int, model: Path, folder: Path) -> None:
    pairs = chosen(every)
    wanted = scored(pairs, folder)
    worker = asyncio.run(by_reward_worker(model, pairs))
    for (task, one), want, got in zip(pairs, wanted, worker, strict=True):
        where = (task.id, one.name)
        assert got["reward_score"] == want["reward"], where
        assert got["reward_extra_info"]["acc"] == want["outcome"], where


@pytest.mark.parametrize("every", [EVERY * 2, WHOLE])
def test_verls_reward_loop_agrees(every: int, tiny_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("verl", reason="the extra `cluster` is not installed")
    check_verl(every, tiny_folder, tmp_path)
