"""The pandas statements that read a table as its `Reading` says.

`load` runs the same statements, with the file's place instead of `data/PATH`: what a sandbox reads
without Assay is what Assay read.
"""

from __future__ import annotations

from urllib.parse import quote as quoted

from rewards.tables.missing import as_number
from rewards.tables.reading import Reading


def statements(reading: Reading, name: str = "t", place: str | None = None) -> list[str]:
    """All statements, in order. `place` is the file's, `data/PATH` where it is None."""
    imports = ["import sqlite3"] if reading.form == "sqlite" else []
    return [*imports, f"{name} = {expression(reading, place)}", *after(reading, name)]


def expression(reading: Reading, place: str | None = None) -> str:
    """What reads the cells, before words for missing values and text become values."""
    where = f"data/{reading.path}" if place is None else place
    if reading.form == "csv":
        return f"pd.read_csv({', '.join([repr(where), *_csv(reading)])})"
    if reading.form == "excel":
        words = [repr(where), f"sheet_name={reading.part!r}"]
        words += [f"skiprows={reading.skip}"] if reading.skip else []
        words += [] if reading.header else ["header=None", f"names={list(reading.columns)!r}"]
        # cells keep their types: pandas would take the text 007 for a number
        words += ["dtype=object", "keep_default_na=False", "na_values=['']"]
        return f"pd.read_excel({', '.join(words)}).infer_objects()"
    if reading.form in ("json", "lines"):
        lines = ", lines=True" if reading.form == "lines" else ""
        kept = "dtype=False, convert_dates=False, convert_axes=False, precise_float=True"
        return f"pd.read_json({where!r}, orient='records'{lines}, {kept})"
    if reading.form == "parquet":
        reset = "" if reading.header else ".reset_index()"
        return f"pd.read_parquet({where!r}){reset}"
    if reading.form == "sqlite":
        table = reading.part.replace('"', '""')
        uri = f"file:{quoted(where)}?mode=ro"
        query = f'select * from "{table}"'
        return f"pd.read_sql({query!r}, sqlite3.connect({uri!r}, uri=True))"
    return _html(reading, where)


def _html(reading: Reading, where: str) -> str:
    texts = ", ".join(f"{i}: str" for i in range(len(reading.columns)))
    words = [repr(where), "flavor='lxml'", f"encoding={reading.encoding!r}"]
    words += ["header=0" if reading.header else "header=None"]
    words += [f"converters={{{texts}}}", "keep_default_na=False"]
    names = "" if reading.header else f".set_axis({list(reading.columns)!r}, axis=1)"
    return f"pd.read_html({', '.join(words)})[{reading.part}]{names}"


def _csv(reading: Reading) -> list[str]:
    words: list[str] = []
    if reading.sep != ",":
        words.append(f"sep={reading.sep!r}")
    if reading.encoding != "utf-8":
        words.append(f"encoding={reading.encoding!r}")
    if not reading.quote:
        words.append("quoting=3")
    elif reading.quote != '"':
        words.append(f"quotechar={reading.quote!r}")
    if reading.escape:
        words.append(f"escapechar={reading.escape!r}")
    if reading.skip:
        words.append(f"skiprows={reading.skip}")
    if not reading.header:
        words += ["header=None", f"names={list(reading.columns)!r}"]
    if reading.decimal == ",":
        words.append("decimal=','")
    kept = [c for c in reading.columns if c in {*reading.text, *reading.marked, *reading.dates}]
    if kept:
        words.append(f"dtype={{{', '.join(f'{c!r}: str' for c in kept)}}}")
    words += ["keep_default_na=False", f"na_values={_empty(reading)}"]
    if reading.ragged == "skip":
        words.append("on_bad_lines='skip'")
    return [*words, "low_memory=False"]


def words_of(reading: Reading, column: str) -> list[str]:
    """What is looked for as text: numbers, in a column of numbers, are looked for as numbers."""
    words = reading.missing.get(column, ())
    if column not in reading.numbers:
        return list(words)
    return [w for w in words if as_number(w, reading.decimal) is None]


def _empty(reading: Reading) -> str:
    """pandas takes either one list for every column or a list for each."""
    if not any(words_of(reading, c) for c in reading.columns):
        return "['']"
    each = {c: ["", *(w for w in words_of(reading, c) if w)] for c in reading.columns}
    return repr(each)


def after(reading: Reading, name: str = "t") -> list[str]:
    """Statements for what pandas' reader does not do: each changes one column."""
    lines: list[str] = []
    for column in reading.columns:
        cells = f"{name}[{column!r}]"
        words = [] if reading.form == "csv" else words_of(reading, column)
        if words:
            lines.append(f"{cells} = {cells}.mask({cells}.isin({words!r}))")
        if column in reading.marked:
            lines.append(f"{cells} = {to_number(reading, cells)}")
        if column in reading.dates:
            form = reading.dates[column]
            lines.append(f"{cells} = pd.to_datetime({cells}, format={form!r})")
        for number in _numbers(reading, column):
            lines.append(f"{cells} = {cells}.mask({cells} == {number!r})")
    return lines


def _numbers(reading: Reading, column: str) -> list[float]:
    if column not in reading.numbers:
        return []
    found = (as_number(w, reading.decimal) for w in reading.missing.get(column, ()))
    return sorted({n for n in found if n is not None})


def to_number(reading: Reading, cells: str) -> str:
    """The expression that turns text with marks into numbers."""
    drop = {" ": " \u00a0\u202f", "'": "'’"}.get(reading.thousands, reading.thousands)
    point = ".str.replace(',', '.')" if reading.decimal == "," else ""
    return f"pd.to_numeric({cells}.str.replace({'[' + drop + '$€£% ]'!r}, '', regex=True){point})"
