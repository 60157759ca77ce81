"""`assay select`: keep rollouts by a strategy and write them as a training set.

The parquet has `messages` and `tools` (what TRL and verl read), and `ids` with `loss_mask`, the
tokens as they were sampled (what `assay sft` trains on). The same rollouts give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data_gen.selection.strategies import PICK, Rules, select
from rewards import console
from rewards.extras import install_extra
from rewards.task import TaskError, read_jsonl

NEEDED = ("task_id", "sample", "outcome", "reward", "track", "tokens", "messages")


def read_rollouts(path: Path) -> list[dict[str, Any]]:
    """Scored rollouts. Raises `TaskError` naming file, line and field."""
    rows: list[dict[str, Any]] = []
    for number, row in read_jsonl(path):
        for name in NEEDED:
            if name not in row:
                raise TaskError(
                    f"{path} line {number}: field {name!r} is missing; give a file that "
                    "`assay rollout` wrote"
                )
        if row.get("published"):
            raise TaskError(
                f"{path} line {number}: task {row['task_id']} is a published benchmark task (or "
                "its gold is doubted); select from rollouts of generated tasks, and keep it for "
                "`assay eval`"
            )
        rows.append(row)
    if not rows:
        raise TaskError(f"{path}: no rollouts in it")
    return rows


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
    }
    library: Any = pa  # its annotations are partial
    table = library.table(
        {
            **columns,
            "ids": library.array(columns["ids"], library.list_(library.int32())),
            "loss_mask": library.array(columns["loss_mask"], library.list_(library.int8())),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    writer: Any = pq
    writer.write_table(table, temporary, compression="zstd")
    temporary.replace(path)


def build(rollouts: Path, strategy: str, out: Path, rules: Rules) -> dict[str, Any]:
    """Select, write the parquet and `OUT.manifest.json`; returns the manifest."""
    rows = read_rollouts(rollouts)
    chosen = select(rows, strategy, rules)
    if not chosen.rows:
        raise TaskError(f"{rollouts}: {strategy} keeps nothing ({json.dumps(chosen.dropped)})")
    write_parquet(chosen.rows, out)
    manifest: dict[str, Any] = {
        "strategy": strategy,
        "rules": asdict(rules),
        "rollouts": {
            "sha256": hashlib.sha256(rollouts.read_bytes()).hexdigest(),
            "rows": len(rows),
            "tasks": len({r["task_id"] for r in rows}),
        },
        "kept": {
            "rows": len(chosen.rows),
            "tasks": len({r["task_id"] for r in chosen.rows}),
            "tracks": dict(sorted(Counter(str(r["track"]) for r in chosen.rows).items())),
        },
        "dropped": chosen.dropped,
        "parquet_sha256": hashlib.sha256(out.read_bytes()).hexdigest(),
    }
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    out.with_name(out.name + ".manifest.json").write_text(text, encoding="utf-8")
    return manifest


def main(argv: list[str]) -> int:
    """Exit status 0. Raises `TaskError` for rollouts that cannot be used."""
    parser = console.parser("select", __doc__)
    parser.add_argument("--rollouts", required=True, type=Path, help="what `assay rollout` wrote")
    parser.add_argument("--strategy", required=True, choices=sorted(PICK))
    parser.add_argument("--out", required=True, type=Path, help="training set, parquet")
    parser.add_argument(
        "--fastest-by",
        choices=("wall_clock", "cost"),
        default="wall_clock",
        help="cost: tokens and calls, the same on every machine",
    )
    parser.add_argument(
        "--allow-invalid",
        action="store_true",
        help="BV and DV may keep rollouts below their threshold",
    )
    args = parser.parse_args(argv)
    rules = Rules(fastest_by=args.fastest_by, allow_invalid=args.allow_invalid)
    manifest = build(args.rollouts, args.strategy, args.out, rules)
    kept, dropped = manifest["kept"], json.dumps(manifest["dropped"])
    print(f"{args.out}: {kept['rows']} rollouts of {kept['tasks']} tasks; dropped {dropped}")
    return 0
