"""Pipeline design: does a pipeline do what each key functionality asks?

`static_coverage` is a deterministic proxy (specification notes, section 6): no code runs and no
model is asked. `judged_coverage` (judge_endpoint.py) asks an endpoint. The two are reported apart;
neither is part of the outcome.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rewards.krama.answer import score_response
from rewards.syntax import parse_python

# What a step's verb looks like in code: names called, attributes used, operators (as words).
_VERBS: dict[str, tuple[str, ...]] = {
    r"load|read|open|import": ("read", "open", "load", "glob", "parse"),
    r"filter|select rows|keep|subset|exclude|drop|remove|restrict": (
        "query",
        "isin",
        "loc",
        "dropna",
        "drop",
        "notna",
        "filter",
        "between",
        "compare",
        "contains",
        "notnull",
        "drop_duplicates",
    ),
    r"group|per |each ": ("groupby", "pivot_table", "value_counts", "agg", "resample", "for"),
    r"join|merge|match|combine|align": ("merge", "join", "concat", "map", "intersection"),
    r"sort|rank|top|highest|lowest|largest|smallest|maximum|minimum|max|min": (
        "sort_values",
        "sort",
        "sorted",
        "nlargest",
        "nsmallest",
        "max",
        "min",
        "idxmax",
        "idxmin",
        "rank",
        "argmax",
        "argmin",
    ),
    r"correlat": ("corr", "pearsonr", "spearmanr", "corrcoef"),
    r"regress|linear model|fit": ("linregress", "polyfit", "fit", "lstsq", "ols"),
    r"interpolat": ("interpolate", "interp", "interp1d"),
    r"mean|average": ("mean", "average", "nanmean"),
    r"median": ("median", "nanmedian"),
    r"sum|total": ("sum", "nansum", "cumsum", "total"),
    r"count|number of|how many|size": (
        "len",
        "count",
        "size",
        "nunique",
        "sum",
        "value_counts",
        "shape",
    ),
    r"unique|distinct": ("unique", "nunique", "drop_duplicates", "set", "value_counts"),
    r"round": ("round", "around"),
    r"convert|cast|parse|numeric|clean|strip|normaliz": (
        "to_numeric",
        "astype",
        "float",
        "int",
        "to_datetime",
        "replace",
        "strip",
        "lower",
        "fillna",
        "sub",
        "split",
    ),
    r"ratio|divide|rate|percent|proportion|share": ("div", "divide"),
    r"difference|subtract|change": ("sub", "diff", "subtract"),
}
_QUOTED = re.compile(r"'([^'\n]{1,80})'|\"([^\"\n]{1,80})\"|`([^`\n]{1,80})`")
_FILE = re.compile(
    r"[\w*?.-]+\.(?:csv|tsv|xlsx|txt|jsonl|json|parquet|html|dat|lst|tle|cdf|sp3|npz|text)\b"
)
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")


@dataclass(frozen=True)
class _Code:
    texts: frozenset[str]
    numbers: frozenset[float]
    words: frozenset[str]


def _parsed(code: str) -> _Code | None:
    try:
        tree = parse_python(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    texts: set[str] = set()
    numbers: set[float] = set()
    words: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                texts.add(node.value.lower())
            elif isinstance(node.value, int | float) and not isinstance(node.value, bool):
                numbers.add(float(node.value) if abs(node.value) < 1e300 else 0.0)
        elif isinstance(node, ast.Name):
            words.add(node.id.lower())
        elif isinstance(node, ast.Attribute):
            words.add(node.attr.lower())
        elif isinstance(node, ast.Compare):
            words.add("compare")
        elif isinstance(node, ast.For | ast.comprehension):
            words.add("for")
        elif isinstance(node, ast.BinOp):
            words.add(type(node.op).__name__.lower())
    return _Code(frozenset(texts), frozenset(numbers), frozenset(words))


def covers(step: str, code: str) -> bool:
    """Whether a pipeline's text shows what one step asks: names, constants, and its verbs."""
    found = _parsed(code)
    return found is not None and _covers(step, found)


def _covers(step: str, code: _Code) -> bool:
    files = [str(f) for f in _FILE.findall(step)]
    names = [m.group(m.lastindex or 0).lower() for m in _QUOTED.finditer(step)]
    names = [n for n in names if n not in {f.lower() for f in files}]
    every = " \n ".join(code.texts)
    if not all(_file_named(f.lower(), every) for f in files):
        return False
    if not all(name.strip() in every for name in names):
        return False
    bare = _QUOTED.sub(" ", _FILE.sub(" ", step))
    constants = {float(n) for n in _NUMBER.findall(bare)}
    if not all(n in code.numbers or f"{n:g}" in every or n in (1.0, 2.0) for n in constants):
        return False
    asked = [calls for verb, calls in _VERBS.items() if re.search(rf"\b(?:{verb})", bare.lower())]
    if not asked:
        return bool(files or names or constants)
    return any(
        any(call == word or (len(call) > 3 and call in word) for word in code.words)
        for calls in asked
        for call in calls
    )


def _file_named(name: str, texts: str) -> bool:
    """A file is opened by its name, by its stem in an f-string, or by a glob that fits it."""
    stem = re.split(r"[*?]", name)[0]
    if name in texts or (len(stem) > 4 and stem in texts):
        return True
    steady = re.sub(r"\d+", " ", name.rpartition(".")[0]).split()
    return bool(steady) and "." in texts and all(part.strip("-_ ") in texts for part in steady)


def static_coverage(steps: Sequence[str], code: str) -> float | None:
    """Share of the key functionalities covered; None without any. Empty code covers nothing."""
    asked = [step for step in steps if step.strip()]
    if not asked:
        return None
    found = _parsed(code) if code.strip() else None
    if found is None:
        return 0.0
    return sum(_covers(step, found) for step in asked) / len(asked)


def subtask_credit(steps: Sequence[Mapping[str, Any]], values: Sequence[Any]) -> float | None:
    """Share of gold sub-answers that a pipeline printed; None without sub-tasks.

    Each printed value confirms one sub-task at most, and only the first 2n + 2 values count, so
    printing everything there is earns nothing more. Scored as the answers themselves are.
    """
    if not steps:
        return None
    free = list(values[: 2 * len(steps) + 2])
    hits = 0
    for step in steps:
        for place, value in enumerate(free):
            kind, ordered = str(step["answer_type"]), step.get("ordered") is True
            score = score_response(kind, step["answer"], {"answer": value}, ordered=ordered)
            if score.outcome == 1.0 and score.reward:
                hits += 1
                del free[place]
                break
    return hits / len(steps)
