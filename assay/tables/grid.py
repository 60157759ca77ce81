"""The cells of a table as the detectors of structure look at them: a strip for each column.

Rows are counted from 0 here; `numbers` say which line of the text, or row of the sheet, each is.
"""

# numpy and pandas ship no types that pyright could follow here
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from assay.tables.missing import ANY_WORDS

Array = Any  # a numpy array
_NUMBER = re.compile(
    r"\(?[-+−]?\s?[$€£]?\s?[.,]?\d[\d.,'’ \u00a0\u202f]*(?:[eE][-+]?\d+)?\s?[%$€£]?\)?"
)
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}([-/.]\d{1,4})?([ T]\d{1,2}:\d\d.*)?|\d{1,2}:\d\d(:\d\d)?")
_PLAIN = re.compile(r"[^\W\d][\w .()/-]*")
_YAML = frozenset(["y", "yes", "n", "no", "on", "off", "true", "false", "null", "none"])
_LOOKED = 2000  # distinct cells that tell a column of numbers from one of text
_MOSTLY = 0.8  # of the filled cells of a column of numbers


@dataclass(frozen=True)
class Strip:
    """A column. `codes` are places in `texts`, -1 where no text stands; `values` are numbers, NaN
    where none stands or where its marks leave it open. `filled` says where anything stands."""

    name: str
    filled: Array
    codes: Array
    texts: tuple[str, ...]
    values: Array
    numeric: bool

    @cached_property
    def numbers(self) -> Array:
        """The numbers, without what is none."""
        np: Any = importlib.import_module("numpy")
        return self.values[~np.isnan(self.values)]

    @cached_property
    def weights(self) -> Array:
        """The numbers as they are added up: 0 where none stands."""
        np: Any = importlib.import_module("numpy")
        return np.nan_to_num(self.values)

    def at(self, row: int) -> str:
        """The text of a cell; nothing where none stands."""
        code = int(self.codes[row])
        return self.texts[code] if code >= 0 else ""

    def said_text(self, row: int) -> str:
        """The text of a cell if it is a word: no number, no word for a missing value."""
        text = self.at(row)
        return "" if not text or is_number(text) or text.casefold() in ANY_WORDS else text


def is_number(text: str) -> bool:
    """Whether a cell is written like a number, with any marks."""
    return bool(_NUMBER.fullmatch(text))


def is_date(text: str) -> bool:
    return bool(_DATE.fullmatch(text))


def strips_of(frame: Any) -> list[Strip]:
    """The columns of a frame of texts, numbers and other values."""
    return [strip_of(str(frame.columns[i]), frame.iloc[:, i]) for i in range(frame.shape[1])]


def strip_of(name: str, column: Any) -> Strip:
    np: Any = importlib.import_module("numpy")
    pd: Any = importlib.import_module("pandas")
    none = np.full(len(column), -1)
    if column.dtype.kind in "iufb":
        values = _finite(column.to_numpy(dtype="float64", na_value=float("nan")))
        numeric = column.dtype.kind != "b"
        return Strip(name, ~np.isnan(values), none, (), values, numeric)
    if column.dtype.kind in "Mm":
        return Strip(name, column.notna().to_numpy(), none, (), np.full(len(column), np.nan), False)
    told = column if column.dtype == "str" else column.astype(object)
    codes, uniques = pd.factorize(told)
    return _spread(name, codes, uniques.tolist())


def strip_of_cells(name: str, cells: Sequence[Any]) -> Strip:
    """The same of a few cells; None and NaN are no values."""
    np: Any = importlib.import_module("numpy")
    seen: dict[Any, int] = {}
    codes = [-1 if v is None or v != v else seen.setdefault(v, len(seen)) for v in cells]
    return _spread(name, np.array(codes, dtype=int), list(seen))


def _spread(name: str, codes: Array, listed: list[Any]) -> Strip:
    np: Any = importlib.import_module("numpy")
    texts = tuple(" ".join(u.split()) if isinstance(u, str) else "" for u in listed)
    counts = np.bincount(codes[codes >= 0], minlength=len(listed))
    numeric = _mostly_numbers(listed, texts, counts)
    found = _values(listed, texts) if numeric else _typed(listed)
    spread = np.append(_finite(np.array(found, dtype="float64")), np.nan)
    is_text = np.append(np.array([bool(t) for t in texts], dtype=bool), False)
    empty = np.append(np.array([isinstance(u, str) and not u.strip() for u in listed], bool), True)
    return Strip(
        name, ~empty[codes], np.where(is_text[codes], codes, -1), texts, spread[codes], numeric
    )


def _finite(values: Array) -> Array:
    """The numbers without those too large for a float, which have no sums."""
    np: Any = importlib.import_module("numpy")
    return np.where(np.isfinite(values), values, np.nan)


def _mostly_numbers(listed: Sequence[Any], texts: Sequence[str], counts: Array) -> bool:
    some = range(min(len(listed), _LOOKED))
    number, other = 0, 0
    for place in some:
        text, value = texts[place], listed[place]
        if isinstance(value, str) and (not text or text.casefold() in ANY_WORDS):
            continue
        hit = is_number(text) if text else isinstance(value, int | float) and value is not True
        number, other = number + hit * int(counts[place]), other + (not hit) * int(counts[place])
    return number > 0 and number >= _MOSTLY * (number + other)


def _typed(listed: Sequence[Any]) -> list[float]:
    nan = float("nan")
    return [float(v) if isinstance(v, int | float) else nan for v in listed]


def _values(listed: Sequence[Any], texts: Sequence[str]) -> list[float]:
    """The numbers by their marks: a comma is a decimal mark if it must be one anywhere."""
    comma = any(re.search(r"\d,\d{1,2}$|\d,\d{4,}$", t) for t in texts)
    found = _typed(listed)
    for place, text in enumerate(texts):
        if text and is_number(text):
            bare = re.sub(r"[\s$€£%'’\u00a0\u202f()]", "", text).replace("−", "-")
            bare = bare.replace(".", "").replace(",", ".") if comma else bare.replace(",", "")
            try:
                found[place] = -float(bare) if text.startswith("(") else float(bare)
            except ValueError:
                continue
    return found


def row_list(numbers: Iterable[int]) -> str:
    """`2, 244-245`: numbers of rows as `drop_rows` takes them."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def yaml_word(text: str) -> str:
    """A word as it can stand in a list of YAML."""
    plain = _PLAIN.fullmatch(text) and text.casefold() not in _YAML and text == text.strip()
    return text if plain else json.dumps(text, ensure_ascii=False)


def yaml_list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(yaml_word, texts))}]"
