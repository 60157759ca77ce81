# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
"""Tasks obscured: names exchanged in a view of the lake, the question and the answers; of generated
tasks numbers too. What a model remembers of a public table answers the plain question and not this
one (specification notes, section 9).

Words are exchanged for invented ones. A bijection over words, applied to every text of a view
(files, file names, question, answers, steps), keeps equality, joins, prefixes and splits. New words
are handed out in the old words' alphabetical order, so sorting among them is kept too. Of the
published tasks numbers stay: they come without their pipelines, so no answer could be recomputed.

Of generated tasks (of file names, column names, every text cell and title lines) measured columns
are multiplied by a factor each (whole numbers by a whole one), years moved. A question is composed
again from the same draws over the changed tables, so thresholds follow, and its gold pipeline is
run again: the answer is computed, never carried over.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from random import Random
from typing import Any, cast

from assay.errors import TaskError
from assay.tables.load import load_file, written
from assay.tables.plan import ReadPlan, Skipped
from assay.tables.settings import FileSettings, read_settings
from assay.task import derive_seed
from data_gen.describe import About
from data_gen.krama.importer import Entry
from data_gen.proof.original import is_number_cell
from data_gen.queries.carried import Frame, Layout, top_lines, write_frames, write_rules
from data_gen.queries.tables import Half, Refers, Table

# --- published tasks: names


WORD = re.compile(r"[^\W\d_]+")
_KEPT = """
january february march april may june july august september october november december
jan feb mar apr jun jul aug sep sept oct nov dec
monday tuesday wednesday thursday friday saturday sunday
yes no true false the and nan none null total mean average median
year month date number other unknown
"""
CALENDAR = frozenset(_KEPT.split())  # words that say when or how much: never exchanged


def new_words(count: int, seed: int, taken: frozenset[str]) -> list[str]:
    """`count` distinct pronounceable words that are in no text, in alphabetical order."""
    rng = Random(seed)
    made: set[str] = set()
    while len(made) < count:
        size = rng.choice((2, 3, 3, 4))
        word = "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(size))
        word += rng.choice(("", "n", "r", "x"))
        if word not in taken:
            made.add(word)
    return sorted(made)


def exchange(text: str, names: Mapping[str, str]) -> str:
    """`text` with every known word exchanged, in the case it is written in."""

    def one(match: re.Match[str]) -> str:
        word = match.group(0)
        other = names.get(word.lower())
        if other is None:
            return word
        if word.isupper() and len(word) > 1:
            return other.upper()
        return other.capitalize() if word[0].isupper() else other

    return WORD.sub(one, text)


def exchange_all(value: Any, names: Mapping[str, str]) -> Any:
    """The same for every text inside nested lists and objects (keys stay)."""
    if isinstance(value, str):
        return exchange(value, names)
    if isinstance(value, list):
        return [exchange_all(v, names) for v in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {k: exchange_all(v, names) for k, v in cast("dict[str, Any]", value).items()}
    return value


_TEXT = (".csv", ".txt", ".json", ".html", ".tsv", ".text")
_MOST = 5000  # names exchanged in one lake


def _before(answer: Any, names: Mapping[str, str]) -> Any:
    """The answer as it was, when the exchange changed it; else None."""
    return None if exchange_all(answer, names) == answer else answer


def _cells(text: str) -> Iterable[tuple[int, str]]:
    """(column, text) of every data cell of a delimited file; the first row names columns."""
    sample = text[:4096]
    delimiter = "\t" if sample.count("\t") > sample.count(",") else ","
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    for number, row in enumerate(rows):
        if number:
            yield from enumerate(row)


def names_in(texts: Mapping[str, str], spoken: str, plain: str) -> list[str]:
    """The proper names to exchange, sorted.

    Names stand in a column of some table in which a word of `spoken` (question, answers) occurs;
    they are written with a capital, and are no calendar or function word, no word of a header, and
    no word that `plain` text uses in lower case.
    """
    said = {w.lower() for w in WORD.findall(spoken)}
    small = {w for w in WORD.findall(plain) if w.islower()} | CALENDAR
    found: Counter[str] = Counter()
    for name, text in texts.items():
        if not name.lower().endswith((".csv", ".tsv")):
            continue
        small |= {w.lower() for w in WORD.findall(text.partition("\n")[0])}
        columns: dict[int, set[str]] = {}
        for column, cell in _cells(text):
            if len(cell) < 80 and any(c.isalpha() for c in cell):
                columns.setdefault(column, set()).add(cell.strip())
        for cells in columns.values():
            words = Counter(w for cell in cells for w in set(WORD.findall(cell)))
            if not any(w.lower() in said and w[0].isupper() for w in words):
                continue
            common = max(3, len(cells) // 3)  # "Beach" in every beach's name is no name
            found.update(
                {
                    w.lower(): n
                    for w, n in words.items()
                    if w[0].isupper() and len(w) > 2 and (n <= common or w.lower() in said)
                }
            )
    kept = [w for w, _ in found.most_common() if w not in small]
    return sorted(kept[:_MOST])


def _read(path: Path) -> str | None:
    if path.suffix.lower() not in _TEXT:
        return None
    data = path.read_bytes()
    for encoding in ("utf-8", "cp1252"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return data.decode("latin-1")


_SHOWN = re.compile(r"(<t(?: [^>]*)?>)([^<]*)(</t>)")


def _write_workbook(source: Path, target: Path, names: Mapping[str, str]) -> None:
    """A workbook with its texts exchanged: shared and inline strings, nothing else touched."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for item in old.infolist():
            data = old.read(item)
            if item.filename == "xl/sharedStrings.xml" or "/worksheets/sheet" in item.filename:
                text = _SHOWN.sub(
                    lambda m: m.group(1) + exchange(m.group(2), names) + m.group(3),
                    data.decode("utf-8"),
                )
                data = text.encode("utf-8")
            new.writestr(item.filename, data)


