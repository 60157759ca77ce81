"""A bound on a thought's tokens: the mark that ends it is put there, and carries no loss."""

from __future__ import annotations

import asyncio
from itertools import chain
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


TASKS = [refinement(i, "KEEP", i) for i in range(3)]


def test_a_thought_is_ended_and_the_mark_carries_no_loss(model: tuple[Path, TorchEngine]) -> None:
    folder, engine = model
    words = ChatTokenizer(folder)
    assert words.raw(words.prompt(TASKS[0].prompt)).endswith("<think>\n")
    mark = len(words.encode(MARK))
    free, bound, again = (
        list(chain(*asyncio.run(rollout(TASKS, how, words, Sampling(LIMIT, seed=3), 2, 0))))
        for how in (engine, *[ThinkingBudget(engine, words, MOST)] * 2)
    )
    assert [t.ids for t in bound] == [t.ids for t in again]
    seen = 0
    for one, other in zip(free, bound, strict=True):
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
        assert parted(other.text).ended and other.sampled == len(other.ids) - start - mark
    assert seen


def test_what_follows_is_drawn_after_the_mark(model: tuple[Path, TorchEngine]) -> None:
    """Its log-probabilities are the model's own, of a text in which the mark stands."""
    folder, engine = model
    words = ChatTokenizer(folder)
    prompt, budget = words.prompt(TASKS[0].prompt), ThinkingBudget(engine, words, MOST)
    ((bound,),) = asyncio.run(budget.generate([prompt], Sampling(LIMIT, 0.0), 1, [5]))
    start, end = bound.given
    assert end > start == MOST
    rest, told = Sampling(LIMIT - end, 0.0), [*prompt, *bound.ids[:end]]
    ((alone,),) = engine.generate_now([told], rest, 1, [5])
    assert bound.ids[end:] == alone.ids
    assert bound.logprobs[end:] == pytest.approx(alone.logprobs, abs=1e-4)
    ((short,),) = asyncio.run(budget.generate([prompt], Sampling(3, 0.0), 1, [5]))
    assert short.ids == bound.ids[:3]
