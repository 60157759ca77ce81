# scikit-learn ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Every gold of a database a second time, from the original file, in SQL (docs/tables.md).

The first computation reads a table with pandas and works on frames. This one shares neither reader
nor code with it: DuckDB reads the original and the files as they are shipped; every statement is
made from the recipe. Of a class or reg database its rows, its filter and its answers are computed
again; of a time series its rows, its cut, its bins and its answers.
"""

from __future__ import annotations

import atexit
import importlib
import json
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from data_gen.certificate import DIFFERS, UNPROVABLE, Refused
from data_gen.proof.compare import (
    Column,
    Differs,
    Sheet,
    by_place,
    difference,
    no_odd_cell,
    put,
    row_hash,
    same_rows,
    stage,
)
from data_gen.proof.forms import opened
from data_gen.proof.marks import number, tidy_words, time, words
from data_gen.proof.original import NOTHING, NotProvable, Opened, Original, literal
from rewards.dare.score import TableGold, score_table

Recipe = Mapping[str, Any]  # of a database, as its files tell it


def prove(original: Original | None, files: Mapping[str, bytes]) -> None:
    """Raise `Refused` unless every gold of a database comes out again from the original. `files`
    are the bytes to be shipped, by their place in the database."""
    recipe: dict[str, Any] = json.loads(files["verify/all_metadata.json"])["question"]
    try:
        if original is None:
            raise NotProvable("the source names no original file")
        table = _opened(original)
        if isinstance(table, NotProvable):
            raise table
        if recipe["problem_type"] == "time_series_analysis":
            check_series(table, files, recipe)
        else:
            check_tabular(table, files, recipe)
    except NotProvable as error:
        raise Refused(UNPROVABLE, f"not provable: {error}") from None
    except Differs as error:
        raise Refused(DIFFERS, str(error)) from None


@lru_cache(maxsize=1)
def _opened(original: Original) -> Opened | NotProvable:
    """One table gives several databases, one after the other."""
    try:
        return opened(original)
    except NotProvable as error:
        return error


# A connection that is alive when Python ends makes DuckDB print a page about leaked objects.
atexit.register(_opened.cache_clear)


# --- class and reg: rows, filter, variants


Held = Mapping[str, Sheet]
_FILES = {  # table → the file of a database that it is loaded from
    "noisy": "train_v1",
    "clean": "train_v1_no_err",
    "asked": "val_v1",
    "train": "train_v2",
    "test": "val_v2",
}


def check_tabular(table: Opened, files: Mapping[str, bytes], recipe: Recipe) -> None:
    """Raise `Differs` or `NotProvable` unless every gold of the database comes out again."""
    kind = recipe["save_file_type"]
    places = {name: f"source/{file}.{kind}" for name, file in _FILES.items()}
    places["truth"] = "verify/ground_truth.csv"
    held = {name: put(table.db, name, place, files[place]) for name, place in places.items()}
    _rows(table, held, recipe)
    _variants(table.db, held, recipe)
    _filter(table.db, held, recipe)
    answer = files.get("verify/simulated_pred_local.csv")
    if answer is not None:  # else there is no IF variant
        known = facts(table.db, held["clean"], recipe)
        check_answer(table.db, (held["clean"], held["asked"]), recipe, known, answer)


def _numeric(recipe: Recipe, name: str) -> bool:
    return recipe["column_type_inference"][name] == "numerical"


def _rows(table: Opened, held: Held, recipe: Recipe) -> None:
    """The rows of training and test, targets included, against the original file."""
    targets = list(recipe["target"])
    names = [*targets, *recipe["related_features"]]
    db = table.db
    test, truth = held["test"].called("t"), held["truth"].called("g")
    columns: list[Column] = []  # `second` of the original, `first` of the training table
    tested: list[str] = []
    for name in names:
        other, numeric = truth if name in targets else test, _numeric(recipe, name)
        if numeric:
            columns.append(Column(name, True, number(table, name), held["train"].number(name)))
            tested.append(other.number(name))
        else:
            kept = _categories(table, name, held["train"])
            made = words(table, name)
            if kept:
                made = tidy_words(table.column(name), kept)
            columns.append(Column(name, False, made, tidy_words(held["train"].words(name), kept)))
            tested.append(tidy_words(other.words(name), kept))
    stage(db, "want", "rn", columns, f"from {table.table}", first=False)
    train = ", ".join(f"{c.first} as v{i}" for i, c in enumerate(columns))
    asked = ", ".join(f"{cell} as v{i}" for i, cell in enumerate(tested))
    ids = f"{test.ids['row_id']}::bigint = {truth.ids['row_id']}::bigint"
    rows = db.execute("select (select count(*) from test), (select count(*) from truth)").fetchone()
    if rows[0] != rows[1]:
        raise difference(rows[0], "the number of rows to predict", rows[1])
    db.execute(
        f"create or replace temp table have as select pos, {train} from train union all "
        f"select (select count(*) from train) + t.pos, {asked} from test t join truth g on {ids}"
    )
    whole = db.execute(
        "select (select count(*) from train) + (select count(*) from test), count(*) from have"
    ).fetchone()
    if whole[0] != whole[1]:
        raise difference(whole[0], "the number of rows with an answer", whole[1])
    same_rows(db, columns, len(targets))


def _categories(table: Opened, name: str, train: Sheet) -> list[str]:
    """Words that may mean no value, but are categories throughout the task: then they are so in
    the original as well."""
    bare = f"lower(trim({train.words(name)}))"
    found = table.db.execute(f"select distinct {bare} from {train.table}").fetchall()
    return [row[0] for row in found if row[0] in NOTHING]


def _sides(recipe: Recipe, names: list[str], one: Sheet, other: Sheet) -> list[Column]:
    """The same columns of two shipped tables."""
    return [
        Column(n, True, one.number(n), other.number(n))
        if _numeric(recipe, n)
        else Column(n, False, one.words(n), other.words(n))
        for n in names
    ]


def _variants(db: Any, held: Held, recipe: Recipe) -> None:
    """The files of the IF variant hold the same rows, in the same order, as those of MM."""
    kept = list(recipe["not_filtered_related_features"])
    for one, other, names in (
        (held["train"], held["clean"], [*recipe["target"], *kept]),
        (held["test"], held["asked"], kept),
    ):
        columns = _sides(recipe, names, one, other)
        stage(db, "a", "pos", columns, f"from {one.table}", first=False)
        stage(db, "b", "pos", columns, f"from {other.table}", first=True)
        by_place(db, columns, "a", "b", f"the files of {other.table} rows")
    for sheet in (held["test"], held["asked"], held["truth"]):
        odd = db.execute(
            f"select pos, {sheet.ids['row_id']} from {sheet.table} "
            f"where {sheet.ids['row_id']}::bigint != pos order by pos limit 1"
        ).fetchone()
        if odd is not None:
            raise difference(odd[0], f"row_id in row {odd[0]} of {sheet.table}", odd[1])


def in_ranges(sheet: Sheet, recipe: Recipe) -> str:
    """SQL: the condition that keeps a row. Both ends are allowed, and so is what is missing."""
    tests: list[str] = []
    for name, allowed in recipe["expected_ranges"].items():
        if _numeric(recipe, name):
            cell = sheet.number(name)
            low, high = (repr(float(bound)) for bound in allowed)
            tests.append(f"({cell} is null or {cell} between {low}::double and {high}::double)")
        else:
            cell = sheet.words(name)
            listed = ", ".join("'" + str(a).replace("'", "''") + "'" for a in allowed)
            tests.append(f"({cell} is null or {cell} in ({listed}))")
    return " and ".join(tests) or "true"


def _filter(db: Any, held: Held, recipe: Recipe) -> None:
    """Filtering the rows with noise gives the clean rows; each range removes rows that no other
    does."""
    names = [*recipe["target"], *recipe["not_filtered_related_features"]]
    columns = _sides(recipe, names, held["noisy"], held["clean"])
    kept = "from noisy where " + in_ranges(held["noisy"], recipe)
    stage(db, "a", "row_number() over (order by pos)", columns, kept, first=False)
    stage(db, "b", "pos", columns, "from clean", first=True)
    by_place(db, columns, "a", "b", "the filtered rows")
    ranges = recipe["expected_ranges"]
    mine = db.execute("select count(*) from a").fetchone()[0]
    for name in ranges:
        others = {**recipe, "expected_ranges": {n: r for n, r in ranges.items() if n != name}}
        kept = in_ranges(held["noisy"], others)
        if db.execute(f"select count(*) from noisy where {kept}").fetchone()[0] == mine:
            raise difference(0, f"the rows that the range of {name!r} alone removes", "some")


# --- the answer of IF: filled, standardised, encoded in SQL; scikit-learn for the model alone ---

_HOMES = {
    "sklearn.linear_model": ("LogisticRegression", "LinearRegression", "Ridge", "Lasso"),
    "sklearn.naive_bayes": ("GaussianNB",),
    "sklearn.svm": ("LinearSVC",),
    "sklearn.tree": ("DecisionTreeClassifier", "DecisionTreeRegressor"),
    "sklearn.neural_network": ("MLPClassifier", "MLPRegressor"),
}
_WRAPPED = ("LogisticRegression", "GaussianNB", "LinearSVC")
_UNSEEDED = ("GaussianNB", "LinearRegression")
Facts = dict[str, Any]


def facts(db: Any, clean: Sheet, recipe: Recipe) -> Facts:
    """What the reference must have learnt before its model, by SQL over the clean rows: for each
    numeric feature what fills it, its mean and its population deviation; for each other one what
    fills it and its categories in order."""
    numeric: dict[str, list[float]] = {}
    other: dict[str, list[Any]] = {}
    for name in recipe["selected_features"]:
        if recipe["column_type_inference"][name] == "numerical":
            cell = clean.number(name)
            fill = _fill(db, clean, cell, str(recipe["imputer_type"]))
            if fill is None:
                raise Differs(f"the second computation gives nothing to fill {name!r} with")
            full = f"coalesce({cell}, {fill!r}::double)"
            mean, spread = db.execute(
                f"select favg({full}), stddev_pop({full}) from {clean.table}"
            ).fetchone()
            numeric[name] = [float(fill), float(mean), float(spread)]
        else:
            cell = clean.words(name)
            fill = _fill(db, clean, cell, "most_frequent")
            full = f"coalesce({cell}, {literal(str(fill))})"
            listed = db.execute(f"select distinct {full} from {clean.table}").fetchall()
            other[name] = [fill, sorted(str(row[0]) for row in listed)]
    rows = db.execute(f"select count(*) from {clean.table}").fetchone()[0]
    return {"rows": int(rows), "numeric": numeric, "categorical": other}


def _fill(db: Any, clean: Sheet, cell: str, how: str) -> Any:
    """Mean, median or commonest value of what is known; of equally common ones the least."""
    if how == "most_frequent":
        row = db.execute(
            f"select {cell} as v from {clean.table} where {cell} is not null "
            "group by v order by count(*) desc, v limit 1"
        ).fetchone()
        return None if row is None else row[0]
    call = {"mean": "favg", "median": "median"}[how]
    return db.execute(f"select {call}({cell}) from {clean.table}").fetchone()[0]


def matrix(db: Any, sheet: Sheet, recipe: Recipe, known: Facts) -> Any:
    """The design matrix of a table, rows in their order: numeric block, then one-hot."""
    cells: list[str] = []
    for name, (fill, mean, spread) in known["numeric"].items():
        scale = spread if _varies(mean, spread, known["rows"]) else 1.0
        cells.append(
            f"(coalesce({sheet.number(name)}, {fill!r}::double) - {mean!r}::double)"
            f" / {scale!r}::double"
        )
    for name, (fill, listed) in known["categorical"].items():
        full = f"coalesce({sheet.words(name)}, {literal(str(fill))})"
        cells += [f"({full} = {literal(word)})::double" for word in listed]
    named = ", ".join(f"{cell} as x{i}" for i, cell in enumerate(cells))
    found = db.execute(f"select {named} from {sheet.table} order by pos").fetchnumpy()
    return np.column_stack([np.asarray(found[f"x{i}"], float) for i in range(len(cells))])


def _varies(mean: float, spread: float, rows: int) -> bool:
    """Whether a column is more than one value and rounding: else nothing divides it."""
    eps = 2.220446049250313e-16
    return spread * spread > rows * eps * spread * spread + (rows * mean * eps) ** 2


def _targets(db: Any, clean: Sheet, recipe: Recipe) -> Any:
    kinds = recipe["column_type_inference"]
    parts: list[Any] = []
    for name in recipe["target"]:
        numeric = kinds[name] == "numerical"
        cell = clean.number(name) if numeric else clean.words(name)
        column = db.execute(f"select {cell} as y from {clean.table} order by pos").fetchnumpy()["y"]
        if numeric and recipe["problem_type"] == "classification":
            column = np.asarray(column, float).astype(np.int64)
        parts.append(np.asarray(column, float if numeric and column.dtype.kind == "f" else None))
    return np.column_stack(parts)


def _model(recipe: Recipe) -> Any:
    name = str(recipe["model_type"])
    home = next(home for home, names in _HOMES.items() if name in names)
    kind: Any = getattr(importlib.import_module(home), name)
    model = kind() if name in _UNSEEDED else kind(random_state=recipe["random_state"])
    if len(recipe["target"]) > 1 and name in _WRAPPED:
        return importlib.import_module("sklearn.multioutput").MultiOutputClassifier(model)
    return model


def check_answer(
    db: Any, sheets: tuple[Sheet, Sheet], recipe: Recipe, known: Facts, answer: bytes
) -> None:
    """Raise `Differs` unless a model fitted on the SQL matrix of the first sheet gives the answer
    for the second, by the scorer."""
    limits: Any = importlib.import_module("threadpoolctl").threadpool_limits
    clean, asked = sheets
    train, test = matrix(db, clean, recipe, known), matrix(db, asked, recipe, known)
    with warnings.catch_warnings(), limits(1), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        model = _model(recipe).fit(train, _targets(db, clean, recipe))
        said = np.asarray(model.predict(test)).reshape(len(test), -1)
    header = ",".join(["row_id", *(_field(t) for t in recipe["target"])])
    lines = [f"{i},{','.join(_field(_plain(v)) for v in row)}" for i, row in enumerate(said, 1)]
    family = "class" if recipe["problem_type"] == "classification" else "reg"
    found = "\n".join([header, *lines, ""])
    gold = TableGold(
        f"{family}-IF", answer.decode("utf-8"), ("row_id",), tuple(recipe["target"]), {}
    )
    outcome = score_table(gold, found.encode(), "strict", trusted=True).outcome
    if outcome != 1.0:
        raise Differs(
            f"the second computation gives other predictions: they score {outcome}, not 1"
        )


def _plain(value: Any) -> str:
    return repr(float(value)) if isinstance(value, float) else str(value)


def _field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n\r') else text


# --- time series: rows, cut, bins


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