def obscure(
    entry: Entry, lake: Path, files: Sequence[str], gold: Sequence[str], target: Path
) -> tuple[Entry, Path, list[str]]:
    """Write an obscured view of some of a lake's files.

    Returns the entry with question, steps and answers exchanged, the view, and its gold files.
    """
    texts = {f: t for f in files if (t := _read(lake / f)) is not None}
    spoken = " ".join([entry.query, str(entry.answer), *(str(s.answer) for s in entry.steps)])
    plain = " ".join([entry.query, *(f"{s.query} {s.step}" for s in entry.steps)])
    tables = {f: t for f, t in texts.items() if f in set(gold)}
    names = names_in(tables, spoken, plain)
    taken = frozenset(w.lower() for t in [*texts.values(), plain] for w in WORD.findall(t))
    words = new_words(len(names), derive_seed("krama-obscured", entry.id), taken)
    book = dict(zip(names, words, strict=True))
    target.mkdir(parents=True, exist_ok=True)
    for name in files:
        place = target / exchange(name, book)
        place.parent.mkdir(parents=True, exist_ok=True)
        if name in texts:
            place.write_text(exchange(texts[name], book), encoding="utf-8", newline="")
        elif name.lower().endswith(".xlsx"):
            _write_workbook(lake / name, place, book)
        else:
            place.write_bytes((lake / name).read_bytes())
    steps = tuple(
        replace(
            s,
            step=exchange(s.step, book),
            query=exchange(s.query, book),
            answer=exchange_all(s.answer, book),
            plain=_before(s.answer, book),
            sources=tuple(exchange(f, book) for f in s.sources),
        )
        for s in entry.steps
    )
    made = replace(
        entry,
        query=exchange(entry.query, book),
        answer=exchange_all(entry.answer, book),
        steps=steps,
        plain=_before(entry.answer, book),
    )
    return made, target.resolve(), [exchange(f, book) for f in gold]


# --- generated tasks: names and numbers


_MARKED = re.compile(r"(\s*[-+]?\$?)([\d,]*\.?\d+(?:[eE][-+]?\d+)?)(\s*%?\s*)")
_WHOLE = (2, 3, 4, 6, 7, 8, 9)
_ABSENT = frozenset(  # texts that say "no value"
    ("NA", "N/A", "n/a", "NaN", "nan", "-nan", "NULL", "null", "None", "<NA>", "#N/A", "(null)")
)
_SHIFTS = (-17, -13, -11, -7, 7, 11, 13, 17)


