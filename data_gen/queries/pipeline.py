"""A gold pipeline: typed steps, each with its code, its words, and a sub-question.

The code is the gold: what a step does is written once, and executed as it will be shown. For small
models the steps are also written as a short script.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from assay.tables.plan import ReadPlan
from data_gen.certificate import Refusal
from data_gen.queries import ops
from data_gen.queries.ops import Cut, OfRows, Op, Source, Summary, in_order
from data_gen.queries.tables import Table

StepKind = Literal[
    "load", "clean", "join", "filter", "group", "interpolate", "rank", "regress", "finish"
]


STEP_KINDS: dict[type[Op], StepKind] = {
    ops.Load: "load",
    ops.Clean: "clean",
    ops.Years: "clean",
    ops.Split: "clean",
    ops.Keep: "filter",
    ops.Limit: "filter",
    ops.Least: "filter",
    ops.Join: "join",
    ops.Group: "group",
    ops.Interpolate: "interpolate",
    ops.Best: "rank",
    ops.Nth: "rank",
    ops.Top: "rank",
    ops.Fit: "regress",
}  # of any other: finish


@dataclass(frozen=True)
class LakeStep:
    """One step. `code` binds its result to variables; `value` is the expression whose value
    answers `query`; `text` says in words what a correct pipeline must do here."""

    kind: StepKind
    text: str
    code: str
    query: str
    value: str
    answer_type: str
    optional: bool = False  # the answer must change when it is left out
    op: Op | None = None  # what it does, as data; the code was written from it


@dataclass(frozen=True)
class Question:
    """A question with its pipeline. `margin` is an expression of how far the answer is from
    another one, relative (ties, rounding); negative where it rests on a single row."""

    text: str
    steps: tuple[LakeStep, ...]
    shape: str  # the template and its columns: two of one shape ask the same
    margin: str = "1.0"
    script: str = ""  # stands in gold in place of the pipeline; prints a line for each step

    @property
    def ops(self) -> tuple[Op, ...] | None:
        """The steps as data; None when one has no such form."""
        found = tuple(step.op for step in self.steps if step.op is not None)
        return found if len(found) == len(self.steps) else None

    def code(self, without: int = -1) -> str:
        """The whole script, as DS-Guru's contract wants it."""
        lines = ["import json", "", "import numpy as np", "import pandas as pd", ""]
        keys: list[str] = []
        last = len(self.steps) - 1
        for number, step in enumerate(self.steps):
            if number == without:
                continue
            lines.append(f"# {_on_one_line(step.text)}")
            lines += step.code.splitlines()
            name = "answer" if number == last else f"found_{number + 1}"
            lines.append(f"{name} = {step.value}")
            keys.append(f"{subtask_key(number, last)!r}: {name}")
        lines.append(f"print(json.dumps({{{', '.join(keys)}}}))")
        return "\n".join(lines) + "\n"


def subtask_key(number: int, last: int) -> str:
    """What a pipeline prints the value of a step under; `last` is the number of the last step."""
    return "main-task" if number == last else f"subtask-{number + 1}"


def _on_one_line(text: str) -> str:
    """The text with every line break and control character escaped: names and cells of foreign
    tables stand in it, and must not end the comment that they stand in."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


Values = dict[str, Any]  # of every step, by `subtask_key`


@dataclass(frozen=True)
class Checked:
    """What became of a question: the values of every step, or None and `why`. Where there are
    values, `refused` by the second way or its `verdict`, and (outcome, reward) of the `listing` of
    everything that earns most."""

    values: Values | None
    why: str = ""
    refused: Refusal | None = None
    verdict: str = ""
    listing: tuple[float, float] = (0.0, 0.0)


def gold_subtasks(question: Question, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sub-tasks of a task's gold: one for every step, the last one being the question."""
    out: list[dict[str, Any]] = []
    last = len(question.steps) - 1
    for number, step in enumerate(question.steps):
        out.append(
            {
                "id": f"{number + 1}",
                "kind": step.kind,
                "step": step.text,
                "query": step.query,
                "answer_type": step.answer_type,
                "answer": values[subtask_key(number, last)],
                **({"ordered": True} if in_order(step.op, step.answer_type) else {}),
            }
        )
    return out


