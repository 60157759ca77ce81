"""`assay verify`: compare what a command made with its record.

assay verify DIR      every recorded file is there and unchanged, inputs too
assay verify FILE     of a single file, with the record beside it
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay import console
from assay.record import (
    NAME,
    changed_inputs,
    differing,
    other_versions,
    read_record,
    record_of,
    unrecorded,
)
from assay.task import TaskError


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
    report = {"ok": not said, "files": checked, "differences": said, "notes": notes}
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        print("\n".join([*said, *(f"note: {n}" for n in notes), _end(report)]))
    return console.DONE if not said else console.FAILED


def _end(report: Mapping[str, Any]) -> str:
    what = f"{report['files']} recorded files"
    if not report["ok"]:
        return f"{what}: {len(report['differences'])} differences"
    return f"{what}: as recorded"


def _options() -> console.Parser:
    made = console.parser("verify", __doc__)
    made.add_argument("path", type=Path, help="folder or file that a command wrote")
    console.add_json(made)
    return made


def _found(path: Path) -> tuple[Path, Path]:
    """(the record, the folder its outputs are relative to)."""
    if not path.exists():
        raise TaskError(f"{path}: no such file or folder")
    record = path if path.name.endswith(NAME) else record_of(path)
    return record, record.parent