@dataclass(frozen=True)
class Key:
    """One lake's key: old word → new word, column → factor, and how far years move. They move
    alike in all tables, which may be joined by them."""

    words: Mapping[str, str]
    factors: Mapping[str, Decimal]
    shift: int

    def said(self, text: str) -> str:
        return exchange(text, self.words)

    def path(self, path: str) -> str:
        """The file's new name; its ending stays."""
        stem, dot, suffix = path.rpartition(".")
        return self.said(stem) + dot + suffix


def make_key(name: str, tables: Sequence[Table], seed: int, texts: Iterable[str] = ()) -> Key:
    """A key for a lake, from its name, its tables, the seed and the `texts` that its files hold
    beside what the tables' descriptions tell."""
    spoken = {w.lower() for text in texts for w in WORD.findall(text)}
    factors: dict[str, Decimal] = {}
    for table in tables:
        heads = [table.path.rpartition(".")[0], _part(table.reading), table.about.title]
        heads += [*table.columns, *table.about.columns.values()]
        spoken |= {w.lower() for text in heads for w in WORD.findall(text) if len(w) > 1}
        cells = [v for values in table.values.values() for v in values]
        cells += [v for half in table.halves for v in half.values]
        spoken |= {w.lower() for cell in cells for w in WORD.findall(cell)}
        for column in table.numbers:
            rng = Random(derive_seed(seed, "factor", name, column))
            whole = column in table.whole
            drawn = Decimal(rng.choice(_WHOLE)) if whole else Decimal(rng.randrange(12, 98)) / 10
            factors.setdefault(column, drawn)
    shift = Random(derive_seed(seed, "shift", name)).choice(_SHIFTS)
    old = sorted(spoken - CALENDAR)
    new = new_words(len(old), derive_seed(seed, "words", name), frozenset(spoken | CALENDAR))
    return Key(dict(zip(old, new, strict=True)), factors, shift)


_SWAPPED = str.maketrans(",.", ".,")


def scaled(cell: Any, factor: Decimal, mark: str = ".") -> Any:
    """A number times the factor, exactly, with the marks it is written with (`mark` before the
    decimals of a text); else unchanged."""
    if isinstance(cell, str) and mark == ",":
        return scaled(cell.translate(_SWAPPED), factor).translate(_SWAPPED)
    if isinstance(cell, str):
        match = _MARKED.fullmatch(cell)
        if match is None:
            return cell
        before, digits, after = match.groups()
        value = Decimal(digits.replace(",", "")) * factor
        return (
            f"{before}{value:,f}{after}" if "," in digits else f"{before}{_written(value)}{after}"
        )
    if cell is None or isinstance(cell, bool) or cell != cell:
        return cell
    try:
        value = Decimal(str(cell)) * factor
    except InvalidOperation:
        return cell
    return int(value) if value == value.to_integral_value() and abs(value) < 2**53 else float(value)


def _written(value: Decimal) -> str:
    return f"{value:f}" if -12 < value.adjusted() < 16 else str(value)


def moved(cell: Any, shift: int) -> Any:
    """A year moved by whole years; what is no year stays."""
    try:
        value = Decimal(str(cell)) + shift
    except InvalidOperation:
        return cell
    if not value.is_finite():
        return cell
    return str(value) if isinstance(cell, str) else type(cell)(value)


def change_frame(frame: Frame, table: Table, key: Key) -> Frame:
    """A table's cells and column names under the key. Raises ValueError when two names meet."""
    out = frame.astype(object).copy()
    kinds = {c: frame[c].dtype for c in frame.columns}
    mark = "," if table.reading.decimal == "," else "."
    holes = table.reading.missing
    for column in out.columns:
        kept = frozenset(w.strip() for w in holes.get(str(column), ()))
        if column in table.numbers:
            factor = key.factors[column]
            out[column] = out[column].map(
                lambda v, f=factor, k=kept: v if _said(v) in k else scaled(v, f, mark)
            )
        elif column in table.years:
            out[column] = out[column].map(
                lambda v, k=kept: v if _said(v) in k else moved(v, key.shift)
            )
        elif str(column) not in _plain(table):
            gone = kept | _ABSENT
            out[column] = out[column].map(
                lambda v, k=gone: key.said(v) if isinstance(v, str) and v.strip() not in k else v
            )
        if kinds[column].kind in "iuf":  # a typed file keeps a column of numbers
            whole = kinds[column].kind != "f" and all(isinstance(v, int) for v in out[column])
            out[column] = out[column].astype("int64" if whole else "float64")
    names = [key.said(str(c)) for c in out.columns]
    if len(set(names)) < len(names):
        raise ValueError("two columns have one name under the key")
    out.columns = names
    return out


