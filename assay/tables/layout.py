"""Delimited text: its separator, its quotes, where the column names stand, and its plan."""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import contextlib
import csv
import importlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from assay.tables.formats import FORMS, Text, line_in_file, members_of, read_text, without_lines
from assay.tables.number_format import looks_numeric, plain_number
from assay.tables.plan import (
    ReadPlan,
    Skipped,
    Unreadable,
    check_fill,
    in_doubt,
    opened,
    refused,
)
from assay.tables.settings import Doubt, FileSettings, TableSettings, yaml_list
from assay.tables.structure import doubts_of

Dialect = tuple[str, str, str]  # separator, quote, what a quote is escaped by
Listed = Sequence[tuple[int, Sequence[str]]]  # (line on which it ends, fields) of records
_SEPARATORS = (",", ";", "\t", "|")
_FIELD = 1 << 24
_SAYS = re.compile(r"\"?sep=([,;|\t])\"?[ \t]*\r?\n", re.I)
_DIGIT = re.compile("[0-9]")
_SIGNS = "~^:#!/\\&*=+§¦•·\x01\x1c\x1d\x1e\x1f"  # that some people put between fields
_SHOWN = 8  # lines that a settling line names
_HEAD = 50  # rows below the names that tell whether these stand in two rows
_TOP = 12  # records among which the column names are looked for below a blank line


@dataclass(frozen=True)
class Start:
    """The start of a text cut into fields. `names` as they stand there, none without a header,
    `above` the record above them; `data` lines above the first of the `rows`, which begin on
    `lines` and have `width` fields."""

    names: tuple[str, ...]
    above: Sequence[str]
    data: int
    rows: list[Sequence[str]]
    lines: list[int]
    width: int


def records_of(
    file: Iterable[str], sep: str, quote: str, escape: str, blanks: bool
) -> Iterator[tuple[int, list[str]]]:
    """(line on which it ends, fields) of the records that are not blank. `blanks` behind a
    separator are no part of a field."""
    if sep == r"\s+":
        yield from ((n, fields) for n, line in enumerate(file, 1) if (fields := line.split()))
        return
    old = csv.field_size_limit(_FIELD)
    try:
        reader = csv.reader(
            file,
            delimiter=sep,
            quotechar=quote or None,
            quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
            escapechar=escape or None,
            skipinitialspace=blanks,
        )
        with contextlib.suppress(csv.Error):
            for row in reader:
                if row and (len(row) > 1 or row[0].strip() or not row[0]):
                    yield reader.line_num, row
    finally:
        csv.field_size_limit(old)


def _records(text: str, dialect: Dialect, most: int | None = None, of: str = "") -> Listed:
    """The first records of a text; whether blanks stand behind separators is told by the text
    `of`, this one where there is none."""
    file = io.StringIO(text, newline="")
    return list(islice(records_of(file, *dialect, _blanks(of or text, dialect[0])), most))


def _blanks(start: str, sep: str) -> bool:
    """Whether a blank stands behind nearly every separator."""
    return sep != r"\s+" and start.count(sep + " ") >= 0.9 * start.count(sep) > 0


# ---- the separator and the quotes


def dialect_of(start: str, whole: str, rule: FileSettings, suffix: str) -> Dialect:
    """What cuts the start of a text into the most even rows. Raises `Unreadable` with a doubt if
    nothing does."""
    seps = [rule.sep] if rule.sep else list(_SEPARATORS)
    if suffix in (".tsv", ".tab") and not rule.sep:
        seps.sort(key=lambda s: s != "\t")
    quotes = [rule.quote] if rule.quote is not None else ['"', "'", ""]
    scored = [(_evenness(start, d, rule), d) for d in _dialects(seps, quotes, start)]
    tried = {dialect: score for score, dialect in scored if score > 0}
    if not tried and any(score == -2 for score, _ in scored):
        said = "rows have more fields than the line of names: a name is missing, or a field holds "
        said += "a separator outside quotes, such as a decimal comma; mend it"
        raise in_doubt(Doubt("layout", said))
    if not tried and (padded := next((d for score, d in scored if score == -3), None)):
        raise in_doubt(_which_names(start, padded))
    if not tried and any(score < 0 for score, _ in scored):
        said = "it cannot be told on which line the names of the columns stand"
        raise in_doubt(Doubt("layout", said, 'sep: ","  # and skip: lines above the names'))
    if not tried and not rule.sep and suffix == ".dat":
        lines = [line for line in start.splitlines()[1:200] if line.strip()]
        numbers = lines and all(map(looks_numeric, lines))  # with spaces between thousands
        scored = [(_evenness(start, spaces, rule), spaces) for spaces in [(r"\s+", '"', "")]]
        tried = {d: score for score, d in scored if not numbers and score > 0.95}
    if tried:
        return max(tried, key=lambda dialect: round(tried[dialect], 3))  # the first of them
    if not rule.sep and (sign := _other_sign(start)):
        what = "blanks" if sign == r"\s+" else repr(sign)
        said = f"every line holds {what} equally often, which may stand between fields"
        raise in_doubt(Doubt("layout", said, f"sep: {json.dumps(sign)}"))
    sep = rule.sep or next((s for s in (*_SEPARATORS, "\x1f") if s not in whole), "")
    if not sep:
        raise in_doubt(Doubt("layout", "no separator gives even rows", 'sep: ";"'))
    return sep, quotes[0], ""  # one column


