"""Questions in words, and the prompt that shows the database."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from assay.files import yaml_beside
from data_gen.queries.database import Field, Made, Unit
from data_gen.queries.sql_plans import Filter, Plan
from data_gen.queries.sql_write import OF_ROWS, SIGNS
from rewards.sql.compare import Cell
from rewards.sql.data import quoted
from rewards.sql.family import literal

TAIL = (
    "Answer with one SQLite query in a ```sql block. Return the columns that are asked for and no "
    "others. Do not round."
)
_SAMPLES = 3  # values shown of a column
_LONG = 32  # characters of a value that is shown


def question(plan: Plan, unit: Unit, rng: Random) -> str:
    """The question in one of its wordings, without clauses."""
    kind = "distinct count" if plan.kind == "distinct" and plan.limit else plan.kind
    text = rng.choice(yaml_beside(__file__, "openings.yaml")[kind]).format(**_words(plan, unit))
    return text.strip()


def _words(plan: Plan, unit: Unit) -> dict[str, str]:
    given, asked = plan.filters[:-1], plan.filters[-1:]
    conditions = _where(plan.filters)
    part = {"year": "year of {}", "month": "month of the year (1 to 12) of {}"}
    part["decade"] = "decade of {} (1990 for 1990 to 1999)"
    group = _plain(plan.group)
    dated = group if group.startswith("'") else f"'{group}'"
    first = plan.shown[0] if plan.shown else None
    table, other = (unit.made[at].table.name for at in (0, -1))
    mine, theirs = (quoted(f.name) if f else "" for f in (plan.mine, plan.theirs))
    counted = plan.summary == "rows" or plan.measure is None
    return {
        "table": table,
        "other": other,
        "matched": f"{quoted(table)}.{mine} equals {quoted(other)}.{theirs}",
        "shared": mine if mine == theirs else f"{mine} ({theirs} in {other})",
        "of_matched": f"the number of matched rows of {table}"
        if counted
        else f"{_value(plan)} of the matched rows of {table}",
        "where": conditions,
        "where_and": f"{conditions} and" if conditions else "",
        "where_rows": f", counting only rows{conditions}" if conditions else "",
        "given": _where(given),
        "asked": " and ".join(map(said, asked)),
        "shown": " and ".join(_plain(f) for f in plan.shown),
        "key": _plain(first),
        "group": group,
        "measure": _plain(plan.measure),
        "value": _value(plan),
        "both": f"Return {'it' if plan.part else group} and the figure."
        if not plan.part
        else f"Return the {plan.part} and the figure.",
        "part": part.get(plan.part, "{}").format(dated),
        "sign": OF_ROWS[plan.sign],
        "than": {">": "above", "<": "below"}.get(plan.sign, ""),
        "limit": str(plan.limit),
        "k": f"{plan.limit} rows" if plan.limit != 1 else "row",
        "first": f"the first {plan.limit} rows" if plan.limit != 1 else "the first row",
        "groups": f"{plan.limit} groups" if plan.limit != 1 else "group",
        "in_order": f", {'highest' if plan.down else 'lowest'} first" if plan.limit != 1 else "",
        "is": "is" if len(plan.shown) == 1 == plan.limit else "are the values of",
        "have": "have" if plan.limit != 1 else "has",
        "places": "the first place" if plan.limit == 1 else f"the first {plan.limit} places",
        "most": "highest" if plan.down else "lowest",
        "order": "highest" if plan.down else "lowest",
        "mine": mine,
        "theirs": theirs,
    }


def _plain(field: Field | None) -> str:
    return field.words if field else ""


def _value(plan: Plan) -> str:
    if plan.summary == "rows" or plan.measure is None:
        return "number of rows" if plan.kind == "best_group" else "the number of rows"
    if plan.summary == "total" and "total" in plan.measure.words.lower():  # "the total total"
        return f"{'' if plan.kind == 'best_group' else 'the '}sum of {plan.measure.words}"
    if plan.kind != "best_group":
        return f"the {plan.summary} {plan.measure.words}"
    words = {"largest": "maximum", "smallest": "minimum"}  # "the highest maximum"
    return f"{words.get(plan.summary, plan.summary)} {plan.measure.words}"


def _where(filters: Sequence[Filter]) -> str:
    return f" where {' and '.join(map(said, filters))}" if filters else ""


def said(found: Filter) -> str:
    """A condition in words: "price is at least 20"."""
    sign = SIGNS[found.sign]
    verb = sign if sign.startswith("is") else f"is {sign}"
    value = found.value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    inside = isinstance(value, str) and "'" in value and '"' not in value
    shown = f'"{value}"' if inside else literal(value)  # SQL would write the quote twice
    return f"{found.field.words} {verb} {shown}"


def prompt(text: str, unit: Unit) -> str:
    """What the model is asked: the schema with some values of every column, and the question."""
    tables = "\n\n".join(_schema(m) for m in reversed(unit.made))
    return f"{tables}\n\nQuestion: {text}\n\n{TAIL}"


_PIECE = re.compile(r"\d|[^\W\d_]+|[^\w\s]|_|\n")


def pieces(text: str) -> int:
    """About how many tokens a text has: digits, marks and ends of lines one each, four letters of a
    word one."""
    return sum(-(-len(piece) // 4) for piece in _PIECE.findall(text))


def _schema(made: Made) -> str:
    lines: list[str] = []
    for number, column in enumerate(made.table.columns):
        comma = "," if number + 1 < len(made.table.columns) else ""
        words = made.comments.get(column.name, "").strip("'")
        values = [row[number] for row in made.table.rows]
        notes = [words] if words and words != column.name else []
        notes += [f"e.g. {', '.join(_samples(values))}"]
        lines.append(f"  {column.declared()}{comma} -- {'; '.join(notes)}")
    return f"CREATE TABLE {quoted(made.table.name)} (\n" + "\n".join(lines) + "\n);"


def _samples(values: Sequence[Cell]) -> list[str]:
    """The first different values, short."""
    found: list[str] = []
    for value in dict.fromkeys(values):
        text = f"{value:.6g}" if isinstance(value, float) else literal(value)
        if value is not None and len(text) <= _LONG:
            found.append(text)
        if len(found) == _SAMPLES:
            break
    return (found or ["a long text"]) + (["NULL"] if None in values else [])
