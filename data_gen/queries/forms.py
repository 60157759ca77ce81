"""What questions over lakes look like: which kinds are asked, of what, and what gold does.

`FULL` is the benchmark's form: plan and pipeline over a whole lake. `SHORT` is for small models:
one plain table, one or two steps. Its gold is a short script, written a third time from the steps
as data, that prints the value of every step on a line of its own. A question becomes a task only if
the script, run as a model's script is, prints what the pipeline has computed (lake_checks.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from assay.tables.plan import ReadPlan
from data_gen.queries import ops
from data_gen.queries.lake import Lake, one_sided
from data_gen.queries.lake_questions import KINDS
from data_gen.queries.ops import Op
from data_gen.queries.pandas_code import CALLS, q
from data_gen.queries.pipeline import Question
from data_gen.queries.sql_wording import pieces
from data_gen.queries.tables import Table
from rollouts.environments import ToolSettings
from rollouts.krama.script import task_text

TYPES = (
    "numeric_exact",
    "string_exact",
    "list_exact",
    "numeric_approximate",
    "string_approximate",
    "list_approximate",
)


def _fits(lake: Lake, question: Question) -> str:
    return ""


def _script(lake: Lake, question: Question) -> str:
    return ""  # the pipeline that was run is gold


@dataclass(frozen=True)
class Form:
    """`fits` says why a draft is not asked, "" where it is; `script` gives what stands in gold in
    place of the pipeline (`Question.script`), "" where nothing does."""

    agent: str = "ds_guru_few_shot"
    kinds: tuple[str, ...] = tuple(KINDS)
    types: tuple[str, ...] = TYPES
    fits: Callable[[Lake, Question], str] = _fits
    script: Callable[[Lake, Question], str] = _script


FULL = Form()


COLUMNS = 12  # of a table
STEPS = 2  # beside loading and dropping rows without a number
PROMPT, ANSWER = 300, 130  # tokens, by count of pieces; a chat template adds about 40
_SEPARATORS = (",", ";", "\t", r"\s+")


def short_lake(lake: Lake) -> Lake:
    """The lake with the tables that one plain statement loads, each asked about alone. A column
    with words for missing values is none of theirs, and neither is one that holds two things."""
    kept = [_plain(t) for t in lake.tables if _loads(t.reading) and len(t.columns) <= COLUMNS]
    kept = [t for t in kept if t.numbers and t.groups]
    why = "--short: not one plain table of at most 12 columns, with numbers and groups"
    found = one_sided(lake, [t for t in lake.tables if t.key in {k.key for k in kept}], why)
    return replace(found, tables=kept, alone=True)


def _plain(table: Table) -> Table:
    holes = set(table.holes)
    numbers = tuple(n for n in table.numbers if n not in holes)
    return replace(
        table,
        numbers=numbers,
        levels={n: table.levels[n] for n in numbers},
        groups=tuple(g for g in table.groups if g not in holes),
        halves=(),
        years=(),
        single_years=(),
    )


def _loads(reading: ReadPlan) -> str:
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


def _written(op: Op) -> str:
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


def script(lake: Lake, question: Question) -> str:
    """The short script of a question, "" where a step has no short form."""
    steps = question.ops or ()
    if not steps or not isinstance(steps[0], ops.Load):
        return ""
    readings = [t.reading for t in lake.tables if t.path == steps[0].table.path]
    parts = [*map(_loads, readings), *map(_written, steps[1:])]
    if len(parts) != len(steps) or not all(parts):
        return ""
    return "\n".join(["import pandas as pd", f"{parts[0]}\nprint(len(t))", *parts[1:]]) + "\n"


def fits(lake: Lake, question: Question) -> str:
    """Why a draft is too long to be asked, "" where it is not."""
    steps = [s for s in question.steps if s.kind not in ("load", "clean")]
    if len(steps) > STEPS:
        return "more than two steps"
    code = script(lake, question)
    if not code:
        return "a step without a short form"
    if pieces(code) > ANSWER:
        return "a long script"
    long = pieces(task_text(question.text, lake.index, ToolSettings())) > PROMPT
    return "a long prompt" if long else ""


SHORT = Form(
    agent="lake_script",
    kinds=("one_number", "difference", "portion", "count_groups", "best_group", "top_groups"),
    types=("numeric_exact", "string_exact", "list_exact"),
    fits=fits,
    script=script,
)
