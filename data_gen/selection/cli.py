"""`assay select`: keep rollouts by a strategy and write them as a training set.

The parquet has `messages` and `tools` (what TRL and verl read), and `ids` with `loss_mask`, the
tokens as they were sampled (what `assay sft` trains on); `marks` say which tasks these are, for the
trained model's record (docs/heldout.md). The same rollouts give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from data_gen.selection.rows import merged, wanted
from data_gen.selection.strategies import PICK, Rules, select
from rewards import console
from rewards.extras import install_extra
from rewards.families import use_families
from rewards.task import TaskError


def plain_messages(row: Mapping[str, Any]) -> list[dict[str, str]]:
    """Role and content of every message, up to the model's last one."""
    messages = [
        {"role": str(m["role"]), "content": str(m.get("content") or "")} for m in row["messages"]
    ]
    while messages and messages[-1]["role"] != "assistant":
        messages.pop()
    return messages


def write_parquet(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """One row a kept rollout. Tools stay nested where all rows have the same ones (then nothing is
    filled up with nulls), else they are JSON text, which TRL reads as well."""
    try:
        import pyarrow as pa  # pyright: ignore[reportMissingTypeStubs]
        import pyarrow.parquet as pq  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        raise TaskError(f"writing parquet needs pyarrow; {install_extra('parquet')}") from None

    tools: list[list[Any]] = [row.get("tools") or [] for row in rows]
    alike = all(t == tools[0] for t in tools) and bool(tools and tools[0])
    nested = alike and "{}" not in json.dumps(tools[0])  # parquet has no empty struct
    columns: dict[str, Any] = {
        "task_id": [str(r["task_id"]) for r in rows],
        "track": [str(r["track"]) for r in rows],
        "sample": [int(r["sample"]) for r in rows],
        "outcome": [float(r["outcome"]) for r in rows],
        "reward": [float(r["reward"]) for r in rows],
        "messages": [plain_messages(r) for r in rows],
        "tools": tools if nested else [json.dumps(t, ensure_ascii=False) for t in tools],
        "ids": [list(r.get("ids") or ()) for r in rows],
        "loss_mask": [list(r.get("loss_mask") or ()) for r in rows],
        "marks": [list(r.get("marks") or ()) for r in rows],
    }
    library: Any = pa  # its annotations are partial
    table = library.table(
        {
            **columns,
            "ids": library.array(columns["ids"], library.list_(library.int32())),
            "loss_mask": library.array(columns["loss_mask"], library.list_(library.int8())),
            "marks": library.array(columns["marks"], library.list_(library.int64())),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    writer: Any = pq
    writer.write_table(table, temporary, compression="zstd")
    temporary.replace(path)


def build(
    rollouts: Sequence[Path],
    strategy: str,
    out: Path,
    rules: Rules,
    tracks: Sequence[str] = (),
    families: Sequence[str] = (),
) -> dict[str, Any]:
    """Select, write the parquet and `OUT.manifest.json`; returns the manifest.

    Raises `TaskError` for rollouts that cannot be used and where nothing is kept.
    """
    whole = merged(rollouts)
    rows = wanted(whole, tracks, families)
    chosen = select(rows, strategy, rules)
    if not chosen.rows:
        names = ", ".join(map(str, rollouts))
        raise TaskError(f"{names}: {strategy} keeps nothing ({json.dumps(chosen.dropped)})")
    write_parquet(chosen.rows, out)
    dropped = dict(chosen.dropped)
    if len(rows) < len(whole):
        dropped["another track or family"] = len(whole) - len(rows)
    manifest: dict[str, Any] = {
        "strategy": strategy,
        "rules": asdict(rules),
        "tracks": list(tracks),
        "families": list(families),
        "rollouts": {
            "sha256": [hashlib.sha256(path.read_bytes()).hexdigest() for path in rollouts],
            "rows": len(whole),
            "tasks": len({r["task_id"] for r in whole}),
        },
        "kept": {
            "rows": len(chosen.rows),
            "tasks": len({r["task_id"] for r in chosen.rows}),
            "tracks": dict(sorted(Counter(str(r["track"]) for r in chosen.rows).items())),
        },
        "dropped": dropped,
        "parquet_sha256": hashlib.sha256(out.read_bytes()).hexdigest(),
    }
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    out.with_name(out.name + ".manifest.json").write_text(text, encoding="utf-8")
    return manifest


def parser() -> argparse.ArgumentParser:
    made = console.parser("select", __doc__)
    add = made.add_argument
    add(
        "--rollouts",
        required=True,
        nargs="+",
        type=Path,
        metavar="FILE",
        help="what `assay rollout` wrote; several runs are put together",
    )
    add("--strategy", required=True, choices=sorted(PICK))
    add("--out", required=True, type=Path, help="training set, parquet")
    add(
        "--fastest-by",
        choices=("wall_clock", "cost"),
        default="wall_clock",
        help="cost: tokens and calls, the same on every machine (default: %(default)s)",
    )
    add(
        "--allow-invalid",
        action="store_true",
        help="BV and DV may keep rollouts below their threshold",
    )
    add(
        "--valid",
        action="append",
        default=[],
        metavar="[TRACK=]X",
        help="least outcome to keep; without a track, of the tracks that have no threshold of "
        "their own (default: 1.0)",
    )
    add(
        "--spread",
        action="append",
        default=[],
        metavar="TRACK=X",
        help="least variance of a task under BV and DV, for a track with scores between 0 and 1",
    )
    add("--track", action="append", default=[], help="keep this track only; repeatable")
    add("--only-family", action="append", default=[], metavar="NAME", help="keep this family only")
    add("--family", action="append", default=[], metavar="FILE.py[:NAME]", help="a family to add")
    add("--json", action="store_true", help="print the manifest as JSON")
    return made


def rules_of(args: argparse.Namespace) -> Rules:
    """The thresholds, with what the command line changes. Raises `TaskError`."""
    rules = Rules(fastest_by=args.fastest_by, allow_invalid=args.allow_invalid)
    valid, spread, otherwise = dict(rules.valid), dict(rules.spread), rules.otherwise
    for text in args.valid:
        track, value = _threshold("--valid", text)
        if track:
            valid[track] = value
        else:
            otherwise = value
    for text in args.spread:
        track, value = _threshold("--spread", text)
        if not track:
            raise TaskError(f"--spread {text}: name the track, as in --spread class-MM={text}")
        spread[track] = value
    return replace(rules, valid=valid, spread=spread, otherwise=otherwise)


def _threshold(option: str, text: str) -> tuple[str, float]:
    track, _, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise TaskError(f"{option} {text}: wanted TRACK=X with X from 0 to 1")
    return track, value


def main(argv: list[str]) -> int:
    """Exit status 0. Raises `TaskError` for rollouts that cannot be used."""
    args = parser().parse_args(argv)
    use_families(args.family)
    rules = rules_of(args)
    manifest = build(args.rollouts, args.strategy, args.out, rules, args.track, args.only_family)
    if args.json:
        print(json.dumps(manifest, sort_keys=True))
        return 0
    kept, dropped = manifest["kept"], json.dumps(manifest["dropped"])
    print(f"{args.out}: {kept['rows']} rollouts of {kept['tasks']} tasks; dropped {dropped}")
    return 0
