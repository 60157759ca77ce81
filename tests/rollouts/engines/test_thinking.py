"""A bound on a thought's tokens: the mark that ends it is put there, and carries no loss."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from mixed_tasks import refinement
from tiny_model import CHAT_TEMPLATE, small_llama, write_tiny_tokenizer

from assay.thoughts import parted
from rollouts.engines.thinking import ThinkingBudget
from rollouts.engines.torch.engine import TorchEngine, load_engine
from rollouts.episode import rollout
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Sampling

OPENS = CHAT_TEMPLATE.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
MARK = "\n</think>\n\n"
MOST, LIMIT = 7, 40


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TorchEngine]:
    """A random model whose prompt opens a thought."""
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("thinks")
    vocabulary = write_tiny_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = OPENS
    tokenizer.save_pretrained(folder)
    small_llama(vocabulary).save_pretrained(folder)
    engine = load_engine(folder, [2], 8, "float32")
    assert isinstance(engine, TorchEngine)
    return folder, engine


SAMPLING = Sampling(LIMIT, 1.0, seed=3)
TASKS = [refinement(i, "KEEP", i) for i in range(3)]


def test_a_thought_is_ended_and_the_mark_carries_no_loss(model: tuple[Path, TorchEngine]) -> None:
    folder, engine = model
    words = ChatTokenizer(folder)
    assert words.raw(words.prompt(TASKS[0].prompt)).endswith("<think>\n")
    mark = len(words.encode(MARK))
    free = asyncio.run(rollout(TASKS, engine, words, SAMPLING, 2, 0))
    budget = ThinkingBudget(engine, words, MOST)
    bound = asyncio.run(rollout(TASKS, budget, words, SAMPLING, 2, 0))
    again = asyncio.run(rollout(TASKS, budget, words, SAMPLING, 2, 0))
    assert [[t.ids for t in g] for g in bound] == [[t.ids for t in g] for g in again]
    seen = 0
    for one, other in (
        (a, b) for x, y in zip(free, bound, strict=True) for a, b in zip(x, y, strict=True)
    ):
        start = one.prompt_length
        assert other.ids[: start + MOST] == one.ids[: start + MOST]
        assert len(other.ids) - start <= LIMIT
        if len(one.ids) - start < MOST:
            assert other.ids == one.ids  # it had ended before
            continue
        seen += 1
        put = slice(start + MOST, start + MOST + mark)
        assert words.raw(other.ids[put]) == MARK
        assert not any(other.loss_mask[put]) and not any(other.logprobs[put])
        assert all(other.loss_mask[start : put.start]) and all(other.loss_mask[put.stop :])
        assert all(x < 0 for x in other.logprobs[put.stop :])
        found = parted(other.text)
        assert found.ended and other.sampled == len(other.ids) - start - mark
    assert seen


def test_what_follows_is_drawn_after_the_mark(model: tuple[Path, TorchEngine]) -> None:
    """Its log-probabilities are the model's own, of a text in which the mark stands."""
    folder, engine = model
    words = ChatTokenizer(folder)
    prompt = words.prompt(TASKS[0].prompt)
    greedy = Sampling(LIMIT, 0.0)
    ((bound,),) = asyncio.run(
        ThinkingBudget(engine, words, MOST).generate([prompt], greedy, 1, [5])
    )
    start, end = bound.given
    assert end > start == MOST
    rest = Sampling(LIMIT - end, 0.0)
    ((alone,),) = asyncio.run(engine.generate([[*prompt, *bound.ids[:end]]], rest, 1, [5]))
    assert bound.ids[end:] == alone.ids
    assert bound.logprobs[end:] == pytest.approx(alone.logprobs, abs=1e-4)


def test_a_message_that_thinks_nothing_keeps_its_length(tiny_folder: Path) -> None:
    words = ChatTokenizer(tiny_folder)
    engine = load_engine(tiny_folder, words.stop_ids, 8, "float32")
    prompt = words.prompt(TASKS[0].prompt)
    for limit in (MOST, MOST + 3, LIMIT):
        budget = ThinkingBudget(engine, words, MOST)
        ((found,),) = asyncio.run(budget.generate([prompt], Sampling(limit, 1.0), 1, [9]))
        assert found.given[0] == found.given[1] and all(found.drawn())
        assert len(found.ids) <= limit and (found.stop == "eos" or len(found.ids) == limit)