def _dialects(seps: Sequence[str], quotes: Sequence[str], start: str) -> Iterator[Dialect]:
    for quote in quotes:
        for sep in seps:
            enclosed = start.count(f"{sep}'") + start.count("\n'") > 1 and f"'{sep}" in start
            if (quote == "'" and not enclosed) or (not quote and '"' not in start):
                continue
            yield sep, quote, ""
            if quote and f"\\{quote}" in start:
                yield sep, quote, "\\"


def _other_sign(start: str) -> str:
    """A sign that every line of one column holds equally often, so that it may separate fields; or
    blanks, in lines of numbers beside words; or nothing."""
    lines = [line for line in start.splitlines()[:200] if line.strip()]
    if len(lines) < 3:
        return ""
    signs = [s for s in dict.fromkeys(lines[0]) if s in _SIGNS]
    if found := next((s for s in signs if len({line.count(s) for line in lines}) == 1), ""):
        return found
    rows = [line.split() for line in lines]
    even = len({len(row) for row in rows}) == 1 and len(rows[0]) > 2
    return r"\s+" if even and _heads(rows, len(rows[0])) else ""


def _evenness(start: str, dialect: Dialect, rule: FileSettings) -> float:
    """How even the rows are, from 0 to 1; 0 for one field a row. -1 for even rows below a line that
    may be the name of one column, -2 for rows that have more fields than there are names, -3 for
    rows of equal width none of which is sure to be the names."""
    listed = [(n, row) for n, row in _records(start, dialect, 500) if n > (rule.skip or 0)]
    rows = [row for _, row in listed]
    if len(rows) < 2:
        return float(bool(rows) and len(rows[0]) > 1)
    usual = _usual(rows)
    top = _header_place(listed, usual)
    below = rows[top + 1 :]
    if usual < 2 or not below:
        return 0.0
    share = sum(len(row) == usual for row in below) / len(below)
    if top and not rule.sep and rule.skip is None and not _stands(listed, top, usual):
        if share < 0.9 or (_no_header(rows[top:]) and len(rows[top - 1]) < 2):
            return 0.0
        if len(rows[top - 1]) == usual and len(rows[top]) == usual:
            return -3.0
        return -2.0 if len(rows[top - 1]) > 1 else -1.0
    long = sum("\n" in f for row in below for f in row) / len(below)
    quoted = dialect[1] == '"'
    stray = 0 if quoted else sum(f[:1] == '"' for row in below for f in row) / len(below)
    if stray >= 0.5:  # the quotes are quotes
        return 0.0
    bare = any(plain_number(".").fullmatch(f) for f in rows[top] if f)
    lost = 0.01 * min(top, 20) + 0.1 * min(long, 1) + 0.1 * min(stray, 1)
    return share - lost - (0.2 if top and bare else 0)


# ---- the names of the columns


def _usual(rows: Sequence[Sequence[str]]) -> int:
    widths = Counter(len(row) for row in rows)
    return max(widths, key=lambda w: (widths[w], w))


