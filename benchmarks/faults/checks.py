"""What is looked at after a fault: files under final names, messages, leftovers, scores."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# Keys whose values are measured times, and the checkout's state, which may change meanwhile.
TIMES = re.compile(r"^time/|^(seconds|wall_s|tool_s|run_s|queue_s|spawn_s|code)$")
URL = re.compile(rb"http://127\.0\.0\.1:\d+/\w+")
UNNAMED = (".lock",)  # of a folder that is held by one process at a time
APPENDED = ("metrics.jsonl", "rows.jsonl", "r.jsonl", "out.jsonl")  # a kill may tear the last line


def listing(folder: Path) -> dict[str, Path]:
    """Every file below `folder/out`, by its path there."""
    top = folder / "out"
    return {
        str(p.relative_to(top)): p
        for p in sorted(top.rglob("*"))
        if p.is_file() and p.name not in UNNAMED
    }


def print_of(path: Path) -> str:
    """A hash of what a file says, without times and without the port of an endpoint."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    if path.suffix in (".json", ".jsonl"):
        rows = data.splitlines() if path.suffix == ".jsonl" else [data]
        data = b"\n".join(
            json.dumps(_timeless(json.loads(r)), sort_keys=True).encode() for r in rows
        )
    return hashlib.sha256(URL.sub(b"URL", data)).hexdigest()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if not TIMES.search(k)}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


def broken_files(folder: Path) -> Iterator[str]:
    """A sentence for every file under a final name that does not parse to its end."""
    for name, path in listing(folder).items():
        if temporary(name):
            continue
        why = _broken(path)
        if why:
            yield f"{name} is broken: {why}"


def _broken(path: Path) -> str:
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        if path.suffix == ".json":
            json.loads(data)
        elif ".jsonl" in path.suffixes:
            return _broken_lines(path, data)
        elif path.suffix == ".html" and not data.rstrip().endswith(b"</html>"):
            return "no end"
        elif path.suffix == ".yaml":
            import yaml

            return "" if isinstance(yaml.safe_load(data), dict) else "no mapping"
        elif path.suffix == ".safetensors":
            from safetensors.torch import load

            load(data)
        elif path.suffix == ".parquet":
            import pyarrow.parquet as parquet

            parquet.read_table(path)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:80]}"
    return ""


def _broken_lines(path: Path, data: bytes) -> str:
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data) and path.name not in APPENDED:
        return "its last line is cut off"
    for line in whole.splitlines():
        json.loads(line)
    return ""


def differing(folder: Path, wanted: Mapping[str, str], free: tuple[str, ...] = ()) -> list[str]:
    """Names in which a folder differs from the undisturbed run's prints; `free` may differ."""
    there = listing(folder)
    names = {n.removeprefix("out/") for n in free}
    said = [f"{n} is missing" for n in sorted(wanted.keys() - there.keys() - names)]
    said += [f"{n} is left over" for n in sorted(there.keys() - wanted.keys() - names)]
    for name in sorted(there.keys() & wanted.keys() - names):
        try:
            same = print_of(there[name]) == wanted[name]
        except (ValueError, OSError, EOFError):
            same = False
        if not same:
            said.append(f"{name} differs")
    return said


def same_model(folder: Path, wanted: Mapping[str, str]) -> list[str]:
    """The same for a run whose checkpoints are of other steps: model and metrics are the same."""
    kept = {n: p for n, p in wanted.items() if n.startswith("model/") or n == "metrics.jsonl"}
    free = tuple(n for n in listing(folder) if n not in kept and not temporary(n))
    return differing(folder, kept, free)


def temporary(name: str) -> bool:
    return any(part.startswith(".") for part in Path(name).parts) or name.endswith(".tmp")


def prints(folder: Path, free: tuple[str, ...] = ()) -> dict[str, str]:
    names = {n.removeprefix("out/") for n in free}
    return {n: print_of(p) for n, p in listing(folder).items() if n not in names}


def outcomes(folder: Path) -> dict[tuple[str, str, int], Any]:
    """(file, id, sample or place) → outcome, of every scored row that can be read."""
    found: dict[tuple[str, str, int], Any] = {}
    for name, path in listing(folder).items():
        if ".jsonl" not in path.suffixes or path.name.startswith("."):
            continue
        data = path.read_bytes()
        try:
            data = gzip.decompress(data) if path.suffix == ".gz" else data
        except (OSError, EOFError):
            continue
        for place, line in enumerate(data.splitlines()):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and "outcome" in row:
                own = str(row.get("task_id", row.get("id")))
                found[name, own, int(row.get("sample", place))] = row["outcome"]
    return found


def scored_wrong(folder: Path, wanted: Mapping[tuple[str, str, int], Any]) -> list[str]:
    """Rows that the fault gave another outcome than the undisturbed run's, other than none."""
    said: list[str] = []
    for place, outcome in outcomes(folder).items():
        if outcome is not None and place in wanted and outcome != wanted[place]:
            said.append(f"{place[1]} has outcome {outcome}, wanted {wanted[place]} or none")
    return said


def said_wrong(said: str) -> list[str]:
    """What no message of a command may hold."""
    found = ["a traceback"] if "Traceback (most recent call last)" in said else []
    words = [line for line in said.splitlines() if line.startswith("assay ")]
    if any(len(line) > 1500 for line in words):
        found.append("a message of more than 1500 characters")
    return found
