# torch ships partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false
"""Attention of long sequences by torch's own kernel, which keeps no scores."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

# Keys from which on torch's kernel is faster than products of whole blocks, on a CPU: 1.2 times at
# 230 in float32 and 512 in bfloat16, 3.1 and 2.2 times at 2,048; at 128 it is 0.85 and 0.5 times.
LONG = 256


def is_long(mask: Tensor) -> bool:
    """Whether a block with this mask (R, L, J) is better left to torch. On a GPU always."""
    return mask.device.type != "cpu" or mask.shape[-1] >= LONG


def long_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, causal: bool) -> Tensor:
    """(R·K, G·L, C) of queries like that, and keys and values (R·K, J, C), under an additive mask
    (R, L, J). `causal`: L is J, and the mask is a causal one.

    Memory grows with L + J, not with their product.
    """
    rows, length, reach = mask.shape
    kv_heads, repeat, size = len(q) // rows, q.shape[1] // length, q.shape[-1]
    # torch repeats heads itself only in some of its kernels, and not in those that take a mask
    wide = (rows, kv_heads, repeat, reach, size)
    keys, values = (
        t.view(rows, kv_heads, 1, reach, size).expand(wide).flatten(1, 2) for t in (keys, values)
    )
    query = q.view(rows, kv_heads * repeat, length, size)
    if causal:
        found = F.scaled_dot_product_attention(query, keys, values, is_causal=True)
    else:
        found = F.scaled_dot_product_attention(query, keys, values, mask[:, None].to(q.dtype))
    return found.reshape(q.shape)
