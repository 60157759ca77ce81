"""The reward of every visible task is one number: `assay score`, TRL's adapter, verl's reward loop.

verl twice: its own reward worker calling our function, and our agent loop, which scores in place.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
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


async def by_agent_loop(folder: Path, pairs: list[tuple[Task, Try]]) -> list[Any]:
    """Our agent loop, the model's message given; files as an environment leaves them."""
    from configs.loader import load
    from configs.schema import GrpoRunConfig
    from rollouts.environment import EpisodeEnd, EpisodeStart, Reply
    from rollouts.prompts import ChatTokenizer
    from train.backends.verl.loop import AssayLoop

    loop: Any = object.__new__(AssayLoop)  # without verl's own set-up, which wants a whole run
    endless = ["rl.max_new_tokens=4000000", "rl.max_length=5000000"]  # one answer is a long list
    loop.run_config = load(GrpoRunConfig, None, [*endless, "rl.tool_seconds=1000"])
    loop.chat = ChatTokenizer(folder)
    loop.rollout_config = SimpleNamespace(name="sglang")

    class Left:
        def __init__(self, task: Task, files: dict[str, bytes]) -> None:
            self.task, self.files = task, files

        async def open(self) -> EpisodeStart:
            return EpisodeStart(self.task.prompt)

        async def reply(self, said: Any) -> Reply:
            return Reply()

        async def close(self) -> EpisodeEnd:
            return EpisodeEnd(self.files)

    found = []
    for task, one in pairs:
        ids = [*loop.chat.answer(one.text), *([] if one.text else loop.chat.stop_ids)]

        async def generate(request: str, ids: Any = ids, **asked: Any) -> Any:
            return SimpleNamespace(
                token_ids=ids,
                log_probs=[0.0] * len(ids),
                stop_reason="stop",
                extra_fields={"global_steps": 1},
            )

        loop.server_manager = SimpleNamespace(generate=generate)
        loop.environment_factory = SimpleNamespace(maker=lambda t, s, seed, f=one.files: Left(t, f))
        row = Task.from_json(
            {**task.to_json(), "tools": ["some"], "prompt": [{"role": "user", "content": "x"}]}
        )
        truth = {"ground_truth": json.dumps(row.to_json())}
        found.append(await loop.run({"temperature": 1.0}, reward_model=truth))
    return found


def check_verl(every: int, model: Path, folder: Path) -> None:
    pairs = chosen(every)
    wanted = scored(pairs, folder)
    worker = asyncio.run(by_reward_worker(model, pairs))
    loops = asyncio.run(by_agent_loop(model, pairs))
    for (task, one), want, got, out in zip(pairs, wanted, worker, loops, strict=True):
        where = (task.id, one.name)
        assert got["reward_score"] == want["reward"], where
        assert got["reward_extra_info"]["acc"] == want["outcome"], where
        assert out != [], where
        assert math.isclose(out.reward_score, want["reward"], abs_tol=1e-12), where
        assert out.extra_fields["reward_extra_info"]["acc"] == want["outcome"], where


@pytest.mark.parametrize("every", [EVERY * 2, WHOLE])
def test_verls_reward_loop_agrees(every: int, tiny_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("verl", reason="the extra `cluster` is not installed")
    check_verl(every, tiny_folder, tmp_path)
