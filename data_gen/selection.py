"""`assay select`: keep rollouts by a strategy and write them as a training set.

It has `messages` and `tools` (what TRL and verl read), and `ids` with `loss_mask`, the
tokens as they were sampled (what `assay sft` trains on); `marks` say which tasks these are, for the
trained model's record (docs/checks.md). The same rollouts give the same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from assay import console
from assay.console import Progress, TaskFilter, add_filter, task_filter
from assay.family import use_families
from assay.files import file_hash, write_text
from assay.rows import is_parquet, matching, total_bytes
from assay.seeds import derive_seed
from assay.task import TaskError
from data_gen.rollout_store import Store, write_training_set
from data_gen.selection_rules import PICK, Caps, Rules, pick

NAMES = (".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst")  # of a training set


@dataclass(frozen=True)
class Asked:
    """How rollouts are kept, and which are looked at: of these tracks, families and licences
    (patterns); (): all."""

    strategy: str
    rules: Rules
    caps: Caps
    tracks: tuple[str, ...]
    families: tuple[str, ...]
    licences: tuple[str, ...]

    def why_not(self, row: Mapping[str, Any]) -> str:
        """Why a rollout is not looked at; "" where it is."""
        asked = TaskFilter(self.tracks, self.licences)
        other = self.families and row["family"] not in self.families
        if other or not asked.accepts_track(row["track"]):
            return "another track or family"
        return "" if asked.accepts_licences(row["licences"]) else "another licence"


def choose(store: Store, names: Sequence[str], asked: Asked) -> dict[str, int]:
    """Apply the strategy to every task of the store, one at a time, and note there what is kept;
    returns how many rollouts each rule dropped. `names`: of the files in the store.

    Raises `TaskError` for a rollout that would be kept and has no word to learn.

    `caps.per_track` keeps those of a track whose hash is smallest: a sample that depends on no
    order.
    """
    dropped: Counter[str] = Counter()
    for group in store.groups():
        looked: list[dict[str, Any]] = []
        for row in group:
            if why := asked.why_not(row):
                dropped[why] += 1
            else:
                looked.append(row)
        for row in pick(looked, asked.strategy, asked.rules, dropped, asked.caps):
            if row["unlearnable"]:
                raise TaskError(
                    f"{names[row['file']]}: task {row['task_id']} sample {row['sample']} has "
                    f"outcome {row['outcome']:g} and {row['unlearnable']}: there is no word to "
                    "learn (an answer in files alone?); sample such tasks from a model that works "
                    "with tools, or leave them out with --track or --only-family"
                )
            store.keep(row, derive_seed(0, "per_track", row["task_id"], row["sample"]))
    if asked.caps.deduplicate and (gone := store.thin("said", "kept.number", 1)):
        dropped["says what another one says"] += gone
    if asked.caps.per_track and (gone := store.thin("track", "rank", asked.caps.per_track)):
        dropped["over the cap of its track"] += gone
    return dict(sorted(dropped.items()))


def build(rollouts: Sequence[str], out: Path, asked: Asked) -> dict[str, Any]:
    """Select, write the training set and `OUT.manifest.json`; returns the manifest.

    Raises `TaskError` for rollouts that cannot be used and where nothing is kept.
    """
    if not out.name.lower().endswith(NAMES):
        raise TaskError(f"--out {out}: its name says the form; wanted one of {', '.join(NAMES)}")
    names = matching(rollouts)
    store = Store()
    with Progress("assay select", "rollouts", total_bytes(names)) as bar:
        digests = store.read(names, bar)
        _refuse_unknown("track", asked.tracks, store.tracks)
        _refuse_unknown("family", asked.families, store.families)
        dropped = choose(store, names, asked)
        kept = len(store.kept())
        if not kept:
            listed = ", ".join(names)
            raise TaskError(f"{listed}: {asked.strategy} keeps nothing ({json.dumps(dropped)})")
        members = {name for (said, _) in store.kept("members") for name in said.split()}
        write_training_set(store.kept_rows(), out, store.same_tools(), members)
    manifest: dict[str, Any] = {
        **{name: value for name, value in asdict(asked).items() if name != "caps"},
        **asdict(asked.caps),
        "rollouts": {"sha256": digests, "rows": store.rows, "tasks": store.tasks},
        "kept": {
            "rows": kept,
            "tasks": len(store.kept("task")),
            "tracks": dict(store.kept("track")),
        },
        "dropped": dropped,
        "parquet_sha256" if is_parquet(out) else "sha256": file_hash(out),
    }
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    write_text(out.with_name(out.name + ".manifest.json"), text)
    return manifest


def _refuse_unknown(field: str, wanted: Collection[str], there: Collection[str]) -> None:
    """Raise `TaskError` for a wanted name (or pattern) that no rollout has."""
    for name in wanted:
        if not any(fnmatchcase(one, name.removeprefix("!")) for one in there):
            raise TaskError(f"no rollout has {field} {name!r}; there is {', '.join(sorted(there))}")


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
    chosen = task_filter(args)
    caps = Caps(args.per_task, args.per_track, args.deduplicate)
    of = (chosen.tracks, tuple(args.only_family), chosen.licences)
    manifest = build(args.rollouts, args.out, Asked(args.strategy, rules_of(args), caps, *of))
    if args.json:
        print(json.dumps(manifest, sort_keys=True))
        return 0
    kept, dropped = manifest["kept"], json.dumps(manifest["dropped"])
    print(f"{args.out}: {kept['rows']} rollouts of {kept['tasks']} tasks; dropped {dropped}")
    return 0
