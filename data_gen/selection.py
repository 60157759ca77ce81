"""`assay select`: keep rollouts by a strategy and write them as a training set.

It has `messages` and `tools` (what TRL and verl read), and `ids` with `loss_mask`, the
tokens as they were sampled (what `assay sft` trains on); `marks` say which tasks these are, for the
trained model's record (docs/checks.md). The same rollouts give the same bytes.

The strategies are FV, AV, BV and DV of DARE-bench's appendix L (spec section 11). Settled here,
because the paper leaves it open: variance is that of the population; rollouts without an outcome
(infrastructure) are not there; a kept rollout is always valid, under BV and DV too, unless
`allow_invalid`; ties go to the faster one, then to the smaller sample number.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean, pvariance
from typing import Any, Literal

from assay import console
from assay.console import Progress, TaskFilter, add_filter, task_filter
from assay.family import use_families
from assay.files import file_hash, write_text
from assay.rows import is_parquet, matching, total_bytes
from assay.task import TaskError, derive_seed
from data_gen.rollout_store import SILENT, Store, write_training_set

NAMES = (".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst")  # of a training set
FastestBy = Literal["wall_clock", "cost"]
Row = Mapping[str, Any]


# --- what a strategy keeps of one task


@dataclass(frozen=True)
class Rules:
    """Thresholds by track; tracks that are not named take `otherwise` and are judged like IF.

    `valid`: the least outcome that is kept; `spread`: the least variance of a task's outcomes
    under BV and DV, for tracks whose scores between 0 and 1 matter.
    """

    valid: Mapping[str, float] = field(
        default_factory=lambda: {
            "class-IF": 1.0,
            "reg-IF": 1.0,
            "class-MM": 0.8,
            "reg-MM": 0.7,
            "time-XF": 0.6,
            "time-CF": 0.3,
        }
    )
    spread: Mapping[str, float] = field(
        default_factory=lambda: {
            "class-MM": 0.15,
            "reg-MM": 0.15,
            "time-XF": 0.15,
            "time-CF": 0.1,
        }
    )
    otherwise: float = 1.0
    fastest_by: FastestBy = "wall_clock"
    allow_invalid: bool = False

    def is_valid(self, row: Row) -> bool:
        return float(row["outcome"]) >= self.valid.get(str(row["track"]), self.otherwise)

    def graded(self, track: str) -> bool:
        """Whether scores between 0 and 1 matter; else only right or wrong does."""
        return track in self.spread

    def diverse(self, rows: Sequence[Row]) -> bool:
        """IF: one right and one wrong (0); graded tracks: enough variance; tracks that are not
        named: one that is valid and one that is not."""
        track, scores = str(rows[0]["track"]), [float(r["outcome"]) for r in rows]
        if self.graded(track):
            return pvariance(scores) >= self.spread[track]
        least = self.valid.get(track, self.otherwise)
        wrong = min(scores) == 0.0 if track in self.valid else min(scores) < least
        return max(scores) >= least and wrong

    def speed(self, row: Row) -> tuple[float, int]:
        """What "fastest" goes by: seconds, or tokens written and calls made (a call as 100)."""
        if self.fastest_by == "wall_clock":
            return float(row.get("wall_s") or 0.0), int(row["sample"])
        calls = int(row.get("calls") or 0)
        return float(row["tokens"] + 100 * calls), int(row["sample"])


@dataclass(frozen=True)
class Caps:
    """What a strategy leaves open. 0: no cap. `deduplicate` compares rollouts by their field
    `said`, the hash of what was said."""

    per_task: int = 0
    per_track: int = 0
    deduplicate: bool = False

    def __post_init__(self) -> None:
        for name in ("per_task", "per_track"):
            if getattr(self, name) < 0:
                raise TaskError(f"{name}={getattr(self, name)}: wanted 0 (no cap) or more")


# strategy → (whether the task must be diverse, how many of its best good rows are kept, 0: all)
PICK = {"fv": (False, 1), "av": (False, 0), "bv": (True, 1), "dv": (True, 2)}


def pick(
    rows: Sequence[Row],
    strategy: str,
    rules: Rules,
    dropped: Counter[str],
    caps: Caps | None = None,
) -> list[Row]:
    """What a strategy keeps of one task's rollouts, in order of rank; `dropped` counts the others
    by reason. Raises `TaskError` for a strategy that does not exist."""
    caps = caps or Caps()
    if strategy not in PICK:
        raise TaskError(f"strategy {strategy!r}: wanted one of {', '.join(PICK)}")
    needs_diversity, most = PICK[strategy]
    group = sorted(
        (r for r in rows if r.get("outcome") is not None), key=lambda r: int(r["sample"])
    )
    _count(dropped, "no outcome (infrastructure)", len(rows) - len(group))
    if group and needs_diversity and not rules.diverse(group):
        _count(dropped, "task not diverse", len(group))
        return []
    good = [r for r in group if rules.allow_invalid or rules.is_valid(r)]
    if group:
        dropped["not valid"] += len(group) - len(good)
    for why in {str(r["unlearnable"]) for r in good if r.get("unlearnable")}:
        # one that is right and says nothing stays, for the caller to refuse
        others = [
            r for r in good if r.get("unlearnable") != why or (why == SILENT and rules.is_valid(r))
        ]
        _count(dropped, why, len(good) - len(others))
        good = others
    if caps.deduplicate:
        good, valid = list({r["said"]: r for r in reversed(good)}.values())[::-1], len(good)
        _count(dropped, "says what another one says", valid - len(good))
    if not good:
        return []
    best = _best(good, rules)
    chosen = best[:most] if most else good
    if strategy == "dv" and rules.graded(str(group[0]["track"])):
        mean = fmean(float(r["outcome"]) for r in group)
        chosen = [r for r in chosen if float(r["outcome"]) > mean]
    dropped["not among the best"] += len(good) - len(chosen)
    if caps.per_task and len(chosen) > caps.per_task:
        _count(dropped, "over the cap of its task", len(chosen) - caps.per_task)
        kept = {int(r["sample"]) for r in best[: caps.per_task]}
        chosen = [r for r in chosen if int(r["sample"]) in kept]
    return chosen


def _count(dropped: Counter[str], why: str, rows: int) -> None:
    if rows:
        dropped[why] += rows


def _best(good: Sequence[Row], rules: Rules) -> list[Row]:
    """By speed where only right or wrong counts, by score elsewhere."""
    if rules.graded(str(good[0]["track"])):
        return sorted(good, key=lambda r: (-float(r["outcome"]), rules.speed(r)))
    return sorted(good, key=lambda r: (not rules.is_valid(r), rules.speed(r)))


# --- the rollouts of all tasks


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
