"""One definition of the loss: ours and a float64 reference by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from configs.schema import GrpoConfig  # noqa: E402
from train.model.loss import centre, policy_loss, token_weight  # noqa: E402

BATCHES = 50
MICRO = (1, 2, 8)
PRESETS = ("dr_grpo", "dare")


@dataclass(frozen=True)
class Ragged:
    """Prompts with ragged answers, holes in the mask (tool tokens), junk as padding."""

    rewards: Any
    logp: Any
    old: Any
    mask: Any


def ragged(seed: int) -> Ragged:
    draw = np.random.default_rng(seed)
    prompts, group, width = 2, 4, int(draw.integers(3, 40))
    shape = (prompts * group, width)
    lengths = draw.integers(1, width + 1, shape[0])
    mask = np.arange(width)[None, :] < lengths[:, None]
    holes = draw.random(shape) < 0.2
    holes[:, 0] = False
    mask &= ~holes
    old = -draw.exponential(1.5, shape)
    logp = old + draw.normal(0, 0.3, shape)  # ratios on both sides of the clip
    junk = draw.choice([0.0, -50.0, 50.0], shape)
    rewards = draw.choice([0.0, 0.1, 0.5, 1.0], (prompts, group))
    return Ragged(rewards, np.where(mask, logp, junk), np.where(mask, old, -junk), mask)


def settings(preset: str) -> GrpoConfig:
    values = {
        **GrpoConfig.PRESETS[preset],
        "max_new_tokens": 48,
        "max_length": 96,
        "prompts_per_step": 2,
        "rollouts_per_prompt": 4,
        "mini_batch": 2,
    }
    return GrpoConfig(preset=preset, **values)


def reference(batch: Ragged, config: GrpoConfig) -> tuple[float, Any, float]:
    """(loss, gradient by logp, sum of the absolute terms) in float64, token by token."""
    rows, width = batch.logp.shape
    adv = (batch.rewards - batch.rewards.mean(1, keepdims=True)).ravel()
    loss, size, grad = 0.0, 0.0, np.zeros((rows, width))
    for b in range(rows):
        count = int(batch.mask[b].sum())
        scale = config.max_new_tokens if config.normaliser == "constant" else count
        for t in range(width):
            if not batch.mask[b, t]:
                continue
            ratio = math.exp(batch.logp[b, t] - batch.old[b, t])
            clipped = min(max(ratio, 1 - config.clip_low), 1 + config.clip_high)
            plain, held = ratio * adv[b], clipped * adv[b]
            loss -= min(plain, held) / (scale * rows)
            size += abs(min(plain, held)) / (scale * rows)
            if plain <= held:
                grad[b, t] = -plain / (scale * rows)
    return loss, grad, size


def ours(batch: Ragged, config: GrpoConfig, micro: int, dtype: Any) -> tuple[float, Any]:
    rows = len(batch.logp)
    adv = centre(torch.tensor(batch.rewards, dtype=dtype)).flatten()
    logp = torch.tensor(batch.logp, dtype=dtype, requires_grad=True)
    old, mask = torch.tensor(batch.old, dtype=dtype), torch.tensor(batch.mask)
    total = 0.0
    for at in range(0, rows, micro):
        part = slice(at, at + micro)
        here = mask[part]  # trained tokens one after another, as a micro-batch has them
        lengths = here.sum(1, keepdim=True).expand_as(here)[here]
        loss, _ = policy_loss(
            logp[part][here],
            old[part][here],
            adv[part, None].expand_as(here)[here],
            token_weight(
                config.normaliser,
                lengths,
                budget=config.max_new_tokens,
                rollouts=rows,
                dtype=dtype,
            ),
            clip_low=config.clip_low,
            clip_high=config.clip_high,
        )
        loss.backward()
        total += float(loss.detach())
    return total, logp.grad.double().numpy()


def agrees(found: tuple[float, Any], wanted: tuple[float, Any, float]) -> None:
    loss, grad, size = wanted
    assert abs(found[0] - loss) <= 1e-5 * max(abs(loss), size)
    assert np.abs(found[1] - grad).max() <= 1e-5 * max(np.abs(grad).max(), 1e-12)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("micro", MICRO)
def test_ours_is_the_reference(preset: str, micro: int) -> None:
    config = settings(preset)
    for seed in range(BATCHES):
        batch = ragged(seed)
        wanted = reference(batch, config)
        agrees(ours(batch, config, micro, torch.float32), wanted)
        exact = ours(batch, config, micro, torch.float64)
        assert abs(exact[0] - wanted[0]) <= 1e-9 * max(abs(wanted[0]), wanted[2])


def test_a_group_of_one_and_lost_siblings_get_no_advantage() -> None:
    """verl's own estimator gives a group of one its raw reward."""
    pytest.importorskip("verl", reason="the extra `cluster` is not installed")
    from train.backends.verl.advantage import group_mean_advantage

    scores = torch.tensor([[0.0, 1.0], [0.0, 0.4], [0.0, 0.0]])
    mask = torch.ones(3, 2)
    adv, _ = group_mean_advantage(scores, mask, np.array(["a", "b", "b"], dtype=object), None)
    assert torch.allclose(adv[:, 0], torch.tensor([0.0, 0.2, -0.2]))
