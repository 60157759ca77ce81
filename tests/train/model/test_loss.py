"""Log-probabilities, gradients, advantages and losses against plain references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import numpy as np
import torch

from configs.schema import GrpoConfig
from rollouts.engines.torch.llama import to_state
from train.model import packing
from train.model.loss import (
    centre,
    group_advantages,
    linear_logp,
    policy_loss,
    sampling_weight,
    spread,
    token_weight,
)
from train.model.packing import Segment, pack
from train.model.policy import LlamaPolicy, TransformersPolicy, load_policy

# trees, the default, no trees; and what a GPU gets
LAYOUTS = [(1e-9, True), (packing.PAIR, True), (1e9, True), (packing.PAIR, False)]


def segments() -> list[Segment]:
    generator = torch.Generator().manual_seed(1)

    def ids(n: int) -> list[int]:
        return torch.randint(3, 259, (n,), generator=generator).tolist()

    found = [
        Segment(ids(9), [ids(4), ids(7), ids(1)], [0, 1, 2]),
        Segment(ids(5), [ids(6)], [3]),
        Segment(ids(1), [ids(3), ids(2)], [4, 5]),
    ]
    again, start, begun = ids(4), ids(20), ids(5)  # rollouts that are the same, or begin alike
    return [
        *found,
        Segment(start + ids(4), [begun + ids(3), begun + ids(1), begun], [6, 7, 8]),
        Segment(start + ids(2), [begun + ids(2)], [9]),
        Segment(ids(3), [again, ids(2), again, again], [10, 11, 12, 13]),
        Segment(ids(2), [again, again], [14, 15]),
    ]


def reference_logp(model: Any, parts: list[Segment]) -> Any:
    """Each completion alone behind its prompt, full logits, no sharing."""
    rows = []
    for segment in parts:
        for completion in segment.completions:
            logits = model(torch.tensor([segment.prompt + completion])).logits[0]
            law = logits[len(segment.prompt) - 1 : -1].log_softmax(-1)
            rows.append(law.gather(1, torch.tensor(completion)[:, None])[:, 0])
    return torch.cat(rows)


@pytest.mark.parametrize("pair,share", LAYOUTS)
def test_gradients_are_those_of_lone_sequences(
    tiny_folder: Path, tiny_hf: Any, monkeypatch: pytest.MonkeyPatch, pair: float, share: bool
) -> None:
    monkeypatch.setattr(packing, "PAIR", pair)
    policy = load_policy(tiny_folder, "float32")
    assert isinstance(policy, LlamaPolicy)
    parts = segments()
    logp, _ = policy.logp(pack(parts, share=share))
    wanted = reference_logp(tiny_hf, parts)
    assert torch.allclose(logp, wanted, atol=1e-5)
    weights = torch.randn(len(logp), generator=torch.Generator().manual_seed(2))
    (logp * weights).sum().backward()
    tiny_hf.zero_grad()
    (wanted * weights).sum().backward()
    with torch.no_grad():
        for _, tensor in policy.model.named():
            tensor.copy_(tensor.grad)
    ours = to_state(policy.model)
    for name, parameter in tiny_hf.named_parameters():
        scale = parameter.grad.abs().max()
        assert torch.allclose(ours[name], parameter.grad, atol=1e-5 * float(scale)), name


def test_the_padding_token_learns_in_the_fallback_too(tiny_folder: Path) -> None:
    """The tiny chat model pads with its end of turn, as many do."""
    parts, grads = [Segment([1, 70, 2, 80], [[90, 91, 2]], [0])], []
    for policy in (
        load_policy(tiny_folder, "float32"),
        TransformersPolicy(tiny_folder, "float32", "cpu"),
    ):
        policy.logp(pack(parts))[0].sum().backward()
        grads.append(policy.named()[0][1].grad)
    assert grads[0] is not None and grads[0][2].abs().sum() > 0
    assert torch.allclose(*grads, atol=1e-5 * float(grads[0].abs().max()))


def masked_segments() -> list[Segment]:
    """The same, with tool tokens between the model's in some completions."""
    again = [[1, 0, 0, 1], [1, 1], [1, 1, 1, 1], [0, 0, 1, 1]]
    masks = [[[1, 0, 0, 1], [1, 1, 1, 0, 0, 1, 1], [1]], [[1, 1, 0, 0, 0, 1]], None]
    masks += [None, None, again, None]
    return [
        Segment(s.prompt, s.completions, s.rows, m) for s, m in zip(segments(), masks, strict=True)
    ]


