# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Advantages, the policy loss in its two published forms, and log-probabilities without logits.

Suffixes: P prompts, G rollouts per prompt, N trained tokens one after another, D hidden size,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

Normaliser = Literal["constant", "sequence_mean"]


def centre(rewards_PG: Tensor, valid_PG: Tensor | None = None) -> Tensor:
    """Advantages (P, G): reward minus the prompt's mean, not divided by the spread.

    Dr.GRPO (Liu et al. 2025, "Understanding R1-Zero-Like Training", section 3.2). Rollouts that
    are not valid (infrastructure failures) neither count in the mean nor get an advantage. Where
    all valid rewards are equal the advantages are 0 exactly: the mean of eight times 0.1 is not
    0.1 in float32, and a division by the spread would blow the rest up.
    """
    if valid_PG is None:
        valid_PG = torch.ones_like(rewards_PG, dtype=torch.bool)
    weight_PG = valid_PG.to(rewards_PG.dtype)
    safe_PG = rewards_PG.masked_fill(~valid_PG, 0.0)
    mean_P1 = safe_PG.sum(1, keepdim=True) / weight_PG.sum(1, keepdim=True).clamp(min=1)
    low_P1 = rewards_PG.masked_fill(~valid_PG, float("inf")).amin(1, keepdim=True)
    high_P1 = rewards_PG.masked_fill(~valid_PG, float("-inf")).amax(1, keepdim=True)
    return ((safe_PG - mean_P1) * weight_PG).masked_fill(high_P1 <= low_P1, 0.0)


def spread(rewards_PG: Tensor, valid_PG: Tensor) -> Tensor:
    """Standard deviations (P, 1) of each group's valid rewards, n − 1 in the denominator, 0 for
    fewer than two: what GRPO divides the advantage by, and Dr.GRPO does not."""
    weight = valid_PG.to(rewards_PG.dtype)
    squares = centre(rewards_PG, valid_PG).square().sum(1, keepdim=True)
    return (squares / (weight.sum(1, keepdim=True) - 1).clamp(min=1)).sqrt()


