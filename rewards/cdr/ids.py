"""Stable identifiers of CDR-Bench tasks, and which prompt variants a task is asked with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any


def _part(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return str(value)


def stable_id(*parts: object, digits: int = 16) -> str:
    """The first hexadecimal digits of SHA-1 over the parts joined by `||` (spec section 9).

    Strings stay as they are, other scalars go through `str()`, lists and objects become JSON with
    sorted keys and no spaces.
    """
    return _sha1(parts).hexdigest()[:digits]


def _sha1(parts: Iterable[object]) -> Any:
    text = "||".join([part if type(part) is str else _part(part) for part in parts])
    return hashlib.sha1(text.encode("utf-8", "surrogatepass"))


_KEPT = 4096  # keys: all rows of a recipe share one
_prompt_keys: dict[tuple[object, ...], str] = {}


def prompt_key(
    track: str,
    domain: str,
    recipe_type: str | None,
    order_slot: str | None,
    operators: Sequence[str],
    filter_params: dict[str, dict[str, Any]] | None,
) -> str:
    """`recipe_prompt_key`: tasks with the same key are asked in the same words.

    `track` is the construction-time name: atomic, main, order_sensitivity or
    mapper_order_sensitivity.
    """
    # repr, because 1 and 1.0 are equal and written differently
    known = (track, domain, recipe_type, order_slot, tuple(operators), repr(filter_params))
    if known not in _prompt_keys:
        if len(_prompt_keys) >= _KEPT:
            _prompt_keys.clear()
        parts = (*known[:4], list(operators), filter_params or {})
        _prompt_keys[known] = stable_id(*parts)
    return _prompt_keys[known]


def sample_variants(pool: int, k: int, seed: int, key: str, instance_id: str) -> list[int]:
    """Indices of the K prompt variants of an instance, ascending (spec section 10).

    K of 0 or less, or of the pool's size or more, means all of them.
    """
    if k <= 0 or k >= pool:
        return list(range(pool))
    begun = _sha1(("prompt-variant-sample", seed, key, instance_id, ""))

    def rank(index: int) -> str:  # the stable id of all five
        whole = begun.copy()
        whole.update(str(index).encode())
        return whole.hexdigest()[:16]

    return sorted(sorted(range(pool), key=rank)[:k])
