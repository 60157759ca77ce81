# duckdb and pyarrow ship partial types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""An original table in DuckDB: its names, its cells, what of it cannot be proved; and what the user
says of its file in `tables.yaml`, the only settings that the second reader takes.

Every row has to be a case: rows that the user leaves out go; a table with rows that may be totals,
notes, units or names again is refused until the user settles it: `drop_rows` says which rows are
none (`[]`: all are cases), `drop_where` which values of a column (`[]`: none).
"""

from __future__ import annotations

import fnmatch
import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, cast

import yaml

from assay.errors import TaskError, install_extra

FILE = "tables.yaml"


@dataclass(frozen=True)
class Said:
    """The keys that hold for one table of a file, as they are written; empty where nothing is
    said. The first reader refuses a file of keys that cannot be meant."""

    given: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def text(self, key: str) -> str:
        return str(self.given.get(key) or "")

    def number(self, key: str) -> int:
        return int(self.given.get(key) or 0)

    def words(self, key: str) -> list[str]:
        return _words(self.given.get(key))

    def of(self, key: str) -> dict[str, Any]:
        """A key that says something column by column."""
        return _mapping(self.given.get(key))

    def decimal(self, column: str) -> str:
        """The decimal mark of a column: said of it, of all others, or of the table."""
        if not isinstance(self.given.get("decimal"), dict):
            return self.text("decimal")
        by_column = self.of("decimal")
        return str(by_column.get(column, by_column.get("*", "")))

    def missing(self, column: str) -> list[str] | None:
        """The words that mean no value in a column, without blanks around them; None where nothing
        is said."""
        by_column = self.of("missing")
        if column not in by_column and "*" not in by_column:
            return None
        return [word.strip() for word in _words(by_column.get(column, by_column.get("*")))]

    def dropped(self) -> set[int] | None:
        """The numbers of lines or rows that are no rows; None where nothing is said."""
        if self.given.get("drop_rows") is None:
            return None
        found: set[int] = set()
        for span in self.words("drop_rows"):
            first, _, last = span.partition("-")
            found |= set(range(int(first), int(last or first) + 1))
        return found


def said_of(path: Path, root: Path | None = None, part: str = "") -> Said:
    """What `tables.yaml` of the root folder, or else the nearest above the file, says of a part of
    a file: of several patterns that match, the later wins, key by key."""
    whole = path.resolve()
    for folder in [root.resolve()] if root else whole.parents:
        if (folder / FILE).is_file():
            return Said(_matching(folder / FILE, whole.relative_to(folder).as_posix(), part))
    return Said()


def _matching(rules: Path, name: str, part: str) -> dict[str, Any]:
    try:
        loaded: Any = yaml.load(rules.read_text(encoding="utf-8"), yaml.CSafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}  # the first reader says what is wrong with it
    found: dict[str, Any] = {}
    for pattern, given in _mapping(loaded).items():
        if fnmatch.fnmatchcase(name, pattern) or (part and pattern == f"{name} [{part}]"):
            found |= _mapping(given)
    return found


def _mapping(value: Any) -> dict[str, Any]:
    pairs = cast("dict[Any, Any]", value if isinstance(value, dict) else {})
    return {str(key): held for key, held in pairs.items()}


def _words(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(one) for one in cast("list[Any]", value if isinstance(value, list) else [value])]


# --- the table ---

_ONCE = (".pkl.compress", ".sav", ".feather", ".arrow", ".duckdb")
_EXACT = 2**53  # whole numbers up to here are their own doubles


class NotProvable(ValueError):
    """The second reader cannot read this, or not with certainty; the message says why."""


@dataclass(frozen=True)
class Original:
    """A file, which of its tables is meant (a sheet, a SQLite table, a number), and the folder
    whose `tables.yaml` counts; without one, the nearest above the file."""

    path: Path
    part: str = ""
    root: Path | None = None

    @property
    def once(self) -> bool:
        """Whether one library alone reads such files here, or no text stands behind the frame: the
        computation is done twice, the reading once."""
        return self.path.name.lower().endswith(_ONCE)


@dataclass
class Opened:
    """A table of `db`: `rn`, the row's number in the file, and columns `c0` to `cN`. `ids` says
    which is called what, `types` what DuckDB holds there; `doubted` are columns that allow two
    readings, and why; `decided` keeps what was found of a column."""

    db: Any
    table: str
    ids: dict[str, str]
    types: dict[str, str]
    said: Said = field(default_factory=Said)
    doubted: dict[str, str] = field(default_factory=dict[str, str])
    decided: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def column(self, name: str) -> str:
        """The column of a name. Raises `NotProvable`."""
        cell = self.ids.get(name)
        if cell is None:  # names are compared without line breaks and doubled blanks
            alike = [c for n, c in self.ids.items() if n.split() == name.split()]
            if len(alike) != 1:
                raise NotProvable(f"the second reader finds no column {name!r}")
            cell = alike[0]
        if cell in self.doubted:
            raise NotProvable(f"{name!r}: {self.doubted[cell]}")
        return cell

    def one(self, query: str) -> tuple[Any, ...]:
        return self.db.execute(query).fetchall()[0]

    def all(self, query: str) -> list[tuple[Any, ...]]:
        return self.db.execute(query).fetchall()

    def texts(self) -> list[str]:
        """The columns that hold text."""
        return [cell for cell, kind in self.types.items() if kind == "VARCHAR"]


def connect() -> Any:
    """An empty database in memory, one thread. Raises `TaskError` where DuckDB is missing."""
    try:
        duckdb = importlib.import_module("duckdb")
    except ModuleNotFoundError:
        raise TaskError(
            f"gold is proved with DuckDB, which is not installed: {install_extra('build')}"
        ) from None
    return duckdb.connect(config={"threads": 1})


def literal(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def ident(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def named(
    db: Any, table: str, names: Sequence[str], said: Said, doubted: Mapping[str, str] | None = None
) -> Opened:
    """A table whose columns get their names: those that the user gives, or those of the file.
    Names that are equal, or differ by case and blanks alone, name no column."""
    own = said.words("names")
    if own and len(own) != len(names):
        raise NotProvable(f"tables.yaml gives {len(own)} names to {len(names)} columns")
    listed = [name.strip() or f"Unnamed: {place}" for place, name in enumerate(own or names)]
    folded = [" ".join(name.split()).casefold() for name in listed]
    found = dict(doubted or {})
    for place, name in enumerate(folded):
        if folded.count(name) > 1 and (not own or listed.count(listed[place]) > 1):
            found[f"c{place}"] = "names of two columns differ by case or blanks alone, or not"
    ids = {name: f"c{place}" for place, name in enumerate(listed)}
    described = db.execute(f"describe {table}").fetchall()
    types = {str(row[0]): str(row[1]) for row in described if row[0] != "rn"}
    return Opened(db, table, ids, types, said, found)


def from_columns(
    db: Any, table: str, columns: Sequence[Sequence[Any]], rows: Sequence[int] | None = None
) -> None:
    """Make a table of Python values; `rows` are the rows' numbers in the file."""
    made = python_columns(columns, "c")
    if made.num_rows == 0:
        raise NotProvable("the original holds no rows")
    arrow = importlib.import_module("pyarrow")
    numbers = list(rows) if rows is not None else list(range(1, made.num_rows + 1))
    db.register("given", made.add_column(0, "rn", arrow.array(numbers, arrow.int64())))
    db.execute(f"create or replace table {table} as select * from given")
    db.unregister("given")