@pytest.mark.parametrize("fallback", [False, True])
def test_tool_tokens_are_read_but_carry_no_loss(
    tiny_folder: Path, tiny_hf: Any, fallback: bool
) -> None:
    policy = (
        TransformersPolicy(tiny_folder, "float32", "cpu")
        if fallback
        else load_policy(tiny_folder, "float32")
    )
    packed = pack(masked_segments())
    logp, _ = policy.logp(packed)
    flat = [m for s in masked_segments() for m in s.masks or [[1] * len(c) for c in s.completions]]
    keep = torch.tensor([bool(x) for m in flat for x in m])
    with torch.no_grad():
        wanted = reference_logp(tiny_hf, segments())[keep]
    assert torch.allclose(logp, wanted, atol=1e-5)
    for row, mine in enumerate(flat):  # columns count model tokens
        assert packed.column[packed.row == row].tolist() == list(range(sum(mine)))


@pytest.mark.parametrize("by_spread", [False, True])
def test_advantages_in_any_order_are_those_of_the_groups(by_spread: bool) -> None:
    """Groups of equal rewards get 0 exactly, which a division by their spread would blow up."""
    rewards = torch.tensor([[0.1] * 7, [0.0, 1.0, 0.5, 0.5, 0.25, 0.0, 1.0]])
    valid = torch.ones_like(rewards, dtype=torch.bool)
    wanted = centre(rewards) / (spread(rewards, valid) + 1e-6 if by_spread else 1)
    order = torch.randperm(14, generator=torch.Generator().manual_seed(0))
    names = [["a", "b"][int(i) // 7] for i in order]
    found = group_advantages(rewards.flatten()[order], names, by_spread)
    assert torch.equal(found, wanted.flatten()[order]) and not wanted[0].any()
    assert group_advantages(torch.tensor([3.0]), ["alone"], by_spread).tolist() == [0.0]


def test_linear_logp_matches_full_logits_in_any_chunk() -> None:
    g = torch.Generator().manual_seed(0)
    hidden = torch.randn(13, 8, generator=g, requires_grad=True)
    weight = torch.randn(50, 8, generator=g, requires_grad=True)
    target = torch.randint(0, 50, (13,), generator=g)
    law = (hidden @ weight.t() / 1.3).log_softmax(-1)
    wanted = law.gather(1, target[:, None])[:, 0]
    scale = torch.randn(13, generator=g)
    wanted_grads = torch.autograd.grad((wanted * scale).sum(), (hidden, weight))
    for chunk in (1, 4, 100):
        logp, entropy = linear_logp(hidden, weight, target, 1.3, chunk)
        assert torch.allclose(logp, wanted, atol=1e-5)
        assert torch.allclose(entropy, -(law.exp() * law).sum(-1), atol=1e-5)
        grads = torch.autograd.grad((logp * scale).sum(), (hidden, weight))
        for a, b in zip(grads, wanted_grads, strict=True):
            assert torch.allclose(a, b, atol=1e-5)


def test_tokens_that_the_clip_holds_are_counted() -> None:
    """The loss itself is held against a reference below."""
    logp, weight = torch.tensor([0.5, -0.5, 0.1, -0.1]), torch.ones(4)
    for sign in (1.0, -1.0):
        _, clipped = policy_loss(logp, torch.zeros(4), torch.full((4,), sign), weight)
        assert int(clipped) == 1
    assert int(policy_loss(logp, logp, torch.ones(4), weight)[1]) == 0


def test_sampling_weight_is_the_kept_mass_under_truncation() -> None:
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05])
    kept = probs[:2].sum()
    full = probs[:2].log()[None]
    narrow = (probs[:2] / kept).log()[None]
    assert torch.allclose(sampling_weight(full, narrow, 2.0), kept.expand(1, 2))
    # With it, an expectation under the truncated law is the full law's, cut to the kept set.
    value = torch.tensor([3.0, -1.0])
    weighted = (narrow.exp() * sampling_weight(full, narrow, 2.0) * value).sum()
    assert float(weighted) == pytest.approx(float((probs[:2] * value).sum()))
    assert float(sampling_weight(full + 5, narrow, 2.0).max()) == 2.0


