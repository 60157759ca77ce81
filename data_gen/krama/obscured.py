"""Published tasks obscured: names exchanged in a view of the lake, the question and the answers.

Words are exchanged for invented ones, so that recall from memory does not help. A bijection over
words, applied to every text of a view (files, file names, question, answers, steps), keeps
equality, joins, prefixes and splits. New words are handed out in the old words' alphabetical order,
so sorting among them is kept too. Numbers stay: the published tasks come without their pipelines,
so no answer could be recomputed. Generated tasks have their numbers changed as well
(data_gen/queries/obscured.py).
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

from assay.seeds import derive_seed
from data_gen.krama.importer import Entry

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
