"""The encodings that are proposed for bytes that are no UTF-8."""

from __future__ import annotations

import io

import pytest
from places import tables

from assay.tables.encoding import encoding_doubt

TABLES = tables("tables")

CITIES = TABLES["encoding_cities"]


@pytest.mark.parametrize("code", sorted(CITIES))
def test_the_likeliest_encoding_is_the_one_people_have(code: str) -> None:
    text = "".join(f"{city},{place}\n" for place, city in enumerate(CITIES[code]))
    doubt = encoding_doubt(io.BytesIO(b"city,n\n" + text.encode(code)))
    first, _, others = doubt.settle.partition("  # or ")
    assert first == f"encoding: {code}"
    assert len(others.split(", or ")) <= 2
    assert "mac" not in doubt.settle or code == "cp850"
    assert f"as {code}" in doubt.said


@pytest.mark.parametrize(("code", "city"), [("cp1254", "Eskişehir"), ("cp1255", "ירושלים")])
def test_an_encoding_of_equal_standing_is_proposed(code: str, city: str) -> None:
    assert code in encoding_doubt(io.BytesIO(f"city,n\n{city},5\n".encode(code))).settle


def test_the_cell_is_shown_around_its_first_strange_letter() -> None:
    note = "The amount lost refers to reports with a " * 3 + "“loss”"
    doubt = encoding_doubt(io.BytesIO(f"note,n\n{note},5\n".encode("cp1252")))
    assert doubt.settle.startswith("encoding: cp1252")
    assert "“loss” as cp1252" in doubt.said.replace("'", "")
