# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""Where CDR-Bench's rows lie: the release and its copies, what `assay tasks cdr` wrote, one file.

tracks/TRACK.jsonl                   the release, and our builds; also in data/benchmark_v3
data/CONFIG/test.jsonl               the data set as the hub's viewer shows it
CONFIG/test-00000-of-00001.parquet   the same as parquet, or as `save_to_disk` writes it
benchmark_v3_all.jsonl               every row in one file
FILE                                 one file with rows of any tracks
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.hub import local_place
from assay.parquet import arrow_rows
from assay.rows import read_rows
from assay.task import TaskError, refuse_unfinished
from rewards.cdr.release_files import CORE, SEMANTIC, check_row, find_tracks
from train.evaluation.benchmarks import HELDOUT

Row = dict[str, Any]
RELEASE = "lukahh/CDR-Bench"  # on the hub
TRAIN = "train.jsonl"  # in the folder of a build
_ALL = "benchmark_v3_all.jsonl"
_ROOTS = ("", "data/benchmark_v3", "benchmark_v3")
_ENDINGS = ("jsonl", "parquet", "arrow")
# of a folder without track files: the first of these that it has, and what the hub is asked for
_VIEWS = (
    *("data/*/test*", "*/test*", "test*"),
    *("data/*/test/*", "*/test/*", "test/*", "data/test*", "data/*/data*", "*/data*", "data*"),
)
# rows of the published core tracks, paper Table 6
SIZES = {"atomic_m": 132, "atomic_f": 42, "agnostic_m": 497, "order_m": 286, "order_f": 2505}


@dataclass(frozen=True)
class Picked:
    """The rows to ask, by track.

    `left_out` rows of those tracks are not held out. `heldout` is False only when rows are asked
    that a build gives to training, or to no side. `official`: rows of the release, which has a test
    set alone. `lacks`: a line for each part of the release that this copy does not have.
    """

    tracks: dict[str, list[Row]]
    left_out: int = 0
    heldout: bool = True
    official: bool = False
    lacks: list[str] = field(default_factory=list[str])
    home: Path = Path()  # the folder or file that the rows were read from
    split: Path | None = None  # the file that names them, of a build


def parse_tracks(rest: str) -> tuple[str, list[str]]:
    """`PLACE` or `PLACE:track,track` as (place, track names). Raises `TaskError`."""
    head = "hf://" if rest.startswith("hf://") else ""
    place, _, names = rest.removeprefix(head).partition(":")
    if not place:
        raise TaskError(f"--tasks cdr:{rest}: wanted cdr:PLACE or cdr:PLACE:order_m,order_f")
    return head + place, [n.strip() for n in names.split(",") if n.strip()]


def pick_rows(rest: str, all_rows: bool = False) -> Picked:
    """The rows of `cdr:PLACE[:track,…]`. Of a build those that its heldout.jsonl names, all of them
    with `all_rows`; of the release and its copies all that are there.

    `cdr:DIR/heldout.jsonl` and `cdr:DIR/train.jsonl` ask the rows whose ids stand in that file.
    Raises `TaskError` when no row is left.
    """
    word, names = parse_tracks(rest)
    place = _fetched(word, names)
    listed = place.is_file() and not _holds_rows(place)  # a list of a build's tasks
    home, files = _files(place.parent if listed else place, names)
    split = place if listed else _split_file(home)
    lacks: list[str] = []
    tracks = _read(home, files, names, lacks.append if split is None and not names else None)
    if split is not None:
        return _of_split(tracks, home, split, all_rows)
    if not any(tracks.values()):
        why = f" ({lacks[0]})" if lacks else ""
        raise TaskError(f"--tasks cdr:{rest}: no row of a track is in {home}{why}")
    tracks = {track: rows for track, rows in tracks.items() if rows}
    # rows of our builds name their document; of a build without its lists the sides are not known
    official = not any("doc_id" in rows[0] for rows in tracks.values())
    lacks += _lacking(tracks, names, home) if official else []
    return Picked(tracks, 0, True, official, lacks, home)


def _fetched(word: str, names: Sequence[str]) -> Path:
    """The place on this machine. Of the hub's data sets the tracks, else what its viewer shows."""
    tracks = [f"tracks/{name}.*" for name in names] or ["tracks/*.jsonl", "tracks/*.parquet"]
    if word.startswith("hf://"):
        tracks += ["*.jsonl", "*.parquet"]
    if Path(word).expanduser().exists():
        return local_place(word, RELEASE)
    try:
        found = local_place(word, RELEASE, tracks)
        if found.is_file() or any(p.is_file() for p in found.rglob("*")):
            return found
    except TaskError as error:
        if "has no" not in str(error):
            raise
    return local_place(word, RELEASE, [f"{view}.{e}" for view in _VIEWS for e in _ENDINGS])


def _holds_rows(path: Path) -> bool:
    """Whether a file holds rows of the benchmark, by its first row."""
    if path.suffix == ".arrow":
        return True
    first = next(iter(read_rows(path)), None)
    return first is not None and "instance_id" in first[1] and "input_text" in first[1]


