"""Doubts about the rows of a table: totals, notes, units, names in two rows, a second table.

Each detector looks at the names and the cells alone. `doubts_in` takes a frame, `doubts_of` rows.
What `tables.yaml` settles is doubted no more: `drop_rows` says which rows are none, so all others
are rows; `drop_where: {column: [...]}` does so for the values of a column.
"""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np

from assay.tables.number_format import ANY_WORDS
from assay.tables.settings import Doubt, FileSettings, row_list, shown, yaml_list, yaml_word
from assay.tables.totals import (
    Array,
    Strip,
    is_date,
    is_number,
    strip_of,
    strip_of_cells,
    totals_of,
)

_NOTE = re.compile(
    r"(?:[*†‡§#]|//|--\s|notes?\b|n\.?b\.?[: ]|sources?\b|quellen?\b|fuentes?\b|fonte\b|nota\b"
    r"|anmerkung|hinweis|remarque|stand[: ]|downloaded|generated|exported|printed|retrieved"
    r"|last updated|updated (?:on|at|:)|as of |copyright|©|\(c\)|https?:|data (?:from|as of)"
    r"|page \d|seite \d|end of (?:file|report|table)|<?eof>?$|disclaimer|legend|footnote"
    r"|примечани|источник|注[:：]|备注|資料|出典|來源|来源|\[?\(?[0-9a-z]\)\s|[¹²³⁴⁵])",
    re.I,
)
_COMMENT = re.compile(r"#|//|;|--\s|%\s")
_RULE = re.compile(r"[-=_*~.]{2,}|:?-{2,}:?")  # a line drawn with signs
_QUANTITY = re.compile(r"[<>~≈≤≥]?\s*[-+]?[\d.,]+")
_SHAPE = (re.compile(r"[^\W\d_]+"), re.compile(r"\d+"))
_UNNAMED = re.compile(r"(?:Unnamed: \d+(?:_level_\d+)?)?")
_LEADING = 5  # rows below the names that can belong to them
_MOST = 5000  # rows that are looked at one by one
_SPARSE = 0.1  # of the rows: so many of one filled cell are rows
_ODD, _ODD_ROWS = 0.02, 12  # of the cells of a column of numbers: more words are values of it
_SHOWN = 3
_CUT = 40
_KEEP = "  # or [] if they are rows like the others"


def doubts_of(
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    numbers: Sequence[int],
    rule: FileSettings | None = None,
    above: Sequence[Sequence[Any]] = (),
    heads: bool = False,
) -> list[Doubt]:
    """Find what can be meant in two ways about the rows of a table: totals, notes, rows of another
    table, names in several rows. Returns a question (`Doubt`) each, none where `rule` answers it.

    `rows` are cells below the names; `numbers` the lines or rows of the file that they stand in;
    `above` are the rows above the names, the last just above them. `heads`: only what is asked of
    the names, or of those of another table, is looked for.
    """
    columns = [[row[i] if i < len(row) else None for row in rows] for i in range(len(names))]
    told = dict(zip(reversed(names), reversed(columns), strict=True))  # the first of equal names
    rule, lines = rule or FileSettings(), np.asarray(numbers, dtype=int)
    kept = _kept(told, lines, rule)
    cells = [[v for v, there in zip(c, kept, strict=True) if there] for c in columns]
    strips = [strip_of_cells(n, c) for n, c in zip(names, cells, strict=True)]
    return _doubts(strips, lines[kept].tolist(), rule, above, heads)


def doubts_in(frame: Any, numbers: Sequence[int], rule: FileSettings | None = None) -> list[Doubt]:
    """`doubts_of` for the rows of a frame, whose columns may be numbers already."""
    rule, lines = rule or FileSettings(), np.asarray(numbers)
    kept = _kept(frame, lines, rule)
    strips = [strip_of(str(name), cells) for name, cells in frame[kept].items()]
    return _doubts(strips, lines[kept].tolist(), rule)


def _doubts(
    strips: Sequence[Strip],
    lines: Sequence[int],
    rule: FileSettings,
    above: Sequence[Sequence[Any]] = (),
    heads_alone: bool = False,
) -> list[Doubt]:
    if not lines:
        return []
    heads = _header_doubts(strips, lines, rule, above)
    found = {} if rule.drop_rows is not None else _rows_in_doubt(strips, lines, bool(heads))
    if heads_alone and not heads and not found.get("several_tables"):
        return []
    taken = {row for rows in found.values() for row in rows}
    rest = np.array([row for row in range(len(lines)) if row not in taken], dtype=int)
    # sums are sums of the rows that are in no doubt
    some = [s.only(rest) for s in strips] if taken else strips
    sums, values = totals_of(some, tuple(rule.drop_where))
    if rule.drop_rows is None:
        totals = {int(rest[r]): why for r, why in sums.items()}
        notes = {r: w for r, w in found.get("notes", {}).items() if r not in totals}
        found = {**found, "notes": notes, "total_rows": totals}
    return [*heads, *_said_rows(found, lines), *_said_values(values)]


