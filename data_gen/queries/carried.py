# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportMissingModuleSource=false
"""Lakes made of the tables that installed packages carry, in the mix of files that real lakes have.

Delimited text in several separators, encodings and decimal marks, some with lines above the names,
workbooks, JSON, Parquet and pages. A table may lie in two or three files that share
a key, all but the first without some rows; missing numbers may be written as a placeholder; two
texts may stand in one column ("City, State"). What becomes of a table depends on its name alone.
A lake's `tables.yaml` says what the placeholders mean, and settles what was written here.
"""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import glob
import importlib
import importlib.util
import io
import json
import re
import sqlite3
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from html import escape
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Literal

from assay.errors import pandas as pd
from assay.tables.settings import FILE
from assay.task import derive_seed
from assay.workers import MapFunction
from data_gen.dare.sources import PACKAGES, Source, sources
from data_gen.describe import About

# --- files of tables: what is written depends on the tables alone, no dates, no order of a hash

Frame = Any  # a pandas DataFrame
Form = Literal["csv", "excel", "json", "lines", "parquet", "html", "sqlite"]


@dataclass(frozen=True)
class Layout:
    """How one table is laid into a file. `top` lines stand above the column names."""

    path: str  # from the lake's folder, with /
    form: Form = "csv"
    sep: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    sheet: str = ""  # or the table's name
    top: tuple[str, ...] = ()


def can_read(form: Form) -> bool:
    """Whether what this form needs beside pandas is installed."""
    needs = {"excel": "openpyxl", "parquet": "pyarrow", "html": "lxml"}
    return form not in needs or importlib.util.find_spec(needs[form]) is not None


def top_lines(path: Path, form: str, part: str, skip: int, encoding: str) -> tuple[str, ...]:
    """What stands above the column names: lines, or the texts of rows."""
    if not skip:
        return ()
    if form == "csv":
        with open(path, encoding=encoding, newline="") as file:
            return tuple(line.rstrip("\r\n") for line in islice(file, skip))
    openpyxl = importlib.import_module("openpyxl")
    with closing(openpyxl.load_workbook(path, read_only=True, data_only=True)) as book:
        rows = islice(book[part].iter_rows(values_only=True), skip)
        return tuple(" ".join(str(c) for c in row if c is not None) for row in rows)


def write_frames(folder: Path, tables: Sequence[tuple[Layout, Frame]]) -> None:
    """Write the tables of one file. Only workbooks, pages and databases hold several. Raises
    UnicodeEncodeError when the encoding lacks a character."""
    layout, frame = tables[0]
    place = folder / layout.path
    place.parent.mkdir(parents=True, exist_ok=True)
    match layout.form:
        case "csv":
            place.write_bytes(_delimited(layout, frame).encode(layout.encoding))
        case "excel":
            place.write_bytes(_workbook(tables))
        case "parquet":
            frame.to_parquet(place, index=False)
        case "html":
            place.write_text(_page(tables), encoding="utf-8")
        case "sqlite":
            place.unlink(missing_ok=True)
            with closing(sqlite3.connect(place)) as db:
                for one, part in tables:
                    part.to_sql(one.sheet, db, index=False)
        case "json" | "lines":
            lines = layout.form == "lines"
            how = {"orient": "records", "force_ascii": False, "lines": lines}
            text = frame.to_json(**how, double_precision=15)
            place.write_text(text + ("" if lines else "\n"), encoding="utf-8")


Rules = Mapping[tuple[str, str], Mapping[str, Any]]  # keys of `tables.yaml` by (file, part)


def write_rules(folder: Path, rules: Rules) -> None:
    """Write `tables.yaml`: what settles the doubts about files, or about parts of them. Without any
    there is no such file."""
    yaml: Any = importlib.import_module("yaml")
    said = {
        f"{path} [{part}]" if part else glob.escape(path): dict(rule)
        for (path, part), rule in sorted(rules.items())
        if rule
    }
    if said:
        folder.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(said, allow_unicode=True, sort_keys=False, width=100)
        (folder / FILE).write_text(text, encoding="utf-8")
    else:
        (folder / FILE).unlink(missing_ok=True)


