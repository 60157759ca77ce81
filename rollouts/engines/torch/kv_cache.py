# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Keys and values: of prompts, and of finished rows for the next turn of their conversation.

A prompt that begins with a whole earlier row (its prompt and all it sampled) runs only what comes
after. Shorter matches are not taken: a first turn then never depends on what ran before it, so a
run that goes on after a stop computes the same bits as one that was never stopped. The same holds
of the bound: whether a row is still here depends only on rows that came later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor


@dataclass
class Prompts:
    """Keys and values of prompts, a tensor a layer (P, K, L, C), and the prompts' lengths (P,).
    The first `shared` columns are the same in all of them."""

    k: list[Tensor]
    v: list[Tensor]
    lengths: Tensor
    shared: int = 0


@dataclass(frozen=True)
class Past:
    """Keys and values (layers, K, L, C) of L tokens in a row."""

    k: Tensor
    v: Tensor

    @property
    def length(self) -> int:
        return self.k.shape[2]

    @property
    def size(self) -> int:
        """Bytes."""
        return self.k.nbytes + self.v.nbytes


def cut(k: list[Tensor], v: list[Tensor], row: int, length: int) -> Past:
    """The first `length` columns of one row, all layers together."""
    return Past(*(torch.stack([t[row, :, :length] for t in store]) for store in (k, v)))


@dataclass(frozen=True)
class _Row:
    parts: list[Past]
    tokens: int
    size: int


def _key(ids: Sequence[int]) -> bytes:
    return blake2b(np.asarray(ids, dtype=np.int64).tobytes()).digest()


class Kept:
    """Finished rows by their ids, up to `limit` bytes; the oldest go first."""

    def __init__(self, limit: int) -> None:
        self.limit, self.size = limit, 0
        self._rows: dict[bytes, _Row] = {}  # oldest first
        self._lengths: Counter[int] = Counter()

    def put(self, ids: Sequence[int], parts: list[Past], size: int) -> None:
        """Keep a row. `parts` hold all its tokens but the last, which was never fed; `size` is
        what they count in bytes: several rows may share a part."""
        key = _key(ids)
        self._drop(key)
        self._rows[key] = _Row(parts, len(ids), size)
        self._lengths[len(ids)] += 1
        self.size += size
        while self.size > self.limit:
            self._drop(next(iter(self._rows)))

    def take(self, prompts: Sequence[Sequence[int]]) -> list[list[Past]]:
        """What is known of each prompt, [] for nothing. Rows found here are given away."""
        keys = [self._find(prompt) for prompt in prompts]
        found = [self._rows[key].parts if key else [] for key in keys]
        for key in keys:
            if key:
                self._drop(key)
        return found

    def clear(self) -> None:
        """Forget everything: the weights have changed."""
        self._rows.clear()
        self._lengths.clear()
        self.size = 0

    def _find(self, prompt: Sequence[int]) -> bytes | None:
        """The key of the longest row that the prompt begins with."""
        data = np.asarray(prompt, dtype=np.int64)
        running, at, found = blake2b(), 0, None
        for length in sorted(self._lengths):
            if length > len(prompt):
                break
            running.update(data[at:length].tobytes())
            at, key = length, running.digest()
            found = key if key in self._rows else found
        return found

    def _drop(self, key: bytes) -> None:
        row = self._rows.pop(key, None)
        if row is not None:
            self.size -= row.size
            self._lengths[row.tokens] -= 1
            self._lengths += Counter()  # without zeros