# --- against a float64 reference by hand ---------------------------------------------------------


def ragged(seed: int) -> tuple[Any, ...]:
    """Rewards (2, 4), log-probabilities, old ones and mask (8, width) of ragged answers: holes in
    the mask (tool tokens), junk as padding, ratios on both sides of the clip."""
    draw = np.random.default_rng(seed)
    shape = (8, int(draw.integers(3, 40)))
    mask = np.arange(shape[1]) < draw.integers(1, shape[1] + 1, (8, 1))
    mask[:, 1:] &= draw.random((8, shape[1] - 1)) > 0.2
    old = -draw.exponential(1.5, shape)
    logp, junk = old + draw.normal(0, 0.3, shape), draw.choice([0.0, -50.0, 50.0], shape)
    rewards = draw.choice([0.0, 0.1, 0.5, 1.0], (2, 4))
    parts = (rewards, np.where(mask, logp, junk), np.where(mask, old, -junk), mask)
    return tuple(map(torch.tensor, parts))


def reference(batch: tuple[Any, ...], config: GrpoConfig) -> tuple[float, Any]:
    """(loss, gradient by logp) in float64, every rollout alone."""
    rewards, logp, old, mask = batch
    logp = logp.clone().requires_grad_()
    adv, loss = (rewards - rewards.mean(1, keepdim=True)).flatten(), torch.zeros(())
    for b, here in enumerate(mask):
        ratio = (logp[b] - old[b])[here].exp()
        held = torch.clip(ratio, 1 - config.clip_low, 1 + config.clip_high)
        terms = torch.minimum(ratio * adv[b], held * adv[b])
        scale = 48 if config.normaliser == "constant" else len(terms)
        loss = loss - terms.sum() / scale / len(mask)
    loss.backward()
    return float(loss.detach()), logp.grad


def ours(batch: tuple[Any, ...], config: GrpoConfig, micro: int, dtype: Any) -> tuple[float, Any]:
    rewards, logp, old, mask = (x if x.dtype == torch.bool else x.to(dtype) for x in batch)
    logp, adv, total = logp.clone().requires_grad_(), centre(rewards).flatten(), 0.0
    for at in range(0, len(mask), micro):
        part = slice(at, at + micro)
        here = mask[part]  # trained tokens one after another, as a micro-batch has them
        lengths = here.sum(1, keepdim=True).expand_as(here)[here]
        weight = token_weight(config.normaliser, lengths, budget=48, rollouts=8, dtype=dtype)
        clip = {"clip_low": config.clip_low, "clip_high": config.clip_high}
        mine = adv[part, None].expand_as(here)[here]
        loss, _ = policy_loss(logp[part][here], old[part][here], mine, weight, **clip)
        loss.backward()
        total += float(loss.detach())
    return total, logp.grad.double()


@pytest.mark.parametrize("preset", ["dr_grpo", "dare"])
@pytest.mark.parametrize("micro", [1, 2, 8])
def test_ours_is_the_reference(preset: str, micro: int) -> None:
    config = GrpoConfig(**GrpoConfig.PRESETS[preset])
    for seed in range(50):
        batch = ragged(seed)
        loss, grad = reference(batch, config)
        for dtype, near in ((torch.float32, 1e-5), (torch.float64, 1e-9)):
            found = ours(batch, config, micro, dtype)
            assert found[0] == pytest.approx(loss, abs=near)
            assert (found[1] - grad).abs().max() <= near * max(float(grad.abs().max()), 1e-7)


def test_a_group_of_one_and_lost_siblings_get_no_advantage() -> None:
    """verl's own estimator gives a group of one its raw reward."""
    pytest.importorskip("verl", reason="the extra `cluster` is not installed")
    from train.backends.verl.trainer import group_mean_advantage

    scores = torch.tensor([[0.0, 1.0], [0.0, 0.4], [0.0, 0.0]])
    mask = torch.ones(3, 2)
    adv, _ = group_mean_advantage(scores, mask, np.array(["a", "b", "b"], dtype=object), None)
    assert torch.allclose(adv[:, 0], torch.tensor([0.0, 0.2, -0.2]))