def _delimited(layout: Layout, frame: Frame) -> str:
    if layout.sep == r"\s+":  # columns under each other, for cells without blanks
        cells = [[str(c) for c in frame.columns]]
        cells += [["NA" if v != v else _text(v) for v in row] for row in frame.values.tolist()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        rows = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) for r in cells]
        body = "\n".join(row.rstrip() for row in rows) + "\n"
    else:
        if layout.decimal == ",":  # also where a column holds words beside numbers
            for name in [c for c in frame.columns if frame[c].dtype.kind == "O"]:
                frame = frame.assign(**{str(name): frame[name].map(_with_comma)})
        how = {"sep": layout.sep, "decimal": layout.decimal, "lineterminator": "\n"}
        body = frame.to_csv(index=False, **how)
    return "\n".join([*layout.top, body])


def _with_comma(value: Any) -> Any:
    return repr(value).replace(".", ",") if isinstance(value, float) and value == value else value


def _text(value: Any) -> str:
    return "NA" if value is None else repr(value) if isinstance(value, float) else str(value)


def _page(tables: Sequence[tuple[Layout, Frame]]) -> str:
    """An HTML page that holds every table below its title lines."""
    parts = ["<!DOCTYPE html>", '<html><head><meta charset="utf-8"></head><body>']
    for layout, frame in tables:
        parts += [f"<p>{escape(line)}</p>" for line in layout.top]
        heads = "".join(f"<th>{escape(str(c))}</th>" for c in frame.columns)
        parts += ["<table>", f"<thead><tr>{heads}</tr></thead>", "<tbody>"]
        for row in frame.astype(object).where(frame.notna(), None).itertuples(index=False):
            cells = ["" if c is None else _text(c) for c in row]
            parts.append("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>")
        parts += ["</tbody>", "</table>"]
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _workbook(tables: Sequence[tuple[Layout, Frame]]) -> bytes:
    openpyxl = importlib.import_module("openpyxl")
    # not write_only, which leaves out the size of a sheet: readers then go through it twice
    book = openpyxl.Workbook()
    book.remove(book.active)
    for layout, frame in tables:
        sheet = book.create_sheet(layout.sheet)
        for line in layout.top:
            sheet.append([line])
        sheet.append([str(c) for c in frame.columns])
        for row in frame.astype(object).where(frame.notna(), None).itertuples(index=False):
            sheet.append([_cell(c) for c in row])
    made = io.BytesIO()
    book.save(made)
    return _undated(made.getvalue())


_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # no workbook may hold them


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return _CONTROL.sub("", value) or None
    return value.item() if hasattr(value, "item") else value


