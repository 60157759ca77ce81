"""Tables to make lakes of: one in every form of file, and a second sheet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd

from data_gen.proof.forms import Shelf
from data_gen.queries.carried import Layout, write_frames
from data_gen.queries.lake import Folder, Lake, open_lakes
from data_gen.queries.lake_proof import runs
from data_gen.queries.pipeline import Question

KINDS = ("Turm", "Hof", "Büro", "Haus", "Stall", "Halle", "Laden", "Garten", "Kino", "Bad", "Amt")
TITLES = ("Häuser of the town", "Source: see the notes")


FORMS = [
    Layout("semicolon.csv", sep=";", encoding="cp1252", decimal=","),
    Layout("tabs.tsv", sep="\t"),
    Layout("titled.csv", top=TITLES),
    Layout("book.xlsx", "excel", sheet="Homes", top=TITLES),
    Layout("records.json", "json"),
    Layout("rows.jsonl", "lines"),
    Layout("typed.parquet", "parquet"),
    Layout("page.html", "html", top=TITLES),
    Layout("base.sqlite", "sqlite", sheet="homes"),
]


def frame(shift: int = 0) -> Any:
    rows = range(150)
    return pd.DataFrame(
        {
            "Name": [f"Straße n{i}" for i in rows],
            "Kind": [KINDS[i * i % 11] for i in rows],
            "Built": [1950 + (i * 11 + shift) % 60 for i in rows],
            "Height": [10 + (i * 37 + shift) % 101 / 3 for i in rows],
            "Cost": [100 + (i * i * 13 + shift) % 9_700 for i in rows],
        }
    )


def lake_of_all(folder: Path, wards: bool = False) -> Path:
    """One table in every form; with `wards`, each has a second column to group by."""
    second = {"Ward": [("North", "South", "West")[i * i // 7 % 3] for i in range(150)]}
    for number, layout in enumerate(FORMS):
        parts = [(layout, frame(number).rename(columns={"Height": f"Height {number}"}))]
        if layout.form == "excel":
            parts.append((replace(layout, sheet="More", top=()), frame(50)))
        if wards:
            parts = [(one, made.assign(**second)) for one, made in parts]
        write_frames(folder, parts)
    with open(folder / "tables.yaml", "a", encoding="utf-8") as rules:
        rules.write('"semicolon.csv": {encoding: cp1252}\n')
    return folder


def surveyed(shift: int, rows: int = 90) -> Any:
    """A table that is like no other of these."""
    rng = Random(shift)
    return pd.DataFrame(
        {
            "Name": [f"n{shift} {i}" for i in range(rows)],
            "Kind": [KINDS[i * i % 7] for i in range(rows)],
            "Height": [round(rng.uniform(3, 90), 2) for _ in range(rows)],
            "Sales": [rng.randrange(10, 9000) for _ in range(rows)],
        }
    )


def write_lines(path: Path, head: str, rows: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")


def open_lake(folder: Path, described: Any = None, licence: str = "") -> Lake:
    return open_lakes([Folder(folder, described or {}, licence)], map)[0]


@cache
def shelf_of(folder: Path) -> Shelf:
    """The original files of a folder, each read once."""
    return Shelf(folder)


def run(question: Question, folder: Path) -> Any:
    """What a question's pipeline prints."""
    return runs(question, folder, [(None, -1)])[0]