def group_advantages(rewards_B: Tensor, names: Sequence[Any], by_spread: bool) -> Tensor:
    """Advantages (B,) of rollouts that lie in any order; `names` (B,) tells the groups.
    As `centre`, and with `by_spread` divided by the group's spread."""
    places: dict[Any, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    out_B = torch.zeros_like(rewards_B)
    for mine in places.values():
        group = rewards_B[mine][None]
        adv = centre(group)
        if by_spread:
            adv = adv / (spread(group, torch.ones_like(group, dtype=torch.bool)) + 1e-6)
        out_B[mine] = adv[0]
    return out_B


def overlong_penalty(used: Tensor, most: Tensor, buffer: Tensor) -> Tensor:
    """What a rollout's reward loses for its length, in [−1, 0]: nothing up to `most` − `buffer`
    tokens, then linearly more, 1 at `most`. DAPO's soft overlong punishment (Yu et al. 2025, arXiv
    2503.14476, equation 13). Same shapes, tokens."""
    return ((most - buffer - used) / buffer).clamp(-1.0, 0.0)


def token_weight(
    normaliser: Normaliser,
    lengths_N: Tensor,
    *,
    budget: int,
    rollouts: int,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """What each token term counts (N,); `lengths_N` are its rollout's trained tokens.

    `constant` is Dr.GRPO: 1 / (budget · rollouts), budget = most new tokens a rollout may have.
    `sequence_mean` is DARE's variant, the mean over a rollout's own tokens, then over rollouts:
    1 / (length · rollouts). `rollouts` counts the whole optimiser step, so the losses of its
    micro-batches add up, however it is cut.
    """
    if normaliser == "constant":
        return torch.full_like(lengths_N, 1 / (budget * rollouts), dtype=dtype)
    return torch.full_like(lengths_N, 1 / rollouts, dtype=dtype) / lengths_N


def sampling_weight(old_logp: Tensor, sampling_logp: Tensor, cap: float) -> Tensor:
    """Truncated importance weight of each token, min(π_old / q, cap).

    Tokens are drawn from q (top-k, top-p, and the decoder's own rounding), while the loss is about
    the full distribution π_old. Under truncation π_old / q is the mass the truncation kept, so the
    weight is at most 1 up to rounding. No gradient flows through it.
    """
    return (old_logp - sampling_logp).detach().exp().clamp(max=cap)


def policy_loss(
    logp_N: Tensor,
    old_logp_N: Tensor,
    adv_N: Tensor,
    weight_N: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> tuple[Tensor, Tensor]:
    """(scalar to minimise, number of tokens where the clip bites), over N trained tokens.

    `adv_N` is each token's rollout's advantage, `weight_N` what its term counts (`token_weight`,
    times `sampling_weight` where that is asked for).
    """
    ratio_N = (logp_N - old_logp_N).exp()
    plain_N = ratio_N * adv_N
    gain_N = torch.minimum(plain_N, ratio_N.clamp(1 - clip_low, 1 + clip_high) * adv_N)
    return -(gain_N * weight_N).sum(), (gain_N < plain_N).sum()


def kl_penalty(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """Each token's low-variance estimate e^d − d − 1 with d = ref − logp (Schulman's k3)."""
    d = ref_logp - logp
    return d.exp() - d - 1


# Rows of logits at a time. 128 rows of a 49k vocabulary are 25 MB in float32: the largest blocks
# that glibc keeps for reuse. Larger ones would be mapped anew, a page fault for every 4 kB.
LOGIT_ROWS = 128


def _logits(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    """(n, V) float32."""
    logits = (hidden @ weight.t()).float()
    return logits if temperature == 1 else logits.div_(temperature)


class LinearLogProb(torch.autograd.Function):
    """log softmax(h Wᵀ / τ)[target] and the entropy, some rows at a time: no (N, V) tensor stays.

    The backward pass computes the logits again from h (N, D) and W (V, D). The weight's gradient
    is added up from `chunk` rows at once, in W's own type.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, temperature: float, chunk: int
    ) -> tuple[Tensor, Tensor]:
        count, rows = len(target), min(chunk, LOGIT_ROWS)
        logp = hidden.new_empty(count, dtype=torch.float32)
        lse, entropy = torch.empty_like(logp), torch.empty_like(logp)
        for at in range(0, count, rows):
            part = slice(at, at + rows)
            logits = _logits(hidden[part], weight, temperature)
            chosen = logits.gather(1, target[part, None])[:, 0]
            lse[part] = logits.logsumexp(-1)
            logp[part] = chosen - lse[part]
            share = torch.exp(logits - lse[part, None])
            entropy[part] = lse[part] - torch.linalg.vecdot(share, logits)
        ctx.save_for_backward(hidden, weight, target, lse)
        ctx.temperature, ctx.chunk = temperature, chunk
        ctx.mark_non_differentiable(entropy)
        return logp, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, None, None, None]:
        hidden, weight, target, lse = ctx.saved_tensors
        grad_logp = grads[0] / ctx.temperature
        d_hidden = torch.empty_like(hidden)
        d_weight = torch.zeros_like(weight)
        rows = min(ctx.chunk, LOGIT_ROWS)
        for first in range(0, len(target), ctx.chunk):
            last = min(first + ctx.chunk, len(target))
            d_logits = hidden.new_empty(last - first, len(weight))
            for at in range(first, last, rows):
                part = slice(at, min(at + rows, last))
                share = _logits(hidden[part], weight, ctx.temperature)
                share.sub_(lse[part, None]).exp_().mul_(-grad_logp[part, None])
                share.scatter_add_(1, target[part, None], grad_logp[part, None])
                d_logits[at - first : part.stop - first] = share
            d_hidden[first:last] = d_logits @ weight
            d_weight.addmm_(d_logits.t(), hidden[first:last])
        return d_hidden, d_weight, None, None, None


def linear_logp(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    target_N: Tensor,
    temperature: float = 1.0,
    chunk: int = 512,
) -> tuple[Tensor, Tensor]:
    """(log-probabilities (N,), entropies (N,)) in float32; the entropies carry no gradient."""
    out: tuple[Tensor, Tensor] = LinearLogProb.apply(
        hidden_ND, weight_VD, target_N, temperature, chunk
    )  # pyright: ignore[reportAssignmentType]
    return out
