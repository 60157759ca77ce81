"""Are a task's rows the original's rows? Each is looked up there by its features; where it stands,
its targets must stand too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_gen.proof.compare import Column, Differs, all_same, difference, row_hash, same

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
    odd = db.execute(f"select pos, found from met where {test} order by pos limit 1").fetchone()
    if odd is not None:
        for i, column in goals:
            one = _cell(db, "want", i, odd[1])
            other = _cell(db, "have", i, odd[0])
            agree = same(f"a.v{i}", f"b.v{i}", column.numeric)
            pair = f"(select v{i} from want where pos = {odd[1]}) a, "
            pair += f"(select v{i} from have where pos = {odd[0]}) b"
            if not db.execute(f"select {agree} from {pair}").fetchone()[0]:
                raise difference(one, f"{column.name!r} in row {odd[0]}", other)
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
