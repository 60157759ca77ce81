# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Fingerprints of what two tasks or splits must not share: tables, columns of numbers, texts.

A table is known by what stands in it, never by its name. A column's mark is a hash of its sorted
values, so that it survives sorting, renaming and another format, and most columns of a copy have
the same. A row's mark is the sum of its cells' hashes, whatever their order; the smallest of them
are a sample of the rows, so that two draws of rows from one table are known for kin.

A copy may also call its rows by numbers instead of names, hold more of them, or give thousands for
units. What stays is the set of values of each measured column, kept as two small samples (the least
hashes): of the digits of its values, which a change of unit by a power of ten leaves alone, and of
the ratios of neighbours in size, which any factor leaves alone.

A text is compared by its shingles: five words where a script has spaces, three characters where it
has none (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan), each at its place in a mixed text.
Case, forms of characters (NFKC) and characters that do not show do not count.
"""

from __future__ import annotations

import hashlib
import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from assay.family import Family, called, family_of
from assay.task import GOLD_LEFT_OUT, Task

# ---- columns of numbers

SKETCH = 24  # hashes that are kept of a set
DIGITS = 6  # of a value that count: more of them are lost where a writer rounds
LONG = 100  # from here on a value's digits are its own: shorter ones are in every table
VALUES = 20  # distinct values of a column that says something
FULL = 0.2  # share of the values between its ends that such a column may hold
RARE = 0.05  # share of all values of as many digits that it may hold
APART = 0.003  # neighbours whose ratio is counted are so far apart: nearer ones are all alike
HUGE = 1e12  # ratios from here on are one: as parts of a million they fit into 64 bits
SAME_VALUES, SAME_RATIOS = 0.35, 0.5  # share of two columns' sets that both have, estimated
COLUMNS, SHARE = 2, 0.6  # columns of the narrower table that must be in the other
_TABLE, _COLUMN, _RATIOS = -1, -2, -3  # before what they say, in a list of sketches

Array = Any  # a numpy array


@dataclass(frozen=True)
class Numbers:
    """A column: `values` and `ratios`, each the `SKETCH` smallest hashes, in order."""

    values: tuple[int, ...]
    ratios: tuple[int, ...]

    def like(self, other: Numbers) -> bool:
        """Whether two columns hold the same quantities, but for a factor and some of the rows."""
        if shared(self.values, other.values) >= SAME_VALUES:
            return True
        return shared(self.ratios, other.ratios) >= SAME_RATIOS


def packed(numbers: Sequence[Numbers]) -> list[int]:
    """The sketches of a table as one list: no hash is below 0, so that negative numbers tell where
    a table, the values and the ratios of a column begin. Empty where nothing can be like it."""
    if len(numbers) < COLUMNS:
        return []
    found = [_TABLE]
    for column in sorted(numbers, key=lambda n: (n.values, n.ratios)):
        found += (_COLUMN, *column.values, _RATIOS, *column.ratios)
    return found


def unpacked(marks: Iterable[int]) -> list[tuple[Numbers, ...]]:
    """The tables of such lists, one behind the other. Raises ValueError for anything else."""
    tables: list[list[tuple[list[int], list[int]]]] = []
    part: list[int] | None = None
    for mark in marks:
        if mark == _TABLE:
            tables.append([])
            part = None
        elif mark == _COLUMN and tables:
            tables[-1].append((part := [], []))
        elif mark == _RATIOS and tables and tables[-1]:
            part = tables[-1][-1][1]
        elif mark >= 0 and part is not None:
            part.append(mark)
        else:
            raise ValueError("sketches of tables are out of order")
    return [tuple(Numbers(tuple(v), tuple(r)) for v, r in table) for table in tables]


def shared(one: Sequence[int], other: Sequence[int]) -> float:
    """The estimated share of two sets' members that are in both (bottom-k Jaccard)."""
    common = {*one} & {*other}
    if not common:
        return 0.0
    both = sorted({*one, *other})[:SKETCH]
    return sum(mark in common for mark in both) / len(both)


