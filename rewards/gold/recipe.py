"""Running a recipe: mappers change the text, a filter that rejects stops it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from rewards.gold.catalog import OPERATORS, meaning
from rewards.gold.core import PROFILES, GoldError, Operator, Profile, Step, nearest
from rewards.gold.filters import within

Status = Literal["KEEP", "DROP"]
STEP_FIELDS = ("operator", "params", "word_list")
FILE_FIELDS = ("recipe", "process", "profile")
RANGE = ("min_closed_interval", "max_closed_interval", "reversed_range")


@dataclass(frozen=True)
class Execution:
    """What a recipe did to a text.

    `text` is the text at the stop point: the final text for KEEP, the text the rejecting filter
    looked at for DROP. `full_run_text` ignores filter decisions. `states` are the input and the
    text after each mapper of the full run. `trace` has one entry per executed step. `seconds` is
    the wall time of every step of the recipe.
    """

    status: Status
    text: str
    full_run_text: str
    states: list[str]
    trace: list[dict[str, Any]]
    seconds: list[float] = field(default_factory=list[float], compare=False)


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
        """Compute (keep, statistics) of a filter step on a text."""
        statistic = self.call(text, **self.params)
        return self.keeps(statistic), {self.operator.stat_key: statistic}

    def keeps(self, statistic: float) -> bool:
        """Tell whether a filter step keeps a text with this statistic."""
        low_closed, high_closed, reverse = self.closed
        return within(
            statistic,
            self.low,
            self.high,
            min_closed_interval=low_closed,
            max_closed_interval=high_closed,
            reversed_range=reverse,
        )


def _params_of(operator: Operator, given: dict[str, Any]) -> dict[str, Any]:
    """Defaults overlaid with `given`. Raises `GoldError` for unknown, mistyped or missing ones."""
    known = {p.name: p for p in operator.params}
    for name, value in given.items():
        if name not in known:
            options = ", ".join(known) or "none"
            hint = nearest(name, known)
            raise GoldError(f"{operator.name}: no parameter {name!r}{hint} (it takes: {options})")
        known[name].check(value, operator.name)
    for param in operator.params:
        if param.required and param.name not in given:
            why = f"is required ({meaning(operator, param)})"
            raise GoldError(f"{operator.name}: parameter {param.name!r} {why}")
    return operator.defaults() | given


def bind(step: Step, profile: Profile = "bench") -> BoundStep:
    """Check one step. Raises `GoldError` naming the nearest known operator or parameter."""
    if profile not in PROFILES:
        raise GoldError(f"profile {profile!r} is unknown; choose one of {', '.join(PROFILES)}")
    operator = OPERATORS.get(step.operator)
    if operator is None:
        hint = nearest(step.operator, OPERATORS)
        raise GoldError(
            f"no operator {step.operator!r}{hint or ', see rewards/gold/operators.yaml'}"
        )
    params = _params_of(operator, step.params)
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
    seconds: list[float] = []
    for index, step in enumerate(steps):
        name, kind = step.operator.name, step.operator.kind
        entry: dict[str, Any] = {
            "step_index": index,
            "operator": name,
            "kind": kind,
            "input_length": len(text),
        }
        began = time.perf_counter()
        if kind == "mapper":
            before, text = text, step.call(text, **step.params)
            seconds.append(time.perf_counter() - began)
            states.append(text)
            entry["active"] = text != before
            entry["output_length"] = len(text)
            entry["delta_chars"] = len(text) - len(before)
        elif status == "KEEP":
            keep, stats = step.judge(text)
            seconds.append(time.perf_counter() - began)
            entry["keep"] = keep
            entry["status"] = "KEEP" if keep else "DROP"
            entry["stats"] = stats
            if not keep:
                trace.append(entry)
                status, stopped = "DROP", text
                continue
        else:
            seconds.append(0.0)
        if status == "KEEP":
            trace.append(entry)
    return Execution(status, stopped if status == "DROP" else text, text, states, trace, seconds)


def execute(text: str, recipe: Sequence[Step], profile: Profile = "bench") -> Execution:
    """Run a recipe on one text; the same text, recipe and profile always give the same result."""
    return run_bound(text, bind_recipe(recipe, profile))


# ---- recipes from JSON and YAML


def kind_of(value: object) -> str:
    """Name the type of a JSON value in a message; `missing` for None."""
    return "missing" if value is None else type(value).__name__


def read_profile(profile: object) -> Profile:
    """Return a row's profile. Raises `GoldError` for one that does not exist."""
    if profile not in PROFILES:
        raise GoldError(f"field 'profile' is {profile!r}, wanted one of {', '.join(PROFILES)}")
    return profile


