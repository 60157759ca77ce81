"""The recipe that a task's gold carries, and what an answer with its states writes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from rewards.gold import BoundStep, Execution, Step, bind


def recipe_of(gold: Mapping[str, Any]) -> tuple[Step, ...]:
    """Read the recipe that a task's gold carries; empty when it has none."""
    rows = cast("list[dict[str, Any]]", gold.get("recipe") or [])
    return tuple(Step(str(r["operator"]), dict(r.get("params") or {})) for r in rows)


@lru_cache(maxsize=4096)
def _bound(operator: str, params: str) -> BoundStep:
    return bind(Step(operator, json.loads(params)))


def bound_recipe(gold: Mapping[str, Any]) -> list[BoundStep]:
    """Check and bind the recipe of a task's gold; steps come from a cache. Raises `GoldError`
    for one that cannot be executed."""
    return [_bound(s.operator, json.dumps(s.params, sort_keys=True)) for s in recipe_of(gold)]


def written(recipe: Sequence[Step], steps: Sequence[BoundStep], run: Execution) -> list[str]:
    """Write the entries of a right answer with states: one in its tags for each step that was
    executed."""
    entries: list[str] = []
    done = 0
    for entry, asked, step in zip(run.trace, recipe, steps, strict=False):
        if entry["kind"] == "mapper":
            done += 1
            entries.append(f"<state>{run.states[done]}</state>")
        else:
            entries.append(f"<check>{_check(entry, asked, step)}</check>")
    return entries


def _check(entry: Mapping[str, Any], asked: Step, step: BoundStep) -> str:
    """What a filter measured against the bounds that its step names, and its verdict."""
    verdict = str(entry["status"])
    value = entry["stats"].get(step.operator.stat_key)
    if step.closed != (True, True, False) or not _is_number(value):
        return verdict
    low, high = (asked.params.get(name) for name in step.operator.bounds)
    if low and value < low:
        return f"{_plain(value)} < {_plain(low)}: {verdict}"
    if high is not None and value > high:
        return f"{_plain(value)} > {_plain(high)}: {verdict}"
    bounds = [f" >= {_plain(low)}"] if low else []
    bounds += [f" <= {_plain(high)}"] if high is not None else []
    return f"{_plain(value)}{','.join(bounds)}: {verdict}"


def _plain(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