def _header_place(listed: Listed, usual: int) -> int:
    """The first row that is as wide as most are, and below the last blank line of the start: the
    column names. A row of one name less above rows of data is the header of named rows."""
    place = next((i for i, (_, row) in enumerate(listed) if len(row) >= usual), 0)
    while place + 1 < min(len(listed), _TOP):
        if not _is_title(listed[place][1], listed[place + 1][1], usual):
            break
        place += 1
    gaps = [i for i in range(1, min(len(listed), _TOP)) if _gap(listed[i - 1], listed[i])]
    if gaps and gaps[-1] > place and _heads([row for _, row in listed[gaps[-1] :]], usual):
        place = gaps[-1]
    above = listed[place - 1][1] if place else ()
    named = len(above) == usual - 1 and len(above) > 1 and not any(map(looks_numeric, above))
    return place - 1 if named and _no_header([row for _, row in listed[place:]]) else place


def _is_title(row: Sequence[str], below: Sequence[str], usual: int) -> bool:
    """Whether a row is empty, or a title: one text, and separators up to the width of the others;
    in a row of two fields only above a row of empty ones."""
    alone = bool(row[0].strip()) and not any(map(str.strip, row[1:]))
    two = len(row) == len(below) == 2 and not any(map(str.strip, below))
    return not any(map(str.strip, row)) or (alone and (usual > 2 or two))


def _which_names(start: str, dialect: Dialect) -> Doubt:
    """The doubt of rows as wide as the others above the data, none of which is sure to be names."""
    listed = _records(start, dialect, _TOP)
    words = [sum(bool(f.strip()) and not looks_numeric(f) for f in row) for _, row in listed]
    place = words.index(max(words))
    shown = [
        f"line {line} {next((f.strip()[:30] for f in row if f.strip()), '')!r}"
        for line, row in listed[: place + 1]
        if any(f.strip() for f in row)
    ]
    said = f"it cannot be told which line names the columns: {', '.join(shown[-3:])}"
    skip = listed[place - 1][0] if place else 0
    return Doubt("header_rows", said, f"skip: {skip}  # the lines above the names")


def _stands(listed: Listed, top: int, usual: int) -> bool:
    """Whether a row below others can be the column names: they are names, all different, and a
    blank line, numbers below or a third column say that what stands above is no name."""
    rows = [row for _, row in listed[top:]]
    names = [n.strip() for n in rows[0]]
    if _no_header(rows) or "" in names or len(set(names)) < len(names):
        return False
    return usual > 2 or _heads(rows, usual) or _gap(listed[top - 1], listed[top])


def _gap(one: tuple[int, Sequence[str]], other: tuple[int, Sequence[str]]) -> bool:
    """Whether a blank line stands between two records."""
    return other[0] - one[0] > 1 + sum(f.count("\n") for f in other[1])


def _heads(rows: Sequence[Sequence[str]], usual: int) -> bool:
    """Whether the first row stands as names above columns of numbers or dates."""
    below = rows[1:80]
    names = [
        rows[0][i]
        for i in range(min(usual, len(rows[0])))
        if below and all(_DIGIT.search(r[i]) for r in below if i < len(r) and r[i].strip())
    ]
    return len(rows[0]) >= usual and bool(names) and not any(_DIGIT.search(n) for n in names)


