# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Draw the next token: temperature, top-k, top-p, and the log-probability under both laws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rollouts.engines.torch.kernels import PART, VECTOR, Kernels
from rollouts.trajectory import NO_NUMBERS, Completion, Sampling, Stop

_BLOCK = PART
_SLICE = 1 << 19  # logits a thread handles at a time: several passes over them stay in cache


def uniforms(seeds: Sequence[int], length: int) -> Tensor:
    """(B, length) float64 in [0, 1): row b depends on seeds[b] alone, not on its neighbours."""
    rows = [np.random.Generator(np.random.Philox(seed)).random(length) for seed in seeds]
    return torch.from_numpy(np.stack(rows)) if rows else torch.zeros(0, length, dtype=torch.float64)


def _invert(weights_RV: Tensor, u_B: Tensor, row_B: Tensor) -> tuple[Tensor, Tensor]:
    """(first index whose running sum passes u·total, total) of each draw, by blocks: rounding stays
    within a block. Totals are float64."""
    rows, size = weights_RV.shape
    pad = -size % _BLOCK
    if pad:  # padding by 0 would still copy
        weights_RV = torch.nn.functional.pad(weights_RV, (0, pad))
    blocks = weights_RV.view(rows, -1, _BLOCK)
    block, rest, whole = _block(blocks.sum(-1, dtype=torch.float64), u_B, row_B)
    index = block * _BLOCK + _inside(blocks[row_B, block], rest)
    return index.clamp_(max=size - 1), whole