def _undated(data: bytes) -> bytes:
    """The same workbook without the time it was written."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            body = old.read(name)
            if name == "docProps/core.xml":
                body = re.sub(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", b"2000-01-01T00:00:00Z", body)
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            new.writestr(info, body)
    return out.getvalue()


# --- the tables of packages

_PLACEHOLDERS = ("M", "n/a", -9999.0, -999.0)
_TOGETHER = 0.4  # of the tables that can have two texts in one column
_APART = 0.7  # of the tables that can lie in two files
_LOST = 0.08  # of the rows of the second file, and of the third
_WIDE = 6  # columns beside the key from which on there may be a third file
_SUFFIXES = ("details", "more")
_LONGEST = 40  # characters of a text that shares a column


@dataclass(frozen=True)
class Part:
    """A table that becomes a file, and column → the word that stands there for no value."""

    name: str
    frame: Frame
    words: dict[str, str] = field(default_factory=dict[str, str])


def messy(owner: str, name: str, frame: Frame) -> list[Part]:
    """The files that the table becomes, by its name alone."""
    rng = Random(derive_seed("carried-mess", owner, name))
    frame = _together(frame, rng)
    parts = _apart(name, frame, rng)
    return [Part(part, *_placeholders(cells, rng)) for part, cells in parts]


def _texts(frame: Frame) -> list[str]:
    """Columns of short texts without commas and without gaps."""
    found: list[str] = []
    for name in frame.columns:
        column = frame[name]
        if column.dtype.kind in "iufbmM" or column.isna().any() or "," in name:
            continue
        texts = column.astype(str)
        if float(texts.str.contains(r"\d").mean()) > 0.2:
            continue  # dates, ages in classes: such things are not written beside another
        if int(texts.str.len().max()) <= _LONGEST and not texts.str.contains(",").any():
            found.append(str(name))
    return found


def _together(frame: Frame, rng: Random) -> Frame:
    """With the longest-valued text and a group in one column, where there are two such."""
    texts = _texts(frame)
    groups = [t for t in texts if 3 <= frame[t].nunique() <= min(60, len(frame) // 3)]
    if len(texts) < 2 or not groups or frame.shape[1] < 4 or rng.random() >= _TOGETHER:
        return frame
    first = max(texts, key=lambda t: (frame[t].nunique(), t))
    rest = [g for g in groups if g != first]
    if not rest:
        return frame
    second = rng.choice(rest)
    place = list(frame.columns).index(first)
    joined = frame[first].astype(str) + ", " + frame[second].astype(str)
    out = frame.drop(columns=[first, second])
    out.insert(min(place, out.shape[1]), f"{first}, {second}", joined)
    return out


def _apart(name: str, frame: Frame, rng: Random) -> list[tuple[str, Frame]]:
    """The table, or two or three with the same key: the others have other columns, in another order
    of rows."""
    keys = [
        str(c)
        for c in frame.columns
        if frame[c].dtype.kind not in "fbmM" and frame[c].is_unique and not frame[c].isna().any()
    ]
    texts = [k for k in keys if frame[k].dtype.kind not in "iu"]
    others = [c for c in frame.columns if c not in texts[:1]]
    if not texts or len(others) < 4 or rng.random() >= _APART:
        return [(name, frame)]
    files = 3 if len(others) >= _WIDE and rng.random() < 0.5 else 2
    ends = [len(others) * n // files for n in range(files + 1)]
    found = [(name, frame[[texts[0], *others[: ends[1]]]])]
    for suffix, start, end in zip(_SUFFIXES, ends[1:], ends[2:], strict=False):
        order = rng.sample(range(len(frame)), len(frame))
        kept = order[: max(15, round(len(frame) * (1 - _LOST)))]
        part = frame[[texts[0], *others[start:end]]].iloc[kept].reset_index(drop=True)
        found.append((f"{name}_{suffix}", part))
    return found


def _placeholders(frame: Frame, rng: Random) -> tuple[Frame, dict[str, str]]:
    """Missing numbers written as one placeholder for the table, where some are missing; and the
    columns that have it."""
    gaps = [c for c in frame.columns if frame[c].dtype.kind == "f" and frame[c].isna().sum() > 1]
    word = rng.choice(_PLACEHOLDERS)
    if not gaps or rng.random() < 0.3:
        return frame, {}
    out, words = frame.copy(), dict[str, str]()
    for name in map(str, gaps):
        column = out[name]
        if isinstance(word, float):
            if not column.min() >= 0:
                continue
            out[name] = column.fillna(word)
        else:
            out[name] = column.astype(object).where(column.notna(), word)
        words[name] = f"{word:g}" if isinstance(word, float) else str(word)
    return out, words


_TOYS = ("iris", "wine", "breast_cancer", "linnerud")  # of scikit-learn
ROWS = (15, 5_000)
COLUMNS = (3, 60)
LAKE_MOST = 24  # tables of one lake
_SMALL = 5  # owners with fewer tables share a lake
_TITLES = ("Table of {name}", "Prepared for internal use", "Source: see the notes")


@dataclass(frozen=True)
class Carried:
    """A table to lay into a lake: who carries it, its name, licence, and how to get it."""

    owner: str
    name: str
    licence: str
    load: Callable[[], Frame]
    columns: Mapping[str, str] = field(default_factory=dict[str, str])


def carried() -> Iterator[Carried]:
    """Every table of the installed packages, in order of owner and name."""
    found: list[Carried] = []
    models = importlib.util.find_spec("statsmodels")
    root = Path(str(models.origin)).parent if models else Path("no such folder")
    for path in sorted(root.glob("datasets/*/*.csv")):
        found.append(Carried("statsmodels", path.stem, "as statsmodels", partial(_csv, path)))
    for name in _TOYS if _there("sklearn") else ():
        found.append(Carried("sklearn", name, "BSD-3-Clause", partial(_toy, name)))
    found += map(_packaged, sources([p for p in PACKAGES if _there(p)], ROWS))
    yield from sorted(found, key=lambda c: (c.owner, c.name))


def _packaged(source: Source) -> Carried:
    """With what its documentation says of columns, where that is short."""
    words = {n: _words(text) for n, text in source.columns.items()}
    said = {n: w for n, w in words.items() if w and w.lower() != n.lower()}
    return Carried(source.owner, source.slug, source.licence, source.load, said)


_EMPTY = re.compile(
    r"(?i)^(a|an|the)?\s*(numeric|factor|character|integer|vector|logical|data)\b.*"
)


def _words(text: str) -> str:
    """What a documentation says of a column, if it is short and says something."""
    first = re.split(r"[;:(,]|\. |\.$| - an? ", text.lstrip("|-— "))[0].strip()
    plain = first.isprintable() and not set(first) & set("`\"'\\{}*_[]<>)|")
    cut = re.search(r"(?i)\b(with|of|the|a|an|in|is|for|and)$", first)
    return first if 3 < len(first) <= 50 and plain and not cut and not _EMPTY.match(first) else ""


def _there(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _toy(name: str) -> Frame:
    """A table of scikit-learn with the names of its columns and classes, which its file lacks."""
    datasets: Any = importlib.import_module("sklearn.datasets")
    bunch = getattr(datasets, f"load_{name}")(as_frame=True)
    frame = bunch.frame.copy()
    if "target" in frame and len(getattr(bunch, "target_names", ())) == frame["target"].nunique():
        frame["class"] = [str(bunch.target_names[i]) for i in frame.pop("target")]
    return frame


def _csv(path: Path) -> Frame:
    return pd.read_csv(path)


def plain(frame: Frame) -> Frame | None:
    """Named columns of numbers and texts, as every form of file can hold; None when unfit."""
    frame = frame.reset_index(drop=True)
    names = [str(c).strip() for c in frame.columns]
    frame.columns = names
    wide = COLUMNS[0] <= frame.shape[1] <= COLUMNS[1]
    if not ROWS[0] <= len(frame) <= ROWS[1] or not wide or len(set(names)) < len(names):
        return None
    for name in frame.columns:
        column = frame[name]
        if column.dtype.kind not in "iufb":
            if any(isinstance(v, dict | list | tuple) for v in column.head(20)):
                return None
            text = column.astype(object).where(column.notna(), None)
            frame[name] = text.map(lambda v: v if v is None else _bare(str(v)))
    return frame


@lru_cache(maxsize=4096)
def _bare(text: str) -> str:
    """The text without more than one blank in a row."""
    return " ".join(text.split())


def form_of(owner: str, name: str, rows: int) -> Layout:
    """The file a table lies in, by its name alone."""
    rng = Random(derive_seed("carried-form", owner, name))
    small = rows <= 1000  # workbooks, pages and JSON of more rows take long to read
    kinds = ["comma"] * 6 + ["semicolon"] * 3 + ["tab"] * 2 + ["titled"] * 3 + ["spaces"] * 2
    kinds += ["excel"] * 3 * (small and can_read("excel")) + ["json"] * 2 * small
    kinds += ["lines"] * small + ["parquet"] * 2 * can_read("parquet")
    kinds += ["html"] * 2 * (small and can_read("html"))
    kind = rng.choice(kinds)
    top = tuple(t.format(name=name) for t in _TITLES[: rng.choice((1, 2, 3))])
    match kind:
        case "semicolon":
            mark = rng.choice(",.")
            return Layout(f"{name}.csv", sep=";", encoding="cp1252", decimal=mark)
        case "tab":
            return Layout(f"{name}.tsv", sep="\t")
        case "titled":
            return Layout(f"{name}.csv", top=top)
        case "spaces":
            return Layout(f"{name}.dat", sep=r"\s+")
        case "excel":
            own = top if rng.random() < 0.5 else ()
            return Layout(f"{name}.xlsx", "excel", sheet=name[:28] or "data", top=own)
        case "html":
            return Layout(f"{name}.html", "html", top=top)
        case "json" | "lines":
            return Layout(f"{name}.json{'l' * (kind == 'lines')}", kind)
        case "parquet":
            return Layout(f"{name}.parquet", "parquet")
        case _:
            return Layout(f"{name}.csv")


Fit = tuple[int, Frame]  # (place among the owner's tables, the table)
Said = dict[str, dict[str, Any]]  # rows of SOURCES.json by path


@cache
def _owners() -> dict[str, list[Carried]]:
    """Every carried table by its owner; listed once in each process."""
    found: dict[str, list[Carried]] = {}
    for item in carried():
        found.setdefault(item.owner, []).append(item)
    return found


def export_carried(target: Path, turn: MapFunction = map) -> list[Path]:
    """Write the lakes below `target` with SOURCES.json (owner and licence); returns the folders.

    Owners of few tables share the lake `mixed`. A folder that is there already is written anew.
    Each owner's tables are read and written in whatever process `turn` has free.
    """
    owners = list(_owners())
    lakes: dict[str, Said] = {}
    mixed: list[tuple[str, Fit]] = []
    for owner, found in zip(owners, turn(_export, [(target, o) for o in owners]), strict=True):
        if isinstance(found, dict):
            lakes[owner] = found
        else:
            mixed += [(owner, fit) for fit in found]
    if mixed:
        lakes["mixed"] = _lay_lake(target, "mixed", mixed)
    said = {path: row for _, rows in sorted(lakes.items()) for path, row in rows.items()}
    if said:
        text = json.dumps(said, indent=1, ensure_ascii=False) + "\n"
        (target / "SOURCES.json").write_text(text, encoding="utf-8")
    return [target / lake for lake in sorted(lakes)]


def _export(job: tuple[Path, str]) -> Said | list[Fit]:
    """What is said of the files that an owner's lake got; of an owner of few tables, the tables."""
    target, owner = job
    fits: list[Fit] = []
    for place, item in enumerate(_owners()[owner]):
        if len(fits) >= LAKE_MOST:
            break
        try:
            frame = plain(item.load())
        except Exception:  # a table its own package cannot give is none
            continue
        if frame is not None:
            fits.append((place, frame))
    if len(fits) < _SMALL:
        return fits
    return _lay_lake(target, owner, [(owner, fit) for fit in fits])


