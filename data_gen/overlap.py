"""What two sets of tasks share: texts exactly and nearly, tables, documents and recipes.

Inputs and references are compared by canonical hash (letters and digits only, so that cleaning
does not hide a copy) and by an estimate of the Jaccard similarity of their shingles by MinHash
(`assay.fingerprints`: words, or characters where a script has no spaces); tables by their marks;
recipes by their operators in order.

A chunk of a file is worked out by itself (by a worker process). One side is held in arrays: a text
takes about 200 bytes, and `Side.bytes` says what is held, so that a check can go over the other
side in pieces that fit into memory.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from assay.family import family_of
from assay.fingerprints import (
    ALONE,
    WORDS,
    TableMarks,
    canonical_hash,
    contents,
    normal,
    spread,
    tables_of,
    tokens,
)
from assay.rows import blocks
from assay.task import Task, parse_object, refuse_unfinished, with_absolute_files
from assay.workers import WorkerPool, limit_threads

# 16 bands of 4: of pairs at a Jaccard similarity of 0.8 the bands miss one in 4,500, at 0.5 a
# third. The estimate over 64 permutations is off by about 0.05.
PERMUTATIONS, BANDS = 64, 16
SIGNATURE = 2 * PERMUTATIONS  # bytes
NEAR = 0.8
PARTS = ("contents", "inputs", "references")
CROWD = 64  # texts of one band that a check looks at: a phrase that all have tells nothing
_LEAST_WORDS = 8  # shorter texts are alike by chance
_BLOCK, _PAIRS = 256, 65_536  # signatures and pairs that are compared at a time
_TEXT_BYTES = 8 + 8 + SIGNATURE + 4 * BANDS + 8
_ROW_BYTES = 200  # its id, document and recipe
Values = Any  # a numpy array of whole numbers
# (row → row of the other side) exactly, and (row → that row, how like) nearly
Hits = tuple[dict[int, int], dict[int, tuple[int, float]]]
# What a text is compared by: its canonical hash, and its signature, None where it is short.
Print = tuple[str, bytes | None]


# --- texts


def _coefficients() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.Generator(np.random.Philox(2606))
    odd = rng.integers(0, 1 << 63, PERMUTATIONS, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    return odd, rng.integers(0, 1 << 63, PERMUTATIONS, dtype=np.uint64)


_A, _B = _coefficients()


@lru_cache(maxsize=4096)  # many tasks share an input
def signature(text: str) -> bytes | None:
    """MinHash of the text's shingles, as bytes; None for short texts."""
    found, widths = tokens(text)
    if 2 * len(found) - widths.count(ALONE) < 2 * _LEAST_WORDS:
        return None
    said = memoryview(" ".join(found).encode("utf-8", "replace"))
    spaces = np.flatnonzero(np.frombuffer(said, dtype=np.uint8) == ord(" ")).tolist()
    starts = [0, *(place + 1 for place in spaces)]
    ends = [*spaces, len(said)]
    if widths:  # so many tokens from each on, with the spaces between them
        places = (at + width - 1 for at, width in enumerate(widths))
        pairs = (
            (a, ends[last]) for a, last in zip(starts, places, strict=True) if last < len(ends)
        )
    else:
        pairs = zip(starts, ends[WORDS - 1 :], strict=False)
    shingles = {zlib.crc32(said[a:b]) for a, b in pairs}
    # spread first: a product of small numbers keeps their order, and all minima would be of one
    values = spread(np.fromiter(shingles, dtype=np.uint64, count=len(shingles)))
    with np.errstate(over="ignore"):
        mixed = values[:, None] * _A + _B
    # 16 bits of each: spread, for the low bits of two products may agree for ever
    return cast("bytes", spread(mixed.min(axis=0)).astype("<u2").tobytes())


_canonical = lru_cache(maxsize=4096)(canonical_hash)


def print_of(text: str) -> Print:
    return _canonical(text), signature(text)


