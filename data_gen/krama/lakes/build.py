"""`assay tasks lake`: verified questions over folders of tables, with gold pipelines.

Writes `train.jsonl` (from --lakes and --carried), `heldout.jsonl` (from --heldout), and
`certificate.json`; with --obscured also both over lakes with other names and numbers. No table of
the held-out side, by content, is used on the training side.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_gen.krama.folders import write_tasks
from data_gen.krama.importer import DOMAINS, LAKE
from data_gen.krama.lakes.carried import export_carried
from data_gen.krama.lakes.generate import Tally, generate, obscure_lake
from data_gen.krama.lakes.lake import Lake, open_lake
from rewards import console
from rewards.task import Task, TaskError
from rewards.versions import TABLES, installed


def certificate(parts: dict[str, list[Task]], tally: Tally, seed: int) -> dict[str, Any]:
    """Counts, reasons for refusal, and the overlap of tables between the splits (by content)."""
    # an obscured table counts as the table it was made of
    sides: dict[str, set[str]] = {"train": set(), "heldout": set()}
    for name, tasks in parts.items():
        found = (str(d).partition(" ")[0] for t in tasks for d in t.meta["tables"])
        sides[name.removesuffix("_obscured")] |= set(found)
    overlap = len(sides["train"] & sides["heldout"])
    return {
        "ok": overlap == 0,
        "seed": seed,
        "versions": installed(TABLES),
        "tables_in_both_splits": overlap,
        "tasks": {n: len(tasks) for n, tasks in parts.items()},
        "answer_types": {
            n: dict(Counter(t.gold["answer_type"] for t in tasks)) for n, tasks in parts.items()
        },
        "kinds": {n: dict(Counter(t.meta["kind"] for t in tasks)) for n, tasks in parts.items()},
        "lakes": {n: dict(Counter(t.meta["domain"] for t in tasks)) for n, tasks in parts.items()},
        "refused": dict(tally.reasons.most_common()),
    }


def build(args: argparse.Namespace) -> dict[str, Any]:
    """Write the folder; returns the certificate. Raises `TaskError`."""
    from tqdm import tqdm

    held = [open_lake(folder) for folder in args.heldout]
    banned = frozenset(t.digest for lake in held for t in lake.tables)
    folders = list(args.lakes)
    if args.carried:
        folders += export_carried(args.out / "carried")
    train = [open_lake(folder, banned) for folder in folders]
    unread = [f"{lake.name}/{why}" for lake in [*held, *train] for why in lake.refused]
    for why in unread:
        print(f"assay tasks: left out: {why}", file=sys.stderr)
    names = Counter(lake.name for lake in [*held, *train])
    if twice := [name for name, n in names.items() if n > 1]:
        raise TaskError(f"two lakes are called {twice[0]!r}; rename the folder of one")
    if not any(lake.tables for lake in [*held, *train]):
        raise TaskError(
            "no usable table in the folders given; they need CSV, Excel, JSON or Parquet files "
            "with column names, 15 rows or more, and a column of numbers"
        )
    tally = Tally()
    share = args.count if not held else args.count // 5 if train else 0
    wanted = {
        "train": args.count - share if held else args.count,
        "heldout": share or args.count if held else 0,
    }
    parts: dict[str, list[Task]] = {}
    with tqdm(
        total=sum(wanted.values()), desc="lake tasks", unit="task", disable=not sys.stderr.isatty()
    ) as bar:
        parts["train"] = generate(train, wanted["train"], args.seed, "train", tally, bar.update)
        parts["heldout"] = generate(
            held, wanted["heldout"], args.seed, "heldout", tally, bar.update
        )
    if args.obscured:
        parts |= _obscured(parts, [*train, *held], args, tally)
    args.out.mkdir(parents=True, exist_ok=True)
    for name, tasks in parts.items():
        write_tasks(args.out / f"{name}.jsonl", tasks)
    proof = certificate(parts, tally, args.seed)
    proof["tables_refused"] = unread
    text = json.dumps(proof, indent=2) + "\n"
    (args.out / "certificate.json").write_text(text, encoding="utf-8")
    return proof


def _obscured(
    parts: dict[str, list[Task]], lakes: Sequence[Lake], args: argparse.Namespace, tally: Tally
) -> dict[str, list[Task]]:
    from tqdm import tqdm

    made: dict[str, list[Task]] = {}
    total = sum(map(len, parts.values()))
    with tqdm(total=total, desc="obscured", unit="task", disable=not sys.stderr.isatty()) as bar:
        for split, tasks in parts.items():
            found = made.setdefault(f"{split}_obscured", [])
            for lake in lakes:
                here = str(lake.folder.resolve())
                own = [t for t in tasks if t.files[LAKE] == here]
                target = args.out / "obscured" / lake.name
                found += obscure_lake(lake, own, args.seed, target, tally, bar.update)
    return made


def main(argv: Sequence[str]) -> int:
    parser = console.parser("tasks lake", __doc__)
    parser.add_argument("--lakes", nargs="*", default=[], type=Path, help="folders to train on")
    parser.add_argument("--heldout", nargs="*", default=[], type=Path, help="folders to test on")
    carried = "also tables of installed packages (scikit-learn, statsmodels; extra `tables`)"
    parser.add_argument("--carried", action="store_true", help=carried)
    again = "also ask every question over lakes with other names and numbers"
    parser.add_argument("--obscured", action="store_true", help=again)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--count", type=int, default=500, help="tasks in all")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="openpyxl")  # of what a workbook also holds
        proof = build(args)
    names = {f.parent.name if f.name == "input" else f.name for f in args.lakes}
    if real := sorted(names & {*DOMAINS}):
        print(
            f"assay tasks: note: {', '.join(real)}: KramaBench's own lakes; give them with "
            "--heldout when you test on the benchmark",
            file=sys.stderr,
        )
    for name in proof["tasks"]:
        kinds = ", ".join(f"{n} {k}" for k, n in proof["answer_types"][name].items())
        print(f"{args.out / name}.jsonl: {proof['tasks'][name]} tasks ({kinds or 'none'})")
    refused = ", ".join(f"{n} {why}" for why, n in proof["refused"].items())
    print(f"{args.out / 'certificate.json'}: refused {refused or 'nothing'}")
    short = proof["tasks"]["train"] + proof["tasks"]["heldout"] < args.count
    if short:
        print("assay tasks: fewer tasks than asked for: the tables gave no more", file=sys.stderr)
    return 0 if proof["ok"] else 2