def _kept(told: Any, where: Array, rule: FileSettings) -> Array:
    kept = np.ones(len(where), dtype=bool)
    for first, last in rule.drop_rows or ():
        kept &= ~((where >= first) & (where <= last))
    for column, words in rule.drop_where.items():
        if words and column in told:
            kept &= np.array([str(cell).strip() not in words for cell in told[column]], dtype=bool)
    return kept


def _said_rows(found: dict[str, dict[int, str]], lines: Sequence[int]) -> list[Doubt]:
    """One doubt for each kind. Each is settled by the same line, which names the rows of all."""
    every = [lines[row] for rows in found.values() for row in rows]
    settle = f"drop_rows: [{row_list(every)}]{_KEEP}"
    doubts: list[Doubt] = []
    for code, rows in found.items():
        if not rows:
            continue
        told = [r for r in sorted(rows) if rows[r]]
        shown = [f"row {lines[r]} ({rows[r]})" for r in told[:_SHOWN]]
        more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
        said = {
            "total_rows": "looks like a total, or another figure, of other rows",
            "notes": "looks like a note, a comment or a unit, not like a row",
            "repeated_header": "holds the names of the columns again",
            "several_tables": "looks like the names of another table",
        }[code]
        doubts.append(Doubt(code, f"{', '.join(shown)}{more} {said}", settle))
    return doubts


def _said_values(values: dict[tuple[str, str], str]) -> list[Doubt]:
    doubts: list[Doubt] = []
    columns = dict.fromkeys(column for column, _ in values)
    every = [f"{yaml_word(c)}: {yaml_list(v for name, v in values if name == c)}" for c in columns]
    settle = f"drop_where: {{{', '.join(every)}}}{_KEEP}"
    for column in columns:
        mine = {v: why for (name, v), why in values.items() if name == column}
        shown = ", ".join(list(mine.values())[:_SHOWN])
        said = f"rows with {shown} look like sums or means of other rows"
        doubts.append(Doubt("total_rows", said, settle))
    return doubts


def _rows_in_doubt(
    strips: Sequence[Strip], lines: Sequence[int], headed: bool
) -> dict[str, dict[int, str]]:
    """Rows by code that are none, or may be none, with what stands in them."""
    if len(strips) < 2:
        return {"notes": _lone_comments(strips)}
    fills = np.sum([s.filled for s in strips], axis=0)
    usual = int(np.median(fills))
    numeric: list[Strip] = []
    odd = np.zeros(len(lines), dtype=int)
    for strip in (s for s in strips if s.numeric):
        words = np.array(
            [not is_number(t) and t.casefold() not in ANY_WORDS for t in strip.texts], bool
        )
        here = np.append(words, False)[strip.codes]
        if here.sum() <= max(_ODD_ROWS, _ODD * len(here)):  # else such words are its values
            numeric.append(strip)
            odd += here
    again = _repeated(strips)
    notes, tables = {}, {}
    leading = 0 if headed else _leading(strips, numeric, odd)
    notes |= {row: _shown(strips, row) for row in range(leading)}
    end = int(np.append(-1, np.flatnonzero(fills > 1))[-1])  # the last row of several cells
    candidates = np.flatnonzero((fills <= 1) | (odd > 0) | _note_like(strips))
    for row in candidates[:_MOST].tolist():
        if row in again or row in notes:
            continue
        if _second_names(strips, numeric, row, int(odd[row]), lines):
            tables = {row: _shown(strips, row)} | dict.fromkeys(range(row + 1, len(lines)), "")
            break
        elif _is_below(strips, row, fills, end) or _is_note(
            strips, row, fills, usual, int(odd[row])
        ):
            notes[row] = _shown(strips, row)
    return {"repeated_header": again, "several_tables": tables, "notes": notes}


def _shown(strips: Sequence[Strip], row: int) -> str:
    cells = [s.at(row) for s in strips if s.at(row)]
    text = cells[0] if len(cells) == 1 else ", ".join(cells[:_SHOWN])
    return repr(text if len(text) <= _CUT else text[: _CUT - 1] + "…") if cells else "empty"


