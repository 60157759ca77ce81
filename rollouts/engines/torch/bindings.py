# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The functions of the compiled kernels (c/*.c) as methods on tensors."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

VECTOR = 16
BLOCK = 32  # both sizes of a weight are multiples of it, where AMX multiplies
PART = 256  # logits whose sum is kept
# The parameters of each function but the last, the number of threads: p addresses (of tensors, or
# null), l whole numbers, f float32 numbers, b whether.
KINDS = {"p": ctypes.c_void_p, "l": ctypes.c_int64, "f": ctypes.c_float, "b": ctypes.c_int}
PARAMETERS = {
    "add_norm": "ppppppllf",
    "silu_mul": "ppll",
    "attend": "pppppppppppplllllllff",
    "read_prompts": "ppppppppplllllff",
    "weigh": "pllfpppp",
    "greatest": "pllpplpp",
    "norm_back": "pppppppll",
    "silu_back": "pppll",
    "to_blocks": "ppppppplllll",
    "from_blocks": "ppppppllplllll",
    "move_heads": "pppllllllll",
    "shares": "pppllllf",
    "shares_back": "pppllllf",
    "attend_blocks": "pppppppllllllf",
    "attend_blocks_back": "pppppppppppllllllf",
    "transpose": "ppll",
    "law": "pllfppp",
    "law_back": "ppppllf",
    "copy_down": "ppl",
    "multiplies": "",
    "pack_weight": "ppll",
    "product": "pppplllb",
    "between": "ppppplllllf",
}
MAY_FAIL = (  # for want of memory
    "attend",
    "read_prompts",
    "greatest",
    "shares",
    "attend_blocks",
    "attend_blocks_back",
    "product",
    "between",
)


