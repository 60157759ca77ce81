"""What every kind of database has in common: where a table is from, how a draft becomes a database
that is proved, and its row in the question list.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from assay.files import machine_failed
from assay.fingerprints import column_hashes
from assay.tables.plan import Unreadable
from assay.task import TaskError
from data_gen.certificate import AGREED, ONCE, Refusal, Refused
from data_gen.dare.layout import Frame, domain_of_text, write_database
from data_gen.dare.proof import prove
from data_gen.dare.sources import Source, table_hash
from data_gen.dare.targets import Built, Settings
from data_gen.dare.wording import described
from data_gen.pipeline import Builder


def fault(error: Exception) -> Refusal:
    """What is said of a table or a draft that breaks: one odd table must not end a build of
    hundreds. Raises what the machine is to blame for."""
    if machine_failed(error):
        raise error
    return Refusal("broke", f"broke: {type(error).__name__}: {error}"[:200])


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
    built.marks = column_hashes(frame)
    if built.marks and len(built.marks & settings.published) >= 0.6 * len(built.marks):
        raise Refused("published", "the table of a published evaluation database")


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


@dataclass(frozen=True)
class Database:
    """A database with its answers, not yet written: `about` is its `origin`, `asked` what its row
    of the question list is made of. `only`: why a variant is left out, "" where none is."""

    name: str
    about: Mapping[str, Any]
    asked: Mapping[str, Any]
    files: Mapping[str, bytes]  # by their place in the database
    only: str = ""


Draft = TypeVar("Draft")
Made = TypeVar("Made", bound=Database)
Questions = tuple[str, str]  # of v1 and v2; "" for a variant that is not asked


class DatabaseBuilder(Builder[Source, Draft, Made]):
    """Databases of one table, `room` at most. A draft becomes a row of the question list; its tasks
    are made when it is known which tables are kin and which databases ask the same."""

    def __init__(self, source: Source, settings: Settings, built: Built, room: int) -> None:
        self.source, self.settings, self.built, self.room = source, settings, built, room
        self.wish = settings.wishes.of(source.name)

    def again(self, draft: Draft, gold: Made) -> str:
        """Every gold from the original file."""
        prove(self.source.original, gold.files)
        return ONCE if self.source.once else AGREED

    @abstractmethod
    def words(self, draft: Draft, gold: Made) -> Any:
        """The `Questions`."""

    def task(self, draft: Draft, gold: Made, words: Any) -> Any:
        """Write the database; its row of the question list."""
        write_database(self.settings.out, gold.name, gold.files)
        if gold.only:
            self.built.refuse(Refusal("draft", gold.only), self.inputs(draft))
        asked, about = gold.asked, gold.about
        return {
            "file_path": gold.name,
            "task": asked["problem_type"],
            "question_v1": words[0],
            "question_v2": words[1],
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

    def check(self, draft: Draft, gold: Made, task: Any) -> None:
        """Its tasks are checked when they are made."""

    def fault(self, error: Exception) -> Refusal:
        return fault(error)
