"""The recipe that a task's gold carries, and which change to it explains a wrong answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Any, cast

from rewards.gold import BoundStep, Execution, GoldError, Step, bind, run_bound
from rewards.parse import normalise

_MOST_PERMUTED = 4  # recipes up to this length are compared with all their orders


@dataclass(frozen=True)
class Attribution:
    """The change to the recipe that gives exactly this wrong answer.

    `kind` is `none` (nothing explains it), `correct` (there is nothing to explain),
    `ignored_filter`, `omitted`, `duplicated`, `permuted`, `stopped_early` or `no_op`; `detail`
    names the operators.
    """

    kind: str
    detail: str = ""


def recipe_of(gold: Mapping[str, Any]) -> tuple[Step, ...]:
    """The recipe a task's gold carries; empty when it has none."""
    rows = cast("list[dict[str, Any]]", gold.get("recipe") or [])
    return tuple(Step(str(r["operator"]), dict(r.get("params") or {})) for r in rows)


@lru_cache(maxsize=4096)
def _bound(operator: str, params: str) -> BoundStep:
    import json

    return bind(Step(operator, json.loads(params)))


def bound_recipe(gold: Mapping[str, Any]) -> list[BoundStep]:
    """The recipe checked and bound, from a cache."""
    import json

    return [_bound(s.operator, json.dumps(s.params, sort_keys=True)) for s in recipe_of(gold)]


def attribute(gold: Mapping[str, Any], status: str, text: str) -> Attribution:
    """The simplest change to the recipe that explains a wrong answer exactly (n2 and status)."""
    said = (status, normalise(text))
    source = str(gold["input_text"])
    try:
        steps = bound_recipe(gold)
        for found, run in _counterfactuals(source, steps):
            if (run[0], normalise(run[1])) == said:
                return found
    except (GoldError, ValueError, RecursionError):
        pass
    return Attribution("none")


def counterfactuals(gold: Mapping[str, Any]) -> dict[tuple[str, str], Attribution]:
    """(status, normalised text) → the simplest change to the recipe that gives it. Raises what the
    gold executors raise for a recipe that cannot be executed."""
    found: dict[tuple[str, str], Attribution] = {}
    for change, (status, text) in _counterfactuals(str(gold["input_text"]), bound_recipe(gold)):
        found.setdefault((status, normalise(text)), change)
    return found


def _counterfactuals(
    source: str, steps: Sequence[BoundStep]
) -> Iterator[tuple[Attribution, tuple[str, str]]]:
    names = [s.operator.name for s in steps]
    run = run_bound(source, steps)

    yield Attribution("correct"), (run.status, run.text)

    def outcome(changed: Sequence[BoundStep]) -> tuple[str, str]:
        done = run_bound(source, changed)
        return done.status, done.text

    if any(s.operator.kind == "filter" for s in steps):
        yield Attribution("ignored_filter"), ("KEEP", run.full_run_text)
        yield Attribution("ignored_filter", "status only"), (run.status, run.full_run_text)
    yield Attribution("no_op"), (run.status, source)
    for i, name in enumerate(names):
        yield Attribution("omitted", name), outcome([*steps[:i], *steps[i + 1 :]])
    for i, name in enumerate(names):
        yield Attribution("duplicated", name), outcome([*steps[: i + 1], *steps[i:]])
    orders = permutations(range(len(steps))) if len(steps) <= _MOST_PERMUTED else _swaps(len(steps))
    for order in orders:
        if list(order) != sorted(order):
            detail = " ".join(names[i] for i in order)
            yield Attribution("permuted", detail), outcome([steps[i] for i in order])
    for k, state in enumerate(run.states[1:-1], 1):
        yield Attribution("stopped_early", f"after {k}"), ("KEEP", state)
        yield Attribution("stopped_early", f"after {k}, dropped"), ("DROP", state)


def _swaps(count: int) -> Iterator[tuple[int, ...]]:
    for i in range(count - 1):
        yield (*range(i), i + 1, i, *range(i + 2, count))


def written(recipe: Sequence[Step], steps: Sequence[BoundStep], run: Execution) -> list[str]:
    """The entries of a right answer: one for each step that was executed, in their tags."""
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