class Kernels:
    """The functions of a compiled library, on contiguous tensors of one number format."""

    def __init__(self, library: ctypes.CDLL, tiles: bool = False) -> None:
        """`tiles`: the processor multiplies this format by AMX. `multiplies`: this library does,
        too, and the system lets it."""
        self.tiles = tiles
        self._functions: dict[str, Any] = {}
        for name, kinds in PARAMETERS.items():
            found = self._functions[name] = getattr(library, name)
            found.argtypes = [*(KINDS[kind] for kind in kinds), ctypes.c_int]
            found.restype = ctypes.c_int if name in (*MAY_FAIL, "multiplies") else None
        self.multiplies = bool(self._functions["multiplies"](1))

    def run(self, name: str, *values: Tensor | float | None) -> None:
        """A function of c/*.c, which says what it does, with torch's number of threads."""
        given = [v.data_ptr() if isinstance(v, Tensor) else v for v in values]
        if self._functions[name](*given, torch.get_num_threads()):
            raise MemoryError(f"no memory for the scratch of the kernel {name}")

    def add_norm(self, x: Tensor, more: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        """x (N, D) becomes x + more, in place; returns its root-mean-square norm times `weight`."""
        normed = torch.empty_like(x)
        self.run("add_norm", x, more, weight, x, normed, None, *x.shape, eps)
        return normed

    def silu_mul(self, both: Tensor) -> Tensor:
        """silu(gate) · up (N, M) of both (N, 2M), gates first."""
        rows, size = both.shape[0], both.shape[1] // 2
        out = both.new_empty(rows, size)
        self.run("silu_mul", both, out, rows, size)
        return out

    def transposed(self, x: Tensor) -> Tensor:
        """x (N, M) as (M, N), written out where that makes products of it faster."""
        if not self.tiles:
            return x.t()
        out = x.new_empty(x.shape[1], x.shape[0])
        self.run("transpose", x.contiguous(), out, *x.shape)
        return out

    def packed(self, weight: Tensor) -> Tensor | None:
        """A copy of a weight (N, D) for `product`; None where that is not for this weight, or not
        for this processor."""
        if not self.multiplies or any(size % BLOCK for size in weight.shape):
            return None
        copy = torch.empty(weight.shape, dtype=weight.dtype)
        self.run("pack_weight", weight.contiguous(), copy, *weight.shape)
        return copy

    def packed_gates(self, weight: Tensor) -> Tensor | None:
        """The same of gates and then what they open (2M, D), for a gated product."""
        if len(weight) % BLOCK:
            return None
        turns = weight.unflatten(0, (2, -1, VECTOR)).transpose(0, 1)
        return self.packed(turns.reshape(weight.shape))

    def product(
        self, x: Tensor, packed: Tensor, bias: Tensor | None, gates: bool = False
    ) -> Tensor:
        """x · Wᵀ + bias (R, N) of x (R, D), the weight as `packed` made it. With `gates`, of the
        weight as `packed_gates` made it, silu(gate) · up (R, N/2)."""
        out = x.new_empty(len(x), len(packed) // 2 if gates else len(packed))
        self.run("product", x.contiguous(), packed, bias, out, len(x), *packed.shape, gates)
        return out

    def attend(
        self,
        heads: Tensor,
        out: Tensor,
        tables: tuple[Tensor, Tensor],
        norms: tuple[Tensor | None, Tensor | None],
        prompt: tuple[Tensor, Tensor],
        own: tuple[Tensor, Tensor],
        rows: Tensor,
        lengths: Tensor,
        eps: float,
        shared: int = 0,
    ) -> None:
        """Attention of the new tokens of each fed row into `out` (T, H·C); see c/attention.c.

        heads (T, (H+2K)·C): queries, keys and values before their rotation; tables: cos and sin
        (T, C); prompt (P, K, L, C), the first `shared` of L the same in all of P, and own
        (R, K, S, C) keys and values, which the new ones join. `rows` (F, 4), int64, a prompt's
        together: prompt, row of `own`, its columns so far, new tokens (16 at most). Axis letters
        as in ragged.py.
        """
        kv_heads, longest, size = prompt[0].shape[1:]
        tensors = (heads, out, *tables, *norms, *prompt, *own, rows, lengths)
        total = heads.shape[1] // size - 2 * kv_heads
        sizes = (len(rows), total, kv_heads, size, longest, own[0].shape[2], shared)
        self.run("attend", *tensors, *sizes, eps, size**-0.5)

    def read_prompts(
        self,
        heads: Tensor,
        tables: tuple[Tensor, Tensor],
        norms: tuple[Tensor | None, Tensor | None],
        keys: Tensor,
        values: Tensor,
        spans: Tensor,
        eps: float,
    ) -> Tensor:
        """Attention (T, H·C) of the tokens spans[p, 0] to before spans[p, 1] of each prompt, one
        prompt after another, where `multiplies` and C is a multiple of 32; see c/prompts.c.

        heads (T, (H+2K)·C): queries, keys and values before their rotation; tables: cos and sin
        (T, C); keys, values (P, K, L, C): those before each span are read, those in it written.
        """
        groups, kv_heads, longest, size = keys.shape
        total = heads.shape[1] // size - 2 * kv_heads
        out = heads.new_empty(len(heads), total * size)
        tensors = (heads, out, *tables, *norms, keys, values, spans)
        sizes = (groups, total, kv_heads, size, longest)
        self.run("read_prompts", *tensors, *sizes, eps, size**-0.5)
        return out

    def weigh(self, logits: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of logits (R, V): the place of the greatest (R,), the greatest (R,), and of every PART
        columns the greatest and the sum of exp((x - greatest) / temperature), float64 (R, V/PART).
        """
        rows, size = logits.shape
        parts = -(-size // PART)
        best = torch.empty(rows, dtype=torch.int64)
        peaks, tops = torch.empty(rows), torch.empty(rows, parts)
        sums = torch.empty(rows, parts, dtype=torch.float64)
        self.run("weigh", logits, rows, size, temperature, best, peaks, tops, sums)
        return best, peaks, tops, sums

    def greatest(
        self, logits: Tensor, tops: Tensor, least: Tensor, count: int
    ) -> tuple[Tensor, Tensor]:
        """The `count` greatest logits of each row and their places (R, count), the greatest first.

        `tops` are those of `weigh`. `count` of a row must reach its `least` (R,).
        """
        rows, size = logits.shape
        values, places = torch.empty(rows, count), torch.empty(rows, count, dtype=torch.int64)
        self.run("greatest", logits, rows, size, tops, least, count, values, places)
        return values, places
