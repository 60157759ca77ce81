"""Running a recipe: mappers change the text, a filter that rejects stops it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rewards.gold.catalog import OPERATORS
from rewards.gold.core import PROFILES, GoldError, Operator, Profile, Step, bind_params, nearest
from rewards.gold.filters import within

Status = Literal["KEEP", "DROP"]
RANGE = ("min_closed_interval", "max_closed_interval", "reversed_range")


@dataclass(frozen=True)
class Execution:
    """What a recipe did to a text.

    `text` is the text at the stop point: the final text for KEEP, the text the rejecting filter
    looked at for DROP. `full_run_text` ignores filter decisions. `states` are the input and the
    text after each mapper of the full run. `trace` has one entry per executed step.
    """

    status: Status
    text: str
    full_run_text: str
    states: list[str]
    trace: list[dict[str, Any]]


@dataclass(frozen=True)
class BoundStep:
    """A step with its parameters checked and its function chosen; filters also hold their rule."""

    operator: Operator
    call: Callable[..., Any]
    params: dict[str, Any]
    low: float | None = None
    high: float | None = None
    closed: tuple[bool, bool, bool] = (True, True, False)

    def judge(self, text: str) -> tuple[bool, dict[str, Any]]:
        """(keep, statistics) of a filter step."""
        statistic = self.call(text, **self.params)
        return self.keeps(statistic), {self.operator.stat_key: statistic}

    def keeps(self, statistic: float) -> bool:
        low_closed, high_closed, reverse = self.closed
        return within(
            statistic,
            self.low,
            self.high,
            min_closed_interval=low_closed,
            max_closed_interval=high_closed,
            reversed_range=reverse,
        )


def bind(step: Step, profile: Profile = "bench") -> BoundStep:
    """Check one step. Raises `GoldError` naming the nearest known operator or parameter."""
    if profile not in PROFILES:
        raise GoldError(f"profile {profile!r} is unknown; choose one of {', '.join(PROFILES)}")
    operator = OPERATORS.get(step.operator)
    if operator is None:
        hint = nearest(step.operator, OPERATORS)
        raise GoldError(f"no operator {step.operator!r}{hint or ', see docs/operators.md'}")
    params = bind_params(operator, step.params)
    if operator.kind == "mapper":
        return BoundStep(operator, operator.function(profile), params)
    low, high = (params.pop(name) for name in operator.bounds)
    closed = (params.pop(RANGE[0]), params.pop(RANGE[1]), params.pop(RANGE[2]))
    if "word_list" in params:
        params["word_list"] = frozenset(params["word_list"])
    return BoundStep(operator, operator.function(profile), params, low, high, closed)


def bind_recipe(recipe: Sequence[Step], profile: Profile = "bench") -> tuple[BoundStep, ...]:
    """Check a whole recipe once, to run it over many texts with `run_bound`."""
    return tuple(bind(step, profile) for step in recipe)


def run_bound(text: str, steps: Sequence[BoundStep]) -> Execution:
    """Run a checked recipe. Mappers after a rejecting filter run for the full run only."""
    states = [text]
    trace: list[dict[str, Any]] = []
    status: Status = "KEEP"
    stopped = text
    for index, step in enumerate(steps):
        name, kind = step.operator.name, step.operator.kind
        entry: dict[str, Any] = {
            "step_index": index,
            "operator": name,
            "kind": kind,
            "input_length": len(text),
        }
        if kind == "mapper":
            before, text = text, step.call(text, **step.params)
            states.append(text)
            entry["active"] = text != before
            entry["output_length"] = len(text)
            entry["delta_chars"] = len(text) - len(before)
        elif status == "KEEP":
            keep, stats = step.judge(text)
            entry["keep"] = keep
            entry["status"] = "KEEP" if keep else "DROP"
            entry["stats"] = stats
            if not keep:
                trace.append(entry)
                status, stopped = "DROP", text
                continue
        if status == "KEEP":
            trace.append(entry)
    return Execution(status, stopped if status == "DROP" else text, text, states, trace)


def execute(text: str, recipe: Sequence[Step], profile: Profile = "bench") -> Execution:
    """Run a recipe on one text; the same text, recipe and profile always give the same result."""
    return run_bound(text, bind_recipe(recipe, profile))
