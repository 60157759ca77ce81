# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Draw the next token: temperature, top-k, top-p, and the log-probability under both laws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rollouts.trajectory import Sampling

_BLOCK = 256
_SLICE = 1 << 19  # logits a thread handles at a time: several passes over them stay in cache


def uniforms(seeds: Sequence[int], length: int) -> Tensor:
    """(B, length) float64 in [0, 1): row b depends on seeds[b] alone, not on its neighbours."""
    rows = [np.random.Generator(np.random.Philox(seed)).random(length) for seed in seeds]
    return torch.from_numpy(np.stack(rows)) if rows else torch.zeros(0, length, dtype=torch.float64)


def _invert(weights_BV: Tensor, u_B: Tensor) -> tuple[Tensor, Tensor]:
    """(first index whose running sum passes u·total, total), by blocks: rounding stays within a
    block. Totals are float64."""
    rows, size = weights_BV.shape
    pad = -size % _BLOCK
    if pad:  # padding by 0 would still copy
        weights_BV = torch.nn.functional.pad(weights_BV, (0, pad))
    blocks = weights_BV.view(rows, -1, _BLOCK)
    sums = blocks.sum(-1, dtype=torch.float64)
    running = sums.cumsum(-1)
    whole = running[:, -1]
    target = torch.minimum(u_B * whole, torch.nextafter(whole, torch.zeros_like(whole)))
    block = torch.searchsorted(running, target[:, None], right=True).clamp_(max=sums.shape[1] - 1)
    before = (running - sums).gather(1, block)
    inner = blocks.gather(1, block[:, :, None].expand(-1, -1, _BLOCK))[:, 0].double().cumsum(-1)
    offset = torch.searchsorted(inner, target[:, None] - before, right=True)
    last = (inner < inner[:, -1:]).sum(-1, keepdim=True)  # never past the last positive weight
    index = block * _BLOCK + torch.minimum(offset, last)
    return index[:, 0].clamp_(max=size - 1), whole


def pick(logits_BV: Tensor, sampling: Sampling, u_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Token ids (B,), their full log-probabilities and their sampling log-probabilities.

    The full law is softmax(logits / T) (raw softmax at T = 0); the sampling law keeps the `top_k`
    best tokens, then the smallest set of them whose renormalised mass reaches `top_p`, as
    transformers' warpers do. `u_B` in [0, 1) decides; the same u gives the same token.
    """
    rows, size = logits_BV.shape
    step = max(1, _SLICE * torch.get_num_threads() // size)
    if logits_BV.device.type != "cpu" or rows <= step:
        return _pick(logits_BV, sampling, u_B)
    parts = [
        _pick(logits_BV[at : at + step], sampling, u_B[at : at + step])
        for at in range(0, rows, step)
    ]
    ids, full, narrow = (torch.cat(column) for column in zip(*parts, strict=True))
    return ids, full, narrow


def _pick(logits_BV: Tensor, sampling: Sampling, u_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`pick` for rows that are taken together."""
    if sampling.temperature == 0:
        logits = logits_BV.float()
        ids = logits.argmax(-1)
        full = logits.gather(1, ids[:, None])[:, 0] - logits.logsumexp(-1)
        return ids, full, torch.zeros_like(full)
    # a copy of our own, so that what follows may write into it
    logits = logits_BV.to(torch.float32, copy=True)
    if sampling.temperature != 1:
        logits.div_(sampling.temperature)
    if sampling.top_k <= 0 and sampling.top_p >= 1:
        peak = logits.amax(-1, keepdim=True)
        ids, total = _invert(logits.sub_(peak).exp_(), u_B)
        chosen = logits_BV.gather(1, ids[:, None]).float() / sampling.temperature
        full = ((chosen - peak)[:, 0] - total.log()).float()
        return ids, full, full
    best, order = logits.topk(min(sampling.top_k or logits.shape[1], logits.shape[1]), dim=-1)
    peak = best[:, :1]
    kept = (best - peak).double().exp_()  # few columns from here on
    if sampling.top_p < 1:
        share = kept / kept.sum(-1, keepdim=True)
        kept = kept.masked_fill((share.cumsum(-1) - share) >= sampling.top_p, 0.0)
    slot = _invert(kept, u_B)[0][:, None]
    ids = order.gather(1, slot)[:, 0]
    total = logits.sub_(peak).exp_().sum(-1).log()
    full = (best.gather(1, slot) - peak)[:, 0] - total
    narrow = kept.gather(1, slot)[:, 0].log() - kept.sum(-1).log()
    return ids, full, narrow.float()
