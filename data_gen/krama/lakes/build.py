"""`assay tasks lake`: verified questions over folders of tables, with gold pipelines.

Writes `train.jsonl` and `validation.jsonl` (from --lakes and --carried), `heldout.jsonl` (from
--heldout, or a share of the tables), `refused.jsonl` and `certificate.json`; with --obscured also
each over lakes with other names and numbers. Every gold value is computed twice, by pandas and by
SQL over the original file. No table, and no copy of one in another order, is on two sides.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay import console
from assay.console import Progress
from assay.files import atomic_write_set, write_text
from assay.record import TABLES, installed
from assay.tables.settings import count
from assay.task import Task, TaskError
from assay.workers import WorkerPool, limit_threads, usable_cores
from data_gen.tally import REFUSED, Input, say_inputs
from data_gen.krama.folders import write_tasks
from data_gen.krama.importer import LAKE
from data_gen.krama.lakes.about import Described, read_about
from data_gen.krama.lakes.carried import carried_about, export_carried
from data_gen.krama.lakes.constants import best_constants, paying
from data_gen.krama.lakes.describe import ROWS
from data_gen.krama.lakes.forms import FULL, Form
from data_gen.krama.lakes.generate import Tally, generate, obscure_lake
from data_gen.krama.lakes.lake import Folder, Lake, open_lakes
from data_gen.krama.lakes.listings import listings_earn
from data_gen.krama.lakes.short import SHORT, short_lake
from data_gen.krama.lakes.sides import parted
from data_gen.krama.lakes.wording import reworded_tasks
from rewards.krama.release import COUNTS

if TYPE_CHECKING:
    from data_gen.rewording import Endpoint

_PARTS = ("train", "validation", "heldout")
Parts = dict[str, list[Task]]


def certificate(parts: Parts, tally: Tally, seed: int) -> dict[str, Any]:
    """Counts, reasons for refusal, what the best constants earn, the verdicts of the second way,
    and the overlap of tables between the splits (by content, in whatever order)."""
    # an obscured table counts as the table it was made of
    sides: dict[str, set[str]] = {name: set() for name in _PARTS}
    for name, tasks in parts.items():
        found = (str(d).partition(" ")[0] for t in tasks for d in t.meta["tables"])
        sides[name.removesuffix("_obscured")] |= set(found)
    pairs = [(one, two) for one in _PARTS for two in _PARTS if one < two]
    overlap = sum(len(sides[one] & sides[two]) for one, two in pairs)
    constants = {n: best_constants(tasks) for n, tasks in parts.items() if tasks}
    pay = [f"{n}: {why}" for n, found in constants.items() for why in paying(found)]
    return {
        "ok": overlap == 0 and not pay,
        "seed": seed,
        "versions": installed(TABLES),
        "tables_in_both_splits": overlap,
        "tasks": {n: len(tasks) for n, tasks in parts.items()},
        "answer_types": _counted(parts, lambda t: str(t.gold["answer_type"])),
        "kinds": _counted(parts, lambda t: str(t.meta["kind"])),
        "tables_a_question": _counted(parts, lambda t: str(len(t.meta["keys"]))),
        "lakes": _counted(parts, lambda t: str(t.meta["domain"])),
        "proof": dict(tally.proof.most_common()),
        "constants": constants,
        "constants_that_pay": pay,
        "listing_everything": listings_earn(tally.listed),
        "refused": dict(tally.reasons.most_common()),
        "examples": tally.examples,
    }


def _counted(parts: Parts, name: Callable[[Task], str]) -> dict[str, dict[str, int]]:
    return {n: dict(Counter(name(t) for t in tasks).most_common()) for n, tasks in parts.items()}


def _opened(args: argparse.Namespace) -> tuple[list[Lake], list[Lake]]:
    """(training, held-out) lakes. Raises `TaskError`."""
    described: Described = read_about(args.describe) if args.describe else {}
    with WorkerPool(args.workers or usable_cores(), limit_threads) as crew:
        turn = crew.map
        folders = [Folder(path, described, args.licence) for path in (*args.heldout, *args.lakes)]
        if args.carried:
            written = export_carried(args.out / "carried", turn)
            folders += [Folder(path, carried_about(path)) for path in written]
        lakes = open_lakes(folders, turn)
    if args.short:
        lakes = [short_lake(lake) for lake in lakes]
    held, train = lakes[: len(args.heldout)], lakes[len(args.heldout) :]
    names = Counter(lake.name for lake in [*held, *train])
    if twice := [name for name, n in names.items() if n > 1]:
        raise TaskError(f"two lakes are called {twice[0]!r}; rename the folder of one")
    return train, held


def _wanted(count: int, validation: bool, held: bool, train: bool) -> dict[str, int]:
    """How many tasks of each split: a fifth is held out, a tenth validates."""
    heldout = 0 if not held else count // 5 if train else count
    valid = (count - heldout) // 10 if validation else 0
    return {"train": count - heldout - valid, "validation": valid, "heldout": heldout}


def build(args: argparse.Namespace) -> dict[str, Any]:
    """Write the folder; returns the certificate. Raises `TaskError`."""
    writer = _writer(args)
    form = SHORT if args.short else FULL
    opened, held = _opened(args)
    shares = (args.validation_share, args.seed, args.heldout_share)
    train, valid, heldout = parted(opened, held, *shares)
    sides = {"train": train, "validation": valid, "heldout": heldout}
    lakes = [lake for side in sides.values() for lake in side]
    tally = Tally()
    if not any(lake.tables for lake in lakes):
        _say(_inputs(lakes, {}, args), args)
        raise TaskError(
            f"no usable table in the folders given; {args.out / REFUSED} says why for "
            f"each. A table needs column names, {ROWS[0]} rows or more, and a column of numbers"
        )
    wanted = _wanted(args.count, bool(valid), bool(heldout), bool(opened))
    parts: Parts = {}
    with Progress("lakes", "tasks", sum(wanted.values())) as bar:
        for name, side in sides.items():
            parts[name] = generate(side, wanted[name], args.seed, name, tally, bar.add, form)
    if args.obscured:
        parts |= _obscured(parts, sides, args, tally, form)
    wordings: dict[str, Any] = {}
    if writer is not None:
        made, told = reworded_tasks(parts, tally.facts, writer, args.seed)
        parts, wordings = made, {"wordings": told}
    inputs = _inputs(lakes, parts, args)
    doubts = {"doubts": count(d for one in inputs for d in one.doubts)}
    proof = certificate(parts, tally, args.seed) | doubts | wordings
    with atomic_write_set(
        args.out, [f"{n}{o}.jsonl" for n in _PARTS for o in ("", "_obscured")]
    ) as new:
        for name, tasks in parts.items():
            write_tasks(new / f"{name}.jsonl", tasks, args.out)
        write_text(new / "certificate.json", json.dumps(proof, indent=2) + "\n")
    _say(inputs, args)
    return proof


def _writer(args: argparse.Namespace) -> Endpoint | None:
    """The endpoint that rewords, if one is given; what it said stands beside the tasks."""
    if not args.writer:
        return None
    from data_gen.rewording import FILE, Endpoint

    return Endpoint(args.writer, args.writer_model, args.out / FILE, args.key_env)


def _inputs(lakes: Sequence[Lake], parts: Parts, args: argparse.Namespace) -> list[Input]:
    """A line for every table; one that stands on two sides is said once."""
    counts: Counter[tuple[str, str]] = Counter()
    for name, tasks in parts.items():
        if not name.endswith("_obscured"):
            counts.update((str(t.meta["domain"]), str(k)) for t in tasks for k in t.meta["keys"])
    said: dict[str, Input] = {}
    for lake in lakes:
        own = {key: n for (domain, key), n in counts.items() if domain == lake.name}
        for one in lake.inputs(own, args.licence or "unknown"):
            if one.why != ("",) and (one.name not in said or one.used):
                said[one.name] = one
    return list(said.values())


def _say(inputs: Sequence[Input], args: argparse.Namespace) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    say_inputs(inputs, args.out)


def _obscured(
    parts: Parts,
    sides: dict[str, list[Lake]],
    args: argparse.Namespace,
    tally: Tally,
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
    carried = "also tables of installed packages (scikit-learn, statsmodels; extra `tables`)"
    parser.add_argument("--carried", action="store_true", help=carried)
    again = "also ask every question over lakes with other names and numbers"
    parser.add_argument("--obscured", action="store_true", help=again)
    short = "one plain table of at most 12 columns, one or two steps: for small models"
    parser.add_argument("--short", action="store_true", help=short)
    words = "YAML with titles, licences and words for columns, by file (docs/krama.md)"
    parser.add_argument("--describe", type=Path, metavar="FILE", help=words)
    parser.add_argument("--licence", default="", help="licence of the tables in the folders")
    share = "share of the tables that validate"
    parser.add_argument("--validation-share", type=float, default=0.1, metavar="S", help=share)
    share = "share of the training folders' tables that are held out"
    parser.add_argument("--heldout-share", type=float, default=0.0, metavar="S", help=share)
    writer = parser.add_argument_group("an endpoint that rewords; accepted only when proved")
    url = "OpenAI-compatible endpoint; ends before /chat/completions"
    writer.add_argument("--writer", default="", metavar="URL", help=url)
    writer.add_argument("--writer-model", default="", metavar="NAME", help="its model")
    key = "environment variable with its key (%(default)s)"
    writer.add_argument("--key-env", default="OPENAI_API_KEY", metavar="NAME", help=key)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--count", type=int, default=500, help="tasks in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: as many as cores")
    return parser


def main(argv: Sequence[str]) -> int:
    args = options().parse_args(argv)
    for name, share in (("validation", args.validation_share), ("heldout", args.heldout_share)):
        if not 0 <= share < 1:
            raise TaskError(f"--{name}-share {share}: give a share from 0 to 1")
    if args.workers < 0:
        raise TaskError(f"--workers {args.workers}: give 1 or more, or 0 for as many as cores")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="openpyxl")  # of what a workbook also holds
        proof = build(args)
    names = {f.parent.name if f.name == "input" else f.name for f in args.lakes}
    if real := sorted(names & {*COUNTS}):
        print(
            f"assay tasks: note: {', '.join(real)}: KramaBench's own lakes; give them with "
            "--heldout when you test on the benchmark",
            file=sys.stderr,
        )
    for name in proof["tasks"]:
        kinds = ", ".join(f"{n} {k}" for k, n in proof["answer_types"][name].items())
        print(f"{args.out / name}.jsonl: {proof['tasks'][name]} tasks ({kinds or 'none'})")
    if told := proof.get("wordings"):
        why = ", ".join(f"{n} {why}" for why, n in told["refused"].items())
        print(f"reworded: {told['reworded']} of {told['asked']}; refused {why or 'none'}")
    proofs = ", ".join(f"{n} {why}" for why, n in proof["proof"].items())
    print(f"gold computed twice: {proofs or 'nothing'}")
    refused = ", ".join(f"{n} {why}" for why, n in proof["refused"].items())
    print(f"{args.out / 'certificate.json'}: refused {refused or 'nothing'}")
    if shared := proof["tables_in_both_splits"]:
        print(f"assay tasks: {shared} tables are in two splits; do not use these", file=sys.stderr)
    for why in proof["constants_that_pay"]:
        print(f"assay tasks: {why}", file=sys.stderr)
    if sum(proof["tasks"][name] for name in _PARTS) < args.count:
        print("assay tasks: fewer tasks than asked for: the tables gave no more", file=sys.stderr)
    return 0 if proof["ok"] else 2