# --- pandas code of a step

Loads = Callable[[Source, str], str]  # (table, variable) -> statements that bind it
Written = tuple[str, str]  # statements, and the expression of the step's value

CALLS: dict[Summary, str] = {
    "mean": "mean()",
    "median": "median()",
    "total": "sum()",
    "largest": "max()",
    "std": "std()",
}
_CUTS: dict[Cut, str] = {
    "after_comma": 'str.extract(r",([^,]*)$")[0]',
    "before_comma": 'str.extract(r"^(.*),[^,]*$")[0]',
    "in_brackets": r'str.extract(r"\(([^()]*)\)\s*$")[0]',
}


def q(text: str) -> str:
    """A string literal; column names hold no quotes and no backslashes."""
    return json.dumps(text, ensure_ascii=False)


def written(op: Op, loads: Loads) -> Written:
    """(statements, value) of a step. Loading leaves columns of numbers as numbers."""
    match op:
        case ops.Load(table):
            return loads(table, "t"), "len(t)"
        case ops.Clean(column):
            return f"t = t.dropna(subset=[{q(column)}])", "len(t)"
        case ops.Years(column):
            return _whole(column), f"int(t[{q(column)}].nunique())"
        case ops.Split(column, cut, into):
            cell = f"t[{q(column)}].astype(str).{_CUTS[cut]}.str.strip()"
            code = f"t[{q(into)}] = {cell}\nt = t.dropna(subset=[{q(into)}])"
            code += f"\nt = t[t[{q(into)}] != {q('')}]"
            return code, f"int(t[{q(into)}].nunique())"
        case ops.Keep(column, value):
            return f"t = t[t[{q(column)}].astype(str).str.strip() == {value!r}]", "len(t)"
        case ops.Limit(column, sign, limit):
            return f"t = t[t[{q(column)}] {sign} {limit:g}]", "len(t)"
        case ops.Join():
            return _join(op, loads), "len(t)"
        case ops.Least(keys, whole, rows):
            size = f"t.groupby({_keys(keys)})[{q(keys[0])}].transform({q('size')})"
            return f"{_ready(keys, whole)}\nt = t[{size} >= {rows}]", "len(t)"
        case ops.Group():
            return _group(op), "len(g)"
        case _:
            return _of_rows(op) if isinstance(op, ops.OfRows) else _of_groups(op)


def _of_groups(op: Op) -> Written:
    match op:
        case ops.Above():
            return "line = float(g.mean())\nabove = g[g > line]", "len(above)"
        case ops.Best(high):
            key = (
                'i = g.index[0]\nname = ", ".join(map(str, i)) if isinstance(i, tuple) else str(i)'
            )
            return f"g = g.sort_values(ascending={not high})\n{key}", "name"
        case ops.Nth(place, high):
            return f"g = g.sort_values(ascending={not high})", f"str(g.index[{place - 1}])"
        case ops.Spread(digits):
            return "raw = float(g.max() - g.min())", _round(digits)
        case ops.Change(one, other, digits):
            return f"raw = 100 * float(g.loc[{other}] / g.loc[{one}] - 1)", _round(digits)
        case ops.Top(k, high):
            return f"g = g.sort_values(ascending={not high})", f"[str(x) for x in g.index[:{k}]]"
        case ops.Each():
            return "g = g.sort_index()", "[float(x) for x in g]"
        case ops.Interpolate(share, at):
            code = "g = g.sort_index()\nyears = [float(y) for y in g.index]\n"
            code += f"low, high = years[-{at + 1}], years[-{at}]\n"
            code += (
                f"point = low + {share} * (high - low)\nseen = float(np.interp(point, years, g))"
            )
            return code, "seen"
        case _:
            raise TypeError(f"no code for {op}")