def _lone_comments(strips: Sequence[Strip]) -> dict[int, str]:
    """Comments among the rows of one column."""
    strip = strips[0]
    marked = {c for c, t in enumerate(strip.texts) if re.match(r"#\s|//", t)}
    if not marked or len(marked) > 0.2 * len(strip.texts):
        return {}
    return {r: repr(strip.at(r)) for r in range(len(strip.codes)) if int(strip.codes[r]) in marked}


def _repeated(strips: Sequence[Strip]) -> dict[int, str]:
    """Rows that hold the names of all columns."""
    same = np.ones(len(strips[0].codes), dtype=bool)
    for strip in strips:
        name = " ".join(strip.name.split()).casefold()
        equal = np.array([t.casefold() == name for t in strip.texts], dtype=bool)
        if _UNNAMED.fullmatch(strip.name):
            continue
        same &= np.append(equal, False)[strip.codes]
        if not bool(same.any()):
            return {}
    return {int(r): _shown(strips, int(r)) for r in np.flatnonzero(same)}


def _leading(strips: Sequence[Strip], numeric: Sequence[Strip], odd: Array) -> int:
    """How many rows just below the names hold words in columns of numbers: units, a second row of
    names. They do only if such words stand nowhere else in these columns."""
    count = 0
    while count < min(_LEADING, len(odd) - 1) and _unit_row(numeric, count):
        count += 1
    return count if count and not bool((odd[count:] > 0).mean() > 0.02) else 0


def _unit_row(numeric: Sequence[Strip], row: int) -> bool:
    texts = [s.said_text(row) for s in numeric if s.filled[row]]
    texts = [t for t in texts if t]
    digits = any(s.filled[row] and is_number(s.at(row) or "0") for s in numeric)
    return bool(texts) and not digits and not any(_QUANTITY.match(t) for t in texts)


def _note_like(strips: Sequence[Strip]) -> Array:
    """The rows whose first cell begins like a note, in a column where that is rare."""
    found = np.zeros(len(strips[0].codes), dtype=bool)
    first = strips[0]
    marked = np.array([bool(_NOTE.match(t)) for t in first.texts], dtype=bool)
    if marked.any() and marked.mean() <= 0.2:
        found |= np.append(marked, False)[first.codes]
    drawn = np.array([bool(_RULE.fullmatch(t)) for t in first.texts], dtype=bool)
    return found | np.append(drawn, False)[first.codes] if drawn.any() else found


def _second_names(
    strips: Sequence[Strip], numeric: Sequence[Strip], row: int, odd: int, lines: Sequence[int]
) -> bool:
    """Whether a row among the others holds names: words where numbers stand, below a gap or in
    several columns, and no number in it."""
    if row == 0 or row + 1 >= len(lines) or not odd:
        return False
    filled = [s for s in strips if s.filled[row]]
    words = ["" if is_number(s.at(row)) else s.at(row) for s in filled]
    if len(filled) < 2 or not all(words) or len(set(words)) < len(words):
        return False
    gap = lines[row] - lines[row - 1] > 1 or not any(s.filled[row - 1] for s in strips)
    return gap or (odd >= 2 and odd >= 0.5 * len(numeric))


def _is_below(strips: Sequence[Strip], row: int, fills: Array, end: int) -> bool:
    """Whether a row is one text below the table and an empty row."""
    if not 0 <= end < row or int(fills[row]) != 1 or not bool((fills[end:row] == 0).any()):
        return False
    text = strips[0].at(row)
    return bool(text) and not is_number(text) and not is_date(text)


def _is_note(strips: Sequence[Strip], row: int, fills: Array, usual: int, odd: int) -> bool:
    count = int(fills[row])
    if count == 0:
        return True
    first = next(s for s in strips if s.filled[row])
    text = first.at(row)
    like = bool(_NOTE.match(text)) and first is strips[0]
    if count == 1:
        return bool(text) and (_is_lone_note(first, row, len(strips), fills) or like)
    drawn = [s.at(row) for s in strips if s.filled[row]]
    if all(_RULE.fullmatch(t) for t in drawn):
        return True
    if like and (odd > 0 or count < min(usual, len(strips)) or bool(_COMMENT.match(text))):
        return _COMMENT.match(text) is None or odd > 0 or count < usual
    return odd > 0 and count < 0.5 * usual and not any(is_number(t or "0") for t in drawn)


