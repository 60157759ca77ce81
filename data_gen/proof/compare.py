# duckdb and pyarrow ship partial types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Rows that two computations gave, side by side; and the files of a database as DuckDB tables.

A csv file's cells are text, of which only the empty one is missing; parquet and SQLite keep their
types. Tables of one SQLite file are joined on `row_id`.
"""

from __future__ import annotations

import csv
import io
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data_gen.proof.original import ident, python_columns

CLOSE = 1e-12  # relative; readers of text may differ in a number's last bit


class Differs(ValueError):
    """The second computation gives something else."""


@dataclass(frozen=True)
class Column:
    """A column of the comparison: its name, and SQL for its cells on both sides. Cells are numbers,
    or words."""

    name: str
    numeric: bool
    second: str
    first: str


def same(one: str, other: str, numeric: bool) -> str:
    """SQL: whether two cells hold the same."""
    if not numeric:
        return f"({one} is not distinct from {other})"
    near = f"abs({one} - {other}) <= {CLOSE} * abs({other})"
    return f"(({one} is null and {other} is null) or coalesce({near}, false))"


def all_same(columns: Sequence[tuple[int, Column]], one: str, other: str) -> str:
    """SQL: whether all these columns, `v0` to `vN` of two tables, hold the same."""
    parts = [same(f"{one}.v{i}", f"{other}.v{i}", c.numeric) for i, c in columns]
    return " and ".join(parts) or "true"


def row_hash(columns: Sequence[tuple[int, Column]], exact: bool = False) -> str:
    """SQL: a number that equal rows share. Unless `exact`, numbers are cut to single precision, so
    that a last bit does not part them."""
    cells = [
        f"(v{i} + 0.0){'' if exact else '::float'}" if c.numeric else f"v{i}" for i, c in columns
    ]
    return f"hash({', '.join(cells)})" if cells else "0::ubigint"


def shown(value: Any) -> str:
    """A cell, for a message."""
    if value is None:
        return "nothing"
    return f"{value:.15g}" if isinstance(value, float) else repr(value)


def difference(second: Any, what: str, first: Any) -> Differs:
    return Differs(
        f"the second computation gives {shown(second)} for {what}, the task has {shown(first)}"
    )


def by_place(db: Any, columns: Sequence[Column], second: str, first: str, what: str) -> None:
    """Raise `Differs` unless two tables (`pos` and `v0` to `vN` each) hold the same rows in the
    same order."""
    counts = [int(db.execute(f"select count(*) from {t}").fetchone()[0]) for t in (second, first)]
    if counts[0] != counts[1]:
        raise difference(counts[0], f"the number of rows of {what}", counts[1])
    joined = f"{second} a join {first} b using (pos)"
    no_odd_cell(db, list(enumerate(columns)), "a.pos", joined, f"in row {{}} of {what}")


def no_odd_cell(
    db: Any, columns: Sequence[tuple[int, Column]], name: str, joined: str, where: str
) -> None:
    """Raise `Differs` for the first pair of joined rows `a` (second) and `b` (first) whose columns
    do not hold the same; `name`: SQL for what a row is called."""
    shown = [f"a.v{i}, b.v{i}, {same(f'a.v{i}', f'b.v{i}', c.numeric)}" for i, c in columns]
    row = db.execute(
        f"select {name}, {', '.join(shown)} from {joined} "
        f"where not ({all_same(columns, 'a', 'b')}) order by {name} limit 1"
    ).fetchone()
    if row is None:
        return
    for place, (_, column) in enumerate(columns):
        second, first, equal = row[1 + 3 * place : 4 + 3 * place]
        if not equal:
            raise difference(second, f"{column.name!r} {where.format(row[0])}", first)


# --- the files of a database as they are shipped ---


@dataclass(frozen=True)
class Sheet:
    """A shipped table: `pos` is the row's place; `ids` and `types` say in which column each name
    stands and what DuckDB holds there."""

    table: str
    ids: Mapping[str, str]
    types: Mapping[str, str]

    def called(self, alias: str) -> Sheet:
        """The same for a query that gives the table another name."""
        return replace(self, ids={name: f"{alias}.{cell}" for name, cell in self.ids.items()})

    def number(self, name: str) -> str:
        """SQL for a cell as a number."""
        cell = self.ids[name]
        if self.types[name] == "VARCHAR":
            return f"try_cast({cell} as double)"
        return f"nullif({cell}::double, 'nan')"

    def words(self, name: str) -> str:
        """SQL for a cell as text, as it is; a whole number without its point."""
        cell = self.ids[name]
        if self.types[name] != "DOUBLE":
            return f"{cell}::varchar"
        whole = f"{cell} = round({cell})"
        return f"case when {whole} then {cell}::bigint::varchar else {cell}::varchar end"


def put(db: Any, table: str, name: str, data: bytes) -> Sheet:
    """Load a shipped file into `table`, replacing what was there."""
    kind = Path(name).suffix
    if kind == ".sqlite":
        return _sqlite(db, table, data)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t{kind}"
        path.write_bytes(data)
        if kind == ".parquet":
            names = [str(r[0]) for r in db.execute(f"describe select * from '{path}'").fetchall()]
            cells = [f"{ident(n)} as s{i}" for i, n in enumerate(names)]
            source = f"select {', '.join(cells)} from read_parquet('{path}')"
        else:
            names = next(csv.reader(io.StringIO(data.decode("utf-8"), newline="")))
            cells = [f"'s{i}': 'VARCHAR'" for i in range(len(names))]
            source = (
                f"select * from read_csv('{path}', auto_detect=false, header=true, delim=',', "
                f"quote='\"', escape='\"', nullstr='', columns={{{', '.join(cells)}}}, "
                "parallel=false, max_line_size=10000000)"
            )
        _make(db, table, source)
    return _sheet(db, table, names)


def _make(db: Any, table: str, source: str) -> None:
    db.execute(
        f"create or replace temp table {table} as "
        f"select row_number() over () pos, * from ({source})"
    )


def _sheet(db: Any, table: str, names: Sequence[str]) -> Sheet:
    held = {str(r[0]): str(r[1]) for r in db.execute(f"describe {table}").fetchall()}
    ids = {name: f"s{i}" for i, name in enumerate(names)}
    return Sheet(table, ids, {name: held[cell] for name, cell in ids.items()})


def _sqlite(db: Any, table: str, data: bytes) -> Sheet:
    held = sqlite3.connect(":memory:")
    held.deserialize(data)
    try:
        listed = held.execute("select name from sqlite_master where type='table' order by name")
        parts = [ident(str(r[0])) for r in listed.fetchall()]
        joined = parts[0] + "".join(f" join {part} using (row_id)" for part in parts[1:])
        order = " order by row_id" if len(parts) > 1 else ""
        found = held.execute(f"select * from {joined}{order}")
        names = [str(item[0]) for item in found.description]
        columns = list(zip(*found.fetchall(), strict=True)) or [() for _ in names]
    finally:
        held.close()
    db.execute("select 1").fetchall()  # an answer not read to its end lets nothing be registered
    db.register("given", python_columns(columns, "s"))
    _make(db, table, "select * from given")
    db.unregister("given")
    return _sheet(db, table, names)


# --- rows: each is looked up in the original by its features; where it stands, its targets must ---

SAMPLED = 4000  # rows of an original above which the builder takes a sample
LITTLE = 300  # rows of a short task, which takes that many


def stage(
    db: Any, name: str, place: str, columns: Sequence[Column], source: str, first: bool
) -> None:
    """Make a table `name` of `pos` (the SQL `place`) and one side's cells, `v0` to `vN`."""
    cells = [f"{c.first if first else c.second} as v{i}" for i, c in enumerate(columns)]
    db.execute(
        f"create or replace temp table {name} as select {place} as pos, {', '.join(cells)} {source}"
    )


