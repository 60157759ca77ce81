"""Which mark stands before the decimals of a table's numbers, and how its text becomes numbers."""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from typing import Any

_SIGNS = re.compile(r"[$%\s]")
_PLAIN = re.compile(r"[-+]?\d+")
_NUMERIC = re.compile(r"[-+]?[\d.,]*\d(?:[eE][-+]?\d+)?")
_SHARE = 0.7  # of the filled cells of a column of numbers


class Ambiguous(ValueError):
    """The numbers of a table can be read in two ways, or in none; the message says which."""


def _forms(mark: str, group: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """(every way to write a number with this decimal mark and this mark between thousands, those
    of them that cannot be meant the other way round)."""
    m, g = re.escape(mark), re.escape(group)
    grouped = rf"[-+]?\d{{1,3}}(?:{g}\d{{3}})+(?:{m}\d+)?"
    whole = re.compile(rf"{grouped}|[-+]?\d*(?:{m}\d+)?(?:[eE][-+]?\d+)?")
    sure = (
        rf"[-+]?\d*{m}(?:\d{{1,2}}|\d{{4,}})",  # decimals that are no thousands
        rf"[-+]?(?:0|\d{{4,}})?{m}\d{{3}}",  # what stands before is no thousand
        rf"[-+]?\d{{1,3}}(?:{g}\d{{3}})+{m}\d+",
        rf"[-+]?\d{{1,3}}(?:{g}\d{{3}}){{2,}}",
        rf"[-+]?\d*{m}\d+[eE][-+]?\d+",
    )
    return whole, re.compile("|".join(sure))


_COMMA, _POINT = _forms(",", "."), _forms(".", ",")


def decimal_of(frame: Any, sep: str) -> str:
    """The decimal mark, `,` or `.`, of a table read as text.

    A column of numbers is one of whose filled cells 70 % fit one of the two conventions. Between
    commas a number with a comma is quoted and groups thousands, unless it says otherwise. Raises
    `Ambiguous` for both marks, for marks that could be either, and for cells that do not fit the
    convention of the rest.
    """
    commas: list[str] = []
    points: list[str] = []
    unsure: list[str] = []
    columns: list[tuple[str, list[str]]] = []
    for name in range(frame.shape[1]):
        cells = _numeric_cells(frame.iloc[:, name].tolist())
        if not cells:
            continue
        columns.append((str(frame.columns[name]), cells))
        commas += [c for c in cells if _COMMA[1].fullmatch(c)][:1]
        points += [c for c in cells if _POINT[1].fullmatch(c)][:1]
        unsure += [c for c in cells if "," in c or ("." in c and sep != ",")][:1]
    if commas and points:
        raise Ambiguous(f"both {commas[0]!r} and {points[0]!r}: write one decimal mark throughout")
    if unsure and not commas and not points and not (sep == "," and "," in unsure[0]):
        raise Ambiguous(
            f"{unsure[0]!r} can have a decimal mark or one between thousands, and no other number "
            "of the file tells; write the numbers without marks between thousands"
        )
    mark, (whole, _) = (",", _COMMA) if commas else (".", _POINT)
    if commas and sep == ",":
        raise Ambiguous(f"{commas[0]!r} has a decimal comma between commas; separate by ;")
    for name, cells in columns:
        odd = next((c for c in cells if not whole.fullmatch(c)), None)
        if odd is not None:
            raise Ambiguous(f"column {name!r}: {odd!r} is no number with the decimal mark {mark!r}")
    return mark


def _numeric_cells(values: Iterable[Any]) -> list[str]:
    """The distinct cells of digits and marks, where they make up a column of numbers; plain whole
    numbers, which tell nothing, are left out."""
    filled = [_SIGNS.sub("", v) for v in values if isinstance(v, str) and v.strip()]
    cells = [c for c in filled if _NUMERIC.fullmatch(c)]
    fit = sum(bool(_COMMA[0].fullmatch(c) or _POINT[0].fullmatch(c)) for c in cells)
    if not filled or fit < _SHARE * len(filled):
        return []  # text; or dates and versions, such as 01.02.2020
    return [c for c in dict.fromkeys(cells) if not _PLAIN.fullmatch(c)]


def cleaned_numbers(column: Any, decimal: str = ".") -> Any:
    """What the cleaning step of a pipeline computes."""
    pd: Any = importlib.import_module("pandas")  # heavy, and its types are partial

    if pd.api.types.is_numeric_dtype(column):
        return column
    if decimal == ",":
        if not _numeric_cells(column.tolist()):
            return pd.to_numeric(column, errors="coerce")  # such as 01.02.2020
        bare = column.astype(str).str.replace(r"[.$%]", "", regex=True)
        return pd.to_numeric(bare.str.replace(",", ".", regex=False), errors="coerce")
    bare = column.astype(str).str.replace(r"[,$%]", "", regex=True)
    return pd.to_numeric(bare, errors="coerce")
