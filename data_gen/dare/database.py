"""What every kind of database has in common: the settings of a build, where a table is from, its
row in the question list, and what became of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.files import machine_failed
from assay.tables.plan import Unreadable
from assay.tables.settings import Doubt
from assay.task import TaskError
from data_gen.dare.domains import domain_of_text
from data_gen.dare.layout import Frame, write_database
from data_gen.dare.proof import prove
from data_gen.dare.sources import Source, column_texts, described, table_hash
from data_gen.dare.wishes import Wishes
from data_gen.describe import About
from data_gen.tally import Refusal


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


def loaded(source: Source, built: Built) -> Frame | None:
    """The table; None, with the reason noted, where it cannot be read."""
    try:
        return source.load()
    except TaskError as error:
        built.doubts += error.doubts if isinstance(error, Unreadable) else ()
        return built.refuse("unreadable", str(error))
    except Exception as error:  # a table of a package may be anything
        if machine_failed(error):
            raise
        return built.refuse("unreadable", f"unreadable: {type(error).__name__}: {error}"[:200])


class Unproved(TaskError):
    """The second computation does not give the gold of a database; it is not written."""

    def __init__(self, why: Refusal) -> None:
        super().__init__(str(why))
        self.why = why


def write_proved(source: Source, settings: Settings, name: str, files: Mapping[str, bytes]) -> None:
    """Write a database, its gold proved a second time from the original file. Raises `Unproved`."""
    if why := prove(source.original, files):
        raise Unproved(why)
    write_database(settings.out, name, files)


def published(marks: frozenset[str], settings: Settings) -> bool:
    """Whether most of the table's columns are in evaluation databases."""
    return bool(marks) and len(marks & settings.published) >= 0.6 * len(marks)


def texts_of(source: Source, columns: Sequence[str]) -> dict[str, str]:
    """What is said of columns: the source's own words, and the items of its text."""
    found = described(source.about, columns)
    own = source.columns if source.columns != column_texts(source.about) else {}
    return {**found, **{n: t for n, t in own.items() if n in set(columns) and t.strip()}}


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
    source: Source, about: Mapping[str, Any], name: str, task: str, asked: Mapping[str, Any]
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
        "domain": about["domain"],
        "licence": source.licence,
        "source": source.name,
        "table_sha256": about["table_sha256"],
    }