def _plain(table: Table) -> frozenset[str]:
    """Columns whose cells are numbers or dates: no names stand there."""
    return frozenset((*table.reading.numbers, *table.reading.dates))


def texts_in(frame: Frame, table: Table) -> list[str]:
    """Every distinct text of a table's cells, whatever its column is good for."""
    found: set[str] = set()
    for column in frame.columns:
        if str(column) not in _plain(table) and frame[column].dtype.kind not in "iufbmM":
            cells = frame[column].dropna().unique().tolist()
            found |= {c for c in cells if isinstance(c, str) and c.strip() not in _ABSENT}
    return sorted(found)


_NAMED = (  # fields of a table that list columns
    *("columns", "numbers", "groups", "names", "keys", "years", "single_years"),
    *("totals", "holes", "whole"),
)


def change_table(table: Table, key: Key) -> Table:
    """The description of a changed table: every field mapped in its order, so that a question
    composed from the same draws asks the same of it."""
    return replace(
        table,
        reading=_renamed(table, key),
        **{kind: tuple(map(key.said, getattr(table, kind))) for kind in _NAMED},
        halves=tuple(
            Half(key.said(h.column), h.cut, tuple(map(key.said, h.values))) for h in table.halves
        ),
        values={key.said(c): [key.said(v) for v in vs] for c, vs in table.values.items()},
        fewest={key.said(c): n for c, n in table.fewest.items()},
        spans={key.said(c): [v + key.shift for v in vs] for c, vs in table.spans.items()},
        levels={
            key.said(c): [float(Decimal(str(v)) * key.factors[c]) for v in vs]
            for c, vs in table.levels.items()
        },
        marks=frozenset(f"{mark} obscured" for mark in table.marks),
        about=About(
            key.said(table.about.title),
            table.about.licence,
            columns={key.said(c): key.said(w) for c, w in table.about.columns.items()},
        ),
        sense={key.said(c): replace(s, name=key.said(c)) for c, s in table.sense.items()},
        doubts=(),
        refers=tuple(
            Refers(key.said(r.column), key.said(r.part), key.said(r.theirs)) for r in table.refers
        ),
    )


def _said(cell: Any) -> str:
    """A cell as the words for missing values are written."""
    return cell.strip() if isinstance(cell, str) else f"{cell:g}" if is_number_cell(cell) else ""


def _part(reading: ReadPlan) -> str:
    """The part of a file that has a name of its own: tables of a page are numbered."""
    return "" if reading.form == "html" else reading.part


def _renamed(table: Table, key: Key) -> ReadPlan:
    """How the changed table is read, before its file is written: no such file, so that no pipeline
    runs on it."""
    layout = layout_of(table, key)
    return ReadPlan(f"{layout.path}.unread", table.reading.form, layout.sheet)


_SUFFIXES = {  # of the forms that are written; any other becomes delimited text
    "csv": (".csv", ".tsv", ".tab", ".psv", ".txt", ".dat", ".data"),
    "excel": (".xlsx", ".xlsm"),
    "json": (".json",),
    "lines": (".jsonl", ".ndjson"),
    "parquet": (".parquet", ".pq"),
    "html": (".html", ".htm"),
    "sqlite": (".sqlite", ".sqlite3", ".db"),
}
_NO_SHEET = re.compile(r"[\[\]:*?/\\!]")  # no sheet may be called so


def layout_of(table: Table, key: Key, top: Sequence[str] = ()) -> Layout:
    """The file that the changed table is written into; `top` stands above the names there."""
    old = table.reading
    path = key.path(old.path)
    form = old.form if old.form in _SUFFIXES else "csv"
    part = key.said(_part(old))
    if Path(path).suffix.lower() not in _SUFFIXES[form] or old.form == "zip":
        inside = f"-{_NO_SHEET.sub('_', part)}" if form == "csv" and part else ""
        path = f"{path}{inside}{_SUFFIXES[form][0]}"
    if form == "excel":
        part = _NO_SHEET.sub("_", part)[:31]  # a workbook's own limit
    sheet = "" if form == "csv" else part
    return Layout(path, cast("Any", form), old.sep, sheet=sheet, top=tuple(map(key.said, top)))


