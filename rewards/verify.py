"""`assay verify`: compare what a command made with its record, and make it again.

    assay verify DIR                 every recorded file is there and unchanged, inputs too
    assay verify DIR --replay NEW    run the recorded commands again into NEW and compare

Times and the name of the output folder differ between two runs of one command. They are left out of
the comparison of JSON, JSONL and YAML files. Pages (.html) and run.json, which says when and on
what machine a run was made, are not compared. All else must be equal byte by byte.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from rewards import console
from rewards.provenance import (
    NAME,
    OUT,
    Made,
    Record,
    changed_inputs,
    differing,
    hashes,
    other_versions,
    read_record,
    record_of,
    redirected,
    unrecorded,
)
from rewards.task import TaskError

# Keys of rows and records that hold times, or the folder that was written to.
_CLOCKS = frozenset(
    (
        "command",
        "config_hash",
        "cpu_seconds",
        "duration",
        "elapsed",
        "machine",
        "out",
        "seconds",
        "started",
        "starts",
        "times",
        "wall_clock",
    )
)
_ROWS = (".json", ".jsonl", ".yaml")
_OF_ONE_RUN = (".html", "run.json")


def main(argv: Sequence[str]) -> int:
    """Exit status 0 when everything is as recorded, 1 when something differs."""
    args = _options().parse_args(argv)
    path, folder = _found(args.path)
    record = read_record(path)
    said = differing(record, folder)
    notes = (
        [] if args.path.is_file() else [f"{n}: is not recorded" for n in unrecorded(record, folder)]
    )
    said += changed_inputs(record)
    notes += other_versions(record)
    checked = sum(len(one.outputs) for one in record.made)
    if args.replay is not None and not said:
        single = path.name.removesuffix(NAME).removesuffix(".")
        again = replayed(record, folder, args.replay, single)
        said += again.differ
        notes += again.skipped
    report = {"ok": not said, "files": checked, "differences": said, "notes": notes}
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        print("\n".join([*said, *(f"note: {n}" for n in notes), _end(report, args.replay)]))
    return console.DONE if not said else console.FAILED


def _end(report: Mapping[str, Any], replay: Path | None) -> str:
    what = f"{report['files']} recorded files"
    if not report["ok"]:
        return f"{what}: {len(report['differences'])} differences"
    return f"{what}: as recorded" + (", and made again the same" if replay else "")


def _options() -> console.Parser:
    made = console.parser("verify", __doc__)
    made.add_argument("path", type=Path, help="folder or file that a command wrote")
    made.add_argument(
        "--replay", type=Path, metavar="NEW", help="run the commands again into this new folder"
    )
    console.add_json(made)
    return made


def _found(path: Path) -> tuple[Path, Path]:
    """(the record, the folder its outputs are relative to)."""
    if not path.exists():
        raise TaskError(f"{path}: no such file or folder")
    record = path if path.name.endswith(NAME) else record_of(path)
    return record, record.parent


class Replayed:
    """What running the commands again gave: sentences on what differs, and on what was skipped."""

    def __init__(self) -> None:
        self.differ: list[str] = []
        self.skipped: list[str] = []


def replayed(record: Record, folder: Path, new: Path, single: str) -> Replayed:
    """Run every command of the record again, with its output in `new`, and compare with `folder`.

    `single`: the name of the file whose record it is, "" for a folder. Raises `TaskError` when
    `new` holds files, or when a command fails.
    """
    if new.exists() and (new.is_file() or any(new.iterdir())):
        raise TaskError(f"{new}: is not empty; give --replay a new folder")
    new.mkdir(parents=True, exist_ok=True)
    found = Replayed()
    for number, one in enumerate(record.made):
        place = new if len(record.made) == 1 else new / str(number)
        place.mkdir(exist_ok=True)
        out = place / single if single else place
        _run(one, out)
        _compare(one, folder, out, found)
    return found


def _run(one: Made, out: Path) -> None:
    words = list(redirected(one.command, OUT, str(out)))
    done = subprocess.run(
        [sys.executable, "-m", "assay", *words], check=False, stdout=subprocess.DEVNULL
    )
    if done.returncode not in (console.DONE, console.UNSCORED):
        raise TaskError(
            f"assay {' '.join(words)}: ended with status {done.returncode}; what it said is above"
        )


def _compare(one: Made, was: Path, out: Path, found: Replayed) -> None:
    again = hashes(out)
    base = out.parent if out.is_file() else out
    for name, digest in sorted(one.outputs.items()):
        if name not in again:
            found.differ.append(f"{name}: was not made again")
        elif again[name] == digest:
            continue
        elif name.endswith(_OF_ONE_RUN):
            found.skipped.append(f"{name}: differs from run to run, not compared")
        elif not (name.endswith(_ROWS) and _same_rows(was / name, base / name)):
            found.differ.append(f"{name}: is different when made again")


def _same_rows(one: Path, two: Path) -> bool:
    """Whether two files of rows are equal but for times and the output folder."""
    try:
        return all(a == b for a, b in zip(_timeless(one), _timeless(two), strict=True))
    except (OSError, ValueError):
        return False


def _timeless(path: Path) -> Iterator[Any]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        yield from (_without(json.loads(line)) for line in text.split("\n") if line)
    elif path.suffix == ".yaml":
        yield [line for line in text.split("\n") if not line.startswith("out:")]
    else:
        yield _without(json.loads(text))


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        rows = cast("dict[str, Any]", value)
        return {
            k: _without(v)
            for k, v in rows.items()
            if k not in _CLOCKS and not k.startswith("time/")
        }
    if isinstance(value, list):
        return [_without(inner) for inner in cast("list[Any]", value)]
    return value
