"""What the queries of all kinds share: conditions, summaries, and readings of missing values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from data_gen.sql.plans import Field, Filter, Plan, Sign
from data_gen.sql.tables import Unit
from rewards.sql.data import quoted
from rewards.sql.family import literal

STRICT: dict[Sign, Sign] = {">": ">=", ">=": ">", "<": "<=", "<=": "<"}


@dataclass(frozen=True)
class Other:
    """Another query that the words might mean."""

    label: str
    sql: str
    said: str = ""
    clause: str = ""


@dataclass(frozen=True)
class Written:
    sql: str
    ordered: bool
    others: tuple[Other, ...]


SIGNS: dict[Sign, str] = {
    ">": "more than",
    ">=": "at least",
    "<": "less than",
    "<=": "at most",
    "=": "is",
    "!=": "is not",
}
OF_ROWS = {**SIGNS, "<": "fewer than"}  # of how many there are


def condition(found: Filter) -> str:
    return f"{quoted(found.field.name)} {found.sign} {literal(found.value)}"


def where(plan: Plan, *more: str) -> str:
    parts = [*map(condition, plan.filters), *more]
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def table_of(unit: Unit) -> str:
    return quoted(unit.made[0].table.name)


def value_of(plan: Plan, alias: str = "") -> str:
    """The summary that a plan asks for, over rows."""
    if plan.summary == "rows" or plan.measure is None:
        return "COUNT(*)"
    name = alias + quoted(plan.measure.name)
    words = {"mean": "AVG", "total": "SUM", "largest": "MAX", "smallest": "MIN"}
    return f"{words[plan.summary]}({name})"


def of_missing(plan: Plan, sql: str) -> list[Other]:
    """A mean in which missing values count as nothing; one of different values only."""
    if plan.measure is None or plan.summary in ("rows", "largest", "smallest"):
        return []
    name, value = quoted(plan.measure.name), value_of(plan)
    what = plan.measure.words
    out = [
        Other(
            "equal values once",
            sql.replace(value, value.replace("(", "(DISTINCT ", 1)),
            said=plan.summary,
        )
    ]
    if plan.summary == "mean" and plan.measure.nullable:
        nothing = sql.replace(value, f"AVG(COALESCE({name}, 0))")
        clause = f"Rows without a value for {what} do not count in the mean."
        out.append(Other("missing values as nothing", nothing, clause=clause))
    return out


def without_group(plan: Plan, sql: str, plain: str) -> list[Other]:
    """Rows whose group is missing: a group of their own, or none."""
    if plan.group is None or not plan.group.nullable:
        return []
    clause = f"Leave out rows without a value for {plan.group.words}."
    return [Other("rows without a group", plain, clause=clause)] if plain != sql else []


def with_empty(plan: Plan, sql: str, *there: str) -> list[Other]:
    """Groups of which no row meets the conditions: left out, or there with nothing."""
    if not plan.filters or plan.group is None:
        return []
    met = " AND ".join(map(condition, plan.filters))
    value = value_of(plan)
    inner = "1" if value == "COUNT(*)" else value.partition("(")[2].removesuffix(")")
    name = value.partition("(")[0]
    all_rows = where(replace(plan, filters=()), *there)
    text = sql.replace(where(plan, *there), all_rows, 1)
    text = text.replace(value, f"{name}(CASE WHEN {met} THEN {inner} END)")
    clause = f"Leave out any {plan.part or plan.group.words} without such rows."
    return [Other("groups without rows", text, clause=clause)]


def there_is(group: Field) -> str:
    return f"{quoted(group.name)} IS NOT NULL"


def group_parts(plan: Plan) -> tuple[str, list[str]]:
    assert plan.group is not None
    return quoted(plan.group.name), [there_is(plan.group)] if plan.group.nullable else []