def _is_lone_note(strip: Strip, row: int, width: int, fills: Array) -> bool:
    """Whether a text that stands alone in its row is no case with all else missing."""
    text = strip.at(row)
    if is_number(text) or is_date(text):
        return False
    if _NOTE.match(text) or _RULE.fullmatch(text):
        return True
    same = strip.codes == strip.codes[row]
    if bool((same & (fills > 1)).any()) or float((fills <= 1).mean()) > _SPARSE:
        return False
    others = [t for i, t in enumerate(strip.texts) if t and i != int(strip.codes[row])][:200]
    shapes = [_shape(t) for t in others]
    if re.search(r"\d", text) and shapes.count(_shape(text)) >= 0.5 * max(1, len(shapes)):
        return False
    if width == 2:
        longest = max((len(t) for t in others), default=0)
        return " " in text and len(text) > 1.5 * longest
    return True


def _shape(text: str) -> str:
    return _SHAPE[1].sub("0", _SHAPE[0].sub("a", text))


def _header_doubts(
    strips: Sequence[Strip],
    lines: Sequence[int],
    rule: FileSettings,
    above: Sequence[Sequence[Any]],
) -> list[Doubt]:
    doubts: list[Doubt] = []
    if rule.names or rule.skip is not None or rule.header is not None:
        return doubts
    names = [s.name for s in strips]
    gap = _gap(strips)
    if gap is not None and not rule.ranges:
        said = (
            f"column {gap + 1} is empty and without a name between {names[gap - 1]!r} and "
            f"{names[gap + 1]!r}: two tables may stand side by side"
        )
        doubts.append(Doubt("several_tables", said, f"names: {yaml_list(_whole(names))}{_ONE}"))
    twice = {n for n in names if names.count(n) > 1 or re.sub(r"\.\d+$", "", n) in set(names) - {n}}
    twice |= {re.sub(r"\.\d+$", "", n) for n in twice}
    bare = [bool(_UNNAMED.fullmatch(n)) or n in twice for n in names]
    numeric = [s for s in strips if s.numeric]
    lower = [s.said_text(0) for s in strips]
    if gap is None and any(bare) and len(strips) > 2 and _unit_row(numeric, 0):
        filled = [t for t in lower if t]
        if len(filled) >= 0.5 * len(strips) and sum(bare) >= 0.25 * len(strips):
            joined = joined_names(names, lower)
            first = f"{names[0]!r}, … and in row {lines[0]} {filled[0]!r}, …"
            said = f"the names stand in two rows: {first}"
            settle = f"{{skip: {lines[0] - 1}, names: {yaml_list(joined)}}}"
            return [*doubts, Doubt("header_rows", said, settle)]
    upper = [
        " ".join(str(v).split()) if v is not None else "" for v in (above[-1] if above else ())
    ]
    if _heads_above(upper, names):
        joined = joined_names(upper, names)
        said = f"above the names stands {', '.join(repr(u) for u in upper if u)[:80]}"
        skip = max(0, lines[0] - 2)
        doubts.append(Doubt("header_rows", said, f"{{skip: {skip}, names: {yaml_list(joined)}}}"))
    return doubts


_ONE = "  # if it is one table"


def _whole(names: Sequence[str]) -> list[str]:
    return [f"column {i + 1}" if _UNNAMED.fullmatch(n) else n for i, n in enumerate(names)]


def _heads_above(upper: Sequence[str], names: Sequence[str]) -> bool:
    """Whether the row above the names holds names of groups of them: words, several, with gaps."""
    filled = [i for i, u in enumerate(upper) if u and u != "nan"]
    if len(filled) < 2 or filled[-1] < 2 or len(names) < 3:
        return False
    return not any(is_number(upper[i]) or is_date(upper[i]) for i in filled)


def joined_names(upper: Sequence[str], lower: Sequence[str]) -> list[str]:
    """`Staff male`, `Staff female` from `Staff`, nothing above `male`, `female`."""
    found: list[str] = []
    last = ""
    for place, name in enumerate(lower):
        head = upper[place] if place < len(upper) else ""
        head = "" if _UNNAMED.fullmatch(head) else re.sub(r"\.\d+$", "", head)
        last = head or last
        below = "" if _UNNAMED.fullmatch(name) else re.sub(r"\.\d+$", "", name)
        found.append(f"{last} {below}".strip() if below else head or f"column {place + 1}")
    return found


def _gap(strips: Sequence[Strip]) -> int | None:
    """The place of an empty column without a name between two named ones."""
    for place, strip in enumerate(strips[1:-1], 1):
        if not _UNNAMED.fullmatch(strip.name) or bool(strip.filled.any()):
            continue
        beside = [strips[place - 1], strips[place + 1]]
        if all(s.filled.any() and not _UNNAMED.fullmatch(s.name) for s in beside):
            return place
    return None