def same_rows(db: Any, columns: Sequence[Column], targets: int) -> None:
    """Raise `Differs` unless the rows of `have` are rows of `want`: the first `targets` columns of
    each row are what `want` holds where its other columns stand first, and `want` has no further
    rows unless it is so large that a sample was taken."""
    listed = list(enumerate(columns))
    goals, features = listed[:targets], listed[targets:]
    known = " and ".join(f"v{i} is not null" for i, _ in goals)
    key = row_hash(features)
    db.execute(
        "create or replace temp table met as "
        f"with w as (select *, {key} as k from want where {known}), "
        f"h as (select *, {key} as k from have) "
        f"select h.pos, min(w.pos) filter (where {all_same(features, 'h', 'w')}) as found, "
        f"min(w.pos) filter (where {all_same(listed, 'h', 'w')}) as whole "
        "from h left join w using (k) group by h.pos"
    )
    lost = db.execute("select min(pos) from met where found is null").fetchone()[0]
    if lost is not None:
        raise _nearest(db, listed, int(lost))
    held, sampled = _complete(db, features, known)
    test = "whole is null" if sampled else "whole is distinct from found"
    pairs = f"(select * from met where {test}) m join have b using (pos) join want a"
    no_odd_cell(db, goals, "b.pos", f"{pairs} on a.pos = m.found", "in row {}")
    if sampled:
        _missing_kept(db, features, known, held)


