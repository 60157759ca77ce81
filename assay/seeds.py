"""Seeds derived from what is being sampled, never from when."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: str | int) -> int:
    """A 63-bit seed from named parts such as (run seed, task id, sample, turn).

    The same parts give the same seed in every process and Python version; parts are joined
    with a separator that cannot occur in a decimal number, so ("a", 1) and ("a1",) differ.
    """
    text = "\x1f".join(f"{type(p).__name__}:{p}" for p in parts)
    return (
        int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")
        >> 1
    )
