"""Which files are tables; the text of a file, in the encoding that fits all of it; and the tables
of files that are no delimited text: records, Parquet, SQLite, HTML, text of fixed places. Each
gives plans without decisions.
"""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import codecs
import contextlib
import importlib
import importlib.util
import io
import json
import re
import sqlite3
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, cast

from assay.errors import install_extra
from assay.tables.plan import (
    PACKED,
    ReadPlan,
    Skipped,
    Spans,
    Unreadable,
    in_doubt,
    kept_lines,
    opened,
)
from assay.tables.settings import FILE, Doubt, FileSettings, TableSettings

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


# ---- the text of a file

MOST = 4 << 30  # bytes of text, unpacked
_START = 1 << 20  # characters at the start that tell how fields and rows are kept apart
_SAMPLE = 1 << 15  # bytes whose encoding is looked for
_COMMON = (  # encodings that people have, the commonest first
    *("cp1252", "cp1251", "cp1250", "cp1253", "cp1254", "cp1255", "cp1256", "koi8-r", "gb18030"),
    *("big5", "cp932", "cp949", "euc-jp", "iso-8859-2", "iso-8859-15", "cp1257", "cp874", "cp850"),
    *("cp852", "cp866", "mac-roman"),
)
_MOST_CODES = 3  # encodings that are proposed
_ODDER = 0.3  # how much odder than the first their letters may be
_CELL = 40  # characters of a cell that are shown
_CONTROL = re.compile("[\x80-\x9f]")  # signs of encodings that nobody writes
_WORD = re.compile(r"[^\W_]*[^\x00-\x7f][^\x00-\x2f\x3a-\x40\x5b-\x60\x7b-\x7f]*")
_SIGNS = frozenset("“”‘’„‚‹›«»–—…•€£¥°§©®™†‡±²³½¼¾·№\xa0ªº¿¡、。「」・（），：")
_SCRIPTS = (  # where the letters of a script begin, the last first
    *(("\uff00", "Kana"), ("\uac00", "Hangul"), ("\u3400", "Han"), ("\u3040", "Kana")),
    *(("\u2e80", "Han"), ("\u1e00", "Latin"), ("\u0e00", "Thai"), ("\u0600", "Arabic")),
    *(("\u0590", "Hebrew"), ("\u0400", "Cyrillic"), ("\u0370", "Greek")),
)


@dataclass(frozen=True)
class Text:
    """A file's text, or whole lines from its start."""

    encoding: str
    start: str
    whole: bool = True


def unpacked(path: Path, member: str = "") -> IO[bytes]:
    """The bytes of a file, unpacked by its suffix; or of one member of a zip archive."""
    if member:
        return zipfile.ZipFile(path).open(member)
    module = PACKED.get(path.suffix.lower(), "")
    if not module:
        return open(path, "rb")
    try:
        return cast("IO[bytes]", importlib.import_module(module).open(path, "rb"))
    except ModuleNotFoundError:
        raise Unreadable(f"{module} is not installed; {install_extra('build')}") from None


def read_text(path: Path, encoding: str = "", member: str = "") -> Text:
    """The text of a file: in the encoding given, or UTF-8 if all bytes are, or UTF-16 by its mark
    or zero bytes.

    Raises `Unreadable` for an empty file, for bytes that are no text, for broken archives, and,
    with a doubt, for bytes that are letters in more than one other encoding.
    """
    try:
        with unpacked(path, member) as file:
            head = file.read(4096)
        if not head.strip(b"\xef\xbb\xbf \t\r\n\0"):
            raise Unreadable("the file is empty")
        code = encoding or _encoding(head)
        try:
            with unpacked(path, member) as file:
                return _start(file, code)
        except UnicodeDecodeError:
            if encoding or code.startswith("utf-16"):
                said = f"is no text in {code}; set encoding in tables.yaml"
                raise Unreadable(said) from None
        with unpacked(path, member) as file:
            doubt = encoding_doubt(file)
        raise in_doubt(doubt)
    except Unreadable:
        raise
    except Exception as error:  # every unpacker has its own kind
        raise Unreadable(f"cannot be unpacked ({type(error).__name__}: {error})"[:160]) from None


def encoding_doubt(file: IO[bytes]) -> Doubt:
    """The doubt of bytes that are no UTF-8: where a letter is broken, if most are whole, else how
    up to three encodings spell one cell."""
    good, bad = 0, 0
    where, place, last = 0, b"", b""
    sample: list[tuple[int, bytes]] = []
    size, number = 0, 0
    for number, line in enumerate(file, 1):
        last = line
        if line.isascii():
            continue
        try:
            line.decode()
            good += 1
        except UnicodeDecodeError as error:
            bad += 1
            if not where:
                where, place = number, line[error.start : error.start + 1]
        size += len(line)
        if size <= _SAMPLE:
            sample.append((number, line))
        if size > 64 * _SAMPLE:
            break
    if good > bad:
        if bad == 1 and where == number and not last.endswith(b"\n"):
            said = f"the text is UTF-8, and its last line, {where}, ends inside a letter"
            return Doubt("encoding", f"{said}; fetch the whole file")
        others = f" and {bad - 1} more lines" if bad > 1 else ""
        said = f"the text is UTF-8, but line {where}{others} has the byte 0x{place.hex()}"
        return Doubt("encoding", f"{said}; mend it, or name the encoding under `encoding`")
    first, *others = codes = _proposed(b"".join(line for _, line in sample))
    where, line = max(sample, key=lambda one: len({_cell(one[1], code) for code in codes}))
    spelled = [f"{_cell(line, code)!r} as {code}" for code in codes]
    said = f"the bytes are no UTF-8: line {where} has {', '.join(spelled)}"
    more = f"  # or {', or '.join(others)}" if others else ""
    return Doubt("encoding", said, f"encoding: {first}{more}")


