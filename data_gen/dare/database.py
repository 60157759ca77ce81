"""What every kind of database has in common: the settings of a build, where a table is from, its
row in the question list, its gold computed a second time, and what became of the table.
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from assay.files import machine_failed
from assay.tables.plan import Unreadable
from assay.tables.settings import Doubt
from assay.task import TaskError
from data_gen.dare.layout import Frame, domain_of_text, write_database
from data_gen.dare.sources import Source, described, fingerprints, table_hash
from data_gen.dare.targets import Wishes
from data_gen.describe import About
from data_gen.proof.compare import Differs
from data_gen.proof.forms import opened
from data_gen.proof.original import NotProvable, Opened, Original
from data_gen.proof.series import check_series
from data_gen.proof.tabular import check_tabular
from data_gen.tally import DIFFERS, UNPROVABLE, Refusal, Refused
from rewards.dare.score import TableGold, score_table


@dataclass(frozen=True)
class Settings:
    out: Path
    seed: int
    mini: bool
    published: frozenset[str]  # column fingerprints of evaluation databases
    per_table: int = 2
    wishes: Wishes = field(default_factory=Wishes)
    described: Mapping[str, About] = field(default_factory=dict[str, About])
    licences: tuple[str, ...] = ()  # only tables of these; empty: of any


@dataclass
class Built:
    """What one table gave: rows of the question list, and why others were refused."""

    source: str
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    marks: frozenset[str] = frozenset()  # of its columns, to know copies by
    refused: list[Refusal] = field(default_factory=list[Refusal])
    doubts: list[Doubt] = field(default_factory=list[Doubt])
    licence: str = "unknown"
    once: bool = False  # its gold is proved from a frame that was read once

    def refuse(self, code: str, what: str, where: str = "") -> None:
        """Note why something was not used."""
        self.refused.append(Refusal(code, what, where))

    def add(self, make: Callable[[], Iterable[dict[str, Any]] | None], where: str = "") -> None:
        """Add the rows that `make` gives, or note why it gives none: `Refused`, or a fault, since
        one odd table must not end a build of hundreds."""
        try:
            self.rows += make() or ()
        except Refused as error:
            self.refused.append(replace(error.why, where=error.why.where or where))
        except Exception as error:  # a table may be anything
            if machine_failed(error):
                raise
            self.refuse("broke", f"broke: {type(error).__name__}: {error}"[:200], where)


def loaded(source: Source, built: Built) -> Frame:
    """The table. Raises `Refused` where it cannot be read."""
    try:
        return source.load()
    except TaskError as error:
        built.doubts += error.doubts if isinstance(error, Unreadable) else ()
        raise Refused("unreadable", str(error)) from None
    except Exception as error:  # a table of a package may be anything
        if machine_failed(error):
            raise
        said = f"unreadable: {type(error).__name__}: {error}"[:200]
        raise Refused("unreadable", said) from None


def mark(built: Built, frame: Frame, settings: Settings) -> None:
    """Note what copies of the table are known by. Raises `Refused` where most of its columns are in
    evaluation databases."""
    built.marks = fingerprints(frame)
    if built.marks and len(built.marks & settings.published) >= 0.6 * len(built.marks):
        raise Refused("published", "the table of a published evaluation database")


def write_proved(source: Source, settings: Settings, name: str, files: Mapping[str, bytes]) -> None:
    """Write a database. Raises `Refused` where its gold does not come out again from the original
    file."""
    prove(source.original, files)
    write_database(settings.out, name, files)


def texts_of(source: Source, columns: Sequence[str]) -> dict[str, str]:
    """What is said of columns: by the user, or by the source's own words."""
    own = {n: t for n, t in source.columns.items() if n in set(columns) and t.strip()}
    return {**described(source.about, columns), **own}


def origin(source: Source, frame: Frame) -> dict[str, Any]:
    """Where a database's rows are from; `frame` is the table they were taken from."""
    return {
        "title": source.title,
        "licence": source.licence,
        "source": source.name,
        "table_sha256": table_hash(frame),
        "domain": domain_of_text(f"{source.title} {source.about[:1500]}"),
    }


def list_row(
    about: Mapping[str, Any], name: str, task: str, asked: Mapping[str, Any]
) -> dict[str, Any]:
    """A database's row of the question list. `about` is its `origin`, `asked` what it asks for."""
    return {
        "file_path": name,
        "task": task,
        "question_v1": asked["question_v1"],
        "question_v2": asked["question_v2"],
        "available_tools": ["python_executor"],
        "needed_files_v1": asked["needed_files_v1"],
        "needed_files_v2": asked["needed_files_v2"],
        **{key: asked[key] for key in ("contain_multiple_files",) if key in asked},
        "target": list(asked["target"]),
        "features": sorted(asked["related_features"]),
        "usability_rating": None,
        "lastUpdated": None,
        **{key: about[key] for key in ("domain", "licence", "source", "table_sha256")},
    }


# --- every gold a second time, from the original file, in SQL (docs/tables.md) ---


def prove(original: Original | None, files: Mapping[str, bytes]) -> None:
    """Raise `Refused` unless every gold of a database comes out again from the original. `files`
    are the bytes to be shipped, by their place in the database.

    The first computation reads a table with pandas and works on frames. This one shares neither
    reader nor code with it: DuckDB reads the original and the files as they are shipped; every
    statement is made from the recipe.
    """
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
            check_tabular(table, files, recipe, _outcome)
    except NotProvable as error:
        raise Refused(UNPROVABLE, f"not provable: {error}") from None
    except Differs as error:
        raise Refused(DIFFERS, str(error)) from None


def _outcome(track: str, truth: str, targets: tuple[str, ...], answer: str) -> float | None:
    gold = TableGold(track, truth, ("row_id",), targets, {})
    return score_table(gold, answer.encode(), "strict", trusted=True).outcome


@lru_cache(maxsize=1)
def _opened(original: Original) -> Opened | NotProvable:
    """One table gives several databases, one after the other."""
    try:
        return opened(original)
    except NotProvable as error:
        return error


# A connection that is alive when Python ends makes DuckDB print a page about leaked objects.
atexit.register(_opened.cache_clear)