_PAIRS = 8  # of spellings that a settling line names
_PLAIN = {
    **dict.fromkeys([*range(0x2010, 0x2016), 0x2212], "-"),
    **dict.fromkeys([0x2018, 0x2019, 0x201B, 0x00B4], "'"),
    **dict.fromkeys([0x201C, 0x201D], '"'),
}
# Cyrillic letters, and the Latin ones that they look like as small letters or as capitals
_LATIN = str.maketrans("авекмнорстухіјѕһԁԛԝ", "abekmhopctyxijshdqw")
_ROWS = 8  # that show whether labels stand once for several of them
_BLANK = 0.25  # of the cells of a column of such labels, at least
_REGULAR = 5  # labels at equal distances


def labels_once(frame: Any, fixed: Sequence[str]) -> list[Doubt]:
    """The doubts of the columns at the left that have a value in the first of several rows alone,
    as where cells were merged: no value stands twice in succession, or there is one in each second
    or third row, and rows without one are full. `fixed` are columns whose missing values the user
    named."""
    once: dict[str, str] = {}
    for place, column in enumerate(frame.columns if len(frame) >= _ROWS else ()):
        cells = frame.iloc[:, place]
        filled = cells.notna().to_numpy()
        if filled.all() and cells.dtype.kind in "iuf" and bool((cells.diff().iloc[1:] == 1).all()):
            continue  # the numbers of the rows
        values = cells[filled].tolist()
        regular = len(values) >= _REGULAR and len(set(np.diff(filled.nonzero()[0]).tolist())) == 1
        runs = len(values) > 1 and (regular or all(a != b for a, b in pairwise(values)))
        rest = frame.iloc[~filled, place + 1 :].notna().to_numpy()
        sparse = filled[:1].all() and not filled.all() and (~filled).mean() >= _BLANK
        if column in fixed or not (sparse and runs and rest.size and rest.mean() >= 0.5):
            break
        once[column] = shown(str(values[0]))
    settle = f"fill_down: {yaml_list(once)}  # or of each missing: {{COLUMN: ['']}}"
    said = (
        "stands in one row, and the cells below it are empty: it may stand for their rows as well"
    )
    return [Doubt("merged_cells", f"{cell} {said}", settle, c) for c, cell in once.items()]


def alike_values(
    column: str, cells: Mapping[str, int], spellings: Mapping[str, str] | None
) -> Doubt | None:
    """The doubt of a column of text (distinct cells with counts) whose values differ by case,
    accents, blanks or look-alike letters alone, or hold letters that are the bytes of others, such
    as Ã¶ for ö. Values that all stand there once name their rows: nothing is grouped by them.
    `spellings` are the user's, {} for distinct values."""
    name = yaml_word(column)
    for value in cells if spellings is None else ():
        with suppress(UnicodeError):
            if not value.isascii():
                meant = value.encode("cp1252").decode("utf-8")
                settle = f"spellings: {{{name}: {{{_quoted(value)}: {_quoted(meant)}}}}}"
                said = f"{shown(value)} may be {shown(meant)}, decoded twice; mend the file"
                return Doubt("encoding", said, f"{settle}  # or distinct", column)
    if spellings == {} or len(cells) == sum(cells.values()):
        return None
    folded: dict[str, list[str]] = {}
    for value in cells:
        folded.setdefault(_folded(value), []).append(value)
    groups = [group for group in folded.values() if len(group) > 1]
    if not groups:
        return None
    said = " and ".join(shown(v) for v in groups[0][:2])
    said += " differ by case, accents, blanks or look-alike letters alone"
    said += f", and {len(groups) - 1} more values" if len(groups) > 1 else ""
    most = [max(g, key=lambda v: (cells[v], v)) for g in groups]
    pairs = [(v, m) for g, m in zip(groups, most, strict=True) for v in g if v != m]
    spelled = ", ".join(f"{_quoted(v)}: {_quoted(m)}" for v, m in pairs[:_PAIRS])
    more = ", …" if len(pairs) > _PAIRS else ""
    settle = f"spellings: {{{name}: {{{spelled}{more}}}}}  # or {{{name}: distinct}}"
    return Doubt("alike_values", said, settle, column)


def _folded(text: str) -> str:
    """A text without case, accents and superfluous blanks; dashes and quotes are the plain ones,
    Cyrillic letters among Latin ones those that they look like."""
    if not text.isascii():
        apart = unicodedata.normalize("NFKD", text.casefold()).translate(_PLAIN)
        apart = apart.translate(_LATIN) if re.search("[a-z]", apart) else apart
        text = "".join(
            c for c in apart if not unicodedata.combining(c) and unicodedata.category(c) != "Cf"
        )
    return " ".join(text.casefold().split())


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
