"""Published tasks obscured: names exchanged in a view of the lake, the question and the answers.

Numbers stay: the published tasks come without their pipelines, so no answer could be recomputed.
Generated tasks carry theirs, and have their numbers changed as well (generated.py).
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
from typing import Any

from assay.seeds import derive_seed
from data_gen.krama.importer import Entry
from data_gen.krama.obscure.words import CALENDAR, WORD, exchange, exchange_all, new_words

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
        notes={**entry.notes, "names": str(len(book))},
        plain=_before(entry.answer, book),
    )
    return made, target.resolve(), [exchange(f, book) for f in gold]
