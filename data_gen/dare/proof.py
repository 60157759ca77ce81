"""Every gold a second time, from the original file, in SQL: a database whose answers do not come
out again is not written.

The first computation reads a table with pandas and works on frames. The second (`data_gen/proof`)
shares neither reader nor code with it: DuckDB reads the original file and the files as they are
shipped; every statement is made from the recipe. docs/tables.md says what is compared and what is
not.
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from data_gen.proof.compare import Differs
from data_gen.proof.forms import opened
from data_gen.proof.original import NotProvable, Opened, Original, connect
from data_gen.proof.series import check_series
from data_gen.proof.tabular import check_tabular
from data_gen.tally import DIFFERS, UNPROVABLE, Refusal
from rewards.dare.score import TableGold, score_table


def prove(original: Original | None, files: Mapping[str, bytes]) -> Refusal | None:
    """None where every gold of a database comes out again from the original, else why not.

    `files` are the bytes to be shipped, by their place in the database. Raises `TaskError` where
    DuckDB is missing.
    """
    if original is None:
        return _not("the source names no original file")
    recipe: dict[str, Any] = json.loads(files["verify/all_metadata.json"])["question"]
    try:
        table = _opened(original)
        if isinstance(table, NotProvable):
            return _not(table)
        if recipe["problem_type"] == "time_series_analysis":
            check_series(table, files, recipe)
        else:
            check_tabular(table, files, recipe, _outcome)
    except NotProvable as error:
        return _not(error)
    except Differs as error:
        return Refusal(DIFFERS, str(error))
    return None


def _not(why: object) -> Refusal:
    return Refusal(UNPROVABLE, f"not provable: {why}")


def _outcome(track: str, truth: str, targets: tuple[str, ...], answer: str) -> float | None:
    gold = TableGold(track, truth, ("row_id",), targets, {})
    return score_table(gold, answer.encode(), "strict", trusted=True).outcome


def need_duckdb() -> None:
    """Raise `TaskError`, which names the extra to install, where DuckDB is missing."""
    connect().close()


@lru_cache(maxsize=1)
def _opened(original: Original) -> Opened | NotProvable:
    """One table gives several databases, one after the other."""
    try:
        return opened(original)
    except NotProvable as error:
        return error


# A connection that is alive when Python ends makes DuckDB print a page about leaked objects.
atexit.register(_opened.cache_clear)
