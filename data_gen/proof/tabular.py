# scikit-learn ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""A class or reg database computed a second time: its rows, its filter, its answers."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from data_gen.proof.compare import (
    Column,
    Differs,
    Sheet,
    all_same,
    by_place,
    difference,
    no_odd_cell,
    put,
    row_hash,
    same,
)
from data_gen.proof.marks import number, tidy_words, words
from data_gen.proof.original import NOTHING, Opened, literal

Recipe = Mapping[str, Any]


Held = Mapping[str, Sheet]
_FILES = {  # table → the file of a database that it is loaded from
    "noisy": "train_v1",
    "clean": "train_v1_no_err",
    "asked": "val_v1",
    "train": "train_v2",
    "test": "val_v2",
}


def check_tabular(table: Opened, files: Mapping[str, bytes], recipe: Recipe, score: Scorer) -> None:
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
        check_answer(table.db, (held["clean"], held["asked"]), recipe, known, answer, score)


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
# (track, gold, columns, answer) → what the family's scorer gives the answer
Scorer = Callable[[str, str, tuple[str, ...], str], float | None]


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
    db: Any, sheets: tuple[Sheet, Sheet], recipe: Recipe, known: Facts, answer: bytes, score: Scorer
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
    outcome = score(f"{family}-IF", answer.decode("utf-8"), tuple(recipe["target"]), found)
    if outcome != 1.0:
        raise Differs(
            f"the second computation gives other predictions: they score {outcome}, not 1"
        )


def _plain(value: Any) -> str:
    return repr(float(value)) if isinstance(value, float) else str(value)


def _field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n\r') else text
