"""Tables as people keep them, written cell by cell: the writer knows the truth of every cell."""

from __future__ import annotations

import html
import random
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

Columns = dict[str, list[Any]]  # None: no value
TOWNS = ("Köln", "Bonn", "Ulm", "Fürth", "Hof")


@dataclass(frozen=True)
class Messy:
    """A file, and what its tables hold by part; or a word of the sentence that refuses it."""

    name: str
    write: Callable[[Path], dict[str, Columns]]
    refused: str = ""


def truth(rows: int, seed: int = 0) -> Columns:
    """A table of numbers, days, towns and gaps."""
    rng = random.Random(seed)
    return {
        "id": list(range(1, rows + 1)),
        "preis": [round(rng.uniform(-50, 4000), 2) for _ in range(rows)],
        "menge": [rng.randrange(1, 2_000_000) for _ in range(rows)],
        "tag": [datetime(2019, 1, 1) + timedelta(days=rng.randrange(1500)) for _ in range(rows)],
        "stadt": [rng.choice(TOWNS) for _ in range(rows)],
        "wert": [None if rng.random() < 0.2 else rng.randrange(0, 400) / 8 for _ in range(rows)],
    }


def spelled(
    value: Any, decimal: str = ".", thousands: str = "", day: str = "%Y-%m-%d", none: str = ""
) -> str:
    if value is None:
        return none
    if isinstance(value, date):
        return value.strftime(day)
    if isinstance(value, str):
        return value
    text = f"{value:,}" if thousands else str(value)
    return "".join({",": thousands, ".": decimal}.get(c, c) for c in text)


def lines(columns: Columns, sep: str, **how: str) -> list[str]:
    """Header and rows; a field with the separator or a quote in it is quoted."""

    def field(text: str) -> str:
        odd = any(c in text for c in (sep, '"', "\n"))
        return '"' + text.replace('"', '""') + '"' if odd else text

    rows = zip(*columns.values(), strict=True)
    body = [sep.join(field(spelled(v, **how)) for v in row) for row in rows]
    return [sep.join(map(field, columns)), *body]


def _text(
    name: str,
    encoding: str = "utf-8",
    sep: str = ",",
    above: Sequence[str] = (),
    rows: int = 200,
    end: str = "\n",
    **how: str,
) -> Messy:
    def write(path: Path) -> dict[str, Columns]:
        columns = truth(rows)
        path.write_bytes(end.join([*above, *lines(columns, sep, **how), ""]).encode(encoding))
        return {"": columns}

    return Messy(name, write)


def _duplicate_names(path: Path) -> dict[str, Columns]:
    columns = truth(60)
    body = lines(columns, ",")
    body[0] = "id,preis,menge,tag,preis,wert"
    path.write_text("\n".join(body) + "\n")
    columns["preis.1"] = columns.pop("stadt")
    return {"": {k: columns[k] for k in ("id", "preis", "menge", "tag", "preis.1", "wert")}}


def _one_column(path: Path) -> dict[str, Columns]:
    path.write_text("wert\n1,5\n2,25\n-3,125\n")
    return {"": {"wert": [1.5, 2.25, -3.125]}}


def _words(path: Path) -> dict[str, Columns]:
    columns: Columns = {
        "land": ["Namibia", "Norway", "Italy", "Peru"] * 10,
        "code": ["NA", "NO", "IT", "PE"] * 10,
        "plz": ["00100", "01234", "98765", "00007"] * 10,
        "text": ['say "a; b"', "two\nlines", "None", "-"] * 10,
    }
    path.write_text("\n".join(lines(columns, ";")) + "\n")
    return {"": columns}


def _sqlite(path: Path) -> dict[str, Columns]:
    found = {f"t {n}": truth(30, n) for n in range(5)}
    with sqlite3.connect(path) as db:
        for name, columns in found.items():
            db.execute(f'create table "{name}" ({", ".join(columns)})')
            rows = [
                [v.strftime("%d.%m.%Y") if isinstance(v, date) else v for v in row]
                for row in zip(*columns.values(), strict=True)
            ]
            db.executemany(f'insert into "{name}" values (?,?,?,?,?,?)', rows)
    db.close()
    return found


def _workbook(path: Path) -> dict[str, Columns]:
    import openpyxl

    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    found = {f"Blatt {n}": truth(40, n) for n in range(3)}
    for number, (name, columns) in enumerate(found.items()):
        sheet = book.create_sheet(name)
        for _ in range(number):
            sheet.append(["Stand: heute"])
        sheet.append(list(columns))
        for row in zip(*columns.values(), strict=True):
            sheet.append(list(row))
    book.save(path)
    return found


def _page(path: Path) -> dict[str, Columns]:
    columns = truth(25)
    cells = [
        "<tr>" + "".join(f"<td>{html.escape(spelled(v, ',', '.'))}</td>" for v in row) + "</tr>"
        for row in zip(*columns.values(), strict=True)
    ]
    head = "".join(f"<th>{name}</th>" for name in columns)
    body = f"<table><tr>{head}</tr>{''.join(cells)}</table>"
    path.write_text(f"<meta charset='utf-8'><p>1.234</p>{body}", encoding="utf-8")
    return {"0": columns}


def _refusing(text: str | bytes) -> Callable[[Path], dict[str, Columns]]:
    def write(path: Path) -> dict[str, Columns]:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return {}

    return write


MESSY = (
    _text("german.csv", sep=";", decimal=",", thousands=".", day="%d.%m.%Y"),
    _text("wide.tsv", "utf-16", sep="\t", decimal=",", thousands=" "),
    _text("report.csv", sep=";", above=["Verkäufe 2020; Stand heute", "", "intern"]),
    Messy("names.csv", _duplicate_names),
    Messy("one.csv", _one_column),
    Messy("words.csv", _words),
    Messy("five.sqlite", _sqlite),
    Messy("three.xlsx", _workbook),
    Messy("page.html", _page),
    Messy("open.csv", _refusing("a;b\n1.234;7.125\n5.678;9.250\n"), "between thousands"),
    Messy("both.csv", _refusing("a;b\n1,5;2.25\n2,5;3.75\n"), "a decimal comma, and"),
    Messy(
        "commas.csv",
        _refusing('a,b\n"1,5","7,5"\n"2,5","8,5"\n'),
        "decimal comma, and commas part the fields",
    ),
    Messy("long.csv", _refusing("a,b\n1,2\n3,4,5\n6,7\n"), "line 3 has more than"),
    Messy("loose.csv", _refusing("a,b\n1,5,2,5\n2,5,3,5\n"), "a decimal comma"),
    Messy("empty.csv", _refusing("\n \n"), "empty"),
    Messy("zero.csv", _refusing(b"a,b\n1,\x00\n" * 9), "zero bytes"),
    Messy("bytes.csv", _refusing(b"a,b\n\x81,\x8d\n"), "no UTF-8"),
    Messy("windows.csv", _refusing("a,b\nKöln,5\nFürth,6\n".encode("cp1252")), "no UTF-8"),
    Messy("broken.xlsx", _refusing(b"PK\x03\x04 no workbook"), "no readable excel file"),
    Messy("broken.gz", _refusing(b""), ""),
    Messy("broken.csv.gz", _refusing(b"no archive at all"), "cannot be unpacked"),
    Messy("nested.json", _refusing('[{"a": {"b": 1}}]'), "holds objects"),
)
