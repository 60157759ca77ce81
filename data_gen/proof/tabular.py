"""A class or reg database computed a second time: its rows, its filter, its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from data_gen.proof.compare import Column, by_place, difference
from data_gen.proof.marks import number, tidy_words, words
from data_gen.proof.original import Opened
from data_gen.proof.plain import NOTHING
from data_gen.proof.refit import Scorer, check_answer, check_fitted, facts
from data_gen.proof.rows import same_rows, stage
from data_gen.proof.shipped import Sheet, put

Recipe = Mapping[str, Any]


@dataclass(frozen=True)
class Shipped:
    """The tables of a database: with noise, without it, to predict; and those of the MM variant."""

    noisy: Sheet
    clean: Sheet
    asked: Sheet
    train: Sheet
    test: Sheet
    truth: Sheet

    @staticmethod
    def of(db: Any, files: Mapping[str, bytes], kind: str) -> Shipped:
        def load(table: str, name: str) -> Sheet:
            return put(db, table, name, files[name])

        return Shipped(
            load("noisy", f"source/train_v1.{kind}"),
            load("clean", f"source/train_v1_no_err.{kind}"),
            load("asked", f"source/val_v1.{kind}"),
            load("train", f"source/train_v2.{kind}"),
            load("test", f"source/val_v2.{kind}"),
            load("truth", "verify/ground_truth.csv"),
        )


def check_tabular(table: Opened, files: Mapping[str, bytes], recipe: Recipe, score: Scorer) -> None:
    """Raise `Differs` or `NotProvable` unless every gold of the database comes out again."""
    held = Shipped.of(table.db, files, str(recipe["save_file_type"]))
    _rows(table, held, recipe)
    _variants(table.db, held, recipe)
    _filter(table.db, held, recipe)
    answer = files.get("verify/simulated_pred_local.csv")
    if answer is not None:  # else there is no IF variant
        known = facts(table.db, held.clean, recipe)
        check_fitted(known, files["verify/fitted.json"])
        check_answer(table.db, (held.clean, held.asked), recipe, known, answer, score)


def _numeric(recipe: Recipe, name: str) -> bool:
    return recipe["column_type_inference"][name] == "numerical"


def _rows(table: Opened, held: Shipped, recipe: Recipe) -> None:
    """The rows of training and test, targets included, against the original file."""
    targets = list(recipe["target"])
    names = [*targets, *recipe["related_features"]]
    db = table.db
    test, truth = held.test.called("t"), held.truth.called("g")
    columns: list[Column] = []  # `second` of the original, `first` of the training table
    tested: list[str] = []
    for name in names:
        other, numeric = truth if name in targets else test, _numeric(recipe, name)
        if numeric:
            columns.append(Column(name, True, number(table, name), held.train.number(name)))
            tested.append(other.number(name))
        else:
            kept = _categories(table, name, held.train)
            made = words(table, name)
            if kept:
                made = tidy_words(table.column(name), kept)
            columns.append(Column(name, False, made, tidy_words(held.train.words(name), kept)))
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


def _variants(db: Any, held: Shipped, recipe: Recipe) -> None:
    """The files of the IF variant hold the same rows, in the same order, as those of MM."""
    kept = list(recipe["not_filtered_related_features"])
    for one, other, names in (
        (held.train, held.clean, [*recipe["target"], *kept]),
        (held.test, held.asked, kept),
    ):
        columns = _sides(recipe, names, one, other)
        stage(db, "a", "pos", columns, f"from {one.table}", first=False)
        stage(db, "b", "pos", columns, f"from {other.table}", first=True)
        by_place(db, columns, "a", "b", f"the files of {other.table} rows")
    for sheet in (held.test, held.asked, held.truth):
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


def _filter(db: Any, held: Shipped, recipe: Recipe) -> None:
    """Filtering the rows with noise gives the clean rows; each range removes rows that no other
    does."""
    names = [*recipe["target"], *recipe["not_filtered_related_features"]]
    columns = _sides(recipe, names, held.noisy, held.clean)
    kept = f"from noisy where {in_ranges(held.noisy, recipe)}"
    stage(db, "a", "row_number() over (order by pos)", columns, kept, first=False)
    stage(db, "b", "pos", columns, "from clean", first=True)
    by_place(db, columns, "a", "b", "the filtered rows")
    ranges = recipe["expected_ranges"]
    mine = db.execute("select count(*) from a").fetchone()[0]
    for name in ranges:
        others = {**recipe, "expected_ranges": {n: r for n, r in ranges.items() if n != name}}
        kept = in_ranges(held.noisy, others)
        if db.execute(f"select count(*) from noisy where {kept}").fetchone()[0] == mine:
            raise difference(0, f"the rows that the range of {name!r} alone removes", "some")