def _of_rows(op: OfRows) -> Written:
    match op:
        case ops.Figure(of, how, digits):
            return f"raw = float(t[{q(of)}].{CALLS[how]})", _round(digits)
        case ops.Difference(by, one, other, of, how, digits):
            side = f"t[t[{q(by)}].astype(str).str.strip() == {{}}][{q(of)}]"
            first, second = side.format(repr(one)), side.format(repr(other))
            code = f"first = {first}\nsecond = {second}\n"
            code += f"raw = float(first.{CALLS[how]} - second.{CALLS[how]})"
            return code, _round(digits)
        case ops.Portion(column, sign, limit, digits):
            part = f"(t[{q(column)}] {sign} {limit:g})"
            return f"raw = 100 * float({part}.mean())", _round(digits)
        case ops.Share(by, value, of, digits):
            part = f"part = t[t[{q(by)}].astype(str).str.strip() == {value!r}][{q(of)}]\n"
            return f"{part}raw = 100 * float(part.sum() / t[{q(of)}].sum())", _round(digits)
        case ops.AboveOwn(by, of):
            line = f"line = t.groupby({q(by)})[{q(of)}].transform({q('mean')})"
            return f"{_trimmed(by)}\n{line}\nabove = t[t[{q(of)}] > line]", "len(above)"
        case ops.Correlate(x, y):
            return f"r = float(t[{q(x)}].corr(t[{q(y)}]))", "r"
        case ops.Fit(x, y, both):
            xs, ys = f"t[{q(x)}].astype(float)", f"t[{q(y)}].astype(float)"
            code = f"slope, start = (float(v) for v in np.polyfit({xs}, {ys}, 1))"
            return code, "[slope, start]" if both else "slope"


def _round(digits: int) -> str:
    return f"round(raw, {digits})" if digits else "round(raw)"


def _trimmed(column: str, frame: str = "t") -> str:
    cell = f"{frame}[{q(column)}]"
    return (
        f"{frame} = {frame}.dropna(subset=[{q(column)}])\n{cell} = {cell}.astype(str).str.strip()"
    )


def _whole(column: str, frame: str = "t") -> str:
    cell = f"{frame}[{q(column)}]"
    code = f'{cell} = pd.to_numeric({cell}, errors="coerce")\n'
    return f"{code}{frame} = {frame}.dropna(subset=[{q(column)}])\n{cell} = {cell}.astype(int)"


def _join(op: ops.Join, loads: Loads) -> str:
    lines = [loads(op.table, "u")]
    key = _whole if op.whole else _trimmed
    lines += [key(op.theirs, "u"), key(op.mine)]
    names = "" if op.theirs == op.mine else f".rename(columns={{{q(op.theirs)}: {q(op.mine)}}})"
    lines.append(f"u = u[[{q(op.theirs)}, {q(op.brings)}]]{names}")
    merge = f"t = t.merge(u, on={q(op.mine)}, how={q('inner')})"
    lines.append(f"{merge}.dropna(subset=[{q(op.brings)}])")
    return "\n".join(lines)


def _ready(keys: Sequence[str], whole: Sequence[bool]) -> str:
    """Keys to group by: whole numbers, or texts without the blanks around them."""
    return "\n".join(_whole(k) if w else _trimmed(k) for k, w in zip(keys, whole, strict=True))


def _keys(keys: Sequence[str]) -> str:
    return q(keys[0]) if len(keys) == 1 else f"[{', '.join(map(q, keys))}]"


def _group(op: ops.Group) -> str:
    summed = f"g = t.groupby({_keys(op.keys)})[{q(op.of)}].{CALLS[op.how]}.dropna()"
    return f"{_ready(op.keys, op.whole)}\n{summed}"


def blocks(op: Op) -> list[str]:
    """What a step does to the columns it groups by or orders by: done once is enough."""
    match op:
        case ops.Least(keys, whole) | ops.Group(keys, whole):
            return [_ready([k], [w]) for k, w in zip(keys, whole, strict=True)]
        case ops.Years(column):
            return [_whole(column)]
        case _:
            return []


ONE_ROW = -1.0  # the margin of a question that summarises a single row
BY_TREND = -2.0  # and of one that wants the years that a trend lets one guess