class Signatures:
    """Signatures (S, 64) of which those are found that are nearly like others."""

    def __init__(self, values: Values) -> None:
        self._values, self._keys = values, _band_keys(values)
        self._orders = [
            np.argsort(self._keys[:, band], kind="stable").astype(np.uint32)
            for band in range(BANDS)
        ]

    def like(self, asked: Values, most: int = 0) -> Iterator[tuple[int, int, float]]:
        """(place asked, place here, similarity), in order, of the signatures that are nearly alike.
        At most `most` candidates, which share a band with it, are compared with each; 0: all."""
        count = len(self._values)
        for first in range(0, len(asked) if count else 0, _BLOCK):
            block = asked[first : first + _BLOCK]
            keys = _band_keys(block)
            met = [self._meeting(keys, band, most) for band in range(BANDS)]
            pairs = np.unique(np.concatenate([i * count + j for i, j in met]))
            for start in range(0, len(pairs), _PAIRS):
                i, j = np.divmod(pairs[start : start + _PAIRS], count)
                same = (block[i] == self._values[j]).mean(axis=1)
                for place in np.flatnonzero(same >= NEAR).tolist():
                    yield first + int(i[place]), int(j[place]), float(same[place])

    def _meeting(self, asked: Values, band: int, most: int) -> tuple[Values, Values]:
        """(place asked, place here) of every pair with the same key in a band; of one that is asked
        the first `most` in the order of the keys, 0: all."""
        keys, order = self._keys[:, band], self._orders[band]
        search: Any = np.searchsorted  # its types are partial with a sorter
        low = search(keys, asked[:, band], "left", sorter=order)
        many = search(keys, asked[:, band], "right", sorter=order) - low
        if most:
            many = np.minimum(many, most)
        mine: Any = np.repeat(np.arange(len(asked)), many)
        within = np.arange(len(mine)) - np.repeat(np.cumsum(many) - many, many)
        return mine, order[np.repeat(low, many) + within]


def values_of(signs: Sequence[bytes]) -> Values:
    """Signatures as an array (S, 64)."""
    return np.frombuffer(b"".join(signs), "<u2").reshape(len(signs), PERMUTATIONS)


def _band_keys(values: Values) -> Values:
    """(S, 16): the four numbers of each band as one."""
    return np.ascontiguousarray(values).view("<u8").reshape(len(values), BANDS)


# --- copies among texts


def copies(texts: Mapping[str, str]) -> dict[str, str]:
    """Each name with the first name (alphabetically) of the texts that are its copies, exactly or
    nearly; through others too, so that copies of copies stay together."""
    return copies_of({name: print_of(text) for name, text in texts.items()})


def copies_of(prints: Mapping[str, Print]) -> dict[str, str]:
    """The same from the texts' prints."""
    groups = Together()
    known: dict[str, str] = {}
    names: list[str] = []
    signs: list[bytes] = []
    for name in sorted(prints):
        digest, sign = prints[name]
        if digest in known:
            groups.join(known[digest], name)
            continue
        known[digest] = name
        if sign is not None:
            names.append(name)
            signs.append(sign)
    values = values_of(signs)
    for i, j, _ in Signatures(values).like(values):
        if j < i:
            groups.join(names[j], names[i])
    return groups.heads(prints)


# --- texts of many rows


@dataclass(frozen=True)
class Texts:
    """T texts: `owner` (T,) the row of the chunk, `exact` (T,) a hash; `signs` (S, 64) signatures
    of those that are long enough, which are of the rows `signed` (S,)."""

    owner: NDArray[np.int64]
    exact: NDArray[np.uint64]
    signed: NDArray[np.int64]
    signs: NDArray[np.uint16]

    @staticmethod
    def of(found: Iterable[tuple[int, str, bytes | None]]) -> Texts:
        """(row, what is hashed, signature if it is long enough) of every text, as arrays."""
        rows = list(found)
        signed = [(row, sign) for row, _, sign in rows if sign is not None]
        return Texts(
            np.array([row for row, *_ in rows], dtype=np.int64),
            np.array([_hash(text) for _, text, _ in rows], dtype=np.uint64),
            np.array([row for row, _ in signed], dtype=np.int64),
            values_of([sign for _, sign in signed]),
        )


@lru_cache(maxsize=4096)
def _hash(text: str) -> int:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")


