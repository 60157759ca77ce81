"""What a plan_first or state_aware answer declares before its result, checked against the truth.

The analysis is read with the grammar of the instructions (`rewards.cdr.language`), which covers
what an instruction says of itself; steps in other words are not recognised and earn nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rewards.cdr.language import read_steps
from rewards.cdr.recipes import bound_recipe, recipe_of
from rewards.gold import GoldError, Step, run_bound
from rewards.parse import normalise

MOST_CHARS = 20_000  # of an analysis of a short text; each word is tried against many clauses
_BLOCK = re.compile(r"\s*<analyze>(.*?)</analyze>", re.DOTALL | re.IGNORECASE)
_STATE = re.compile(r"^\W*S(\d+)(?:\s*(?:->|→|to)\s*S(\d+))?\s*[:=]\s*(.*)$", re.IGNORECASE)


def split_analysis(output: str) -> tuple[str, str]:
    """(analysis, the rest) of an answer; the analysis is "" when no block leads it."""
    match = _BLOCK.match(output)
    return (match.group(1), output[match.end() :]) if match else ("", output)


def declared_credit(gold: Mapping[str, Any], analysis: str) -> float:
    """Share of the recipe that the analysis declares rightly, in [0, 1].

    By lines naming states (`S0 -> S1: …`, `S1: …`, or `S1 = the text itself`) when there are any,
    else by the ordered steps of a plan. Extra or missing entries count against it. An analysis
    much longer than the text it is about is not read, and earns 0.
    """
    if len(analysis) > max(MOST_CHARS, 5 * len(str(gold.get("input_text", "")))):
        return 0.0
    try:
        lines = [m for line in analysis.splitlines() if (m := _STATE.match(line.strip()))]
        if lines:
            said = [(int(m[1]), int(m[2]) if m[2] else None, m[3].strip()) for m in lines]
            return _states(gold, said)
        return _share(read_steps(analysis), list(recipe_of(gold)))
    except (GoldError, ValueError, RecursionError):
        return 0.0


def _share(said: list[Step], true: list[Step]) -> float:
    if not true or not said:
        return 0.0
    right = sum(a == b for a, b in zip(said, true, strict=False))
    return right / max(len(said), len(true))


def _states(gold: Mapping[str, Any], said: list[tuple[int, int | None, str]]) -> float:
    """Lines against the true transitions up to the stop; quoted texts against the true states."""
    true, texts = _truth(gold)
    right = entries = at = 0
    for source, target, rest in said:
        steps = read_steps(rest)
        if not steps:
            if rest.strip("\"'` "):  # the state's own text
                entries += 1
                quoted = normalise(rest.strip("\"'` "))
                right += source < len(texts) and quoted == normalise(texts[source])
            continue
        for step in steps:
            entries += 1
            right += at < len(true) and true[at] == (source, target, step)
            at += 1
    return right / max(entries, len(true)) if true else 0.0


def _truth(gold: Mapping[str, Any]) -> tuple[list[tuple[int, int | None, Step]], list[str]]:
    """(source state, target state or None, step) of every executed step, and the states."""
    steps = recipe_of(gold)
    run = run_bound(str(gold["input_text"]), bound_recipe(gold))
    lines: list[tuple[int, int | None, Step]] = []
    texts = [str(gold["input_text"])]
    mapper = 0
    for entry, step in zip(run.trace, steps, strict=False):
        if entry["kind"] == "filter":
            lines.append((len(texts) - 1, None, step))
            continue
        mapper += 1
        if entry["active"]:
            texts.append(run.states[mapper])
            lines.append((len(texts) - 2, len(texts) - 1, step))
        else:
            lines.append((len(texts) - 1, None, step))
    return lines, texts


def gold_analysis(gold: Mapping[str, Any], mode: str, words: list[str]) -> str:
    """The analysis a right answer could have given; `words` says each step of the recipe."""
    if mode == "plan_first":
        lines = [f"{i}. {said}" for i, said in enumerate(words, 1)]
    else:
        true, _ = _truth(gold)
        lines = [
            f"S{a}: {said}" if b is None else f"S{a} -> S{b}: {said}"
            for (a, b, _), said in zip(true, words, strict=False)
        ]
    return "<analyze>\n" + "\n".join(lines) + "\n</analyze>\n"
