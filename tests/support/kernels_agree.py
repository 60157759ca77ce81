# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Whether compiled kernels compute what torch does, each on a small case: in libraries of other
compilers and processors too. What multiplies by AMX in training has tests of its own
(tests/train/model/test_forward.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from rollouts.engines.torch.kernels import Kernels

Some = Callable[..., Tensor]  # random numbers of a shape
Pairs = Iterator[tuple[Tensor, Tensor]]


def agrees(kernels: Kernels, dtype: torch.dtype) -> bool:
    """Whether every function gives torch's numbers, as far as the number format allows."""
    random = torch.Generator().manual_seed(0)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random).to(dtype)

    near = 1e-5 if dtype == torch.float32 else 3e-2
    every = (_layers, _products, _attention, _prompts, _gradients, _blocks, _shares, _laws)
    pairs = (pair for part in every for pair in part(kernels, some))
    return all(torch.allclose(a.float(), b.float(), near, near) for a, b in pairs)


def _layers(kernels: Kernels, some: Some) -> Pairs:
    x, more, weight = some(3, 64), some(3, 64), some(64)
    summed = x + more
    wanted = F.rms_norm(summed, (64,), weight, 1e-5)
    yield kernels.add_norm(x, more, weight, 1e-5), wanted
    yield x, summed
    yield kernels.silu_mul(x), F.silu(x[:, :32]) * x[:, 32:]


def _products(kernels: Kernels, some: Some) -> Pairs:
    """Rows that fill tiles and rows that do not, with and without a bias."""
    weight, bias = some(64, 96), some(64)
    packed, gates = kernels.packed(weight), kernels.packed_gates(weight)
    if packed is None or gates is None:
        return
    for rows in (3, 16, 70):
        x = some(rows, 96)
        yield kernels.product(x, packed, None), x.float() @ weight.float().t()
        yield kernels.product(x, packed, bias), F.linear(x.float(), weight.float(), bias.float())
        gate, up = (x.float() @ weight.float().t()).chunk(2, 1)
        yield kernels.product(x, gates, None, True), F.silu(gate) * up


def _attention(kernels: Kernels, some: Some) -> Pairs:
    """One key head, two query heads, rows of two tokens without rotation: the keys of their prompt
    and a row's own. For many rows AMX multiplies the prompt's, where there is AMX."""
    for rows, length in ((1, 2), (5, 35)):
        heads, out = some(2 * rows, 128), some(2 * rows, 64)
        tables = (torch.ones_like(out[:, :32]), torch.zeros_like(out[:, :32]))
        prompt = some(1, 1, length, 32), some(1, 1, length, 32)
        own = some(rows, 1, 2, 32), some(rows, 1, 2, 32)
        plan, lengths = torch.tensor([[0, at, 0, 2] for at in range(rows)]), torch.tensor([length])
        kernels.attend(heads, out, tables, (None, None), prompt, own, plan, lengths, 1e-5)
        query, key, value = heads.view(rows, 2, 4, 32).transpose(1, 2).split([2, 1, 1], 1)
        keys, values = (
            torch.cat([known.expand(rows, -1, -1, -1), new], 2).float()
            for known, new in zip(prompt, (key, value), strict=True)
        )
        scores = query.float() @ keys.transpose(2, 3) * 32**-0.5
        later = torch.ones(2, length + 2).triu(length + 1).bool()
        shares = scores.masked_fill(later, float("-inf")).softmax(-1)
        yield out.view(rows, 2, 2, 32).transpose(1, 2), shares @ values


def _prompts(kernels: Kernels, some: Some) -> Pairs:
    """Two prompts of 40 and 19 tokens, of the first of which three are known; no rotation."""
    if not kernels.multiplies:
        return
    sizes, keys, values = (37, 19), some(2, 1, 40, 32), some(2, 1, 40, 32)
    heads = some(sum(sizes), 4 * 32)
    tables = (torch.ones_like(heads[:, :32]), torch.zeros_like(heads[:, :32]))
    spans = torch.tensor([[3, 40], [0, 19]])
    found = kernels.read_prompts(heads, tables, (None, None), keys, values, spans, 1e-5)
    parts = zip(spans.tolist(), heads.split(sizes), found.split(sizes), keys, values, strict=True)
    for (begin, end), given, mixed, k, v in parts:
        query, key, value = given.view(end - begin, 4, 32).split([2, 1, 1], 1)
        yield k[0, begin:end], key[:, 0]
        yield v[0, begin:end], value[:, 0]
        later = torch.ones(end - begin, end).triu(begin + 1).bool()
        scores = query.transpose(0, 1).float() @ k[0, :end].float().t() * 32**-0.5
        shares = scores.masked_fill(later, float("-inf")).softmax(-1)
        yield mixed.view(-1, 2, 32).transpose(0, 1), shares @ v[0, :end].float()