def _cell(db: Any, table: str, place: int, pos: int) -> Any:
    return db.execute(f"select v{place} from {table} where pos = {pos}").fetchone()[0]


def _complete(db: Any, features: Sequence[tuple[int, Column]], known: str) -> tuple[int, bool]:
    """(rows of the task, whether they are a sample); raises `Differs` where rows are missing, or
    stand twice."""
    exact = row_hash(features, exact=True)
    held, different = db.execute(f"select count(*), count(distinct {exact}) from have").fetchone()
    if held != different:
        raise difference(different, "the number of rows with features of their own", held)
    whole, wanted = db.execute(
        f"select count(*), count(distinct {exact}) filter (where {known}) from want"
    ).fetchone()
    if held == wanted:
        return int(held), False
    if held > wanted or (whole <= SAMPLED and held != LITTLE):
        raise difference(wanted, "the number of rows", held)
    return int(held), True


def _missing_kept(db: Any, features: Sequence[tuple[int, Column]], known: str, held: int) -> None:
    """A sample must hold about as many different rows, and of them about as many with missing
    values, as a draw of its size gives."""
    gaps = " or ".join(f"v{i} is null" for i, _ in features) or "false"
    whole, open_ = db.execute(
        f"select sum(1 - pow(1 - p, n)), sum((1 - pow(1 - p, n)) * gaps) from (select "
        f"least(1.0, {SAMPLED} / (select count(*) from want)) as p, count(*) as n, "
        f"max(({gaps})::int) as gaps from want where {known} "
        f"group by {row_hash(features, exact=True)})"
    ).fetchone()
    if held != LITTLE and abs(whole - held) > 10 * whole**0.5:
        raise difference(round(whole), "the number of rows of a sample, about", held)
    share = open_ / whole
    mine = db.execute(f"select avg(({gaps})::int) from have").fetchone()[0]
    spread = (share * (1 - share) / held) ** 0.5 + 1 / held
    if abs(share - mine) > 8 * spread:
        raise Differs(
            f"the second computation gives {share:.3f} for the share of rows with missing values, "
            f"the task has {mine:.3f}"
        )


def _nearest(db: Any, listed: Sequence[tuple[int, Column]], pos: int) -> Differs:
    """What is odd about a row that the original does not hold."""
    row = f"(select * from have where pos = {pos}) h"
    for i, column in listed:
        others = [pair for pair in listed if pair[0] != i]
        found = db.execute(
            f"select w.v{i} from want w, {row} where {all_same(others, 'h', 'w')} "
            "order by w.pos limit 1"
        ).fetchone()
        if found is not None:
            return difference(found[0], f"{column.name!r} in row {pos}", _cell(db, "have", i, pos))
    for i, column in listed:
        agree = same(f"h.v{i}", f"w.v{i}", column.numeric)
        if not db.execute(f"select count(*) from want w, {row} where {agree}").fetchone()[0]:
            value = _cell(db, "have", i, pos)
            return difference(None, f"{column.name!r} in row {pos}", value)
    return Differs(f"the second computation gives no row like row {pos}")