def same_numbers(ones: Sequence[Numbers], others: Sequence[Numbers]) -> bool:
    """Whether most columns of the narrower table are columns of the other, `COLUMNS` at least."""
    least = min(len(ones), len(others))
    wanted = max(COLUMNS, SHARE * least)
    if least < wanted:
        return False
    pairs = [(i, j) for i, a in enumerate(ones) for j, b in enumerate(others) if a.like(b)]
    return min(len({i for i, _ in pairs}), len({j for _, j in pairs})) >= wanted


def numbers_of(column: Any) -> Numbers | None:
    """The sketches of a pandas column; None for one that is not of numbers or says nothing."""
    import numpy as np

    if column.dtype.kind not in "iuf":
        return None
    values = np.abs(column.dropna().to_numpy(dtype=float))
    values = np.unique(values[np.isfinite(values) & (values > 0)])
    if len(values) < VALUES or _fills(values):
        return None
    every = _digits(values)
    digits = np.unique(every[every >= LONG])
    as_long = 9 * 10.0 ** np.floor(np.log10(np.median(digits))) if len(digits) else 0.0
    if not VALUES <= len(digits) <= RARE * as_long:
        return None
    ratios = values[1:] / values[:-1] - 1
    kept = (ratios >= APART) & (every[1:] >= 10 * LONG) & (every[:-1] >= 10 * LONG)
    far = np.unique(np.round(np.minimum(ratios[kept], HUGE) * 1e6))
    return Numbers(_least_hashes(digits), _least_hashes(far) if len(far) >= VALUES else ())