def _rule(table: Table, rule: FileSettings, layout: Layout, key: Key) -> dict[str, Any]:
    """What `tables.yaml` has to say of the changed table: what the user said, where it still holds
    of the file as it is written now; and the decimal mark, as a factor may make `1.234` of `0.62`.
    """
    reading, made = table.reading, dict[str, Any]()

    def named(columns: Iterable[str]) -> dict[str, str]:
        return {c: key.said(c) for c in columns if c == "*" or c in table.columns}

    if rule.sep and layout.form == "csv":
        made["sep"] = layout.sep
    if rule.skip is not None:
        made["skip"] = len(layout.top)
    if layout.form in ("csv", "html") and (reading.decimal or table.numbers):
        made["decimal"] = reading.decimal or "."
        made |= {"thousands": reading.thousands} if reading.thousands else {}
    made["missing"] = {n: list(rule.missing[c]) for c, n in named(rule.missing).items()}
    made["dates"] = {n: rule.dates[c] or False for c, n in named(rule.dates).items()}
    made["text"] = [*named(rule.text).values()]
    made["numbers"] = [*named(rule.numbers).values()]
    made["spellings"] = dict.fromkeys(named(rule.spellings).values(), "distinct")
    made = {k: v for k, v in made.items() if v or k == "skip"}
    if rule.drop_rows is not None or rule.drop_where:  # all that are left are rows
        made["drop_rows"] = []
    return made


def _above(reading: ReadPlan, folder: Path) -> tuple[str, ...]:
    """The lines above the column names."""
    if reading.form not in ("csv", "excel"):
        return ()
    place = folder / reading.path
    return top_lines(place, reading.form, reading.part, reading.skip, reading.encoding)


def obscure_tables(
    folder: Path, name: str, tables: Sequence[Table], used: Collection[str], seed: int, target: Path
) -> list[Table]:
    """The changed descriptions of all tables, in order; the files in `used` (old paths) are written
    below `target`, with `tables.yaml`, and read again. A file that cannot be written under the key,
    or cannot be read then, is left out, as all others are: questions about it find no file."""
    raw: dict[str, Frame] = {}
    above: dict[str, tuple[str, ...]] = {}
    texts: list[str] = []
    for table in tables:
        if table.path not in used:
            continue
        try:
            raw[table.key] = written(table.reading, folder)
        except (TaskError, ValueError, TypeError, OverflowError):
            continue
        above[table.key] = _above(table.reading, folder)
        texts += [*texts_in(raw[table.key], table), *above[table.key]]
    key = make_key(name, tables, seed, texts)
    said = read_settings(folder)
    files: dict[str, list[_Written]] = {}
    rules: dict[tuple[str, str], dict[str, Any]] = {}
    for place, table in enumerate(tables):
        if table.key not in raw:
            continue
        layout = layout_of(table, key, above[table.key])
        try:
            frame = change_frame(raw[table.key], table, key)
        except (ValueError, TypeError, OverflowError):
            continue
        parts = files.setdefault(layout.path, [])
        if layout.sheet in (other.sheet for _, other, _ in parts):
            layout = replace(layout, sheet=f"{layout.sheet[:28]}_{len(parts)}")
        parts.append((place, layout, frame))
        rule = _rule(table, said.of(table.path, table.reading.part), layout, key)
        part = str(len(parts) - 1) if layout.form == "html" else layout.sheet
        rules[layout.path, part] = rule
    for parts in files.values():
        write_frames(target, [(layout, frame) for _, layout, frame in parts])
    write_rules(target, rules)
    found = [change_table(table, key) for table in tables]
    for path, parts in files.items():
        readings = _read_again(target, path)
        for number, (place, layout, _) in enumerate(parts):
            part = str(number) if layout.form == "html" else layout.sheet
            if part in readings:
                found[place] = replace(found[place], reading=readings[part])
    return found


_Written = tuple[int, Layout, Frame]  # (place among the tables, how it is laid out, the table)


def _read_again(target: Path, path: str) -> dict[str, ReadPlan]:
    """The tables of a written file that are read, by their parts."""
    found = (one[0] for one in load_file(target / path, target) if not isinstance(one, Skipped))
    return {plan.part: plan for plan in found}
