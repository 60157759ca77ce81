"""`assay select`: keep rollouts by a strategy and write them as a training set.

It has `messages` and `tools` (what TRL and verl read), and `ids` with `loss_mask`, the
tokens as they were sampled (what `assay sft` trains on); `marks` say which tasks these are, for the
trained model's record (docs/heldout.md). The same rollouts give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from assay import console
from assay.console import Progress, TaskFilter, add_filter, task_filter
from assay.family import use_families
from assay.files import write_text
from assay.rows import is_parquet, matching, total_bytes
from assay.seeds import derive_seed
from assay.task import TaskError, parse_object
from data_gen.selection.index import Index, Place, checked, refuse_unknown
from data_gen.selection.spool import Spool
from data_gen.selection.strategies import PICK, Caps, Rules, pick
from data_gen.selection.training_set import write_training_set


@dataclass(frozen=True)
class Wanted:
    """Which rollouts are looked at: of these tracks, families and licences (patterns); (): all."""

    tracks: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    licences: tuple[str, ...] = ()

    def why_not(self, row: Mapping[str, Any]) -> str:
        """Why a rollout is not looked at; "" where it is."""
        asked = TaskFilter(self.tracks, self.licences)
        other = self.families and row["family"] not in self.families
        if other or not asked.accepts_track(row["track"]):
            return "another track or family"
        return "" if asked.accepts_licences(row["licences"]) else "another licence"


ALL = Wanted()
NAMES = (".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst")  # of a training set
NO_CAPS = Caps()


def choose(
    index: Index,
    names: Sequence[str],
    strategy: str,
    rules: Rules,
    wanted: Wanted,
    caps: Caps,
) -> dict[str, int]:
    """Apply the strategy to every task of the index, one at a time, and note there what is kept;
    returns how many rollouts each rule dropped. `names`: of the files in the index.

    Raises `TaskError` for a rollout that would be kept and has no word to learn.

    `caps.per_track` keeps those of a track whose hash is smallest: a sample that depends on no
    order, for which no more rollouts than the cap are remembered.
    """
    dropped: Counter[str] = Counter()
    drawn: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for group in index.groups():
        looked: list[dict[str, Any]] = []
        for row in group:
            if why := wanted.why_not(row):
                dropped[why] += 1
            else:
                looked.append(row)
        for row in pick(looked, strategy, rules, dropped, caps):
            if row["unlearnable"]:
                raise TaskError(
                    f"{names[row['place'].file]}: task {row['task_id']} sample {row['sample']} has "
                    f"outcome {row['outcome']:g} and {row['unlearnable']}: there is no word to "
                    "learn (an answer in files alone?); sample such tasks from a model that works "
                    "with tools, or leave them out with --track or --only-family"
                )
            number = index.keep(row, once=caps.deduplicate)
            if number is None:
                dropped["says what another one says"] += 1
            elif caps.per_track:
                rank = derive_seed(0, "per_track", row["task_id"], row["sample"])
                heap = drawn[row["track"]]
                heapq.heappush(heap, (-rank, number))
                if len(heap) > caps.per_track:
                    index.forget(heapq.heappop(heap)[1])
                    dropped["over the cap of its track"] += 1
    return dict(sorted(dropped.items()))


def build(
    rollouts: Sequence[str],
    strategy: str,
    out: Path,
    rules: Rules,
    wanted: Wanted = ALL,
    caps: Caps = NO_CAPS,
) -> dict[str, Any]:
    """Select, write the training set and `OUT.manifest.json`; returns the manifest.

    Raises `TaskError` for rollouts that cannot be used and where nothing is kept.
    """
    if not out.name.lower().endswith(NAMES):
        raise TaskError(f"--out {out}: its name says the form; wanted one of {', '.join(NAMES)}")
    names = matching(rollouts)
    index = Index()
    with ExitStack() as stack:
        spool = Spool(names, stack)
        bar = stack.enter_context(Progress("assay select", "rollouts", total_bytes(names)))
        digests = index.read(names, spool, bar)
        refuse_unknown("track", wanted.tracks, index.values("track"))
        refuse_unknown("family", wanted.families, index.values("family"))
        dropped = choose(index, names, strategy, rules, wanted, caps)
        if not index.kept():
            listed = ", ".join(names)
            raise TaskError(f"{listed}: {strategy} keeps nothing ({json.dumps(dropped)})")
        rows = (_whole(spool, names, place, sample) for place, sample in index.places())
        alike = index.same_tools()
        tools = alike and _whole(spool, names, alike, 0).get("tools")
        write_training_set(rows, out, tools, index.kept_members())
    manifest: dict[str, Any] = {
        "strategy": strategy,
        "rules": asdict(rules),
        **{name: list(values) for name, values in asdict(wanted).items()},
        **asdict(caps),
        "rollouts": {"sha256": digests, "rows": index.rows, "tasks": index.tasks()},
        "kept": {"rows": index.kept(), "tasks": index.kept("task"), "tracks": index.kept_tracks()},
        "dropped": dropped,
        "parquet_sha256" if is_parquet(out) else "sha256": _sha256(out),
    }
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    write_text(out.with_name(out.name + ".manifest.json"), text)
    return manifest


def _whole(spool: Spool, names: Sequence[str], place: Place, sample: int) -> dict[str, Any]:
    """The rollout at a place, under its number over all runs."""
    line = spool.line(place.file, place.start, place.size)
    where = f"{names[place.file]}: was changed while it was read"
    row = parse_object(line.decode("utf-8", "replace"), where)
    checked(row, where)
    return row | {"sample": sample}


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parser() -> argparse.ArgumentParser:
    made = console.parser("select", __doc__)
    add = made.add_argument
    add(
        "--rollouts",
        required=True,
        nargs="+",
        metavar="FILE",
        help="what `assay rollout` wrote: files, patterns or URLs, also .gz, .zst and .parquet; "
        "several runs are put together",
    )
    add("--strategy", required=True, choices=sorted(PICK))
    add(
        "--out",
        required=True,
        type=Path,
        help="training set: .parquet, .jsonl, .jsonl.gz or .jsonl.zst",
    )
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
    add_filter(made, "rollouts of tasks")
    add("--only-family", action="append", default=[], metavar="NAME", help="keep this family only")
    add("--per-task", type=int, default=0, metavar="N", help="at most N of a task, the best")
    add(
        "--per-track",
        type=int,
        default=0,
        metavar="N",
        help="at most N of a track, drawn by a hash: what balances tracks",
    )
    add("--deduplicate", action="store_true", help="of rollouts that say the same, keep one")
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
    asked = task_filter(args)
    wanted = Wanted(asked.tracks, tuple(args.only_family), asked.licences)
    caps = Caps(args.per_task, args.per_track, args.deduplicate)
    manifest = build(args.rollouts, args.strategy, args.out, rules, wanted, caps)
    if args.json:
        print(json.dumps(manifest, sort_keys=True))
        return 0
    kept, dropped = manifest["kept"], json.dumps(manifest["dropped"])
    print(f"{args.out}: {kept['rows']} rollouts of {kept['tasks']} tasks; dropped {dropped}")
    return 0
