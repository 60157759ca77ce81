"""Which files of a folder are tables, by their names; and what is said of those that are none."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from assay.tables.calls import PACKED
from assay.tables.plan import Skipped, Unreadable
from assay.tables.settings import FILE

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