def guarded(margin: str, op: ops.Group, last: Op) -> str:
    """The margin of a question over groups: also where one of them has a single row, or where years
    are asked for by the places of their figures (`pipeline_runner.by_trend`)."""
    rows = f"t.groupby({_keys(op.keys)})[{q(op.of)}].count().min()"
    margin = f"({margin}) if {rows} > 1 else {ONE_ROW}"
    end = getattr(last, "place", getattr(last, "k", 1))
    first = end - 1 if isinstance(last, ops.Nth) else 0
    for level, whole in enumerate(op.whole):
        if whole and isinstance(last, ops.Best | ops.Nth | ops.Top):
            years = f"list(g.index.get_level_values({level}))"
            margin = f"{BY_TREND} if by_trend({years}, {first}, {end}) else {margin}"
    return margin


# --- a short script of a question, a third way to write its steps: for small models

_SEPARATORS = (",", ";", "\t", r"\s+")


def plain_load(reading: ReadPlan) -> str:
    """The statement that loads a table, "" where one plain statement does not."""
    if not reading.header:
        return ""
    where = q(f"data/{reading.path}")
    if reading.form in ("json", "lines"):
        return f"t = pd.read_json({where}{', lines=True' * (reading.form == 'lines')})"
    if reading.form == "parquet":
        return f"t = pd.read_parquet({where})"
    special = reading.marked or reading.dates or reading.ragged or reading.escape
    if reading.form != "csv" or special or reading.quote != '"' or reading.sep not in _SEPARATORS:
        return ""
    words = [where]
    # a raw text where the mark is an expression
    words += {",": [], r"\s+": [r'sep=r"\s+"']}.get(reading.sep, [f"sep={q(reading.sep)}"])
    words += [f"skiprows={reading.skip}"] if reading.skip else []
    words += [f"encoding={q(reading.encoding)}"] if reading.encoding != "utf-8" else []
    words += ['decimal=","'] if reading.decimal == "," else []
    return f"t = pd.read_csv({', '.join(words)})"


def _short_step(op: Op) -> str:
    """The statements of a step, the last of which prints its value; "" for one that is long."""
    match op:
        case ops.Clean(column):
            return f"t = t.dropna(subset=[{q(column)}])\nprint(len(t))"
        case ops.Keep(column, value):
            return f"t = t[t[{q(column)}] == {q(value)}]\nprint(len(t))"
        case ops.Limit(column, sign, limit):
            return f"t = t[t[{q(column)}] {sign} {limit:g}]\nprint(len(t))"
        case ops.Group((key,), (False,), of, how):
            return f"g = t.groupby({q(key)})[{q(of)}].{CALLS[how]}\nprint(len(g))"
        case ops.Above():
            return "print((g > g.mean()).sum())"
        case ops.Best(high):
            return f"print(g.{'idxmax' if high else 'idxmin'}())"
        case ops.Top(k, high):
            return f"print(g.{'nlargest' if high else 'nsmallest'}({k}).index.tolist())"
        case ops.Figure(of, how, digits):
            return f"print(round(t[{q(of)}].{CALLS[how]}{f', {digits}' * (digits > 0)}))"
        case ops.Portion(column, sign, limit, digits):
            return f"print(round(100 * (t[{q(column)}] {sign} {limit:g}).mean(), {digits}))"
        case ops.Difference(by, one, other, of, how, digits):
            each = f"g = t.groupby({q(by)})[{q(of)}].{CALLS[how]}"
            side = f", {digits}" * (digits > 0)
            return f"{each}\nprint(round(g[{q(one)}] - g[{q(other)}]{side}))"
        case _:
            return ""


def short_script(question: Question, tables: Sequence[Table]) -> str:
    """The short script of a question, "" where a step has no short form."""
    steps = question.ops or ()
    if not steps or not isinstance(steps[0], ops.Load):
        return ""
    readings = [t.reading for t in tables if t.path == steps[0].table.path]
    parts = [*map(plain_load, readings), *map(_short_step, steps[1:])]
    if len(parts) != len(steps) or not all(parts):
        return ""
    return "\n".join(["import pandas as pd", f"{parts[0]}\nprint(len(t))", *parts[1:]]) + "\n"
