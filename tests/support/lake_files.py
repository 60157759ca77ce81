"""A lake with one table in every form of file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from data_gen.krama.lakes.files import Layout, write_frames

TITLES = ["Häuser of the town", "Source: see the notes"]


FORMS = [
    (Layout("semicolon.csv", sep=";", encoding="cp1252"), []),
    (Layout("tabs.tsv", sep="\t"), []),
    (Layout("titled.csv", skip=2), TITLES),
    (Layout("book.xlsx", "excel", skip=2, sheet="Homes"), TITLES),
    (Layout("records.json", "json"), []),
    (Layout("rows.jsonl", "lines"), []),
    (Layout("typed.parquet", "parquet"), []),
]


def frame(shift: int = 0) -> Any:
    rows = range(150)
    return pd.DataFrame(
        {
            "Name": [f"Straße n{i}" for i in rows],
            "Kind": [["Turm", "Hof", "Büro", "Haus"][i * 7 % 4] for i in rows],
            "Built": [1950 + (i * 11 + shift) % 60 for i in rows],
            "Height": [10 + (i * 37 + shift) % 101 / 3 for i in rows],
            "Cost": [100 + (i * i * 13 + shift) % 9_700 for i in rows],
        }
    )


def lake_of_all(folder: Path) -> Path:
    for number, (layout, top) in enumerate(FORMS):
        made = frame(number).rename(columns={"Height": f"Height {number}"})
        parts = [(layout, made, top)]
        if layout.form == "excel":
            parts.append((replace(layout, sheet="More", skip=0), frame(50), []))
        write_frames(folder, parts)
    return folder
