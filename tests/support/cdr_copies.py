"""Small copies of CDR-Bench with the release's structure: rows of its tracks, in its layouts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from places import tables

from assay.rows import read_rows
from assay.task import write_jsonl
from data_gen.cdr.outcome import Outcome
from rewards.cdr.release_files import CORE, SEMANTIC, check_row
from rewards.gold import Step

Row = dict[str, Any]


def release_row(track: str, number: int, **more: Any) -> Row:
    """A row as the release has them: public fields alone, no lists of splits, no documents."""
    semantic = track.startswith("semantic_")
    structured = semantic and "pii" not in track
    text = f"Text {number} of {track} has x{number}@a.org in it."
    gold = json.dumps({"label": number}) if structured else text
    row = tables("release_row") | {
        "source_track": track,
        "instance_id": f"{track}-{number}",
        "benchmark_track": track.rpartition("_")[0] if semantic else track,
        "benchmark_split": track.rpartition("_")[2] if semantic else "single",
        "track_family": "semantic_extension" if semantic else "core_rule",
        "domain": "web" if number % 2 else "pii",
        "source_record_id": f"{track} {number}",
        "input_text": text,
        "reference_text": gold,
        "output_format": "json" if structured else "tagged_text",
        "scoring_profile": "structured_json" if structured else "text_refinement",
        "reports_refinement_gain": not structured,
    }
    return row | more


def track_rows(names: Sequence[str] = (*CORE, *SEMANTIC), count: int = 2) -> dict[str, list[Row]]:
    return {name: [release_row(name, n) for n in range(count)] for name in names}


def as_tracks(folder: Path, rows: Mapping[str, Sequence[Row]]) -> Path:
    """`folder/tracks/TRACK.jsonl`."""
    (folder / "tracks").mkdir(parents=True)
    for name, mine in rows.items():
        write_jsonl(folder / "tracks" / f"{name}.jsonl", mine)
    return folder


def as_view(folder: Path, rows: Mapping[str, Sequence[Row]], ending: str = "jsonl") -> Path:
    """The hub's viewer: `folder/data/{main,semantic_extension}/test.jsonl`, or parquet."""
    for config, suite in (("main", CORE), ("semantic_extension", SEMANTIC)):
        mine = [row for name in suite for row in rows.get(name, ())]
        home = folder / "data" / config
        home.mkdir(parents=True)
        if ending == "jsonl":
            write_jsonl(home / "test.jsonl", mine)
        else:
            write_arrow(home / "test-00000-of-00001.parquet", mine)
    return folder


def write_arrow(path: Path, rows: Sequence[Row]) -> None:
    """Rows as `datasets` writes them: parquet, or an Arrow stream by the file's ending."""
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    table = pyarrow.Table.from_pylist(list(rows))
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
        return
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as out:
        out.write_table(table)


def read_track(path: Path) -> list[Row]:
    """The rows of a track's file, each checked."""
    rows: list[Row] = []
    for where, row in read_rows(path):
        check_row(row, where)
        rows.append(row)
    return rows


def orders_allowed(outcome: Outcome, steps: Sequence[Step]) -> list[list[Step]]:
    """Every order of the steps that a description allows, one by one."""
    found: list[list[Step]] = []
    for order in permutations(steps):
        place = {one.operator: i for i, one in enumerate(order)}
        if any(place[a] > place[b] for a, b in outcome.once | outcome.ahead):
            continue
        if outcome.judged:
            before = order[: place[outcome.judged.operator]]
            if {one.operator for one in before} != outcome.before:
                continue
        found.append(list(order))
    return found
