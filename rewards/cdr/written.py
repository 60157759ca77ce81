"""Answers that write the state after every step before the result (`mode: states` of a task).

    <state>text after step 1</state><check>38 < 50: DROP</check><status>…</status><clean_text>…

A mapper writes the text it leaves in `<state>`, a filter what it measured and its verdict in
`<check>`; after a rejecting filter nothing more is written. The outcome reads the result alone.
Gold holds the executor's states as such entries in `written` (`rewards.cdr.recipes` makes them).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

MODE = "states"
ANALYSIS_MODES = ("plan_first", "state_aware")  # an <analyze> block leads the answer
MOST = 50  # entries that are read; no recipe is as long
_ENTRY = re.compile(r"\s*<(state|check)>(.*?)</\1>", re.DOTALL)
_ANALYSIS = re.compile(r"\s*<analyze>(.*?)</analyze>", re.DOTALL | re.IGNORECASE)
TAG = re.compile(r"</?(?:state|check)>")

Entry = tuple[str, str]  # (state or check, what stands between the tags)


def split_written(output: str) -> tuple[list[Entry], str]:
    """(the entries that lead an answer, the rest of it); no entry where none leads it."""
    entries: list[Entry] = []
    at = 0
    while len(entries) < MOST and (match := _ENTRY.match(output, at)):
        entries.append((match[1], match[2]))
        at = match.end()
    return entries, output[at:]


def _lines(gold: Mapping[str, Any]) -> list[str]:
    return [str(line) for line in cast("list[Any]", gold.get("written") or [])]


def result_of(gold: Mapping[str, Any], output: str) -> str:
    """The part of an answer that its outcome reads: all of it, but for the states or the analysis
    that a task's mode has before the result."""
    mode = gold.get("mode") or gold.get("prompt_mode")
    if mode == MODE:
        return split_written(output)[1]
    if mode in ANALYSIS_MODES and (match := _ANALYSIS.match(output)):
        return output[match.end() :]
    return output


def gold_states(gold: Mapping[str, Any]) -> str:
    """What a right answer writes before its result: "" in every other mode."""
    return "".join(_lines(gold)) if gold.get("mode") == MODE else ""