def _gradients(kernels: Kernels, some: Some) -> Pairs:
    """Of the norm and of the gate, against those of torch in float32."""
    x, grad, weight = some(3, 64), some(3, 64), some(64)
    leaves = [_leaf(x), _leaf(weight)]
    F.rms_norm(leaves[0], (64,), leaves[1], 1e-5).backward(grad.float())
    scales = (x.float().square().mean(-1) + 1e-5).rsqrt()
    d_x, d_weight = torch.empty_like(x), scales.new_empty(torch.get_num_threads(), 64)
    kernels.run("norm_back", x, weight, scales, grad, grad, d_x, d_weight, 3, 64)
    yield d_x, _grad(leaves[0]) + grad.float()
    yield d_weight.sum(0), _grad(leaves[1])
    both, d_both = _leaf(x), torch.empty_like(x)
    (F.silu(both[:, :32]) * both[:, 32:]).backward(grad[:, :32].float())
    kernels.run("silu_back", x, grad[:, :32].contiguous(), d_both, 3, 32)
    yield d_both, _grad(both)


def _blocks(kernels: Kernels, some: Some) -> Pairs:
    """Two rows of two places, the last of which is padding; what was moved comes back."""
    heads, angles = some(3, 4 * 32), torch.arange(96.0).view(3, 32) % 16
    tables = tuple(table.to(heads.dtype) for table in (angles.cos(), angles.sin()))
    rows, place = torch.tensor([[0, 1], [2, 0]]), torch.tensor([0, 1, 2])
    q, keys, values = (heads.new_empty(2, lines, 32) for lines in (4, 2, 2))
    kernels.run("to_blocks", heads, *tables, rows, q, keys, values, 4, 2, 2, 1, 32)
    yield values[0, 1], heads[1, 96:]
    turned = torch.cat([-heads[:, 80:96], heads[:, 64:80]], 1)
    yield keys[1, 0], (heads[:, 64:96] * tables[0] + turned * tables[1])[2]
    back = torch.empty_like(heads)
    kernels.run("from_blocks", q, keys, values, *tables, place, 0, 4, back, 3, 2, 2, 1, 32)
    yield back, heads


def _shares(kernels: Kernels, some: Some) -> Pairs:
    """One row of two places, two heads, 19 keys, of which the first place sees 17."""
    scores, grad = some(4, 19), some(4, 19)
    mask = torch.zeros(2, 19)
    mask[0, 17:] = mask[1, 3] = float("-inf")
    ends, leaf = torch.tensor([17, 19]), _leaf(scores)
    wanted = (leaf * 0.5 + mask.repeat(2, 1)).softmax(-1)
    wanted.backward(grad.float())
    kernels.run("shares", scores, mask.to(scores.dtype), ends, 1, 2, 2, 19, 0.5)
    yield scores, wanted.detach()
    kernels.run("shares_back", scores, grad, ends, 1, 2, 2, 19, 0.5)
    yield grad, _grad(leaf)


def _laws(kernels: Kernels, some: Some) -> Pairs:
    logits, target = some(3, 48), torch.tensor([0, 47, 20])
    leaf = _leaf(logits)
    wanted = (leaf / 0.7).log_softmax(-1)
    chosen = wanted.gather(1, target[:, None])[:, 0]
    peaks, sums, dots = torch.empty(3, 3)
    kernels.run("law", logits, 3, 48, 0.7, peaks, sums, dots)
    lse = peaks + sums.log()
    yield lse, (logits.float() / 0.7).logsumexp(-1)
    yield sums.log() - dots / sums, -(wanted.exp() * wanted).sum(-1).detach()
    grads = torch.tensor([1.0, -2.0, 0.5])
    chosen.backward(grads)
    kernels.run("law_back", logits, target, lse, grads, 3, 48, 0.7)
    yield logits, _grad(leaf)


def _leaf(x: Tensor) -> Tensor:
    return x.float().clone().requires_grad_()


def _grad(leaf: Tensor) -> Tensor:
    assert leaf.grad is not None
    return leaf.grad
