"""How operators are spoken: the lists of `phrases.yaml`, read when one of them is first needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from assay.files import yaml_beside

Sides = tuple[Sequence[str], Sequence[str]]  # of a rejecting filter, of a keeping one
Form = str | tuple[str, str, str, str]  # a noun, or a sentence in all moods

MOODS = ("imperative", "gerund", "statement", "negative")
VERBS: Sequence[tuple[str, str, str]]
DETERMINERS: Sequence[str]
NOUNS: Mapping[str, Sequence[str]]
SENTENCES: Mapping[str, Sequence[tuple[str, str, str, str]]]
TO_THE_LETTER: Mapping[str, Sequence[Sequence[Form]]]
CONDITIONS: Mapping[tuple[str, str], Sides]
CONDITIONS_TO_THE_LETTER: Mapping[tuple[str, str], Sides]
FILTER_FRAMES: Mapping[str, Sides]


def __getattr__(name: str) -> Any:
    if name not in __annotations__:
        raise AttributeError(name)
    globals().update(
        {key: _tuples(key, words) for key, words in yaml_beside(__file__, "phrases.yaml").items()}
    )
    return globals()[name]


def _tuples(key: str, words: Any) -> Any:
    """What a YAML list or mapping says, in the types above."""
    if isinstance(words, list):
        return tuple(_tuples("", inner) for inner in cast("list[Any]", words))
    if not isinstance(words, dict):
        return words
    named = cast("dict[str, Any]", words)
    if {*named} == {*MOODS} and key != "FILTER_FRAMES":
        return tuple(named[mood] for mood in MOODS)
    if {*named} == {"rejected", "kept"}:
        return _tuples("", named["rejected"]), _tuples("", named["kept"])
    pairs = key.startswith("CONDITIONS")
    return {tuple(k.split()) if pairs else k: _tuples("", v) for k, v in named.items()}
