"""The arithmetic of the estimates against a step of the real layers on fake tensors.

The closed forms leave small tensors out: within 3 % of memory.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fake_step import Step, step  # noqa: E402

from train.memory import (  # noqa: E402
    back_bytes,
    head_bytes,
    inputs_bytes,
    norm_bytes,
)
from train.model.shape import Shape, shape_of  # noqa: E402

MEMORY = 0.03  # relative
SMALL, LARGE = "Qwen/Qwen3-4B", "Qwen/Qwen3-32B"


def of_answer(shape: Shape, tokens: int, answer: int) -> Step:
    """DeepSpeed's own loss, of a sequence whose last `answer` tokens are learned from."""
    from train.backends.deepspeed import answer_logp

    return step(shape, tokens, lambda model, ids: -answer_logp(model, ids, answer).sum())


def agrees(found: Step, shape: Shape, tokens: int, answer: int) -> None:
    inputs, norm = inputs_bytes(shape, tokens), norm_bytes(shape, tokens)
    kept = inputs + norm + 2 * answer * (shape.vocab + shape.hidden)
    assert found.kept == pytest.approx(kept, rel=MEMORY)
    most = inputs + max(norm + head_bytes(shape, answer), back_bytes(shape, tokens))
    assert found.peak == pytest.approx(most, rel=MEMORY)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        (SMALL, 8192),  # verl's piece of a sequence on one GPU, in both DARE configurations
        (LARGE, 32768),
    ],
)
@pytest.mark.parametrize("share", [4, 1])
def test_whole_models_at_the_published_lengths(name: str, tokens: int, share: int) -> None:
    shape, answer = shape_of(name), tokens // share - 1
    agrees(of_answer(shape, tokens, answer), shape, tokens, answer)