def python_columns(columns: Sequence[Sequence[Any]], letter: str) -> Any:
    """An Arrow table of Python values, its columns called by a letter and their place."""
    arrow = importlib.import_module("pyarrow")
    return arrow.table({f"{letter}{i}": _column(arrow, c) for i, c in enumerate(columns)})


def is_number_cell(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _column(arrow: Any, values: Sequence[Any]) -> Any:
    """A column of numbers alone, or of times alone, stays one; all else is text."""
    known = [v for v in values if v is not None]
    if known and all(map(is_number_cell, known)):
        whole = all(isinstance(v, int) for v in known)
        if whole and all(-(2**63) <= v < 2**63 for v in known):
            return arrow.array(values, arrow.int64())
        if all(isinstance(v, float) or abs(v) <= _EXACT for v in known):
            return arrow.array([None if v is None else float(v) for v in values], arrow.float64())
    elif known and all(isinstance(v, date) and not getattr(v, "tzinfo", None) for v in known):
        return arrow.array(values, arrow.timestamp("us"))
    return arrow.array([_word(v) for v in values], arrow.string())


def _word(value: Any) -> str | None:
    """A value beside others of another kind, as text. A number is written with an exponent, so that
    its point cannot be taken for a thousands mark."""
    if value is None:
        return None
    if isinstance(value, float):
        return f"{value:.17e}"
    return value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)


# --- whether every row is a case

