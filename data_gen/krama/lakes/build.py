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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from data_gen.krama.importer import DOMAINS, LAKE, SYSTEM
from data_gen.krama.lakes.carried import export_carried
from data_gen.krama.lakes.compose import KINDS, Builder, NoDraft
from data_gen.krama.lakes.disguise import disguise
from data_gen.krama.lakes.pipeline import Draft, Frames, gold_subtasks
from data_gen.krama.lakes.tables import Table, read_tables
from data_gen.krama.lakes.verify import score, validate_all
from rewards.seeds import derive_seed
from rewards.task import Task, TaskError, write_jsonl

TYPES = (
    "numeric_exact",
    "string_exact",
    "list_exact",
    "numeric_approximate",
    "string_approximate",
    "list_approximate",
)
TRIES = 60  # drafts a wanted task, before a lake is given up
FILES_MOST = 150  # of one lake; of more, a choice is asked about
_BATCH = 16  # drafts that are run side by side; fixed, so that no machine changes the tasks
_AGENT = "ds_guru_few_shot"


@dataclass
class Lake:
    """A folder of tables, read once."""

    folder: Path
    name: str
    tables: list[Table]
    frames: Frames
    seen: set[str] = field(default_factory=set[str])
    refused: tuple[str, ...] = ()  # tables whose numbers could be read in two ways, and why


def open_lake(folder: Path, banned: frozenset[str] = frozenset()) -> Lake:
    """Raises `TaskError` for a folder without usable tables."""
    if not folder.is_dir():
        raise TaskError(f"{folder}: no such folder; give folders of tables")
    name = folder.parent.name if folder.name == "input" else folder.name
    refused: list[str] = []
    tables = [t for t in read_tables(folder, FILES_MOST, refused) if t.digest not in banned]
    unique = list({t.digest: t for t in tables}.values())
    return Lake(folder, name, unique, Frames(folder), refused=tuple(refused))


def draft_for(lake: Lake, kind: str, seed: int) -> Draft:
    """One draft of a kind. Raises `NoDraft` where the drawn table does not fit."""
    rng = Random(seed)
    table = rng.choice(lake.tables)
    others = [t for t in lake.tables if t is not table]
    return KINDS[kind](Builder(rng, table, others))


def to_task(
    lake: Lake, draft: Draft, values: dict[str, Any], split: str, kind: str, draw: int
) -> Task:
    """A validated draft as a task; its id is a hash of what it asks. `draw`: the draft's seed."""
    name = f"{derive_seed('lake-task', lake.name, draft.shape):016x}"
    opened = sorted(
        {
            s.code.split("data/")[1].split("'")[0].split('"')[0]
            for s in draft.steps
            if "data/" in s.code
        }
    )
    tables = [t.digest for t in lake.tables if t.path in opened]
    gold = {
        "answer_type": draft.steps[-1].answer_type,
        "answer": values["main-task"],
        "subtasks": gold_subtasks(draft, values),
        "pipeline": draft.code(),
    }
    return Task(
        id=f"lake-{lake.name}-{name}",
        family="answer",
        track=f"lake-{lake.name}",
        split=split,
        prompt=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": draft.question}],
        gold=gold,
        tools=(_AGENT,),
        files={LAKE: str(lake.folder.resolve())},
        meta={
            "benchmark": "lake",
            "domain": lake.name,
            "kind": kind,
            "draw": draw,
            "steps": len(draft.steps),
            "gold_files": opened,
            "tables": tables,
            "difficulty": "hard" if len(draft.steps) > 4 else "easy",
        },
    )


@dataclass
class Tally:
    """What became of the drafts."""

    reasons: Counter[str] = field(default_factory=Counter[str])


def generate(
    lakes: Sequence[Lake],
    count: int,
    seed: int,
    split: str,
    tally: Tally,
    advance: Callable[[int], Any] = lambda _: None,
) -> list[Task]:
    """About `count` tasks, even over the answer types and the lakes as far as these allow.

    Task i depends on the seed and the tables alone. Fewer come back when drafts run out.
    """
    made: list[Task] = []
    types: Counter[str] = Counter()
    most = -(-count // len(TYPES))
    usable = [lake for lake in lakes if lake.tables]
    total = count * TRIES if usable else 0
    for start in range(0, total, _BATCH):
        drawn: list[tuple[Lake, Draft, str, int]] = []
        for number in range(start, min(start + _BATCH, total)):
            lake = usable[number % len(usable)]
            kind = Random(derive_seed(seed, "lake-draft", lake.name, number)).choice(list(KINDS))
            draw = derive_seed(seed, lake.name, number, kind)
            try:
                draft = draft_for(lake, kind, draw)
            except NoDraft:
                tally.reasons["no fitting columns"] += 1
                continue
            if types[draft.steps[-1].answer_type] >= most:
                continue
            if draft.shape in lake.seen:
                tally.reasons["asked already"] += 1
                continue
            lake.seen.add(draft.shape)
            drawn.append((lake, draft, kind, draw))
        checked = validate_all([(draft, lake.frames) for lake, draft, _, _ in drawn])
        for (lake, draft, kind, draw), (values, why) in zip(drawn, checked, strict=True):
            answer_type = draft.steps[-1].answer_type
            if types[answer_type] >= most:
                continue
            if values is None:
                tally.reasons[why] += 1
                continue
            types[answer_type] += 1
            made.append(to_task(lake, draft, values, split, kind, draw))
            advance(1)
            if len(made) >= count:
                return made
    return made


def obscure_lake(
    lake: Lake,
    tasks: Sequence[Task],
    seed: int,
    target: Path,
    tally: Tally,
    advance: Callable[[int], Any] = lambda _: None,
) -> list[Task]:
    """A lake's tasks asked again over the lake with other names and numbers, each with the answer
    that its pipeline gives there. A task is dropped when it does not validate there, or when its
    answer did not change: memory could still answer it."""
    used = {str(path) for task in tasks for path in task.meta["gold_files"]}
    tables = disguise(lake.folder, lake.name, lake.tables, used, seed, target)
    other = Lake(target, lake.name, tables, Frames(target))
    made: list[Task] = []
    drafts = [draft_for(other, task.meta["kind"], task.meta["draw"]) for task in tasks]
    checked = [
        found
        for at in range(0, len(drafts), _BATCH)
        for found in validate_all([(draft, other.frames) for draft in drafts[at : at + _BATCH]])
    ]
    for task, draft, (values, why) in zip(tasks, drafts, checked, strict=True):
        advance(1)
        plain = task.gold["answer"]
        if values is None:
            tally.reasons[f"obscured: {why}"] += 1
        elif [s.kind for s in draft.steps] != [s["kind"] for s in task.gold["subtasks"]]:
            tally.reasons["obscured: another question"] += 1
        elif score(draft, values["main-task"], plain) > 0.95:
            tally.reasons["obscured: the same answer"] += 1
        else:
            new = to_task(other, draft, values, task.split, task.meta["kind"], task.meta["draw"])
            made.append(
                replace(
                    new,
                    id=f"{task.id}-obscured",
                    gold={**new.gold, "plain_answer": plain},
                    meta={**new.meta, "mode": "obscured", "plain": task.id},
                )
            )
    return made


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
        write_jsonl(args.out / f"{name}.jsonl", (task.to_json() for task in tasks))
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
    parser = argparse.ArgumentParser(prog="assay tasks lake", description=__doc__)
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
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="openpyxl")  # of what a workbook also holds
            proof = build(args)
    except (TaskError, OSError) as error:
        print(f"assay tasks: {error}", file=sys.stderr)
        return 2
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