def _lay_lake(target: Path, lake: str, fits: Sequence[tuple[str, Fit]]) -> Said:
    said: Said = {}
    names: set[str] = set()
    rules: dict[tuple[str, str], dict[str, Any]] = {}
    for owner, (place, frame) in fits[:LAKE_MOST]:
        item = _owners()[owner][place]
        name = item.name if item.name not in names else f"{owner}-{item.name}"
        names.add(name)
        for part in messy(owner, name, frame):
            layout = _lay(target / lake, owner, part)
            rules[layout.path, ""] = _rule(layout, part)
            columns = {n: w for n, w in item.columns.items() if n in part.frame.columns}
            row = {"from": owner, "licence": item.licence, "columns": columns}
            said[f"{lake}/{layout.path}"] = row
    write_rules(target / lake, rules)
    return said


def carried_about(lake: Path) -> dict[str, About]:
    """What SOURCES.json says of the tables of one lake, by their paths in it."""
    found = json.loads((lake.parent / "SOURCES.json").read_text(encoding="utf-8"))
    return {
        path.removeprefix(f"{lake.name}/"): About("", row["licence"], columns=row["columns"])
        for path, row in found.items()
        if path.startswith(f"{lake.name}/")
    }


def _lay(folder: Path, owner: str, part: Part) -> Layout:
    """Write one table; a form that cannot hold its cells gives way to plain CSV. Returns the
    layout that it has."""
    layout = form_of(owner, part.name, len(part.frame))
    if not _holds(layout, part):
        layout = Layout(f"{part.name}.csv")
    try:
        write_frames(folder, [(layout, part.frame)])
    except UnicodeEncodeError:
        layout = Layout(layout.path, sep=layout.sep, decimal=layout.decimal)
        write_frames(folder, [(layout, part.frame)])
    return layout