def _split_file(home: Path) -> Path | None:
    """Where a build names its held-out rows, or None. A build without any writes train.jsonl."""
    if home.is_file() and not home.parent.name.startswith("tracks"):
        return None
    places = (home.parent, home.parent.parent) if home.is_file() else (home, home.parent)
    for place in places:
        if any((place / name).is_file() for name in (HELDOUT, TRAIN)):
            return place / HELDOUT
    return None


def _files(place: Path, names: Sequence[str]) -> tuple[Path, dict[Path, str]]:
    """(the folder of tracks, or the file, or the folder of a view; the files with rows, each with
    its track, "" where rows of several lie in it)."""
    if place.is_file():
        refuse_unfinished(place.parent)
        return place, {place: ""}
    try:
        tracks = find_tracks(place, names)
    except TaskError:
        if mixed := _view(place):
            return place, dict.fromkeys(mixed, "")
        raise
    return next(iter(tracks.values())).parent, {path: track for track, path in tracks.items()}


def _read(
    home: Path,
    files: Mapping[Path, str],
    names: Sequence[str],
    torn: Callable[[str], None] | None,
) -> dict[str, list[Row]]:
    """Checked rows by track, in the benchmark's order. What cannot be read is told to `torn`, and
    its track goes as far as it can be read; without `torn` it is an error."""
    found: dict[str, list[Row]] = {track: [] for track in files.values() if track}
    for path, track in files.items():
        for row in _checked(_rows(path), torn):
            found.setdefault(track or str(row["source_track"]), []).append(row)
        if torn is not None and track and not found[track]:
            torn(f"{path}: no rows in it")
    for name in names:
        if name not in found:
            there = ", ".join(found) or "none"
            raise TaskError(f"{home}: no track {name!r}; there is {there}")
        if not found[name]:
            raise TaskError(f"track {name}: no rows in its file")
    rank = {name: place for place, name in enumerate((*CORE, *SEMANTIC))}
    chosen = names or sorted(found, key=lambda name: (rank.get(name, len(rank)), name))
    return {name: found[name] for name in chosen}


def _view(folder: Path) -> list[Path]:
    """The files of a folder that hold rows of several tracks."""
    refuse_unfinished(folder)
    for root in (folder / name for name in _ROOTS):
        for view in _VIEWS:
            for ending in _ENDINGS:
                if found := [p for p in sorted(root.glob(f"{view}.{ending}")) if p.is_file()]:
                    return found
        if (root / _ALL).is_file():
            return [root / _ALL]
    return []


def _rows(path: Path) -> Iterator[tuple[str, Row]]:
    if path.suffix != ".arrow":
        yield from read_rows(path)
        return
    with open(path, "rb") as file:
        for number, row in enumerate(arrow_rows(str(path), file), 1):
            yield f"{path} row {number}", row


def _checked(rows: Iterable[tuple[str, Row]], torn: Callable[[str], None] | None) -> Iterator[Row]:
    try:
        for where, row in rows:
            check_row(row, where)
            yield row
    except TaskError as error:
        if torn is None:
            raise
        torn(f"{error}; what stands before it is used")


def _lacking(tracks: Mapping[str, Sequence[Row]], names: Sequence[str], home: Path) -> list[str]:
    """A line for each track of the release that is not there or not whole. The core tracks and the
    semantic extension can each be had alone."""
    found: list[str] = []
    for suite in (CORE, SEMANTIC):
        if home.name == "tracks_all_prompts" and suite is SEMANTIC:
            continue
        lost = [name for name in suite if name not in tracks]
        if not names and len(lost) < len(suite):
            found += [f"{home}: track {name} is not there and is left out" for name in lost]
    for name, size in SIZES.items():
        mine = tracks.get(name, ())
        own = mine and mine[0].get("source_benchmark") == "cdrbench_rule_based"
        if own and len(mine) < size:
            found.append(f"{home}: {name} has {len(mine)} of the release's {size} rows")
    return found


def _of_split(everything: dict[str, list[Row]], home: Path, split: Path, all_rows: bool) -> Picked:
    """The rows of a build that a list of its tasks names."""
    for track, rows in everything.items():
        if not rows:
            raise TaskError(f"track {track}: no rows in its file")
    if all_rows:
        return Picked(everything, heldout=False, home=home)
    wanted = {str(row.get("id")) for _, row in read_rows(split)} if split.is_file() else set[str]()
    held = {t: [r for r in rows if r["instance_id"] in wanted] for t, rows in everything.items()}
    if not any(held.values()):
        raise TaskError(
            f"{split} names no row of {', '.join(everything)}; build with a held-out share, or "
            "give cdr.all_rows=true to evaluate the training rows too"
        )
    return Picked(
        {track: rows for track, rows in held.items() if rows},
        sum(map(len, everything.values())) - sum(map(len, held.values())),
        split.name == HELDOUT,
        home=home,
        split=split,
    )


def tell(picked: Picked, strict: bool) -> list[str]:
    """The lines about what a copy lacks. Raises `TaskError` for them with `strict`."""
    if strict and picked.lacks:
        more = f" (and {len(picked.lacks) - 1} more)" if picked.lacks[1:] else ""
        raise TaskError(f"{picked.lacks[0]}{more}; get the whole release, or leave out --strict")
    return picked.lacks