def read_steps(recipe: object, word_list: object = None) -> list[Step]:
    """Steps from JSON: `[{operator, params?}]`; `word_list` may stand in the step or the row.

    Raises `GoldError` naming the step and what is wrong with it.
    """
    if not isinstance(recipe, list):
        wanted = "a list of {operator, params} objects"
        raise GoldError(f"field 'recipe' is {kind_of(recipe)}, wanted {wanted}")
    return [
        _read_step(step, index, word_list) for index, step in enumerate(cast("list[Any]", recipe))
    ]


def _read_step(step: object, index: int, word_list: object) -> Step:
    where = f"recipe step {index}"
    if not isinstance(step, dict):
        raise GoldError(
            f"{where} is {kind_of(step)}, wanted an object with 'operator' and 'params'"
        )
    given = cast("dict[str, Any]", step)
    for name in given:
        if name not in STEP_FIELDS:
            raise GoldError(f"{where}: no field {name!r}{nearest(name, STEP_FIELDS)}")
    operator, params = given.get("operator"), given.get("params")
    if not isinstance(operator, str):
        raise GoldError(f"{where}: field 'operator' is {kind_of(operator)}, wanted a name")
    if params is not None and not isinstance(params, dict):
        raise GoldError(f"{where}: field 'params' is {kind_of(params)}, wanted an object")
    bound = dict(cast("dict[str, Any]", params or {}))
    known = OPERATORS.get(operator)
    words = given.get("word_list", word_list)
    if known and words is not None and any(p.name == "word_list" for p in known.params):
        bound.setdefault("word_list", words)
    return Step(operator, bound)


def read_recipe(path: Path, profile: str | None = None) -> tuple[list[dict[str, Any]], str]:
    """(steps as `[{operator, params}]`, profile) of a YAML or JSON file, checked.

    `profile` goes before the file's own; `bench` without either.

    The file is a list of steps or a mapping with `recipe` and maybe `profile`. A step is a name, a
    mapping `name: {parameters}`, or `{operator: name, params: {…}}`. A Data-Juicer configuration
    works too: its `process` list is the recipe and its other keys are left alone.
    Raises `GoldError` naming the file and what is wrong.
    """
    import yaml

    try:
        loaded: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise GoldError(f"{path}: cannot be read as YAML: {error}") from None
    if isinstance(loaded, dict):
        top = cast("dict[str, Any]", loaded)
        for name in top:
            if name not in FILE_FIELDS and "process" not in top:
                raise GoldError(f"{path}: no field {name!r}{nearest(name, FILE_FIELDS)}")
        profile = profile or top.get("profile")
        loaded = top.get("recipe", top.get("process"))
    if not isinstance(loaded, list) or not loaded:
        raise GoldError(f"{path}: wanted a list of steps, or a mapping with a list under 'recipe'")
    steps = [_normal(step) for step in cast("list[Any]", loaded)]
    profile = profile or "bench"
    try:
        bind_recipe(read_steps(steps, ()), read_profile(profile))  # a row may bring its word list
    except GoldError as error:
        raise GoldError(f"{path}: {error}") from None
    return cast("list[dict[str, Any]]", json.loads(json.dumps(steps))), profile


def _normal(step: object) -> object:
    """A step in its long form; anything odd is passed on for `read_steps` to name."""
    if isinstance(step, str):
        return {"operator": step}
    if isinstance(step, dict) and "operator" not in step and len(cast("Any", step)) == 1:
        ((name, params),) = cast("dict[str, Any]", step).items()
        return {"operator": name, "params": params or {}}
    return cast("object", step)
