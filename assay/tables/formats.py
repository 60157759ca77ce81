"""Which files are tables, and the tables of files that are no delimited text: records, Parquet,
SQLite, HTML, text of fixed places. Each gives plans without decisions.
"""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import re
import sqlite3
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.errors import install_extra
from assay.tables.encoding import read_text
from assay.tables.plan import PACKED, ReadPlan, Skipped, Unreadable, kept_lines, opened
from assay.tables.settings import FILE, Doubt, FileSettings, TableSettings
from assay.tables.workbooks import sheets

FORMS = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".psv", ".dat", ".txt", ".data", ".fwf"), "csv"),
    **dict.fromkeys((".xlsx", ".xlsm", ".xls", ".xlsb", ".ods"), "excel"),
    ".json": "json",
    **dict.fromkeys((".jsonl", ".ndjson"), "lines"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".feather", ".arrow"), "feather"),
    **dict.fromkeys((".sqlite", ".sqlite3", ".db"), "sqlite"),
    **dict.fromkeys((".duckdb", ".ddb"), "duckdb"),
    ".dta": "stata",
    ".sav": "spss",
    **dict.fromkeys((".html", ".htm"), "html"),
    ".zip": "zip",
}
SEVERAL = ("excel", "sqlite", "duckdb", "html", "zip")  # a file of these may hold several tables
_IN_PACKS = ("csv", "json", "lines")  # forms that are read from a packed file
_ABOUT = frozenset(
    ("readme", "licence", "license", "copying", "notice", "changelog", "citation", "authors")
)
_PROSE = frozenset((".md", ".rst"))
_SEPARATORS = (b",", b";", b"\t", b"|")
_SHOWN = 5


def form_of(path: Path) -> str:
    """The form that the suffix of a file says; nothing for what is no table."""
    suffixes = [s.lower() for s in path.suffixes]
    if len(suffixes) > 1 and suffixes[-1] in PACKED:
        form = FORMS.get(suffixes[-2], "")
        return form if form in _IN_PACKS else ""
    return FORMS.get(suffixes[-1], "") if suffixes else ""


def files_below(root: Path) -> tuple[list[Path], list[Skipped]]:
    """(files that are read as tables, a line for each other file) of a folder, in the order of
    their paths. Hidden files, `tables.yaml` and files about the data have one line together, with
    their count: README, licence, `.md`, and a `.txt` that has the name of a table beside it."""
    tables: list[Path] = []
    others: list[Skipped] = []
    passed: list[str] = []
    below = sorted(p for p in root.rglob("*") if p.is_file())
    named = _named(below)
    for path in below:
        name = path.relative_to(root)
        about = _about(path, named) and not (path.suffix.lower() == ".txt" and _has_fields(path))
        if _hidden(name) or path.name == FILE or about:
            passed.append(name.as_posix())
        elif form_of(path):
            tables.append(path)
        else:
            others.append(Skipped(name.as_posix(), why_unread(path)))
    return tables, [*others, *_passed(passed)]