class Part:
    """The texts of one part of a side. The first of alike rows stands for all. `crowd`: of the
    texts that share a band of signatures so many are looked at, 0: all."""

    def __init__(self, chunks: Sequence[tuple[int, Texts]], crowd: int) -> None:
        """`chunks`: each with the number of its first row."""
        self._crowd = crowd
        owner = np.concatenate([texts.owner + first for first, texts in chunks])
        exact = np.concatenate([texts.exact for _, texts in chunks])
        self._exact, first = np.unique(exact, return_index=True)
        self._owner = owner[first]
        signed = np.concatenate([texts.signed + first for first, texts in chunks])
        signs = np.concatenate([texts.signs for _, texts in chunks])
        signs, first = np.unique(signs, axis=0, return_index=True)
        self._signed = signed[first]
        self._near = Signatures(np.ascontiguousarray(signs))

    def find(self, texts: Texts) -> Hits:
        """The texts of a chunk that are here, each with the first of those that it is most like."""
        exact: dict[int, int] = {}
        if len(self._exact):
            at = np.searchsorted(self._exact, texts.exact).clip(max=len(self._exact) - 1)
            for place in np.flatnonzero(self._exact[at] == texts.exact):
                exact.setdefault(int(texts.owner[place]), int(self._owner[at[place]]))
        near: dict[int, tuple[float, int]] = {}
        for place, other, like in self._near.like(texts.signs, self._crowd):
            row = int(texts.signed[place])
            near[row] = max(near.get(row, (0.0, 0)), (like, -int(self._signed[other])))
        return exact, {row: (-other, like) for row, (like, other) in near.items()}


# --- refinement tasks


@dataclass(frozen=True)
class Fingerprint:
    """What of a refinement task is compared."""

    id: str
    document: str
    input: Print
    reference: Print
    recipe: str

    @property
    def template(self) -> str:
        """The recipe's operators in any order."""
        return " ".join(sorted(self.recipe.split()))


def fingerprint(task: Task) -> Fingerprint:
    gold = task.gold
    reference = str(gold.get("text", gold.get("reference_text", "")))
    steps = cast("list[dict[str, Any]]", gold.get("recipe") or [])
    names = [str(s["operator"]) for s in steps] or list(map(str, gold.get("operators") or []))
    document = str(task.meta.get("document", ""))
    return fingerprint_of(task.id, document, str(gold.get("input_text", "")), reference, names)


def fingerprint_of(
    name: str, document: str, source: str, reference: str, operators: Sequence[str]
) -> Fingerprint:
    recipe = " ".join(operators)
    return Fingerprint(name, document, print_of(source), print_of(reference), recipe)


def _compared(prints: Iterable[tuple[int, Fingerprint]], part: str) -> Texts:
    """The inputs or references (`part`) of rows, but for those without a letter."""
    said = ((row, *cast("Print", getattr(one, part))) for row, one in prints)
    return Texts.of((row, text, sign) for row, text, sign in said if text != _canonical(""))


def _hits(ours: Sequence[Fingerprint], theirs: Sequence[Fingerprint], part: str) -> Hits:
    there = Part([(0, _compared(enumerate(theirs), part))], crowd=0)
    return there.find(_compared(enumerate(ours), part))


def shared(ours: Sequence[Fingerprint], theirs: Sequence[Fingerprint]) -> set[int]:
    """Indices of ours whose input or reference occurs in theirs, exactly or nearly."""
    hits = [_hits(ours, theirs, part) for part in ("input", "reference")]
    return {row for exact, near in hits for row in (*exact, *near)}


def overlaps(ours: Sequence[Fingerprint], theirs: Sequence[Fingerprint]) -> dict[str, Any]:
    """Counts of our tasks whose input, reference or recipe occurs in the others, exactly and
    nearly (estimated Jaccard of at least 0.8), with up to 20 examples of pairs."""
    found: dict[str, Any] = {}
    for part in ("input", "reference"):
        exact, near = _hits(ours, theirs, part)
        pairs = [[ours[i].id, theirs[j].id, round(s, 3)] for i, (j, s) in sorted(near.items())]
        found[f"{part}s"] = {"exact": len(exact), "near": len(pairs), "examples": pairs[:20]}
    known = {p.recipe for p in theirs if p.recipe}
    found["recipes"] = {
        "exact": sum(p.recipe in known for p in ours),
        "distinct_shared": len({p.recipe for p in ours} & known),
        "distinct": len({p.recipe for p in ours}),
    }
    return found


# --- files of tasks


@dataclass(frozen=True)
class Lines:
    """Lines of a file, the first of which has this number."""

    path: str
    first: int
    lines: tuple[bytes, ...]