def _no_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row is data: numbers stand where numbers stand below, and they are no
    years or running numbers used as names."""
    if len(rows) < 2:
        return False
    first = [f.strip() for f in rows[0]]
    below = [[r[i] for r in rows[1:80] if i < len(r) and r[i].strip()] for i in range(len(first))]
    numeric = [i for i, cells in enumerate(below) if cells and all(map(looks_numeric, cells))]
    here = [first[i] for i in numeric if looks_numeric(first[i])]
    if not here or len(here) < 0.5 * len(numeric):
        return False
    if len(here) == len(first) or len(here) < 2 or not all(h.isdigit() for h in here):
        return True
    steps = {int(b) - int(a) for a, b in pairwise(here)}
    years = all(1000 <= int(h) <= 2999 for h in here) and min(steps) > 0
    return not (years or steps == {1})


# ---- the plan


def members(path: Path, name: str, rules: TableSettings) -> Iterator[ReadPlan | Skipped]:
    """The tables of delimited text in an archive; every other member has its line."""
    for member, why in members_of(path):
        rule = rules.of(name, member)
        if why or not rule.use:
            yield Skipped(name, why or "tables.yaml says use: false", member)
            continue
        try:
            yield delimited(path, name, rule, member)
        except Unreadable as error:
            yield refused(name, error, member)


def delimited(path: Path, name: str, rule: FileSettings, member: str = "") -> ReadPlan:
    """How a delimited text is cut into cells; what these are is not decided yet."""
    suffixes = Path(member).suffixes if member else path.suffixes
    suffix = next((s for s in map(str.lower, suffixes) if s in FORMS), "")
    text = read_text(path, rule.encoding, member)
    if dropped := rule.drop_rows or ():
        text = without_lines(text, dropped)
        above = sum(
            first <= n <= last for first, last in dropped for n in range(1, (rule.skip or 0) + 1)
        )
        rule = replace(rule, skip=rule.skip if rule.skip is None else rule.skip - above)
    ragged = "skip" if rule.ragged == "skip" else ""
    plan = ReadPlan(name, "csv", member, encoding=text.encoding, ragged=ragged)
    start = _cut(plan, text, rule, suffix)
    if not start.rows:
        raise Unreadable("no rows below the column names")
    if doubts := list(_row_doubts(path, plan, start, text, rule)):
        raise in_doubt(*doubts)
    _set_names(plan, start, text, rule)
    obey(plan, rule)
    lines = [line_in_file(n, dropped) for n in start.lines]
    above = [start.above] if start.above else []
    head = start.rows[:_HEAD]
    heads = doubts_of(plan.columns, head, lines[:_HEAD], rule, above, heads=True)
    if heads := [d for d in heads if d.code in ("header_rows", "several_tables")]:
        raise in_doubt(*heads)
    if dropped:
        check_fill(rule, plan.columns, dict(zip(lines, start.rows, strict=True)))
    return plan


def _cut(plan: ReadPlan, text: Text, rule: FileSettings, suffix: str) -> Start:
    """The start of a text cut into fields; how, and which lines are skipped, is put into the
    plan."""
    start = text.start[: 1 << 18]
    whole = start if len(start) == len(text.start) else start[: start.rfind("\n") + 1] or start
    says = _SAYS.match(whole) if not rule.sep and rule.skip is None else None
    if says:
        rule = replace(rule, sep=says[1], skip=1)
    dialect = plan.sep, plan.quote, plan.escape = dialect_of(whole, text.start, rule, suffix)
    plan.blanks = _blanks(start, plan.sep)
    listed = _records(text.start, dialect, of=start)
    usual = _usual([row for _, row in listed[:2000]])
    if rule.skip is not None:
        top = next((i for i, (line, _) in enumerate(listed) if line > rule.skip), 0)
        plan.skip = rule.skip
    else:
        top = _header_place(listed[:500], usual)
        plan.skip = listed[top - 1][0] if top else 0
    rows = [row for _, row in listed[top:]]
    bare = _no_header(rows) if rule.header is None else not rule.header
    if bare and top and rule.skip is None and rule.header is None:
        said = "no line of names stands above the rows"
        raise in_doubt(Doubt("layout", said, f"{{skip: {plan.skip}, header: false}}"))
    below = listed[top + (not bare) :]
    begun = listed[top - 1][0] if bare and top else listed[top][0]
    return Start(
        names=() if bare else tuple(rows[0]),
        above=listed[top - 1][1] if top else (),
        data=plan.skip if bare else listed[top][0],
        rows=[row for _, row in below],
        lines=list(_begins(below, begun)),
        width=usual if bare else max(len(rows[0]), usual),
    )


def _begins(listed: Listed, above: int) -> Iterator[int]:
    """The lines on which records begin; a record may have line breaks in it."""
    for line, row in listed:
        yield line if line == above + 1 else line - sum(f.count("\n") for f in row)
        above = line


def _row_doubts(
    path: Path, plan: ReadPlan, start: Start, text: Text, rule: FileSettings
) -> Iterator[Doubt]:
    """What is in doubt of rows that have more or fewer fields than the others."""
    begun = list(zip(start.lines, start.rows, strict=True))
    wide = [n for n, row in begun if len(row) > start.width]
    if wide and rule.ragged != "skip":
        lines = _lines_said([line_in_file(n, rule.drop_rows or ()) for n in wide])
        said = f"{lines} has more than the {start.width} fields of the others"
        yield Doubt("wide_rows", said, "ragged: skip  # leaves out such rows")
    short = [n for n, row in begun if len(row) < start.width and sum(map(bool, row)) > 1]
    if rule.drop_rows is None and not short and not text.whole:
        short = list(_short_below(path, plan, start))
    if short and rule.drop_rows is None:
        said = f"{_lines_said(short)} has fewer than the {start.width} fields of the others"
        listed = ", ".join(map(str, short[:_SHOWN]))
        settle = f"drop_rows: [{listed}]  # or [] if what is missing has no value"
        yield Doubt("short_rows", said, settle)


def _lines_said(lines: Sequence[int]) -> str:
    more = f" and {len(lines) - 1} more lines, each" if len(lines) > 1 else ""
    return f"line {lines[0]}{more}"


def _short_below(path: Path, plan: ReadPlan, start: Start) -> Iterator[int]:
    """The lines of rows of too few fields in a large file, which is searched where it has fewer
    separators than its lines need."""
    if plan.sep == r"\s+" or start.width < 2:
        return
    with opened(str(path), plan.encoding, plan.part).value({}) as file:
        lines = seps = 0
        while chunk := file.read(1 << 20):
            lines += chunk.count("\n")
            seps += chunk.count(plan.sep)
    if seps >= (lines - plan.skip) * (start.width - 1):
        return
    with opened(str(path), plan.encoding, plan.part).value({}) as file:
        for line, row in records_of(file, plan.sep, plan.quote, plan.escape, plan.blanks):
            if line > start.data and len(row) < start.width and sum(map(bool, row)) > 1:
                yield line - sum(f.count("\n") for f in row)


def _set_names(plan: ReadPlan, start: Start, text: Text, rule: FileSettings) -> None:
    """The names of the columns as pandas gives them, or numbered where the user gives some. Rows
    may have more fields than the header: R's row names, or an empty last field."""
    names, width = start.names, start.width
    numbered = tuple(f"column {i + 1}" for i in range(width))
    plan.header = bool(names)
    plan.renamed = bool(rule.names) or (plan.header and len(names) != width)
    if rule.names or not names:
        plan.columns = numbered
        why = "no names above the data: the columns are numbered"
        plan.notes = () if rule.names else (why,)
        return
    if len(names) == width:
        plan.columns = _pandas_names(names)
        return
    full = [row for row in start.rows if len(row) == width]
    first = [row[0] for row in full]
    counted = len(full) > 4 and first == [str(i + 1) for i in range(len(full))]
    distinct = len(set(first)) == len(first) and not any(map(looks_numeric, first))
    if width == len(names) + 1 and all(not row[-1].strip() for row in full):
        plan.columns = _pandas_names((*names, ""))
        plan.notes = ("every row ends with an empty field",)
    elif width == len(names) + 1 and (counted or (distinct and _rows_named(plan, text))):
        plan.columns = _pandas_names(("row", *names))
        plan.notes = ("the first column has no name: it is called 'row'",)
    else:
        said = (
            f"rows have {width} fields and the header {len(names)}: a name is missing, or a field "
            f"has {plan.sep!r} outside quotes, such as a decimal comma; mend it, or name all "
            "columns"
        )
        settle = f"names: {yaml_list([*numbered[: width - len(names)], *names])}"
        raise in_doubt(Doubt("layout", said, settle))


