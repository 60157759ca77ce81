"""The page of the operators, from the operators (generate.py writes it)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from data_gen.cdr.documents import PAPER
from rewards.gold.catalog import OPERATORS, RECIPE_PARAMS, described, meaning
from rewards.gold.core import INF, Operator, Param, Profile, Step
from rewards.gold.recipe import execute

HEAD = """# Operators

A recipe is a list of steps, each an operator with parameters. Mappers change the text. A filter
computes one statistic and keeps the text when the statistic lies within its bounds (both ends
included unless `min_closed_interval` or `max_closed_interval` is false; `reversed_range` keeps what
lies outside; a bound of null is not checked). A bound that a recipe does not give keeps its
default, so `average_line_length_filter {max_len: 90}` also drops texts below 10.

Two profiles exist: `bench`, the default, is what the benchmark's published gold was made with;
`dj` is the Data-Juicer fork it grew out of. Operators without a note behave alike in both.

The paper's Table 4 lists 29 operators, 22 mappers and 7 filters. Each of them is marked **Table 4**
here. `configs/cdr_paper.yaml` builds tasks of these alone (`operators.only: [paper]`).
"""
DOMAINS = {
    "privacy": "Privacy mappers",
    "web": "Web mappers",
    "latex": "LaTeX mappers",
    "rag": "RAG mappers",
    "filter": "Filters",
}
# Its dj form needs an optional library, and this page must not depend on what is installed.
NO_DJ_EXAMPLE = ("clean_html_mapper",)


def _code(value: object) -> str:
    return "`" + json.dumps(value, ensure_ascii=False).replace("|", "\\|") + "`"


def _default(param: Param) -> str:
    if param.required:
        return "required"
    if param.default == INF:
        return "no bound (2^63 − 1)"
    return _code(param.default)


def _parameters(operator: Operator) -> Iterator[str]:
    if not operator.params:
        yield "No parameters.\n"
        return
    yield "| parameter | type | default | meaning |"
    yield "|---|---|---|---|"
    for p in operator.params:
        choices = f"; one of {', '.join(_code(c) for c in p.choices)}" if p.choices else ""
        yield f"| `{p.name}` | {p.type} | {_default(p)} | {meaning(operator, p)}{choices} |"
    yield ""


def _example(operator: Operator) -> tuple[str, dict[str, Any]]:
    example = described(operator)["example"]
    return example["text"], example.get("params", {})


def _result(operator: Operator, profile: Profile) -> str:
    text, params = _example(operator)
    done = execute(text, [Step(operator.name, params)], profile)
    if operator.kind == "mapper":
        return _code(done.text)
    (entry,) = done.trace
    return f"{_code(entry['stats'])}, {entry['status']}"


def _entry(operator: Operator) -> Iterator[str]:
    yield f"### {operator.name}\n"
    stat = f" Statistic: `{operator.stat_key}`." if operator.stat_key else ""
    listed = " **Table 4.**" if operator.name in PAPER else ""
    yield f"{operator.kind.capitalize()}.{listed} {described(operator)['summary']}{stat}\n"
    yield from _parameters(operator)
    if operator.name in RECIPE_PARAMS:
        yield f"The benchmark's recipes pass {_code(RECIPE_PARAMS[operator.name])}.\n"
    text, params = _example(operator)
    given = f" with {_code(params)}" if params else ""
    bench = _result(operator, "bench")
    yield f"Example{given}: {_code(text)} gives {bench}.\n"
    if operator.dj is not None:
        shown = operator.name not in NO_DJ_EXAMPLE
        dj = _result(operator, "dj") if shown else bench
        also = f" There the example gives {dj}." if dj != bench else ""
        yield f"**`bench` and `dj` differ.** {described(operator)['difference']}{also}\n"


def render() -> str:
    """The whole page."""
    lines = [HEAD]
    for domain, title in DOMAINS.items():
        lines.append(f"## {title}\n")
        for operator in OPERATORS.values():
            if operator.domain == domain:
                lines += _entry(operator)
    return "\n".join(lines).rstrip() + "\n"
