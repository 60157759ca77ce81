"""A lake with the mess that a proof must see through, and questions over it from typed steps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from data_gen.queries.lake import Lake, open_lake
from data_gen.queries.ops import Op, Source
from data_gen.queries.pandas_code import written
from data_gen.queries.pipeline import LakeStep, Question
from data_gen.queries.pipeline_runner import Pandas, answer

KINDS = ("Turm", "Hof", "Büro", "Haus", "Scheune", "Mühle", "Kirche")


def german(value: float) -> str:
    """1234567.5 → 1.234.567,50"""
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def proof_lake(folder: Path) -> Path:
    """German numbers and towns in brackets; American numbers under two titles, with M and -9999;
    a register by name whose key is not unique, in cp1252; with what settles all of it."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["Name;Art;Preis;Stufe"]
    for i in range(90):
        price = "k.A." if i % 20 == 7 else german((i * 7919 % 9000) * 2.75 + 10)
        level = f"{20 + i * 13 % 57}".rjust(2)
        lines.append(
            f"Objekt {i:02d};{KINDS[i * i % 7]} ;{price};{level[:-1]},{level[-1]}",
        )
    (folder / "preise.csv").write_text("\n".join(lines) + "\n", encoding="cp1252")
    lines = ["Table of sites,,,,", "Prepared by hand,,,,", "Place,Year,Rain,Wind,Samples"]
    for i in range(120):
        rain = ("M", "-9999")[i // 15 % 2] if i % 15 == 3 else f"{i * 37 % 101 / 4:.2f}"
        rain = "M" if rain == "-9999" else rain
        wind = "-9999" if i % 25 == 4 else f"{10 + i * 31 % 83 / 3:.3f}"
        town = ("Acton", "Bow", "Cork", "Deal", "Ely", "Fife", "Goole")[i * 5 % 7]
        place = f'"Site {i}, {"upper, " * (i % 3 == 0)}{town}"'
        lines.append(f'{place},{1990 + i % 24},{rain},{wind},"{1000 + i * i * 7:,}"')
    (folder / "sites.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines = ["Name\tFläche\tAmt"]
    for i in range(80):
        lines.append(f"Objekt {i:02d}\t{50 + i * 17 % 61 / 4:.2f}\t{'NOS'[i % 3]}")
    lines += [f"Objekt {i:02d}\t{70 + i:.2f}\tN" for i in range(5)]
    (folder / "register.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "tables.yaml").write_text(
        '"preise.csv": {encoding: cp1252, missing: {Preis: ["k.A."]}}\n'
        """"sites.csv": {decimal: ".", thousands: ",", missing: {Rain: [M], Wind: ["-9999"]}}\n""",
        encoding="utf-8",
    )
    return folder


def question(lake: Lake, ops: Sequence[Op], answer_type: str = "numeric_exact") -> Question:
    """The pipeline of these steps, in words that do not matter."""

    def loads(source: Source, name: str) -> str:
        (table,) = [t for t in lake.tables if t.path == source.path]
        return table.reading.code(name)

    steps: list[LakeStep] = []
    for op in ops:
        code, value = written(op, loads)
        steps.append(LakeStep("finish", "Step", code, "?", value, answer_type, False, op))
    return Question("What?", tuple(steps), "shape")


def values_of(code: str, folder: Path) -> dict[str, Any]:
    """What a pipeline prints beside a lake that lies in `folder`/data."""
    here = os.getcwd()
    os.chdir(folder)
    try:
        body = code.partition("import pandas as pd\n")[2]
        return answer(body, "1.0", Pandas({}, None))
    finally:
        os.chdir(here)


def opened(folder: Path) -> Lake:
    """The lake in `folder`/data."""
    proof_lake(folder / "data")
    lake = open_lake(folder / "data")
    assert {t.path for t in lake.tables} == {"preise.csv", "sites.csv", "register.tsv"}, (
        lake.refused
    )
    return lake


__all__ = ["opened", "pd", "proof_lake", "question", "values_of"]
