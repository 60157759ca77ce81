"""Text mappers and filters of an installed py-data-juicer as steps of a recipe.

A name that is not among our operators is looked up there; `data_juicer:NAME` asks for theirs even
where we have our own. Needs the extra `datajuicer`.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from typing import Any

from assay.extras import install_extra
from rewards.gold.core import GoldError, Operator, Param, library, nearest

PREFIX = "data_juicer:"
# Where an operator keeps what it measured, and what it was told about a sample.
_STATS, _META = "__dj__stats__", "__dj__meta__"
Verdict = Callable[[str], tuple[bool, dict[str, Any]]]


def available() -> bool:
    return importlib.util.find_spec("data_juicer") is not None


def has(name: str) -> bool:
    """Whether an installed py-data-juicer knows the name; imports it when it is installed."""
    return available() and name in _registry()


def _registry() -> dict[str, Any]:
    operators: Any = library("data_juicer.ops", "py-data-juicer", extra="datajuicer").OPERATORS
    modules: dict[str, Any] = operators.modules
    return modules


def _parameters(kind: Any) -> dict[str, inspect.Parameter]:
    found = inspect.signature(kind.__init__).parameters
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {n: p for n, p in found.items() if n != "self" and p.kind not in variable}


def _unused(text: str) -> str:
    # A foreign step carries its own call or verdict.
    return text


def load(name: str, params: dict[str, Any]) -> tuple[Operator, Any]:
    """(description, built operator). Raises `GoldError` when there is no such text operator."""
    bare = name.removeprefix(PREFIX)
    if not available():
        raise GoldError(f"operator {name!r} needs py-data-juicer; {install_extra('datajuicer')}")
    registry = _registry()
    if bare not in registry:
        raise GoldError(f"no operator {bare!r} in py-data-juicer{nearest(bare, registry)}")
    if not bare.endswith(("_mapper", "_filter")):
        raise GoldError(f"{name}: only mappers and filters of py-data-juicer can be recipe steps")
    kind = registry[bare]
    known = _parameters(kind)
    for given in params:
        if given not in known:
            hint = nearest(given, known)
            raise GoldError(f"{name}: no parameter {given!r}{hint} (it takes: {', '.join(known)})")
    try:
        built = kind(**params)
    except Exception as error:  # theirs may raise anything at all, assertion errors included
        why = " ".join(str(error).split())[:200]
        raise GoldError(f"{name}: cannot be built: {type(error).__name__}: {why}") from None
    empty = inspect.Parameter.empty
    described = Operator(
        name=name,
        kind="filter" if bare.endswith("_filter") else "mapper",
        domain="data-juicer",
        summary=" ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split()),
        bench=_unused,
        params=tuple(
            Param(n, "text", None if p.default is empty else p.default, "see py-data-juicer")
            for n, p in known.items()
        ),
    )
    return described, built


def mapper(name: str, built: Any) -> Callable[[str], str]:
    """The operator as a function of one text."""

    def call(text: str) -> str:
        if built.is_batched_op():
            out: list[Any] = built.process_batched({"text": [text], _STATS: [{}], _META: [{}]})[
                "text"
            ]
            if len(out) != 1:
                raise GoldError(f"{name}: made {len(out)} texts of one, and a recipe has one text")
            result: Any = out[0]
        else:
            result = built.process_single({"text": text, _STATS: {}, _META: {}})["text"]
        if not isinstance(result, str):
            raise GoldError(f"{name}: gave {type(result).__name__} where a recipe needs text")
        return result

    return call


def verdict(built: Any) -> Verdict:
    """The operator as a function from a text to (keep, statistics)."""

    def judge(text: str) -> tuple[bool, dict[str, Any]]:
        if built.is_batched_op():
            batch: dict[str, Any] = {"text": [text], _STATS: [{}], _META: [{}]}
            batch = built.compute_stats_batched(batch)
            (keep,) = list(built.process_batched(batch))
            return bool(keep), dict(batch[_STATS][0])
        sample: dict[str, Any] = built.compute_stats_single({"text": text, _STATS: {}, _META: {}})
        return bool(built.process_single(sample)), dict(sample[_STATS])

    return judge
