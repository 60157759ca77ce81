"""Make the hashes by which published evaluation databases are known again.

    python tests/support/make_published.py CHECKOUT

`CHECKOUT` is a git checkout of the release. Files that it lacks are known by git's own hash of
them. `data_gen/dare/published.json` gets the hashes of tables and files, `rewards/published.json`
those of questions and descriptions.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.files import write_text
from data_gen.dare.layout import Entry, read_entries
from data_gen.dare.sources import FILE, HALF, sketches_of, tables_of, tells
from rewards.published import FILE as TEXTS
from rewards.published import lines_of, text_hash

_LINES = 12  # kept of a description


def row_of(entry: Entry, files: Mapping[str, str]) -> dict[str, Any]:
    """What is kept of a database; `files`: git's hashes of its files by their names."""
    part, frame = next(tables_of(entry), ("", None))
    made = [] if frame is None else sketches_of(frame)
    return {
        "name": entry.name,
        "part": part,
        "rows": 0 if frame is None else len(frame),
        "columns": [" ".join(f"{h:08x}" for h in sorted(s)) for s in made],
        "files": sorted({h[:HALF] for name, h in files.items() if tells(entry, name)}),
    }


def texts_of(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """The rows of `rewards/published.json`: questions of IF, which name their columns, and the
    longest lines of descriptions that no other source has."""
    said = {e.name: _described(e) for e in entries}
    sources = {e.name: e.name.rpartition("_")[0] for e in entries}
    owners: dict[str, set[str]] = {}
    for name, lines in said.items():
        for line in lines:
            owners.setdefault(line, set()).add(sources[name])

    def row(entry: Entry) -> dict[str, Any]:
        own = [line for line in said[entry.name] if len(owners[line]) == 1]
        longest = sorted(own, key=lambda line: (-len(line), line))[:_LINES]
        asked = [entry.row["question_v1"]] if entry.family != "ts" else []
        hashes = {"questions": sorted(map(text_hash, asked))}
        return {"name": entry.name, **hashes, "lines": sorted(map(text_hash, longest))}

    return [*map(row, entries)]


def _described(entry: Entry) -> set[str]:
    text = (entry.folder / "source" / "metadata.txt").read_text("utf-8", errors="replace")
    return {" ".join(line.split()) for line in lines_of(text)}


def _git_files(folder: Path) -> dict[str, dict[str, str]]:
    """Database → file name → git's hash, also of files that the checkout lacks."""
    command = ["git", "-C", str(folder), "ls-tree", "-r", "HEAD", "databases"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, dict[str, str]] = {}
    for line in listed.splitlines():
        about, _, path = line.partition("\t")
        _, database, room, name = path.split("/", 3)
        if room == "source":
            found.setdefault(database, {})[name] = about.split()[2]
    return found


def make(checkout: Path) -> None:
    """Write both files anew for a git checkout of the release; one line a database."""
    folder = checkout / "data" / "eval"
    entries, files = sorted(read_entries(folder), key=lambda e: e.name), _git_files(folder)
    tables = [row_of(entry, files[entry.name]) for entry in entries]
    for path, rows in ((FILE, tables), (TEXTS, texts_of(entries))):
        write_text(path, "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