def _digits(values: Array) -> Array:
    """Whole numbers: the first `DIGITS` digits of each, without zeros at the end."""
    import numpy as np

    places = np.floor(np.log10(values))
    found = np.round(values / 10.0 ** (places - DIGITS + 1)).astype(np.int64)
    for _ in range(DIGITS):
        found = np.where(found % 10 == 0, found // 10, found)
    return found


def _fills(values: Array) -> bool:
    """Whether a column holds much of what lies between its ends, in steps of its own: ages, years
    and percentages do, in unrelated tables."""
    import numpy as np

    for places in range(7):
        scaled = values * 10.0**places
        whole = np.round(scaled)
        if np.allclose(scaled, whole, rtol=1e-9, atol=1e-6):
            break
    else:
        return False
    if whole[-1] > HUGE * 1e6:
        return False
    step = float(np.gcd.reduce(np.diff(whole).astype(np.int64))) or 1.0
    return bool(len(whole) > FULL * ((whole[-1] - whole[0]) / step + 1))


def _least_hashes(values: Array) -> tuple[int, ...]:
    import numpy as np

    hashes = np.unique(spread(values.astype(np.uint64) + np.uint64(1)) & np.uint64(MASK))
    return tuple(int(mark) for mark in hashes[:SKETCH])


def spread(values: Any) -> Any:
    """Spread 64-bit numbers evenly (splitmix64)."""
    import numpy as np

    with np.errstate(over="ignore"):
        x = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


# ---- tables

LEAST = 8  # distinct values of a column that says something
ENOUGH = 3  # such columns, for rows to be told by them
SAMPLE = 64  # marks of rows that are kept
SAME_COLUMNS, SAME_ROWS = 0.6, 0.25
MASK = (1 << 63) - 1  # positive, and an int64 for every reader of JSON and parquet
Known = Callable[[Sequence[int]], Sequence[bool]]
KnownNumbers = Callable[[Sequence[Numbers]], bool]


def _none(numbers: Sequence[Numbers]) -> bool:
    return False


@dataclass(frozen=True)
class TableMarks:
    """`columns`: one mark for each that says something. `rows`: the smallest marks of its rows, in
    order, `SAMPLE` at most. `numbers`: sketches of its columns of numbers."""

    columns: frozenset[int]
    rows: tuple[int, ...] = ()
    numbers: tuple[Numbers, ...] = ()

    def __str__(self) -> str:
        """The same text for the same table."""
        return "table " + " ".join(f"{mark:016x}" for mark in sorted(self.columns))

    def __bool__(self) -> bool:
        return bool(self.columns)

    def all(self) -> set[int]:
        """Every mark: tables that are like each other have one in common at least."""
        sketches = {mark for n in self.numbers for mark in (*n.values, *n.ratios)}
        return {*self.columns, *self.rows, *sketches}

    def like(self, other: TableMarks) -> bool:
        """Whether most columns of the narrower table are columns of the other, rows of one are rows
        of the other, or most measured columns of one hold the quantities of the other's."""
        least = min(len(self.columns), len(other.columns))
        if least and len(self.columns & other.columns) >= SAME_COLUMNS * least:
            return True
        if min(len(self.rows), len(other.rows)) >= LEAST and self._shared(other) >= SAME_ROWS:
            return True
        return same_numbers(self.numbers, other.numbers)

    def _shared(self, other: TableMarks) -> float:
        """The estimated share of all rows of both that both have (bottom-k Jaccard)."""
        both = sorted({*self.rows, *other.rows})[:SAMPLE]
        common = {*self.rows} & {*other.rows}
        return sum(mark in common for mark in both) / len(both)

    def within(self, known: Known, measured: KnownNumbers = _none) -> bool:
        """Whether the table is one of those whose marks are in a set, or whose measured columns
        `measured` knows."""
        if len(self.numbers) >= COLUMNS and measured(self.numbers):
            return True
        if not self.columns:
            return False
        if sum(known(sorted(self.columns))) >= SAME_COLUMNS * len(self.columns):
            return True
        return len(self.rows) >= LEAST and sum(known(self.rows)) >= SAME_ROWS * len(self.rows)


def marks_of_frame(frame: Any) -> TableMarks:
    """The marks of a pandas frame. Columns of fewer than `LEAST` distinct values say nothing, nor
    do those that only count the rows."""
    import numpy as np

    columns: list[int] = []
    made = (numbers_of(frame.iloc[:, place]) for place in range(frame.shape[1]))
    numbers = tuple(found for found in made if found is not None)
    total = np.zeros(len(frame), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for place in range(frame.shape[1]):  # by place: names may repeat
            cells = _cells(frame.iloc[:, place])
            if cells is None:
                continue
            columns.append(_digest(np.sort(cells[cells != 0])))
            total += cells
    if len(columns) < ENOUGH:  # rows of two columns are alike by chance
        return TableMarks(frozenset(columns), (), numbers)
    rows = np.unique(spread(total[total != 0]) & np.uint64(MASK))[:SAMPLE]
    return TableMarks(frozenset(columns), tuple(int(mark) for mark in rows), numbers)


def _cells(column: Any) -> Any:
    """A hash of each cell (0: no value), None for a column that says nothing."""
    import numpy as np
    import pandas as pd

    there = column.notna().to_numpy()
    filled = column[there]
    if column.dtype.kind in "iufb":
        values = filled.to_numpy(dtype=float)
        # four bytes: what another writer rounded, and −0, are the same number
        kept = values.astype("<f4") + np.float32(0)
        if len(np.unique(kept)) < LEAST or _counts(values):
            return None
        hashes = spread(kept.view("<u4").astype(np.uint64) + np.uint64(1))
    else:
        if column.dtype.kind == "M" or all(type(v) is str for v in filled):
            codes, distinct = pd.factorize(filled)  # of equal cells one is looked at
        else:
            codes, distinct = np.arange(len(filled)), filled
        said = [_said(value) for value in distinct]
        own = {text: _text_hash(text) for text in said}
        if len(own) < LEAST:
            return None
        hashes = np.array([own[text] for text in said], dtype=np.uint64)[codes]
    cells = np.zeros(len(column), dtype=np.uint64)
    cells[there] = hashes
    return cells


def _counts(values: Any) -> bool:
    """Whether a column only numbers its rows: whole numbers, no two equal, with few gaps."""
    import numpy as np

    if not np.isfinite(values).all() or (values != np.round(values)).any():
        return False
    return len(np.unique(values)) == len(values) and float(np.ptp(values)) < 2 * len(values)


def _said(value: Any) -> str:
    if hasattr(value, "isoformat"):
        return str(value.isoformat()).removesuffix("T00:00:00").casefold()
    return normal(str(value))


def _text_hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") | 1


def _digest(values: Any) -> int:
    """The mark of a column's sorted cells."""
    digest = hashlib.blake2b(values.astype("<u8").tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "big") & MASK


# ---- columns as they are however they are kept


def column_hashes(frame: Any) -> frozenset[str]:
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


def few(column: Any, least: int) -> bool:
    """Whether a column has fewer different values than that; False where they cannot be told
    apart without reading them as texts."""
    try:
        return bool(column.nunique() < least)
    except TypeError:  # lists and the like
        return False


def plain_values(column: Any) -> Any:
    """The present values of a column as they are however they are kept: numbers and days (in
    seconds) as an array of floats, anything else as a list of texts."""
    import pandas as pd

    from assay.tables.columns import date_format, days_of

    column = column.dropna()
    if column.dtype.kind == "M":
        if getattr(column.dtype, "tz", None) is not None:
            column = column.dt.tz_convert(None)  # numpy's days know no zones
        return column.to_numpy().astype("M8[s]").astype("i8").astype("f8")
    if column.dtype.kind in "iufb":
        return column.to_numpy(dtype="f8")
    said = column.tolist()
    bare = {v: " ".join(v.split()).casefold() for v in {v for v in said if type(v) is str}}
    words: Any = pd.Series([bare[v] if type(v) is str else _bare(v) for v in said])
    distinct: list[str] = words.unique().tolist()
    numbers: Any = pd.to_numeric(pd.Series(distinct), errors="coerce")
    if numbers.notna().all():
        plain: Any = pd.to_numeric(words, errors="coerce")
        return plain.to_numpy(dtype="f8")
    days = days_of(distinct)
    form = date_format(distinct, days, {})[0]
    if not form:
        return words.tolist()
    return plain_values(words.map(dict(zip(distinct, days[form], strict=True))))


def _bare(value: Any) -> str:
    return " ".join(str(value).split()).casefold()


# ---- tables in files, each read once a process as long as it stays as it is

FILES = 40  # of a folder, where no task says which it uses


def tables_of(paths: Iterable[Path]) -> list[TableMarks]:
    """The marks of every table in files that can be read as tables, each once."""
    found: dict[TableMarks, None] = {}
    for path in paths:
        try:
            about = path.stat()
        except OSError:
            continue
        found |= dict.fromkeys(_of_file(str(path), about.st_size, about.st_mtime_ns))
    return [table for table in found if table]


def tables_below(folder: Path, names: Iterable[str]) -> list[TableMarks]:
    """The marks of the tables in these files of a folder, given by their place in it; without
    names those of its first `FILES` files."""
    places = [folder / name for name in names]
    return tables_of(places or list(_first(folder)))


def _first(folder: Path) -> Iterator[Path]:
    from assay.tables.formats import form_of

    files = sorted(path for path in folder.rglob("*") if path.is_file() and form_of(path))
    yield from files[:FILES]


@lru_cache(maxsize=4096)
def _of_file(path: str, size: int, changed: int) -> tuple[TableMarks, ...]:
    del size, changed  # part of the key: another content of the same file is read anew
    from assay.tables.load import load_file
    from assay.tables.plan import Skipped

    tables = load_file(Path(path), Path(path).parent)
    return tuple(marks_of_frame(one[1]) for one in tables if not isinstance(one, Skipped))


# ---- texts

WORDS, ALONE = 5, 3  # of a shingle: words; characters without spaces, which say half as much
_WORD = re.compile(r"\w+")
# letters and vowel signs of scripts that set no spaces between words
_SPACELESS = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf"
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\ua980-\ua9ff\uaa60-\uaa7f\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_ALONE = re.compile(f"[{_SPACELESS}]")
_TOKEN = re.compile(f"[{_SPACELESS}]|[^\\W{_SPACELESS}]+")


def tokens(text: str) -> tuple[list[str], list[int]]:
    """The words of a text, characters without spaces by themselves; and how many tokens make a
    shingle from each on (no widths where all are words)."""
    if text.isascii():
        return _WORD.findall(text.lower()), []
    folded = unicodedata.normalize("NFKC", text).casefold()
    shown = "".join(c for c in folded if c.isascii() or unicodedata.category(c) != "Cf")
    if _ALONE.search(shown) is None:
        return _WORD.findall(shown), []
    found = _TOKEN.findall(shown)
    return found, [ALONE if _ALONE.match(token) else WORDS for token in found]


def shingles(found: list[str], widths: list[int]) -> set[str]:
    """The shingles of what `tokens` gives."""
    starts = enumerate(widths or [WORDS] * len(found))
    return {" ".join(found[at : at + n]) for at, n in starts if at + n <= len(found)}


TAG = re.compile(r"<[^>\n]+>")
_LETTERS = re.compile(r"[^\W_]+")  # the characters for which str.isalnum holds
_NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalnum())


@lru_cache(maxsize=1 << 16)  # the same sentences are asked about by every pool and certificate
def canonical_hash(text: str) -> str:
    """Same hash for texts that differ only in case, space, markup or punctuation."""
    said = html.unescape(TAG.sub("", text)).lower()
    if said.isascii():  # the same by bytes, ten times as fast
        letters = said.encode().translate(None, _NO_LETTERS)
    else:
        letters = "".join(_LETTERS.findall(said)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(letters).hexdigest()[:24]


# ---- the marks of a task
# What of a task must not meet it again, as 63-bit marks: its contents, its tables, what it asks.
#
# Marks say whether two tasks are one without keeping either: a model's record of what it was
# trained on (`train/run/trained_on.py`) and the rows of rollouts hold nothing else.


def normal(text: str) -> str:
    """The text without what an eye overlooks: case, runs of space, and forms of characters."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def contents(task: Task) -> list[str | TableMarks]:
    """`Family.content` of a task. Raises `TaskError` naming the task where it raises."""
    family = family_of(task)
    if task.meta.get(GOLD_LEFT_OUT):  # what is left is what a model reads
        return [str(m.get("content") or "") for m in task.prompt if m.get("role") == "user"]
    with called(family, task, "content"):
        found = list(family.content(task))
    return [one if isinstance(one, TableMarks) else str(one) for one in found]


@dataclass(frozen=True)
class Marks:
    """One of `texts` is enough to know the task again; a table counts by most of its marks."""

    texts: tuple[int, ...]
    tables: tuple[TableMarks, ...] = ()

    def flat(self) -> list[int]:
        """All of them, each once, in order; behind them the sketches of each table's columns of
        numbers (`packed`), which begin with a negative number."""
        own = [mark for table in self.tables for mark in (*table.columns, *table.rows)]
        sketches = sorted({tuple(packed(table.numbers)) for table in self.tables})
        return [*sorted({*self.texts, *own}), *chain.from_iterable(sketches)]

    def within(self, known: Known, measured: KnownNumbers) -> bool:
        """Whether these are marks of something in a set: `known` says of each mark whether it is
        in the set, `measured` of a table's columns of numbers whether a table there has them."""
        if any(known(self.texts)):
            return True
        return any(table.within(known, measured) for table in self.tables)


def text_mark(text: str) -> int:
    """The mark of a text, the same but for case, space and forms of characters."""
    digest = hashlib.sha256(normal(text).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") & MASK


def asked_mark(messages: Iterable[Mapping[str, Any]], *of: str) -> int:
    """The mark of what a chat says before the model's first turn; `of`: what belongs to it beside
    the words."""
    said: list[str] = ["asked", *of]
    for message in messages:
        if message.get("role") == "assistant":
            break
        said.append(str(message.get("content") or ""))
    return text_mark("\x1f".join(said))


def marks_of(task: Task) -> Marks:
    """Compute the marks of a task, 63-bit numbers of its question, texts and tables. Its files are
    read, so their paths must open from here. Raises `TaskError` where its family does.

    Two tasks with the same words and no files are one. With files the words may be the same for
    every task ("predict the kind"), so that there the id counts too. So they may where a family of
    somebody's own says itself what its content is: there the content counts.
    """
    found = contents(task)
    said = [text for text in found if isinstance(text, str) and normal(text)]
    family = family_of(task)
    own: tuple[str, ...] = (task.family, task.id) if task.files else ()
    if not own and family.origin and family.content is not Family.content:
        own = (task.family, *map(normal, said))
    texts = map(text_mark, said)
    tables = tuple(table for table in found if isinstance(table, TableMarks))
    return Marks((asked_mark(task.prompt, *own), *texts), tables)


def row_marks(row: Mapping[str, Any]) -> list[int]:
    """The marks of a row that something is learned from: those it brings (`assay rollout` writes
    them, `assay select` keeps them), else of the chat that it is."""
    if brought := row.get("marks"):
        return [int(mark) for mark in brought]
    return [asked_mark(row["messages"])] if isinstance(row.get("messages"), list) else []