def _block(sums: Tensor, u_B: Tensor, row_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each draw: the block in which u·total falls, how far into it, and the total."""
    running = sums.cumsum(-1)
    before, running = (running - sums)[row_B], running[row_B]
    whole = running[:, -1]
    target = torch.minimum(u_B * whole, torch.nextafter(whole, torch.zeros_like(whole)))
    block = torch.searchsorted(running, target[:, None], right=True).clamp_(max=sums.shape[1] - 1)
    return block[:, 0], target - before.gather(1, block)[:, 0], whole


def _inside(weights: Tensor, rest: Tensor) -> Tensor:
    """The first column of each draw's block (B, _BLOCK) whose running sum passes `rest`."""
    inner = weights.double().cumsum(-1)
    offset = torch.searchsorted(inner, rest[:, None], right=True)
    last = (inner < inner[:, -1:]).sum(-1, keepdim=True)  # never past the last positive weight
    return torch.minimum(offset, last)[:, 0]


def pick(
    logits_RV: Tensor,
    sampling: Sampling,
    u_B: Tensor,
    row_B: Tensor | None = None,
    kernels: Kernels | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Token ids (B,), their full log-probabilities and their sampling log-probabilities.

    The full law is softmax(logits / T) (raw softmax at T = 0); the sampling law keeps the `top_k`
    best tokens, then the smallest set of them whose renormalised mass reaches `top_p`, as
    transformers' warpers do. `u_B` in [0, 1) decides; the same u gives the same token. Draw b is
    from row `row_B[b]` of the logits: several draws may share one. None: one draw a row, in order.
    """
    rows, size = logits_RV.shape
    row_B = torch.arange(rows, device=logits_RV.device) if row_B is None else row_B
    if kernels is not None and logits_RV.is_contiguous() and size % VECTOR == 0:
        parts = -(-size // PART)
        if _plain(sampling) or 0 < sampling.top_k <= parts:  # else too few maxima bound the best
            return _compiled(logits_RV, sampling, u_B, row_B, kernels)
    step = max(1, _SLICE * torch.get_num_threads() // size)
    if logits_RV.device.type != "cpu" or rows <= step:
        return _pick(logits_RV, sampling, u_B, row_B)
    found = torch.empty(len(u_B), dtype=torch.long), torch.empty(len(u_B)), torch.empty(len(u_B))
    for at in range(0, rows, step):
        inside = ((row_B >= at) & (row_B < at + step)).nonzero()[:, 0]
        part = _pick(logits_RV[at : at + step], sampling, u_B[inside], row_B[inside] - at)
        for column, values in zip(found, part, strict=True):
            column[inside] = values
    return found


def _pick(
    logits_RV: Tensor, sampling: Sampling, u_B: Tensor, row_B: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`pick` for rows that are taken together."""
    if sampling.temperature == 0:
        logits = logits_RV.float()
        ids = logits.argmax(-1)
        full = logits.gather(1, ids[:, None])[:, 0] - logits.logsumexp(-1)
        return ids[row_B], full[row_B], torch.zeros_like(u_B, dtype=torch.float32)
    # a copy of our own, so that what follows may write into it
    logits = logits_RV.to(torch.float32, copy=True)
    if sampling.temperature != 1:
        logits.div_(sampling.temperature)
    if _plain(sampling):
        peak = logits.amax(-1, keepdim=True)
        ids, total = _invert(logits.sub_(peak).exp_(), u_B, row_B)
        chosen = logits_RV[row_B, ids].float() / sampling.temperature
        full = (chosen - peak[row_B, 0] - total.log()).float()
        return ids, full, full
    best, order = logits.topk(min(sampling.top_k or logits.shape[1], logits.shape[1]), dim=-1)
    total = logits.sub_(best[:, :1]).exp_().sum(-1).log()
    return _of_best(best, order, total, sampling.top_p, u_B, row_B)


def _plain(sampling: Sampling) -> bool:
    """Whether the sampling law is the full law."""
    return sampling.temperature == 0 or (sampling.top_k <= 0 and sampling.top_p >= 1)


def _of_best(
    best_RK: Tensor, order_RK: Tensor, total_R: Tensor, top_p: float, u_B: Tensor, row_B: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Draws from the K best tokens of each row; `total_R` is log Σ exp(logit - best) of all."""
    kept = (best_RK - best_RK[:, :1]).double().exp_()  # few columns from here on
    if top_p < 1:
        share = kept / kept.sum(-1, keepdim=True)
        kept = kept.masked_fill((share.cumsum(-1) - share) >= top_p, 0.0)
    slot = _invert(kept, u_B, row_B)[0]
    full = (best_RK[row_B, slot] - best_RK[row_B, 0]) - total_R[row_B]
    narrow = kept[row_B, slot].log() - kept.sum(-1).log()[row_B]
    return order_RK[row_B, slot], full.float(), narrow.float()


def _compiled(
    logits_RV: Tensor, sampling: Sampling, u_B: Tensor, row_B: Tensor, kernels: Kernels
) -> tuple[Tensor, Tensor, Tensor]:
    """`pick` by compiled kernels: one pass over the logits, and few columns from there on."""
    heat = sampling.temperature or 1.0
    ids, peak, tops, sums = kernels.weigh(logits_RV, heat)
    if sampling.temperature == 0:
        full = -sums.sum(-1).log()
        return ids[row_B], full[row_B].float(), torch.zeros_like(u_B, dtype=torch.float32)
    if sampling.top_k > 0:
        least = tops.topk(sampling.top_k, dim=-1).values[:, -1].contiguous()
        best, order = kernels.greatest(logits_RV, tops, least, sampling.top_k)
        total = sums.sum(-1).log()
        return _of_best(best / heat, order, total, sampling.top_p, u_B, row_B)
    block, rest, whole = _block(sums, u_B, row_B)
    size = logits_RV.shape[1]
    columns = block[:, None] * PART + torch.arange(PART)
    inside, columns = columns < size, columns.clamp_(max=size - 1)
    values = logits_RV[row_B[:, None], columns].float()
    weights = values.sub_(peak[row_B, None]).div_(heat).exp_().mul_(inside)
    slot = _inside(weights, rest)
    ids = (block * PART + slot).clamp_(max=size - 1)
    full = (logits_RV[row_B, ids].float() - peak[row_B]) / heat - whole.log()
    return ids, full.float(), full.float()


class Drawing(Protocol):
    """A wave of samples that take a token each."""

    @property
    def lines(self) -> int: ...

    def asked(self) -> tuple[Tensor, Tensor]: ...

    def take(self, token: Tensor, full: Tensor, narrow: Tensor) -> None: ...


def draw(
    waves: Sequence[Drawing],
    logits: Tensor,
    sampling: Sampling,
    kernels: Kernels | None,
) -> None:
    """The next tokens of every sample of every wave, from the logits of what was fed."""
    draws: list[Tensor] = []
    rows: list[Tensor] = []
    first = 0
    for wave in waves:
        numbers, lines = wave.asked()
        draws.append(numbers)
        rows.append(lines + first)
        first += wave.lines
    drawn = pick(logits, sampling, torch.cat(draws), torch.cat(rows), kernels)
    columns = zip(*(column.split([len(d) for d in draws]) for column in drawn), strict=True)
    for wave, (ids, full, narrow) in zip(waves, columns, strict=True):
        wave.take(ids, full, narrow)


def completion(
    ids: list[int], full: list[float], narrow: list[float], size: int, done: bool
) -> Completion:
    """The first `size` tokens of a row; `done`: the last of them is a stop token. Tokens drawn from
    logits that are no numbers are no answer."""
    stop: Stop = "eos" if done else "length"
    failure = NO_NUMBERS if any(map(math.isnan, full[:size])) else None
    return Completion(ids[:size], full[:size], narrow[:size], stop, failure)
