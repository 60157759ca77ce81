"""Log-probabilities, gradients, advantages and losses against plain references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from rollouts.engines.torch.llama import to_state
from train.model import packing
from train.model.loss import (
    centre,
    group_advantages,
    policy_loss,
    spread,
    token_weight,
)
from train.model.packing import Segment, pack
from train.model.policy import LlamaPolicy, TransformersPolicy, load_policy

# trees, the default, no trees; and what a GPU gets
LAYOUTS = [(1e-9, True), (packing.PAIR, True), (1e9, True), (packing.PAIR, False)]


def segments() -> list[Segment]:
    """With tokens of tools between the model's in some completions, rollouts that are the same or
    begin alike, and the end of turn, with which the tiny chat model pads, in a prompt."""
    generator = torch.Generator().manual_seed(1)

    def ids(n: int) -> list[int]:
        return torch.randint(3, 259, (n,), generator=generator).tolist()

    again, start, begun = ids(4), ids(20), ids(5)
    masks = [[1, 0, 0, 1], [1, 1, 1, 0, 0, 1, 1], [1]]
    heard = [[1, 0, 0, 1], [1, 1], [1, 1, 1, 1], [0, 0, 1, 1]]
    return [
        Segment([*ids(8), 2], [ids(4), ids(7), ids(1)], [0, 1, 2], masks),
        Segment(ids(5), [ids(6)], [3], [[1, 1, 0, 0, 0, 1]]),
        Segment(ids(1), [ids(3), ids(2)], [4, 5]),
        Segment(start + ids(4), [begun + ids(3), begun + ids(1), begun], [6, 7, 8]),
        Segment(start + ids(2), [begun + ids(2)], [9]),
        Segment(ids(3), [again, ids(2), again, again], [10, 11, 12, 13], heard),
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


@pytest.mark.parametrize("pair,share", [*LAYOUTS, (0, True)])
def test_gradients_are_those_of_lone_sequences(
    tiny_folder: Path, tiny_hf: Any, monkeypatch: pytest.MonkeyPatch, pair: float, share: bool
) -> None:
    """Also of the fallback, by transformers (0)."""
    policy: Any = TransformersPolicy(tiny_folder, "float32", "cpu")
    if pair:
        monkeypatch.setattr(packing, "PAIR", pair)
        policy = load_policy(tiny_folder, "float32")
        assert isinstance(policy, LlamaPolicy)
    monkeypatch.setattr(tiny_hf.get_input_embeddings(), "padding_idx", None)
    parts = segments()
    packed = pack(parts, share=share)
    logp, _ = policy.logp(packed)
    flat = [m for s in parts for m in s.masks or [[1] * len(c) for c in s.completions]]
    wanted = reference_logp(tiny_hf, parts)[[bool(x) for mask in flat for x in mask]]
    assert torch.allclose(logp, wanted, atol=1e-5)
    for row, mine in enumerate(flat):  # columns count model tokens
        assert packed.column[packed.row == row].tolist() == list(range(sum(mine)))
    weights = torch.randn(len(logp), generator=torch.Generator().manual_seed(2))
    (logp * weights).sum().backward()
    tiny_hf.zero_grad()
    (wanted * weights).sum().backward()
    with torch.no_grad():
        for _, tensor in policy.named():
            tensor.copy_(tensor.grad)
    ours = to_state(policy.model) if pair else policy.module.state_dict()
    for name, parameter in tiny_hf.named_parameters():
        scale = parameter.grad.abs().max()
        assert torch.allclose(ours[name], parameter.grad, atol=1e-5 * float(scale)), name


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


@pytest.mark.parametrize("normaliser", ["constant", "sequence_mean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_clipped_loss_by_hand(normaliser: Any, dtype: torch.dtype) -> None:
    """Of tokens on both sides of both bounds, with either sign of the advantage."""
    draw = torch.Generator().manual_seed(3)
    old, adv, moved = (torch.randn(400, generator=draw, dtype=torch.float64) for _ in range(3))
    lengths = torch.randint(1, 40, (400,), generator=draw)
    logp = (old + 0.3 * moved).requires_grad_()
    wanted, held = torch.zeros((), dtype=torch.float64), 0
    for new, before, a, length in zip(logp, old, adv, lengths, strict=True):
        ratio = (new - before).exp()
        kept = min(max(float(ratio), 0.8), 1.28)
        clips = kept * float(a) < float(ratio) * float(a)
        held += clips
        scale = 48 if normaliser == "constant" else int(length)
        wanted = wanted - (kept if clips else ratio) * a / scale / 8
    wanted.backward()
    mine, given = logp.detach().to(dtype).requires_grad_(), (old.to(dtype), adv.to(dtype))
    weight = token_weight(normaliser, lengths, budget=48, rollouts=8, dtype=dtype)
    loss, clipped = policy_loss(mine, *given, weight, clip_low=0.2, clip_high=0.28)
    loss.backward()
    near = 1e-5 if dtype == torch.float32 else 1e-12
    assert float(loss.detach()) == pytest.approx(float(wanted.detach()), abs=near)
    assert int(clipped) == held > 40 and logp.grad is not None and mine.grad is not None
    assert torch.allclose(mine.grad.double(), logp.grad, rtol=near, atol=near)


def test_a_group_of_one_and_lost_siblings_get_no_advantage() -> None:
    """verl's own estimator gives a group of one its raw reward."""
    pytest.importorskip("verl", reason="the extra `cluster` is not installed")
    import numpy as np

    from train.backends.verl.trainer import group_mean_advantage

    scores = torch.tensor([[0.0, 1.0], [0.0, 0.4], [0.0, 0.0]])
    names = np.array(["a", "b", "b"], dtype=object)
    adv, _ = group_mean_advantage(scores, torch.ones(3, 2), names, None)
    assert torch.allclose(adv[:, 0], torch.tensor([0.0, 0.2, -0.2]))