def _proposed(data: bytes) -> list[str]:
    """Up to three encodings that give the bytes different texts, the likeliest first: by how odd
    their letters are, in wide ones as charset-normalizer ranks them, then as common as they are."""
    ranks: dict[str, int] = {}
    with contextlib.suppress(ModuleNotFoundError):
        normalizer: Any = importlib.import_module("charset_normalizer")
        for place, match in enumerate(normalizer.from_bytes(data)):
            ranks |= dict.fromkeys(map(str, match.could_be_from_charset), place)
    texts: dict[str, tuple[float, int, str]] = {}
    for code in (*_COMMON, *(c for c in ranks if not c.startswith("utf"))):
        name = codecs.lookup(code).name
        with contextlib.suppress(UnicodeDecodeError):
            text = data.decode(code)
            if not _CONTROL.search(text) and text not in [t for _, _, t in texts.values()]:
                wide = any(_script(c) in ("Han", "Kana", "Hangul") for c in text)
                rank = ranks.get(name.replace("-", "_"), len(ranks)) if wide else 0
                rare = 0.0 if code in _COMMON else 1.0
                texts[code] = (rare + round(_oddness(text), 1), rank, text)
    found = sorted(texts, key=lambda code: texts[code][:2])
    if not found:
        return ["latin-1"]
    return [c for c in found if texts[c][0] <= texts[found[0]][0] + _ODDER][:_MOST_CODES]


def _oddness(text: str) -> float:
    """The share of the letters beyond ASCII that a writer would not have put there: signs, letters
    of two scripts in a word, capitals behind small ones, rare characters."""
    odd = count = 0
    for word in _WORD.findall(text):
        strange = [c for c in word if c >= "\x80" and c not in _SIGNS]
        scripts = {_script(c) for c in word if c.isalpha()}
        small_first = any(a.islower() and b.isupper() for a, b in pairwise(word))
        accents = re.search(r"[\u0080-\u024f]{4}", word) is not None
        count += len(strange)
        mixed = len({"Han" if s == "Kana" else s for s in scripts}) > 1
        if mixed or small_first or accents:
            odd += len(strange)
        else:
            odd += sum(not c.isalpha() or _rare(c) for c in strange)
    return odd / count if count else 0.0


def _script(letter: str) -> str:
    return next((script for start, script in _SCRIPTS if letter >= start), "Latin")


def _rare(letter: str) -> bool:
    """Whether a Chinese character is beyond the first levels of GB 2312, Big5 and JIS X 0208, or a
    Korean syllable beyond KS X 1001."""
    script = _script(letter)
    if script == "Hangul":
        return len(letter.encode("euc-kr", "ignore")) != 2
    if script != "Han":
        return False
    for code, first, last in (("gb2312", 0xB0, 0xD7), ("big5", 0xA4, 0xC6), ("cp932", 0x88, 0x98)):
        with contextlib.suppress(UnicodeEncodeError):
            if first <= letter.encode(code)[0] <= last:
                return False
    return True


def _cell(line: bytes, code: str) -> str:
    """The first field of a line that has a letter beyond ASCII, around that letter."""
    fields = re.split(r"[,;\t|\r\n]", line.decode(code, "replace"))
    field = next((f for f in fields if not f.isascii()), fields[0]).strip().strip('"')
    place = next((i for i, c in enumerate(field) if not c.isascii()), 0)
    start = max(0, place - _CELL // 2)
    return field[start : start + _CELL]


def without_lines(text: Text, dropped: Spans) -> Text:
    """The start of a text without the lines of these numbers."""
    kept = kept_lines(io.StringIO(text.start, newline=""), dropped)
    return replace(text, start="".join(kept))


def line_in_file(number: int, dropped: Spans) -> int:
    """The number in the file of a line that has this one in a text without some of its lines."""
    for first, last in sorted(dropped):
        number += last - first + 1 if number >= first else 0
    return number


def _encoding(head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in head:
        even, odd = head[::2].count(0), head[1::2].count(0)
        if max(even, odd) < 0.3 * len(head):
            raise Unreadable("holds zero bytes: it is no text")
        return "utf-16-le" if odd > even else "utf-16-be"
    return "utf-8-sig" if head.startswith(codecs.BOM_UTF8) else "utf-8"


def _start(file: IO[bytes], encoding: str) -> Text:
    """The start of the text. The whole file is decoded, so a letter that does not fit is found
    wherever it stands."""
    decoder = codecs.getincrementaldecoder(encoding)()
    start, size, whole = "", 0, True
    while chunk := file.read(_START):
        size += len(chunk)
        if size > MOST:
            raise Unreadable(f"more than {MOST >> 30} GiB of text; split it")
        text = decoder.decode(chunk)
        whole = len(start) < _START
        start += text if whole else ""
    start += decoder.decode(b"", True)
    if "\0" in start:
        raise Unreadable("holds zero bytes: it is no text")
    if not whole:
        start = start[: max(start.rfind("\n"), start.rfind("\r")) + 1] or start
    return Text(encoding, start, whole)


# ---- what a text holds

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


def _excel(path: Path, name: str, rules: TableSettings) -> Iterator[ReadPlan | Skipped]:
    from assay.tables.workbooks import sheets  # folders without a workbook need none of it

    return sheets(path, name, rules)


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
    "excel": _excel,
    "json": _json,
    "parquet": _parquet,
    "feather": _feather,
    "duckdb": _duckdb,
    "sqlite": _sqlite,
    "html": _html,
    "fixed": _fixed,
}