def _rows_named(plan: ReadPlan, text: Text) -> bool:
    """Whether the rows have names of R: in quotes below names in quotes, or between separators
    that no text holds."""
    if plan.sep not in (",", ";"):
        return True
    lines = [line for line in text.start.splitlines()[plan.skip :] if line.strip()][:50]
    return bool(plan.quote) and all(line.startswith(plan.quote) for line in lines)


def _pandas_names(names: tuple[str, ...]) -> tuple[str, ...]:
    pd: Any = importlib.import_module("pandas")
    line = io.StringIO()
    csv.writer(line).writerow(names)
    frame = pd.read_csv(io.StringIO(line.getvalue()), nrows=0, index_col=False)
    return tuple(str(c) for c in frame.columns)


def obey(plan: ReadPlan, rule: FileSettings) -> None:
    """Put the names and the choice of rows that the user gave into the plan. Raises `Unreadable`
    for a column that is not there."""
    if rule.names:
        width = len(plan.columns)
        if len(rule.names) != width:
            raise Unreadable(f"tables.yaml gives {len(rule.names)} names; the table has {width}")
        plan.columns, plan.renamed = rule.names, True
    if unknown := [c for c in rule.named() if c not in plan.columns]:
        raise Unreadable(f"tables.yaml names a column {unknown[0]!r} that is not there")
    plan.drop_rows = rule.drop_rows or ()
    plan.fill_down = rule.fill_down or ()
    plan.drop_where, plan.drop_duplicates = rule.drop_where, rule.drop_duplicates
    plan.spellings = rule.spellings
