"""Answers that write the state after every step before the result (`mode: states` of a task).

    <state>text after step 1</state><check>38 < 50: DROP</check><status>…</status><clean_text>…

A mapper writes the text it leaves in `<state>`, a filter what it measured and its verdict in
`<check>`; after a rejecting filter nothing more is written. The outcome reads the result alone.
What was written is compared with the executor's states, which the task's gold holds as such entries
in `written` (`rewards.cdr.states` makes them), and counts only in the process reward.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rewards.parse import normalise

MODE = "states"
MOST = 50  # entries that are read; no recipe is as long
_ENTRY = re.compile(r"\s*<(state|check)>(.*?)</\1>", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,15}(?:\.\d{1,15})?(?![\w.])")
_VERDICT = re.compile(r"\b(KEEP|DROP)\s*$")
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


def written_credit(gold: Mapping[str, Any], entries: Sequence[Entry], right: bool) -> float:
    """Share of the recipe's executed steps whose entry is right, the result counting as one more
    step (`right`: it is gold's), in [0, 1].

    A state is right when its text is the executor's, spaces as in RS. A check earns half for its
    verdict, and then up to half for its number: 1 − its relative error. Entries stand in the order
    of the steps; missing, extra and misplaced ones earn nothing.
    """
    true = [entry for line in _lines(gold) for entry in split_written(line)[0]]
    earned = sum(_credit(said, wanted) for said, wanted in zip(entries, true, strict=False))
    return (earned + right) / (max(len(entries), len(true)) + 1)


def _lines(gold: Mapping[str, Any]) -> list[str]:
    return [str(line) for line in cast("list[Any]", gold.get("written") or [])]


def _credit(said: Entry, wanted: Entry) -> float:
    if said[0] != wanted[0]:
        return 0.0
    if said[0] == "state":
        return float(normalise(said[1]) == normalise(wanted[1]))
    verdict, number = _read(said[1])
    true_verdict, true_number = _read(wanted[1])
    if verdict != true_verdict or not verdict:
        return 0.0
    if true_number is None:
        return 1.0
    if number is None:
        return 0.5
    off = abs(number - true_number) / max(abs(true_number), 1e-9)
    return 0.5 + 0.5 * max(0.0, 1.0 - off)


def _read(check: str) -> tuple[str, float | None]:
    """(verdict or "", the first number) of a check."""
    verdict = _VERDICT.search(check[-40:])
    number = _NUMBER.search(check[:200])
    return (verdict[1] if verdict else "", float(number[0]) if number else None)


def result_of(gold: Mapping[str, Any], output: str) -> str:
    """The part of an answer that its outcome reads: all of it, but for the states or the analysis
    that a task's mode has before the result."""
    mode = gold.get("mode") or gold.get("prompt_mode")
    if mode == MODE:
        return split_written(output)[1]
    if mode in ("plan_first", "state_aware"):
        from rewards.cdr.declared import split_analysis

        return split_analysis(output)[1]
    return output


def gold_states(gold: Mapping[str, Any]) -> str:
    """What a right answer writes before its result: "" in every other mode."""
    return "".join(_lines(gold)) if gold.get("mode") == MODE else ""