_MARKED = re.compile(r"\d[.,]\d")


def _rule(layout: Layout, part: Part) -> dict[str, Any]:
    """What `tables.yaml` has to say of a file, so that what was written here is in no doubt. What
    the package itself left open stays so."""
    frame, rule = part.frame, dict[str, Any]()
    if layout.encoding != "utf-8":
        rule["encoding"] = layout.encoding
    texts = [c for c in frame.columns if frame[c].dtype.kind not in "iufb" and c not in part.words]
    fractions = any(frame[c].dtype.kind == "f" for c in frame.columns) or part.words
    # a text such as "1,250" may hold another mark
    if (
        layout.form == "csv"
        and fractions
        and not any(_MARKED.search(str(v)) for c in texts for v in frame[c])
    ):
        rule["decimal"] = layout.decimal
    if part.words:
        rule["missing"] = {column: [word] for column, word in part.words.items()}
    return rule


_PARTING = re.compile(r"[\s\"',]")  # no cell between blanks may hold them


def _holds(layout: Layout, part: Part) -> bool:
    """Whether the form can hold the cells as they are; a placeholder needs one of which
    `tables.yaml` can say what it means."""
    frame = part.frame
    if layout.sep == r"\s+":
        texts = [c for c in frame.columns if frame[c].dtype.kind not in "iufb"]
        cells = [str(v) for c in texts for v in frame[c].dropna()] + [str(c) for c in frame.columns]
        return all(c and not _PARTING.search(c) for c in cells)
    if layout.form != "parquet":
        return True
    texts = [c for c in frame.columns if frame[c].dtype.kind not in "iufb"]
    return all(isinstance(v, str) for c in texts for v in frame[c].dropna())
