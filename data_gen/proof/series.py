"""A time-series database computed a second time: its rows, its cut, its bins, its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from data_gen.proof.compare import (
    Column,
    Differs,
    Sheet,
    by_place,
    difference,
    no_odd_cell,
    put,
    row_hash,
)
from data_gen.proof.marks import number, tidy_words, time, words
from data_gen.proof.original import NotProvable, Opened

Recipe = Mapping[str, Any]
# rule → SQL for the start of t's bin, its length, and its name
_BINS = {
    "1min": ("date_trunc('minute', t)", "interval 1 minute", "start"),
    "30min": ("time_bucket(interval 30 minute, t)", "interval 30 minute", "start"),
    "1H": ("date_trunc('hour', t)", "interval 1 hour", "start"),
    "1D": ("date_trunc('day', t)", "interval 1 day", "start"),
    "1W": ("date_trunc('week', t)", "interval 7 day", "start + interval 6 day"),
    "1M": (
        "date_trunc('month', t)",
        "interval 1 month",
        "start + interval 1 month - interval 1 day",
    ),
}
_CALLS = {"mean": "favg(y)", "sum": "fsum(y)", "count": "count(y)::double"}


def check_series(table: Opened, files: Mapping[str, bytes], recipe: Recipe) -> None:
    """Raise `Differs` or `NotProvable` unless both answers of the database come out again."""
    db, form = table.db, str(recipe["time_format"])
    keys, target = [str(k) for k in recipe["entity_columns"]], str(recipe["target"][0])
    names = [*keys, target, *(n for n in recipe["related_features"] if n not in keys)]
    when = time(table, str(recipe["time_column"]))
    mine: list[Column] = [Column(str(recipe["time_column"]), False, "", "")]
    cells: list[str] = []
    for name in names:
        numeric = recipe["column_type_inference"][name] == "numerical"
        mine.append(Column(name, numeric, "", ""))
        cells.append(number(table, name) if numeric else words(table, name))
    written = f"strftime({when}, '{form}')"
    listed = ", ".join(f"{cell} as v{i}" for i, cell in enumerate([written, *cells]))
    db.execute(
        f"create or replace temp table want as select rn as pos, {when} as t, {listed} "
        f"from {table.table} where {when} is not null"
    )
    train = _joined(db, files, mine, recipe, "train")
    asked = _joined(db, files, mine, recipe, "val")
    db.execute(
        f"create or replace temp table have as select 0 as late, {train} "
        f"union all select 1 as late, {asked}"
    )
    width = 1 + len(keys)
    _match(db, mine, width, "want", "have", "the rows")
    cut = _cut(db, mine, width, str(recipe["prediction_starting_time"]))
    _forecast(db, files, recipe, mine[: width + 1], cut)


def _joined(
    db: Any, files: Mapping[str, bytes], columns: Sequence[Column], recipe: Recipe, part: str
) -> str:
    """SQL for the rows of the training or the later part, `v0` to `vN`, whichever file of the
    database a column stands in."""
    name = "train" if part == "train" else "val_v1"
    sheets = [put(db, f"{part}_0", f"{name}.csv", files[f"source/{name}.csv"]).called(f"{part}_0")]
    source = f"{part}_0"
    links = [str(recipe["time_column"]), *map(str, recipe["entity_columns"])]
    more = [f"covariates_{part}.csv", "entities.csv"]
    if part == "val":
        more.insert(0, "ground_truth_v1.csv")
    for number_, file in enumerate(more, 1):
        home = "verify" if file.startswith("ground") else "source"
        if f"{home}/{file}" not in files:
            continue
        alias = f"{part}_{number_}"
        sheet = put(db, alias, file, files[f"{home}/{file}"])
        on = ["row_id"] if home == "verify" else links[1:] if file.startswith("ent") else links
        once = ", ".join(sheet.ids[n] for n in on)
        if db.execute(f"select count(*) - count(distinct ({once})) from {alias}").fetchone()[0]:
            raise Differs(f"the second computation finds a row of {file} twice")
        sheet = sheet.called(alias)
        test = " and ".join(f"{sheets[0].ids[n]} is not distinct from {sheet.ids[n]}" for n in on)
        source += f" join {alias} on {test}"
        sheets.append(sheet)
    cells: list[str] = []
    for place, column in enumerate(columns):
        home = next((s for s in sheets if column.name in s.ids), None)
        if home is None:
            raise Differs(f"no file of the {part} part holds {column.name!r}")
        cells.append(f"{_cell(home, column, timed=place == 0)} as v{place}")
    rows = db.execute(f"select (select count(*) from {part}_0), count(*) from {source}").fetchone()
    if rows[0] != rows[1]:
        raise difference(rows[1], f"the rows of the {part} part that all its files hold", rows[0])
    return f"{part}_0.pos, {', '.join(cells)} from {source}"


def _cell(sheet: Sheet, column: Column, timed: bool) -> str:
    if column.numeric:
        return sheet.number(column.name)
    return sheet.words(column.name) if timed else tidy_words(sheet.words(column.name))


def _match(
    db: Any, columns: Sequence[Column], width: int, second: str, first: str, what: str
) -> None:
    """Raise `Differs` unless two tables hold the same rows: the first `width` columns name a row,
    its moment as it is written first."""
    listed = list(enumerate(columns))
    key = row_hash(listed[:width])
    for table, whose in ((second, "the original's"), (first, "the task's")):
        total, different = db.execute(
            f"select count(*), count(distinct {key}) from {table}"
        ).fetchone()
        if total != different:
            raise Differs(
                f"{whose} times and entities, as written, name {total - different} rows twice"
            )
    lost = db.execute(
        f"select a.v0, b.v0 from (select *, {key} as k from {second}) a full join "
        f"(select *, {key} as k from {first}) b using (k) where a.v0 is null or b.v0 is null "
        "order by coalesce(a.v0, b.v0) limit 1"
    ).fetchone()
    if lost is not None:
        raise difference(lost[0], f"a time of {what}", lost[1])
    one, other = (f"(select *, {key} as k from {table})" for table in (second, first))
    no_odd_cell(db, listed, "a.v0", f"{one} a join {other} b using (k)", "at {}")


def _cut(db: Any, columns: Sequence[Column], width: int, said: str) -> str:
    """The cut as SQL; every training row is before it, and every later row is not."""
    key = row_hash(list(enumerate(columns))[:width])
    cut = f"timestamp '{said}'"
    early, late = db.execute(
        f"select count(*) filter (where h.late = 0 and w.t >= {cut}), "
        f"count(*) filter (where h.late = 1 and w.t < {cut}) from "
        f"(select *, {key} as k from want) w join (select *, {key} as k from have) h using (k)"
    ).fetchone()
    if early or late:
        raise Differs(
            f"the second computation finds {early + late} rows on the wrong side of {said}"
        )
    return cut


def _forecast(
    db: Any, files: Mapping[str, bytes], recipe: Recipe, columns: Sequence[Column], cut: str
) -> None:
    """The answers without covariates: the later values, or the bins that begin after the cut."""
    sheet = put(db, "forecast", "ground_truth_v2.csv", files["verify/ground_truth_v2.csv"])
    cells = [f"{_cell(sheet, c, timed=i == 0)} as v{i}" for i, c in enumerate(columns)]
    db.execute(f"create or replace temp table said as select pos, {', '.join(cells)} from forecast")
    wide = len(columns) - 1
    names = ", ".join(f"v{i}" for i in range(wide))
    if recipe["resample"] is None:
        db.execute(
            f"create or replace temp table told as select {names}, v{wide} "
            f"from want where t >= {cut}"
        )
    else:
        _bins(db, recipe, wide, cut)
    _match(db, columns, wide, "told", "said", "the forecast")
    _asked(db, files, columns[:wide])


def _bins(db: Any, recipe: Recipe, wide: int, cut: str) -> None:
    """Table `told`: each entity's bins that begin at the cut or later and end within the data. A
    bin without rows counts 0; it has no mean and no sum."""
    rule, how = (str(part) for part in recipe["resample"])
    if rule not in _BINS or how not in _CALLS:
        raise NotProvable(f"resampling to {rule!r} by {how!r}")
    start, length, label = _BINS[rule]
    keys = [f"v{i}" for i in range(1, wide)]
    by = ", ".join(["start", *keys])
    db.execute(
        f"create or replace temp table binned as select {by}, {_CALLS[how]} as y from "
        f"(select *, {start} as start, v{wide} as y from want) group by {by}"
    )
    if how == "count":
        _filled(db, keys, length)
    moved = "".join(f"{key}, " for key in keys)
    db.execute(
        f"create or replace temp table told as select strftime({label}, '{recipe['time_format']}') "
        f"as v0, {moved}y as v{wide} from binned where start >= {cut} "
        f"and start + {length} <= timestamp '{recipe['resample_until']}'"
    )


def _filled(db: Any, keys: Sequence[str], length: str) -> None:
    """Add the bins without rows to `binned`, between the first and the last of each entity."""
    listed = "".join(f"{key}, " for key in keys)
    grouped = f"group by {', '.join(keys)}" if keys else ""
    on = " and ".join(["a.start = b.start", *(f"a.{k} is not distinct from b.{k}" for k in keys)])
    chosen = "".join(f"a.{key}, " for key in keys)
    db.execute(
        f"create or replace temp table binned as select {chosen}a.start, coalesce(b.y, 0) as y "
        f"from (select {listed}unnest(generate_series(min(start), max(start), {length})) as start "
        f"from binned {grouped}) a left join binned b on {on}"
    )


def _asked(db: Any, files: Mapping[str, bytes], columns: Sequence[Column]) -> None:
    """The rows that are asked are those of the answer, in its order."""
    sheet = put(db, "asked", "val_v2.csv", files["source/val_v2.csv"])
    cells = [f"{_cell(sheet, c, timed=i == 0)} as v{i}" for i, c in enumerate(columns)]
    db.execute(f"create or replace temp table wanted as select pos, {', '.join(cells)} from asked")
    by_place(db, columns, "wanted", "said", "val_v2.csv")
