"""Dr.GRPO on a data-lake task: sub-task credit is the only thing to learn from, and is learned."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from lake_cache import own_cache as own_cache
from small_lake import make_lake, make_task

torch = pytest.importorskip("torch")

from tiny_model import tiny_config  # noqa: E402

from assay.task import Task  # noqa: E402
from configs.schema import GrpoConfig, GrpoRunConfig, SftConfig, SftRunConfig  # noqa: E402
from rollouts.environments import EnvironmentFactory, tool_settings  # noqa: E402
from rollouts.event_loop import asyncio_run  # noqa: E402
from rollouts.prompts import ChatTokenizer  # noqa: E402
from train.examples import Example  # noqa: E402
from train.grpo import batch_of, sample, train_grpo  # noqa: E402
from train.model.policy import load_policy  # noqa: E402
from train.run.checkpoint import Checkpoints  # noqa: E402
from train.run.log import RunLog, read_metrics  # noqa: E402
from train.run.run import Loop  # noqa: E402
from train.run.settings import load_run, weights_of  # noqa: E402
from train.scoring import scorer  # noqa: E402
from train.sft import train_sft  # noqa: E402

linux = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux only")

# Pipelines that answer nothing: one prints the gold sub-answer (30 years), one another number.
REPLIES = [
    "```python\nprint('{\"subtask-1\": 30}')\n```",
    "```python\nprint('{\"subtask-1\": 31}')\n```",
]


def model_of_two_replies(tiny_folder: Path, folder: Path, question: str) -> Path:
    """A random tiny model in whose vocabulary each reply, and each line asked, is one token."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    lines = [line for line in question.splitlines() if len(line) > 9 and "```" not in line]
    tokenizer.add_tokens([*REPLIES, *dict.fromkeys(lines)])
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = tiny_config(len(tokenizer), max_position_embeddings=8192)
    AutoModelForCausalLM.from_config(config).float().save_pretrained(folder)
    return folder


@linux
def test_sub_task_credit_trains_through_real_episodes(tiny_folder: Path, tmp_path: Path) -> None:
    lake = make_lake(tmp_path / "lake")
    for name in ("rain_boston.csv", "sites.csv", "notes.txt"):
        (lake / name).unlink()
    task = replace(make_task(lake, "ds_guru_one_shot"), split="train")
    run = load_run(
        GrpoRunConfig,
        None,
        ["reward.answer.subtasks=0.5", "tools.snippet_tokens=60", "tools.workers=2"],
    )
    shop = EnvironmentFactory(Path("/"), tool_settings(run.tools))
    shop.announce([task])
    opening = asyncio_run(shop.maker(task, 0, 0).open())
    question = str(opening.messages[-1]["content"])
    folder = model_of_two_replies(tiny_folder, tmp_path / "model", question)
    tokenizer, policy = ChatTokenizer(folder), load_policy(folder, "float32")
    prompt = tokenizer.prompt(opening.messages)
    assert len(prompt) < 700 < len(question)
    sft = SftConfig(epochs=10, batch_size=2, lr=1e-2, warmup=0, max_length=8000, save_every=100)
    train_sft(
        policy,
        [Example(prompt, tokenizer.answer(text)) for text in REPLIES],
        sft,
        Loop(
            0,
            RunLog(tmp_path / "sft"),
            Checkpoints(tmp_path / "ck-sft", SftRunConfig(sft=sft)),
            16_000,
        ),
    )
    config = GrpoConfig(
        steps=3,
        prompts_per_step=1,
        rollouts_per_prompt=8,
        mini_batch=1,
        lr=5e-3,
        max_new_tokens=4,
        max_length=8000,
        turns=1,
    )
    score = scorer(weights_of(run.reward))
    engine = policy.engine(tokenizer.stop_ids, 8)
    groups = sample([task], engine, tokenizer, config, 1, shop.maker)
    batch = batch_of([task], groups, score([task], groups), config)
    assert_credit_is_the_reward(batch.scores[0], task)
    train_grpo(
        policy,
        [task],
        tokenizer,
        score,
        config,
        Loop(
            1,
            RunLog(tmp_path / "rl"),
            Checkpoints(tmp_path / "ck", GrpoRunConfig(rl=config)),
            16_000,
            8,
        ),
        maker=shop.maker,
    )
    asyncio_run(shop.close())
    rows = read_metrics(tmp_path / "rl")
    assert all(r["outcome/mean"] == 0.0 for r in rows)
    assert all(r["reward/subtask_reward/mean"] == r["reward/mean"] for r in rows)
    assert rows[-1]["reward/subtask_credit/mean"] >= rows[0]["reward/subtask_credit/mean"] + 0.2


def assert_credit_is_the_reward(scores: list, task: Task) -> None:
    """Half of what gold pays for the one sub-answer; nothing else is ever paid here."""
    assert task.gold["answer"] == 1.5
    assert {s.reward for s in scores} == {0.0, 0.5}
    assert all(s.outcome == 0.0 for s in scores)
    assert all(s.reward == 0.5 * s.parts["subtask_credit"] for s in scores)
