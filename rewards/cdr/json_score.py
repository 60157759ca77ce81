"""Comparing JSON answers: canonical equality, per-field diagnostics, and the mixed profile."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

_TAGS = tuple(
    (re.compile(f"<{name}>", re.IGNORECASE), re.compile(f"</{name}>", re.IGNORECASE))
    for name in ("clean_text", "output", "result", "answer")
)
_FAILED = object()


@dataclass(frozen=True)
class JsonMatch:
    """`accuracy` is the release's, over the keys of both sides, where a missing key equals null;
    None when neither side is an object with fields. `earned` is what a reward may pay: keys of
    the reference that are there and right, over the keys of the longer side."""

    parsed: bool
    exact: bool
    fields: dict[str, bool]
    accuracy: float | None
    value: Any = None
    earned: float = 0.0


def parse_json(text: str) -> Any:
    """The JSON value of a response, leniently; raises ValueError when there is none.

    The whole response, else the content of the first tag of each kind, else what the first `{` or
    `[` begins, with trailing text ignored (spec section 12.5). `null` alone is no answer.
    """
    for piece in (text, *_tagged(text)):
        value = _load(piece.strip())
        if value is None:
            break
        if value is not _FAILED:
            return value
    else:
        starts = [i for i in (text.find("{"), text.find("[")) if i >= 0]
        if starts:
            try:
                return json.JSONDecoder().raw_decode(text, min(starts))[0]
            except (ValueError, RecursionError):
                pass
    raise ValueError("no JSON in the response")


def _tagged(text: str) -> Iterator[str]:
    """What stands in the first closed tag of each kind, in the release's order of kinds: the first
    match of `<TAG>(.*?)</TAG>`, in linear time."""
    for opens, closes in _TAGS:
        opening = opens.search(text)
        closing = closes.search(text, opening.end()) if opening else None
        if opening and closing:
            yield text[opening.end() : closing.start()]


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _FAILED


def canonical(value: Any) -> Any:
    """Strings stripped and lower-cased, lists sorted by their JSON text, objects by key."""
    if isinstance(value, str):
        return value.strip().lower()
    if isinstance(value, list):
        items = [canonical(item) for item in cast("list[Any]", value)]
        return sorted(items, key=_text)
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {key: canonical(fields[key]) for key in sorted(fields)}
    return value


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def compare_json(reference: Any, predicted: str) -> JsonMatch:
    """How a response compares with a reference (a JSON value, or JSON as text). Never raises on
    what a model wrote; raises ValueError when the reference itself is no JSON."""
    wanted = canonical(parse_json(reference) if isinstance(reference, str) else reference)
    try:
        value = parse_json(predicted)
        got = canonical(value)
    except (ValueError, RecursionError):
        names = sorted(cast("dict[str, Any]", wanted)) if isinstance(wanted, dict) else []
        return JsonMatch(False, False, dict.fromkeys(names, False), 0.0 if names else None)
    fields: dict[str, bool] = {}
    earned = 0.0
    if isinstance(wanted, dict) and isinstance(got, dict):
        one, other = cast("dict[str, Any]", wanted), cast("dict[str, Any]", got)
        right = sum(name in other and other[name] == value for name, value in one.items())
        earned = right / max(len(one), len(other), 1)
        fields = {name: one.get(name) == other.get(name) for name in sorted({*one, *other})}
    accuracy = sum(fields.values()) / len(fields) if fields else None
    try:
        exact = bool(wanted == got)
    except RecursionError:
        exact = False
    return JsonMatch(True, exact, fields, accuracy, value, 1.0 if exact else earned)


def corrected_text(match: JsonMatch) -> str:
    """The field that the mixed profile scores as text; missing or not text: empty."""
    value = match.value
    found = cast("dict[str, Any]", value).get("corrected_text") if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""