@dataclass(frozen=True)
class Prints:
    """What is compared of the R rows of a chunk. `tables`: each distinct table once, `has` (row,
    table) pairs. `document` and `recipe` are "" where a row has none."""

    ids: list[str] = field(default_factory=list[str])
    parts: dict[str, Texts] = field(default_factory=dict[str, Texts])
    tables: list[TableMarks] = field(default_factory=list[TableMarks])
    has: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    documents: list[str] = field(default_factory=list[str])
    recipes: list[str] = field(default_factory=list[str])


def chunks_of(path: Path) -> Iterator[Lines]:
    """A file in pieces of some lines."""
    refuse_unfinished(path)
    for block in blocks([str(path)]):
        yield Lines(str(path), block.number, tuple(block.data.split(b"\n")))


def _tasks_in(chunk: Lines) -> Iterator[Task]:
    """The tasks of a chunk of a tasks file or of a benchmark's row file, their files located.
    Raises `TaskError` naming file and line."""
    root = Path(chunk.path).parent
    for number, line in enumerate(chunk.lines, chunk.first):
        if not line.strip():
            continue
        where = f"{chunk.path} line {number}"
        row = parse_object(line.decode("utf-8", "replace"), where)
        if "gold" in row:
            yield with_absolute_files(Task.from_json(row, where), root)
        elif "input_text" in row:
            yield _of_row(row, number)


def _of_row(row: Mapping[str, Any], number: int) -> Task:
    """A row of the release as a task with what is compared of it."""
    gold: dict[str, Any] = {
        "input_text": row["input_text"],
        "text": row.get("reference_text") or "",
        "operators": row.get("operator_sequence") or [],
    }
    name, track = str(row.get("instance_id", number)), str(row.get("source_track", ""))
    meta = {"document": row.get("source_record_id")}
    return Task(name, "refinement", track, "other", [], gold, meta=meta)


def prints_of(chunk: Lines) -> Prints:
    """The work of one process. Raises `TaskError` for a row that cannot be read and for a family
    that is not known."""
    said: list[tuple[int, str, bytes | None]] = []
    refined: list[tuple[int, Fingerprint]] = []
    tables: dict[TableMarks, int] = {}
    made = Prints()
    for row, task in enumerate(_tasks_in(chunk)):
        family_of(task)
        made.ids.append(task.id)
        for content in contents(task):
            if isinstance(content, TableMarks):
                if content:
                    made.has.append((row, tables.setdefault(content, len(tables))))
            elif text := normal(content):
                said.append((row, text, signature(content)))
        recipe, document = "", task.meta.get("document")
        if "input_text" in task.gold:
            refined.append((row, fingerprint(task)))
            recipe = refined[-1][1].recipe
        made.documents.append("" if document is None else str(document))
        made.recipes.append(recipe)
    made.tables.extend(tables)
    made.parts["contents"] = Texts.of(said)
    made.parts["inputs"] = _compared(refined, "input")
    made.parts["references"] = _compared(refined, "reference")
    return made


class Tables:
    """Distinct tables, found by the marks of their columns and rows."""

    def __init__(self) -> None:
        self._owner: dict[TableMarks, int] = {}
        self._holders: defaultdict[int, list[TableMarks]] = defaultdict(list)
        self._asked: dict[TableMarks, int | None] = {}

    def add(self, table: TableMarks, owner: int) -> None:
        if table in self._owner:
            return
        self._owner[table] = owner
        for mark in table.all():
            self._holders[mark].append(table)

    def find(self, table: TableMarks) -> int | None:
        """A row whose task has this table, or a copy of it."""
        if table not in self._asked:
            near = {other for mark in table.all() for other in self._holders.get(mark, ())}
            alike = [self._owner[other] for other in near if table.like(other)]
            self._asked[table] = min(alike, default=None)
        return self._asked[table]