_NUMBER = r"[+-]?[$€£]? ?(\d[\d., '\x{A0}\x{202F}]*|\.\d+)([eE][+-]?\d+)?( ?[%$€£])?"
NOTHING = ("", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none", r"\n", "nat")
# words that add up, alone in a cell
_TOTAL = (
    "(grand |sub-?|sub |general )?totals?|total g[eé]n[eé]ral|sum|summe|zwischensumme|gesamt|"
    "gesamtsumme|insgesamt|totaal|totale|somme|suma|soma|ensemble|both sexes|both genders|both|"
    "all (ages|sexes|genders|groups|regions|areas|types|years|classes|categories|countries|races)|"
    "合计|总计|小计|合計|総計|小計|итого|всего|聯合計|합계|총계"
)
# words that may also be one value among others
_MAYBE = "all|alle|overall|average|mean|mittelwert|durchschnitt|moyenne|media|promedio|combined"
_BEFORE = "(grand |sub-?|sub )?total|summe|gesamt|insgesamt|totaal|totale|somme|suma|итого|всего"
_SURE = re.compile(_TOTAL)
# of the last rows: words of figures over those above
_FIGURE = re.compile(
    r"(arithmetic |column )?(averages?|means?|medians?)|avg\.?|max(\.|imum|imal|imo)?|m[aá]ximo|"
    r"min(\.|imum|imal|imo)?|m[ií]nimo|std\.?( ?dev\.?)?|stdev|standard ?(deviation|abweichung)|"
    r"mittel(wert)?|durchschnitt|höchstwert|tiefstwert|moyenne|médiane?|m[eé]dia(na)?|massimo|"
    r"promedio|gemiddelde|среднее|медиана|максимум|минимум|平均[値值]?|最大[値值]?|最小[値值]?"
)
_LAST = 6  # rows at the end
_UNSURE = re.compile(rf"({_MAYBE})|({_BEFORE})[\s:,.-].*|.*[\s,(-]({_BEFORE})\)?", re.S)
_FEW = 60  # values of a column that divides the rows into groups
_VARIED = 8  # values of a column of measured numbers
_NEAR = 1e-9


def plain_rows(table: Opened) -> Opened:
    """The table without the rows that the user leaves out. Raises `NotProvable` for rows that may
    be no cases."""
    _drop_empty(table)
    _fill_down(table)
    _drop_where(table)
    _drop_duplicates(table)
    if table.one(f"select count(*) from {table.table}")[0] == 0:
        raise NotProvable("the original holds no rows")
    if table.said.dropped() is None:
        numbers, mixed = _numbers(table)
        _lone(table)
        _comments(table)
        _names_again(table)
        _words_for_numbers(table, numbers, mixed)
        _totals(table, numbers)
    _labels(table)
    return table


def _fill_down(table: Opened) -> None:
    """Empty cells of the columns that the user names get the value above. Raises `NotProvable`
    where a row that is left out stands above one."""
    for name in table.said.words("fill_down"):
        cell = table.column(name)
        for number in sorted(table.said.dropped() or ()):
            below = table.all(
                f"select {cell} is null from {table.table} where rn > {number} order by rn limit 1"
            )
            if below and below[0][0]:
                raise NotProvable(f"{name!r}: the value of a row below row {number} is left out")
        table.db.execute(
            f"create or replace table {table.table} as select * replace (last_value({cell} "
            f"ignore nulls) over (order by rn) as {cell}) from {table.table}"
        )


def _labels(table: Opened) -> None:
    """A first column with gaps in which no value follows itself may hold labels of several rows,
    and names no value until the user says what the gaps mean."""
    told = table.said.text("merged") or "fill_down" in table.said.given
    name = next((n for n, c in table.ids.items() if c == "c0"), "")
    if told or not name or table.said.missing(name) is not None:
        return
    rows, known, again = table.one(
        f"select (select count(*) from {table.table}), count(*), "
        "count(*) filter (where c0 = before) from (select c0, lag(c0) over (order by rn) as before "
        f"from {table.table} where c0 is not null)"
    )
    if rows >= _VARIED and 1 < known <= 0.8 * rows and not again:
        table.doubted["c0"] = "its values may stand for the rows below them as well"


def _drop_empty(table: Opened) -> None:
    filled = [
        f"({_bare(c)} is not null)" if c in table.texts() else f"({c} is not null)"
        for c in table.types
    ]
    table.db.execute(f"delete from {table.table} where not ({' or '.join(filled)})")


def _bare(cell: str) -> str:
    return f"nullif(trim({cell}, ' \t\n\r\f\v'), '')"


def _written(table: Opened, cell: str) -> str:
    """SQL for a cell as text without blanks around it; a whole number without its point."""
    kind = table.types[cell]
    if kind == "VARCHAR":
        return f"coalesce({_bare(cell)}, '')"
    if kind == "DOUBLE":
        whole = f"{cell} = round({cell}) and abs({cell}) < 1e15"
        cell = f"case when {whole} then {cell}::bigint::varchar else {cell}::varchar end"
    return f"coalesce(({cell})::varchar, '')"


def _drop_where(table: Opened) -> None:
    for name in table.said.of("drop_where"):
        values = [word.strip() for word in Said(table.said.of("drop_where")).words(name)]
        if values:
            cell = _written(table, table.column(name))
            listed = ", ".join(map(literal, values))
            table.db.execute(f"delete from {table.table} where {cell} in ({listed})")


def _drop_duplicates(table: Opened) -> None:
    names = table.said.words("drop_duplicates")
    if names:
        keys = ", ".join(_written(table, table.column(name)) for name in names)
        table.db.execute(
            f"delete from {table.table} where rn not in "
            f"(select min(rn) from {table.table} group by {keys})"
        )


def _numbers(table: Opened) -> tuple[dict[str, str], list[str]]:
    """The columns that hold numbers but for a few cells, and SQL for these: a text without its
    marks, which is enough to compare sums of one column. Then those of them with such cells."""
    found = {c: f"{c}::double" for c, kind in table.types.items() if is_number_type(kind)}
    texts, mixed = table.texts(), list[str]()
    if not texts:
        return found, mixed
    nothing = ", ".join(map(literal, NOTHING))
    counts = table.one(
        "select "
        + ", ".join(
            f"count(*) filter (where lower(coalesce({_bare(c)}, '')) not in ({nothing})), "
            f"count(*) filter (where regexp_full_match({_bare(c)}, {literal(_NUMBER)}))"
            for c in texts
        )
        + f" from {table.table}"
    )
    for place, cell in enumerate(texts):
        known, numbers = counts[2 * place], counts[2 * place + 1]
        if numbers >= 0.7 * known and numbers >= 3:
            digits = f"regexp_replace({cell}, '[^0-9.eE+-]', '', 'g')"
            found[cell] = f"try_cast({digits} as double)"
            mixed += [cell] if numbers < known else []
    return found, mixed


def is_number_type(kind: str) -> bool:
    return kind.lstrip("U").startswith(
        ("DOUBLE", "FLOAT", "BIGINT", "INTEGER", "SMALLINT", "TINYINT", "HUGEINT", "DECIMAL")
    )


def _refuse(table: Opened, test: str, why: str) -> None:
    row = table.one(f"select min(rn) from {table.table} where {test}")[0]
    if row is not None:
        raise NotProvable(f"row {row} {why}")


def _lone(table: Opened) -> None:
    if len(table.types) > 2:
        filled = " + ".join(f"({cell} is not null)::int" for cell in table.types)
        _refuse(table, f"({filled}) = 1", "is filled in one column alone, and may be no case")


def _comments(table: Opened) -> None:
    if table.types.get("c0") == "VARCHAR":
        mark = r"^\s*(#+\s|//|\*+\s|--\s)"
        rows, marked = table.one(
            f"select count(*), count(*) filter (where regexp_matches(c0, {literal(mark)})) "
            f"from {table.table}"
        )
        if 0 < marked < rows / 2:
            _refuse(table, f"regexp_matches(c0, {literal(mark)})", "may be a comment")


def _names_again(table: Opened) -> None:
    cells = {
        c: n for n, c in table.ids.items() if c in table.texts() and not n.startswith("Unnamed:")
    }
    if len(cells) > 1:
        equal = " + ".join(
            f"coalesce(lower({_bare(c)}) = lower({literal(' '.join(n.split()))}), false)::int"
            for c, n in cells.items()
        )
        _refuse(table, f"({equal}) * 2 >= {len(cells)}", "holds the names again")


def _words_for_numbers(table: Opened, numbers: dict[str, str], mixed: list[str]) -> None:
    """Units below the names, notes, the names of another table: words where numbers stand else, in
    columns that are `mixed`."""
    if not mixed:
        return
    nothing = ", ".join(map(literal, NOTHING))
    numeric = "coalesce(regexp_full_match({}, {}), false)"
    number = {
        c: numeric.format(_bare(c), literal(_NUMBER)) if c in table.texts() else f"{c} is not null"
        for c in numbers
    }
    words = " + ".join(
        f"(not {number[c]} and lower(coalesce({_bare(c)}, '')) not in ({nothing}))::int"
        for c in mixed
    )
    odd = f"(select rn, words from (select *, {words} as words from {table.table}) where words > 0)"
    ends = f"rn in ((select min(rn) from {table.table}), (select max(rn) from {table.table}))"
    rows = table.all(f"select rn from {odd} where words >= 2 or {ends} order by rn limit 200")
    listed = ", ".join(str(rn) for (rn,) in rows)
    if rows:
        test = f"rn in ({listed}) and not ({' or '.join(number.values())})"
        _refuse(table, test, "has words where the others have numbers")


def _totals(table: Opened, numbers: dict[str, str]) -> None:
    settled = {table.column(name) for name in table.said.of("drop_where")}
    made = [f"{value} as v{i}" for i, value in enumerate(numbers.values())]
    columns = ", ".join(["rn", *table.texts(), *made])  # what is a number is found out once
    table.db.execute(f"create or replace temp table summed as select {columns} from {table.table}")
    table = replace(table, table="summed")
    numbers = {cell: f"v{i}" for i, cell in enumerate(numbers)}
    measured = _measured(table, numbers)
    for cell in table.texts():
        if cell in settled or cell in numbers:
            continue
        bare = f"lower({_bare(cell)})"
        values = [str(v) for (v,) in table.all(f"select distinct {bare} from {table.table}") if v]
        why = "may add up other rows, by its words"
        if sure := [v for v in values if _SURE.fullmatch(v)]:
            _refuse(table, f"{bare} in ({', '.join(map(literal, sure))})", why)
        if figures := [v for v in values if _FIGURE.fullmatch(v.strip(" :.=-*"))]:
            listed = ", ".join(map(literal, figures))
            last = f"rn in (select rn from {table.table} order by rn desc limit {_LAST})"
            _refuse(table, f"{bare} in ({listed}) and {last}", "may be a figure over those above")
        if beside := [v for v in values if _UNSURE.fullmatch(v)]:
            listed = ", ".join(map(literal, beside))
            odd = f"({_open(table, cell)} or {_highest(table, numbers)})"
            _refuse(table, f"{bare} in ({listed}) and {odd}", why)
        if 3 <= len(values) <= _FEW and measured:
            _groups_that_add_up(table, cell, measured)
    _last_row_adds_up(table, measured)


def _open(table: Opened, cell: str) -> str:
    """SQL: whether another column of words is empty in the row, though not in most."""
    others = [c for c in table.texts() if c != cell]
    tests: list[str] = []
    for other in others:
        filled = table.one(f"select count({other}) >= 0.8 * count(*) from {table.table}")[0]
        if filled:
            tests.append(f"{_bare(other)} is null")
    return f"({' or '.join(tests)})" if tests else "false"


def _highest(table: Opened, numbers: dict[str, str]) -> str:
    """SQL: whether no row has higher numbers in most columns."""
    tests = [f"({v} = (select max({v}) from {table.table}))::int" for v in numbers.values()]
    return f"({' + '.join(tests)}) * 2 > {len(tests)}" if tests else "false"


def _measured(table: Opened, numbers: dict[str, str]) -> list[str]:
    """SQL for the columns whose numbers vary; a total cannot be told in others."""
    if not numbers:
        return []
    values = list(numbers.values())
    varied = table.one(
        f"select {', '.join(f'count(distinct {v})' for v in values)} from {table.table}"
    )
    return [v for v, count in zip(values, varied, strict=True) if count >= _VARIED]


def _half(part: float | None, whole: float | None) -> bool:
    """Whether a part is as much as all the rest."""
    if not part or whole is None:
        return False
    return abs(2 * part - whole) <= _NEAR * abs(whole)


def _groups_that_add_up(table: Opened, cell: str, measured: Sequence[str]) -> None:
    """Rows of one value that add up those of all others, in most columns that are measured."""
    sums = ", ".join(f"sum({v})" for v in measured)
    groups = table.all(f"select {cell}, {sums} from {table.table} group by {cell} order by {cell}")
    columns = list(zip(*groups, strict=True))[1:]
    wholes = [sum(v for v in column if v is not None) for column in columns]
    for name, *parts in groups:
        adds = sum(map(_half, parts, wholes))
        if name is not None and 2 * adds > len(measured):
            raise NotProvable(f"the rows of {name!r} add up all others")


def _last_row_adds_up(table: Opened, measured: Sequence[str]) -> None:
    if not measured:
        return
    last = table.one(f"select max(rn) from {table.table}")[0]
    pairs = ", ".join(f"max({v}) filter (where rn = {last}), sum({v})" for v in measured)
    found = table.one(f"select {pairs} from {table.table}")
    adds = sum(map(_half, found[::2], found[1::2]))
    if adds * 2 > len(measured):
        raise NotProvable("the last row adds up all others")
