# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""All that a decoding step does from the attention of one layer to that of the next, in one call.

A layer's products are so short that what Python needs between them is a fifth of a step. There are
such chains where the compiled kernels have the products too (c/products.c).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from rollouts.engines.torch.bindings import Kernels
from rollouts.engines.torch.llama import Llama

# Products of up to so many rows are bound by reading the weights; there our own are faster. Of more
# rows they are bound by arithmetic, and torch's are.
FEW = 256


@dataclass(frozen=True)
class Tiles:
    """A linear map whose weight (N, D) is kept a second time, as c/products.c wants it."""

    kernels: Kernels
    weight: Tensor
    packed: Tensor
    bias: Tensor | None
    gates: bool = False  # the weight has gates and what they open: the result is gated

    def __call__(self, x: Tensor) -> Tensor:
        if len(x) <= FEW:
            return self.kernels.product(x, self.packed, self.bias, self.gates)
        found = F.linear(x, self.weight, self.bias)
        return self.kernels.silu_mul(found) if self.gates else found


@dataclass(frozen=True)
class Chain:
    """Where `between` of c/decode.c finds the weights of each layer."""

    kernels: Kernels
    addresses: list[ctypes.Array[ctypes.c_void_p]]  # a layer: `weights_of`
    sizes: list[tuple[int, int, int, int]]  # a layer: hidden, inner, mlp, outputs of what follows
    eps: float
    held: list[Tensor | None]  # what the addresses belong to

    def run(self, index: int, mixed: Tensor, x: Tensor, scratch: Tensor, out: Tensor) -> None:
        """From the attention `mixed` (R, H·C) of layer `index` to what the next one projects, or
        the logits, in `out`; `x` (R, D) is what runs through, `scratch` is from `scratch_for`."""
        where, sizes = ctypes.addressof(self.addresses[index]), self.sizes[index]
        self.kernels.run("between", mixed, x, where, scratch, out, len(x), *sizes, self.eps)

    def scratch_for(self, x: Tensor) -> Tensor:
        """Room for the rows of `x`."""
        hidden, _, mlp, _ = self.sizes[0]  # all layers have these
        return x.new_empty(len(x) * (2 * hidden + mlp))


def chain(model: Llama, products: Sequence[object]) -> Chain | None:
    """The chain of a model's products: qkv, o, gated and down a layer, and the head. None where
    some are not `Tiles`."""
    tiles = [product for product in products if isinstance(product, Tiles)]
    if len(tiles) < len(products):
        return None
    norms = [b.norm_attn for b in model.layers[1:]] + [model.norm]
    found = Chain(tiles[-1].kernels, [], [], model.shape.eps, [])
    for index, (b, norm) in enumerate(zip(model.layers, norms, strict=True)):
        o, gates, down, then = tiles[4 * index + 1 : 4 * index + 5]
        own = (o.packed, o.bias, b.norm_mlp, gates.packed, down.packed)
        tensors = (*own, norm, then.packed, then.bias)
        places = (None if t is None else t.data_ptr() for t in tensors)
        found.addresses.append((ctypes.c_void_p * len(tensors))(*places))
        sizes = (len(o.weight), o.weight.shape[1], down.weight.shape[1], len(then.weight))
        found.sizes.append(sizes)
        found.held.extend(tensors)
    return found