class Side:
    """Rows to compare with, as many as memory allows at a time; `close` it before it is asked."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.bytes = 0  # about what this side holds when it is closed
        self.tables = Tables()
        self.documents, self.recipes = set[str](), set[str]()
        self._chunks: list[tuple[int, Prints]] = []

    def add(self, prints: Prints) -> None:
        first = len(self.ids)
        self._chunks.append((first, prints))
        self.ids += prints.ids
        texts = sum(len(part.owner) for part in prints.parts.values())
        self.bytes += texts * _TEXT_BYTES + len(prints.ids) * _ROW_BYTES
        for row, table in prints.has:
            self.tables.add(prints.tables[table], first + row)
        self.documents.update(d for d in prints.documents if d)
        self.recipes.update(r for r in prints.recipes if r)

    def close(self) -> None:
        self.parts = {
            name: Part([(first, prints.parts[name]) for first, prints in self._chunks], CROWD)
            for name in PARTS
        }
        self._chunks = []


# --- what belongs together, directly or through others: names, copies of tables, tables that are
# drawn from one another. Their tasks belong on one side of a split. Copies of whole columns are
# known before anything is built. A table that holds some of the rows of another is known by the
# marks of its rows, and one that calls its rows something else, or measures in another unit, by
# the sketches of its numbers (`assay.fingerprints`), from the files that are shipped: the same
# marks that `assay tasks check` compares. ---

FEW = 24  # databases that are read before processes for them would have begun
TRAINING = ("train_v2", "train", "covariates_train")  # clean training files, without their ending


class Together:
    """Groups of names, each called by its least name. A name that was never joined is alone."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def head(self, name: str) -> str:
        """The least name of the group."""
        path: list[str] = []
        while (parent := self._parent.get(name, name)) != name:
            path.append(name)
            name = parent
        self._parent.update(dict.fromkeys(path, name))
        return name

    def join(self, one: str, two: str) -> None:
        """Put the groups of two names together."""
        least, most = sorted((self.head(one), self.head(two)))
        self._parent[most] = least

    def heads(self, names: Iterable[str]) -> dict[str, str]:
        """Each name with the least of its group."""
        return {name: self.head(name) for name in names}


def alike(marks: Mapping[str, Collection[Hashable]], like: Callable[[str, str], bool]) -> Together:
    """The names that are alike by `like`, of which those are asked that have a mark in common."""
    groups = Together()
    holders: defaultdict[Hashable, set[str]] = defaultdict(set)
    for name in sorted(marks):
        own = set(marks[name])
        for other in sorted({near for mark in own for near in holders[mark]}):
            if groups.head(name) != groups.head(other) and like(name, other):
                groups.join(name, other)
        for mark in own:
            holders[mark].add(name)
    return groups


def same_table(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether most columns of the narrower table are columns of the other."""
    return bool(one and other) and len(one & other) >= 0.6 * min(len(one), len(other))


def copies_of_tables(marks: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Source → the name of its group: copies of one table, and copies of copies, are together.
    The group's name does not depend on what sources are called where columns say enough."""
    groups = alike(marks, lambda one, other: same_table(marks[one], marks[other]))
    least: dict[str, str] = {}
    for name, head in groups.heads(sorted(marks)).items():
        key = min(marks[name], default=hashlib.sha256(name.encode()).hexdigest()[:16])
        least[head] = min(key, least.get(head, "g"))
    return {name: least[head] for name, head in groups.heads(sorted(marks)).items()}


def kin(marks: Mapping[str, Sequence[TableMarks]]) -> dict[str, str]:
    """Name → the least name among those whose tables are like each other, directly or through
    others."""
    own = {name: {m for table in tables for m in table.all()} for name, tables in marks.items()}

    def like(one: str, other: str) -> bool:
        return any(a.like(b) for a in marks[one] for b in marks[other])

    return alike(own, like).heads(marks)


def kin_of_databases(
    rows: Sequence[Mapping[str, Any]], databases: Path, workers: int = 1
) -> dict[str, str]:
    """Group of a table → the group it belongs to, for the rows of a question list (`kin`)."""
    marks: dict[str, list[TableMarks]] = {}
    # Every database: what one of them keeps in other files, another has at hand.
    folders = [databases / str(row["file_path"]) / "source" for row in rows]
    with WorkerPool(workers, limit_threads, few=FEW) as crew:
        for row, found in zip(rows, crew.map(_shipped, folders), strict=True):
            marks.setdefault(str(row["table_group"]), []).extend(found)
    return kin(marks)


def _shipped(folder: Path) -> list[TableMarks]:
    training = [p for p in sorted(folder.iterdir()) if p.name.partition(".")[0] in TRAINING]
    return list(tables_of(training))
