"""Advantages, the policy loss in its two published forms, and log-probabilities without logits.

Suffixes: P prompts, G rollouts a prompt, B = P·G rollouts, T tokens, N flat tokens, D hidden
size, V vocabulary.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

Normaliser = Literal["constant", "sequence_mean"]


def centre(rewards_PG: Tensor, valid_PG: Tensor | None = None) -> Tensor:
    """Advantages (P, G): reward minus the prompt's mean, not divided by the spread.

    Dr.GRPO (Liu et al. 2025, "Understanding R1-Zero-Like Training", section 3.2). Rollouts that
    are not valid (infrastructure failures) neither count in the mean nor get an advantage.
    """
    if valid_PG is None:
        return rewards_PG - rewards_PG.mean(dim=1, keepdim=True)
    weight = valid_PG.to(rewards_PG.dtype)
    safe = rewards_PG.masked_fill(~valid_PG, 0.0)
    mean_P1 = safe.sum(1, keepdim=True) / weight.sum(1, keepdim=True).clamp(min=1)
    return (safe - mean_P1) * weight


def spread(rewards_PG: Tensor, valid_PG: Tensor) -> Tensor:
    """Standard deviations (P, 1) of each group's valid rewards, n − 1 in the denominator, 0 for
    fewer than two: what GRPO divides the advantage by, and Dr.GRPO does not."""
    weight = valid_PG.to(rewards_PG.dtype)
    squares = centre(rewards_PG, valid_PG).square().sum(1, keepdim=True)
    return (squares / (weight.sum(1, keepdim=True) - 1).clamp(min=1)).sqrt()


def sampling_weight(
    old_logp_BT: Tensor, sampling_logp_BT: Tensor, mask_BT: Tensor, cap: float
) -> Tensor:
    """Truncated importance weight (B, T): min(π_old / q, cap), 1 where the mask is off.

    Tokens are drawn from q (top-k, top-p, and the decoder's own rounding), while the loss is about
    the full distribution π_old. Under truncation π_old / q is the mass the truncation kept, so the
    weight is at most 1 up to rounding. No gradient flows through it.
    """
    delta_BT = (old_logp_BT - sampling_logp_BT).detach().masked_fill(~mask_BT, 0.0)
    return delta_BT.exp().clamp(max=cap)


def policy_loss(
    logp_BT: Tensor,
    old_logp_BT: Tensor,
    adv_B: Tensor,
    mask_BT: Tensor,
    *,
    normaliser: Normaliser,
    budget: int,
    rollouts: int,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    weight_BT: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(scalar to minimise, share of tokens where the clip bites). Micro-batch losses just add up.

    `constant` is Dr.GRPO: token terms summed over the whole step, divided by `budget · rollouts`
    (budget = most new tokens a rollout may have). `sequence_mean` is DARE's variant: the mean over
    a rollout's own tokens, then over rollouts. `rollouts` counts the whole optimiser step.
    """
    delta_BT = (logp_BT - old_logp_BT).masked_fill(~mask_BT, 0.0)  # padding may hold junk
    ratio_BT, adv_B1 = delta_BT.exp(), adv_B[:, None]
    plain_BT = ratio_BT * adv_B1
    gain_BT = torch.minimum(plain_BT, ratio_BT.clamp(1 - clip_low, 1 + clip_high) * adv_B1)
    clipped = ((gain_BT < plain_BT) & mask_BT).sum() / mask_BT.sum().clamp(min=1)
    if weight_BT is not None:
        gain_BT = gain_BT * weight_BT
    kept_BT = gain_BT.masked_fill(~mask_BT, 0.0)
    if normaliser == "constant":
        return -kept_BT.sum() / (budget * rollouts), clipped.detach()
    lengths_B = mask_BT.sum(1).clamp(min=1)
    return -(kept_BT.sum(1) / lengths_B).sum() / rollouts, clipped.detach()


def kl_penalty(logp_BT: Tensor, ref_logp_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(B, T) the low-variance estimate e^d − d − 1 with d = ref − logp (Schulman's k3)."""
    d_BT = (ref_logp_BT - logp_BT).masked_fill(~mask_BT, 0.0)
    return d_BT.exp() - d_BT - 1


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
