"""`assay tasks lake`: verified questions over folders of tables, with gold pipelines.

Writes `train.jsonl` and `validation.jsonl` (from --lakes and --carried), `heldout.jsonl` (from
--heldout, or a share of the tables), `refused.jsonl` and `certificate.json`; with --obscured also
each over lakes with other names and numbers. Every gold value is computed twice, by pandas and by
SQL over the original file. No table, and no copy of one in another order, is on two sides.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay import console
from assay.console import Progress
from data_gen.certificate import counted
from data_gen.krama.importer import LAKE
from data_gen.queries.forms import FULL, SHORT, Form, short_lake
from data_gen.queries.lake import Lake
from data_gen.queries.lake_generate import LakeTally, generate, obscure_lake
from data_gen.queries.lake_sides import parted
from data_gen.queries.lake_wording import reworded_tasks
from data_gen.queries.pays import best_constants, listings_earn, paying
from data_gen.queries.table_folders import (
    SPLITS,
    Parts,
    add_options,
    finish,
    need_tables,
    opened,
)
from data_gen.queries.tables import ROWS
from data_gen.rewording import add_writer, writer_of
from rewards.krama.release import COUNTS


def _wanted(count: int, sides: Mapping[str, Sequence[Lake]], train: bool) -> dict[str, int]:
    """How many tasks of each split: a fifth is held out, a tenth of the rest validates."""
    heldout = 0 if not sides["heldout"] else count // 5 if train else count
    valid = (count - heldout) // 10 if sides["validation"] else 0
    return {"train": count - heldout - valid, "validation": valid, "heldout": heldout}


def build(args: argparse.Namespace) -> dict[str, Any]:
    """Write the folder; returns the certificate. Raises `TaskError`."""
    writer = writer_of(args, args.out)
    form = SHORT if args.short else FULL
    with opened(args, [*args.heldout, *args.lakes]) as (lakes, _):
        lakes = [short_lake(lake) for lake in lakes] if args.short else lakes
    held, train = lakes[: len(args.heldout)], lakes[len(args.heldout) :]
    divided = parted(train, held, args.validation_share, args.seed, args.heldout_share)
    sides: dict[str, list[Lake]] = dict(zip(SPLITS, divided, strict=True))
    lakes = [lake for side in divided for lake in side]
    more = f". A table needs column names, {ROWS[0]} rows or more, and a column of numbers"
    need_tables(lakes, args, more)
    tally, parts = LakeTally(), Parts()
    wanted = _wanted(args.count, sides, bool(train))
    with Progress("lakes", "tasks", args.count) as bar:
        for name, side in sides.items():
            parts[name] = generate(side, wanted[name], args.seed, name, tally, bar.add, form)
    if args.obscured:
        parts |= _obscured(parts, sides, args, tally, form)
    own: dict[str, Any] = {}
    if writer is not None:
        parts, own["wordings"] = reworded_tasks(parts, tally.facts, writer, args.seed)
    constants = {n: best_constants(tasks) for n, tasks in parts.items() if tasks}
    pay = [f"{n}: {why}" for n, found in constants.items() for why in paying(found)]
    proof = finish(
        "lake",
        args,
        lakes,
        parts,
        tally,
        ok=not pay,
        answer_types=counted(parts, lambda t: (str(t.gold["answer_type"]),)),
        tables_a_question=counted(parts, lambda t: (str(len(t.meta["keys"])),)),
        domains=counted(parts, lambda t: (str(t.meta["domain"]),)),
        constants=constants,
        constants_that_pay=pay,
        listing_everything=listings_earn(tally.listed),
        **own,
    )
    for why in pay:
        print(f"assay tasks: {why}", file=sys.stderr)
    return proof


def _obscured(
    parts: Parts,
    sides: dict[str, list[Lake]],
    args: argparse.Namespace,
    tally: LakeTally,
    form: Form,
) -> Parts:
    made: Parts = {}
    total = sum(map(len, parts.values()))
    with Progress("obscured lakes", "tasks", total) as bar:
        for split, tasks in parts.items():
            found = made.setdefault(f"{split}_obscured", [])
            for lake in sides[split]:
                here = str(lake.folder.resolve())
                own = [t for t in tasks if t.files[LAKE] == here]
                target = args.out / "obscured" / split / lake.name
                found += obscure_lake(lake, own, args.seed, target, tally, bar.add, form)
    return made


def options() -> console.Parser:
    parser = console.parser("tasks lake", __doc__)
    parser.add_argument("--lakes", nargs="*", default=[], type=Path, help="folders to train on")
    parser.add_argument("--heldout", nargs="*", default=[], type=Path, help="folders to test on")
    again = "also ask every question over lakes with other names and numbers"
    parser.add_argument("--obscured", action="store_true", help=again)
    short = "one plain table of at most 12 columns, one or two steps: for small models"
    add_options(parser, 500, 0.0, short)
    add_writer(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    args = options().parse_args(argv)
    proof = build(args)
    names = {f.parent.name if f.name == "input" else f.name for f in args.lakes}
    if real := sorted(names & {*COUNTS}):
        print(
            f"assay tasks: note: {', '.join(real)}: KramaBench's own lakes; give them with "
            "--heldout when you test on the benchmark",
            file=sys.stderr,
        )
    if told := proof["lake"].get("wordings"):
        why = ", ".join(f"{n} {why}" for why, n in told["refused"].items())
        print(f"reworded: {told['reworded']} of {told['asked']}; refused {why or 'none'}")
    return console.DONE if proof["ok"] else console.UNUSABLE
