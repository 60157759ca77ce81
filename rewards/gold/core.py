"""The types of the gold layer: parameters, operators, recipe steps, and the error they raise."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from assay.task import TaskError

Profile = Literal["bench", "dj"]
Kind = Literal["mapper", "filter"]
PROFILES: tuple[Profile, ...] = ("bench", "dj")
# Data-Juicer's stand-in for "no upper bound"; kept because it appears in published parameters.
INF = 9223372036854775807


class GoldError(TaskError):
    """A recipe or row that cannot be executed; the message says what to change."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Write `"; did you mean 'x'?"` for the closest known name, or an empty string."""
    close = difflib.get_close_matches(name, list(known), 1, 0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_bound(value: object) -> bool:
    # NaN compares false with everything, so a NaN bound would silently drop every text.
    return value is None or _is_int(value) or (isinstance(value, float) and not math.isnan(value))


def _is_words(value: object) -> bool:
    if not isinstance(value, list | tuple | set | frozenset):
        return False
    return all(isinstance(v, str) for v in cast("Iterable[object]", value))


Count = int  # of 1 or more
# type of a parameter: (check, how to say it in a message, how signatures write it, …)
TYPES: dict[str, tuple[Callable[[Any], bool], str, *tuple[str, ...]]] = {
    "text": (lambda v: isinstance(v, str), "a string", "str"),
    "bool": (lambda v: isinstance(v, bool), "true or false", "bool"),
    "int": (_is_int, "a whole number", "int"),
    "count": (lambda v: _is_int(v) and v >= 1, "a whole number of 1 or more", "Count"),
    "number or none": (_is_bound, "a number or null"),
    "list of text": (_is_words, "a list of strings", "Sequence[str]", "Collection[str]"),
    "text or list of text": (
        lambda v: isinstance(v, str) or _is_words(v),
        "a string or a list of strings",
        "str | Sequence[str]",
    ),
}


@dataclass(frozen=True)
class Param:
    """One parameter of an operator. `type` is a key of `TYPES`; `required` has no default. What it
    means stands in `operators.yaml` (`catalog.meaning`)."""

    name: str
    type: str
    default: Any
    choices: tuple[Any, ...] = ()
    required: bool = False

    def check(self, value: object, owner: str) -> None:
        """Raises `GoldError` naming the operator, the parameter, the value and the wanted type."""
        accepts, wanted, *_ = TYPES[self.type]
        if not accepts(value):
            raise GoldError(f"{owner}: parameter {self.name}={value!r} is not {wanted}")
        if self.choices and value not in self.choices:
            names = ", ".join(repr(c) for c in self.choices)
            raise GoldError(f"{owner}: parameter {self.name}={value!r}; choose one of {names}")


@dataclass(frozen=True)
class Operator:
    """A named pure function of a text.

    A mapper's function returns the new text, a filter's the statistic that its bounds are
    compared with. `dj` is set only where the `dj` profile behaves differently. What each one does
    in words stands in `operators.yaml` (`catalog.described`).
    """

    name: str
    kind: Kind
    domain: str
    bench: Callable[..., Any]
    params: tuple[Param, ...] = ()
    dj: Callable[..., Any] | None = None
    stat_key: str = ""
    bounds: tuple[str, str] = ("", "")

    def function(self, profile: Profile = "bench") -> Callable[..., Any]:
        """Return the operator's function of a profile."""
        return self.dj if profile == "dj" and self.dj is not None else self.bench

    def defaults(self) -> dict[str, Any]:
        """Return the defaults of the parameters that have one, by name."""
        return {p.name: p.default for p in self.params if not p.required}


@dataclass(frozen=True)
class Step:
    """One operator of a recipe with the parameters that differ from its defaults."""

    operator: str
    params: dict[str, Any] = field(default_factory=dict[str, Any])
