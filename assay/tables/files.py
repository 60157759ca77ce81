"""Which files of a folder are tables, by their names; and what is said of those that are none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.tables.calls import PACKED
from assay.tables.overrules import FILE
from assay.tables.plan import Unread

FORMS = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".psv", ".dat", ".txt", ".data"), "csv"),
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


def files_below(root: Path) -> tuple[list[Path], list[Unread]]:
    """(files that are read as tables, a line for each other file) of a folder, in the order of
    their paths. Hidden files, `tables.yaml` and files about the data have one line together, with
    their count: README, licence, `.md`, and a `.txt` that has the name of a table beside it."""
    tables: list[Path] = []
    others: list[Unread] = []
    passed: list[str] = []
    below = sorted(p for p in root.rglob("*") if p.is_file())
    named = {(p.parent, _stem(p)) for p in below if form_of(p) and p.suffix.lower() != ".txt"}
    for path in below:
        name = path.relative_to(root)
        if _hidden(name) or path.name == FILE or _about(path, named):
            passed.append(name.as_posix())
        elif form_of(path):
            tables.append(path)
        else:
            others.append(Unread(name.as_posix(), why_unread(path)))
    return tables, [*others, *_passed(passed)]


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


def _stem(path: Path) -> str:
    return path.name.partition(".")[0].casefold()


def _hidden(name: Path) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in name.parts)


def _about(path: Path, named: set[tuple[Path, str]]) -> bool:
    suffix, stem = path.suffix.lower(), _stem(path)
    if suffix in _PROSE or (stem in _ABOUT and suffix in ("", ".txt")):
        return True
    return suffix == ".txt" and (path.parent, stem) in named and not _has_fields(path)


def _has_fields(path: Path) -> bool:
    """Whether the first lines of a text have equally many fields, as those of prose have not."""
    with open(path, "rb") as file:
        lines = [line for line in file.read(1 << 13).splitlines() if line.strip()][:4]
    counts = [{line.count(mark) for line in lines} for mark in _SEPARATORS]
    return len(lines) > 3 and any(len(found) == 1 and found != {0} for found in counts)


def _passed(names: Sequence[str]) -> list[Unread]:
    """The line of the files that say something about the data, and hold none."""
    if not names:
        return []
    shown = ", ".join(names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    what = "1 file that is" if len(names) == 1 else f"{len(names)} files that are"
    return [Unread(".", f"passed over {what} about the data or hidden: {shown}{more}")]