def members_of(path: Path) -> Iterator[tuple[str, str]]:
    """(member, why it is not read, or nothing) of a zip archive, hidden ones and folders left out.
    Raises `Unreadable` for what is no archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [i.filename for i in archive.infolist() if not i.is_dir()]
    except (zipfile.BadZipFile, OSError) as error:
        raise Unreadable(f"no readable zip archive ({error})") from None
    names = [n for n in names if not _hidden(Path(n))]
    if not names:
        raise Unreadable("the archive is empty")
    named = _named(map(Path, names))
    for name in sorted(names):
        member = Path(name)
        if member.suffix.lower() in PACKED or form_of(member) != "csv":
            what = f"a {member.suffix} file" if member.suffix else "a file without a suffix"
            yield name, f"{what} inside an archive is not read; unpack it"
        elif _about(member, named):
            yield name, "it is about the data"
        else:
            yield name, ""


def why_unread(path: Path) -> str:
    """One sentence on a file that is no table that is read."""
    ends = [s.lower() for s in path.suffixes]
    if ends and ends[-1] in PACKED:
        inner = FORMS.get(ends[-2], "") if len(ends) > 1 else ""
        what = f"packed {inner} files are" if inner else f"what the {ends[-1]} file holds is"
        return f"{what} not read; unpack it"
    if not ends:
        return "without a suffix, it is not read; name it by what it holds, such as .csv"
    return f"a {ends[-1]} file is no table that is read; store it as csv, xlsx or parquet"


def _named(paths: Iterable[Path]) -> set[tuple[Path, str]]:
    """(folder, name without suffixes) of the tables that a text can be about."""
    return {(p.parent, _stem(p)) for p in paths if form_of(p) and p.suffix.lower() != ".txt"}


def _stem(path: Path) -> str:
    return path.name.partition(".")[0].casefold()


def _hidden(name: Path) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in name.parts)


def _about(path: Path, named: set[tuple[Path, str]]) -> bool:
    suffix, stem = path.suffix.lower(), _stem(path)
    if suffix in _PROSE or (stem in _ABOUT and suffix in ("", ".txt")):
        return True
    return suffix == ".txt" and (path.parent, stem) in named


def _has_fields(path: Path) -> bool:
    """Whether the first lines of a text have equally many fields, as those of prose have not."""
    with open(path, "rb") as file:
        lines = [line for line in file.read(1 << 13).splitlines() if line.strip()][:4]
    counts = [{line.count(mark) for line in lines} for mark in _SEPARATORS]
    return len(lines) > 3 and any(len(found) == 1 and found != {0} for found in counts)


def _passed(names: Sequence[str]) -> list[Skipped]:
    """The line of the files that say something about the data, and hold none."""
    if not names:
        return []
    shown = ", ".join(names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    what = "1 file that is" if len(names) == 1 else f"{len(names)} files that are"
    return [Skipped(".", f"passed over {what} about the data or hidden: {shown}{more}")]


LOOSE = frozenset((".txt", ".data", ".fwf"))
_MARKS = ",;\t|"
_LOOKED = 200  # lines that tell how fields are kept apart
_SHARE = 0.9  # of the lines that must have as many separators as most have


def by_content(path: Path, rule: FileSettings) -> tuple[str, FileSettings]:
    """(`csv` or `fixed`, the rule) of a text of fields. Raises `Unreadable` with the doubt
    `layout` for one whose fields cannot be told, such as prose."""
    if path.suffix.lower() not in LOOSE or rule.sep:
        return "csv", rule
    text = read_text(path, rule.encoding)
    lines = [line for line in text.start.splitlines()[: _LOOKED + 1] if line.strip()]
    lines = lines[rule.skip or 0 :]
    if any(_even([line.count(mark) for line in lines]) for mark in _MARKS):
        return "csv", rule
    if spans_of(lines):
        return "fixed", rule
    counts = {len(line.split()) for line in lines}
    if len(lines) > 2 and len(counts) == 1 and counts != {1}:
        return "csv", replace(rule, sep=r"\s+")
    said = "no sign stands between fields in every line, nor do fields stand at fixed places"
    raise Unreadable(said, (Doubt("layout", said, 'sep: ";"  # or the sign that is meant'),))


def _even(counts: Sequence[int]) -> bool:
    usual = max(set(counts), key=counts.count) if counts else 0
    return usual > 0 and counts.count(usual) >= _SHARE * len(counts)


def spans_of(lines: Sequence[str]) -> list[tuple[int, int]]:
    """(first, end) of the columns of characters that blanks in every line keep apart; none where
    the names of the first line do not stand one in each."""
    if len(lines) < 3 or any("\t" in line for line in lines):
        return []
    wide = max(map(len, lines))
    used = [False] * wide
    for line in lines:
        for place, letter in enumerate(line):
            used[place] = used[place] or letter != " "
    edges = [i for i in range(wide + 1) if (i < wide and used[i]) != (i > 0 and used[i - 1])]
    spans: list[tuple[int, int]] = []
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        words = spans and first - spans[-1][1] == 1 and not lines[0][first:end].strip()
        spans[-1:] = [(spans[-1][0], end)] if words else [*spans[-1:], (first, end)]
    names = re.split(r" {2,}", lines[0].strip())
    words = lines[0].split()
    heads = [lines[0][a:b].strip() for a, b in spans]
    clear = len(spans) > 1 and all(heads) and heads in (names, words)
    return spans if clear else []


_NEEDS = {
    **{"parquet": "pyarrow", "feather": "pyarrow", "html": "lxml"},
    **{"spss": "pyreadstat", "duckdb": "duckdb"},
}
_BYTES = {
    **{"excel": 200 << 20, "json": 200 << 20, "lines": 2 << 30, "html": 50 << 20},
    **{"feather": 2 << 30, "stata": 2 << 30, "spss": 2 << 30, "fixed": 200 << 20},
}


def tables_of(
    path: Path, name: str, form: str, rules: TableSettings
) -> Iterator[ReadPlan | Skipped]:
    """The tables of a file of this form. Raises `Unreadable` for a file that is broken."""
    needed = _NEEDS.get(form, "")
    if needed and importlib.util.find_spec(needed) is None:
        raise Unreadable(f"{needed} is not installed; {install_extra('build')}")
    if path.stat().st_size > _BYTES.get(form, 1 << 60):
        raise Unreadable(f"larger than {_BYTES[form] >> 20} MiB; store it as csv or parquet")
    try:
        reader = _READERS.get(form)
        yield from list(reader(path, name, rules)) if reader else [ReadPlan(name, form)]
    except (Unreadable, MemoryError):
        raise
    except Exception as error:  # whatever the plan library says of a broken file
        said = " ".join(str(error).split())[:120]
        raise Unreadable(f"no readable {form} file ({type(error).__name__}: {said})") from None


def _json(path: Path, name: str, rules: TableSettings) -> Iterator[ReadPlan]:
    if read_text(path, "utf-8").start.lstrip()[:1] != "[":
        raise Unreadable("no array of objects")
    yield ReadPlan(name, "json")


def _fixed(path: Path, name: str, rules: TableSettings) -> Iterator[ReadPlan]:
    """The table of a text of fixed places. Raises `Unreadable` where a line of it has letters
    between the places."""
    rule = rules.of(name)
    encoding = read_text(path, rule.encoding).encoding
    first = (rule.skip or 0) + 1
    with opened(str(path), encoding).value({}) as file:
        kept = kept_lines(file, ((1, first - 1), *(rule.drop_rows or ())))
        filled = [line.rstrip("\r\n") for line in kept if line.strip()]
    spans = spans_of(filled)
    if not spans:
        odd = next((n for n in range(3, len(filled)) if not spans_of(filled[:n])), len(filled))
        said = (
            f"fields do not stand at the same places in all lines, as in {filled[odd - 1][:40]!r}"
        )
        raise Unreadable(said, (Doubt("layout", said, r"sep: \s+"),))
    columns = tuple(filled[0][a:b].strip() for a, b in spans)
    if len(set(columns)) < len(columns):
        raise Unreadable("two columns have the same name; name them in tables.yaml")
    skip = rule.skip or 0
    yield ReadPlan(name, "fixed", encoding=encoding, skip=skip, places=tuple(spans))


def _parquet(path: Path, name: str, rules: TableSettings) -> Iterator[ReadPlan]:
    schema: Any = importlib.import_module("pyarrow.parquet").read_schema(path)
    about = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
    kept = about.get("index_columns", ())
    named = [i for i in kept if isinstance(i, str) or i.get("name") is not None]
    picked, doubts = _flat(schema, name)
    yield ReadPlan(name, "parquet", header=not named, picked=picked, doubts=doubts)


def _feather(path: Path, name: str, rules: TableSettings) -> Iterator[ReadPlan]:
    feather: Any = importlib.import_module("pyarrow.feather")
    picked, doubts = _flat(feather.read_table(path).schema, name)
    yield ReadPlan(name, "feather", picked=picked, doubts=doubts)


def _flat(schema: Any, name: str) -> tuple[tuple[str, ...], tuple[Doubt, ...]]:
    """(the columns to read, nothing for all; a doubt for each that holds lists or objects)."""
    types: Any = importlib.import_module("pyarrow").types
    odd = [f for f in schema if types.is_nested(f.type) or "binary" in str(f.type)]
    if len(odd) == len(schema):
        raise Unreadable(f"column {odd[0].name!r} holds {odd[0].type}; a table has plain values")
    said = "holds {}: a table has plain values, so the column is left out"
    gone = [str(f.name) for f in odd]
    doubts = [Doubt("layout", said.format(f.type), column=str(f.name), path=name) for f in odd]
    picked = [str(n) for n in schema.names if str(n) not in gone] if odd else []
    return tuple(picked), tuple(doubts)


def _duckdb(path: Path, name: str, rules: TableSettings) -> Iterator[ReadPlan]:
    duckdb: Any = importlib.import_module("duckdb")
    query = "select table_name from duckdb_tables() where not internal and schema_name = 'main'"
    with duckdb.connect(str(path), read_only=True) as db:
        yield from _listed(name, "duckdb", db.execute(query).fetchall())


def connect(path: Path) -> sqlite3.Connection:
    """A SQLite file, for plan only."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _sqlite(path: Path, name: str, rules: TableSettings) -> Iterator[ReadPlan]:
    query = "select name from sqlite_master where type='table' and name not like 'sqlite\\_%' "
    with contextlib.closing(connect(path)) as db:
        yield from _listed(name, "sqlite", db.execute(query + "escape '\\'").fetchall())


def _listed(name: str, form: str, tables: Sequence[Sequence[Any]]) -> Iterator[ReadPlan]:
    if not tables:
        raise Unreadable("a database without tables")
    yield from (ReadPlan(name, form, part) for part in sorted(str(t[0]) for t in tables))


def _html(path: Path, name: str, rules: TableSettings) -> Iterator[ReadPlan | Skipped]:
    pd: Any = importlib.import_module("pandas")
    encoding = read_text(path, rules.of(name).encoding or _charset(path)).encoding
    options: dict[str, Any] = {"flavor": "lxml", "encoding": encoding, "thousands": None}
    try:
        frames = pd.read_html(path, **options)
    except ValueError as error:
        if "No tables" in str(error):
            raise Unreadable("no tables in the page") from None
        raise
    headed = pd.read_html(path, header=0, **options)  # the first row holds the names
    for number, (frame, whole) in enumerate(zip(frames, headed, strict=True)):
        plain = all(not isinstance(c, tuple) for c in frame.columns)
        if not plain or frame.shape[0] < 1 or frame.shape[1] < 1:
            yield Skipped(name, "the names stand in several rows, or there are none", str(number))
            continue
        columns = tuple(map(str, whole.columns))
        yield ReadPlan(name, "html", str(number), encoding=encoding, columns=columns)


def _charset(path: Path) -> str:
    with open(path, "rb") as file:
        found = re.search(rb"charset=[\"']?([\w-]+)", file.read(4096))
    return found[1].decode().lower() if found else ""


_READERS = {
    "excel": sheets,
    "json": _json,
    "parquet": _parquet,
    "feather": _feather,
    "duckdb": _duckdb,
    "sqlite": _sqlite,
    "html": _html,
    "fixed": _fixed,
}
