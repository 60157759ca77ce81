"""Which settings make the demo's Dr.GRPO beat its SFT start, and SFT on the same gold?

    python -m benchmarks.demo_search --out runs/search --seeds 0 1   # all arms, resumable
    python -m benchmarks.demo_search --out runs/search --seeds 0 1 --arms start240 no_shortcut
    python -m benchmarks.demo_search --out runs/search --table
    python -m benchmarks.demo_search --out runs --demos demo demo1    # of finished demos

An arm is a task mix, a number of SFT examples and settings of Dr.GRPO; arms share the tasks and SFT
starts they have in common. Beside every arm stands its control: SFT from the untouched model on the
gold of the same SFT examples *and* of every task that RL asks for, for as many epochs as the
processor time of the arm's SFT and RL together allows. All answers are greedy and to *validation*
tasks, whose documents are in no other split; nothing here reads the held-out tasks.

`shortcut` are the SFT model's own texts with DROP said wherever the recipe has a filter: what a
policy gains that only learns that a filter means DROP. Every stage leaves a finished folder and is
skipped when it is there. `--demos` prints such a table of runs of `assay demo`, from their answers
to the held-out tasks.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from assay.task import Task, read_tasks
from benchmarks.stages import EPOCHS, Stages, assay, change, lasting, options, part, rows_of, spent
from rewards.score import score_row
from train.evaluation.stats import balanced, balanced_difference

Row = dict[str, Any]

SHORT = ("difficulty=easy", "filter_place=last", "directions=[min]", "max_chars=220")
LONG = (*SHORT, "mappers=[0.25,0.35,0.4]", "sft_mappers=[0.7,0.3]")  # RL asks longer recipes
SPLITS = ("heldout_documents=0.3", "validation=140", "validation_documents=0.2")
SFT = ("validation=null", "sft.epochs=1", "sft.lr=1.5e-4", "sft.max_length=512")
RL = (
    "validation=null",
    "rl.prompts_per_step=16",
    "rl.mini_batch=16",
    "rl.rollouts_per_prompt=8",
    "rl.balance=status",
    "rl.lr=5e-5",
    "rl.schedule=cosine",
    "rl.warmup=2",
    "rl.temperature=0.7",
    "rl.max_new_tokens=80",
    "rl.max_length=512",
)


@dataclass(frozen=True)
class Arm:
    """A setting to try. `rl` comes after the common settings and replaces them."""

    examples: int
    steps: int
    rl: tuple[str, ...] = ()
    tasks: tuple[str, ...] = SHORT
    same: bool = False  # RL asks the tasks of the SFT examples again, and no others

    @property
    def mix(self) -> str:
        return "long" if self.tasks is LONG else "short"


_STATUS = "reward.refinement.wrong_drop=0.3"  # a text to keep that is dropped costs
ARMS: dict[str, Arm] = {
    "start480": Arm(480, 8),
    "start240": Arm(240, 12),
    "no_shortcut": Arm(240, 12, (_STATUS, "reward.refinement.drop_progress=false")),
    "warm": Arm(480, 12, ("rl.temperature=1.0", "rl.lr=1e-4", "rl.dynamic_sampling=1")),
    "success": Arm(
        480,
        12,
        (
            *(f"reward.refinement.{name}=0" for name in ("format", "status", "progress")),
            "reward.refinement.success=1",
            "rl.dynamic_sampling=2",
            "rl.lr=1e-4",
        ),
    ),
    # no gold but that of the start: the control is SFT on the same examples for more epochs
    "same": Arm(240, 12, (_STATUS,), same=True),
    # the demo's defaults one after another; the last one with engine.rounding=spread
    "steps16": Arm(240, 16, (_STATUS,)),
    "steps24": Arm(240, 24, (_STATUS,)),
    "warm6": Arm(240, 24, (_STATUS, "rl.warmup=6")),
    "long": Arm(240, 12, (_STATUS,), LONG),
}


@dataclass(frozen=True)
class Place:
    """The folders of one seed."""

    out: Path
    seed: int
    threads: int
    model: str | None = None
    extra: tuple[str, ...] = field(default=())

    @property
    def folder(self) -> Path:
        return self.out / f"seed{self.seed}"

    def trained(self, name: str, command: str, data: Path, settings: Sequence[str]) -> None:
        model = [f"model.path={self.model}"] if self.model and command == "sft" else []
        words = (f"engine.threads={self.threads}", *model, *settings)
        Stages(self.folder, self.seed, self.extra).train(name, command, data, words)

    def answers(self, name: str, tasks: Path) -> list[Row]:
        """Greedy answers of a trained model to the tasks of a file."""
        target = self.folder / f"{name}.eval"
        if not (target / "results.json").is_file():
            model = self.folder / name / "model"
            words = ("--tasks", tasks, "--out", target, "sampling.max_new_tokens=80")
            assay("eval", "--model", model, *words, f"engine.threads={self.threads}")
        return rows_of(target / "rows.jsonl")


def tasks_of(place: Place, arm: Arm) -> Path:
    folder = place.folder / f"tasks_{arm.mix}"
    if not (folder / "certificate.json").is_file():
        assay("tasks", "demo", "--out", folder, "--seed", place.seed, *arm.tasks, *SPLITS)
    return folder


def start_of(place: Place, arm: Arm, tasks: Path) -> str:
    """The SFT start of an arm; arms with the same tasks and examples share it."""
    name = f"sft_{arm.mix}_{arm.examples}"
    data = part(tasks / "train_sft.jsonl", f"sft_{arm.examples}.jsonl", arm.examples)
    place.trained(name, "sft", data, SFT)
    return name


def run_arm(place: Place, name: str, arm: Arm, controlled: bool = True) -> None:
    tasks = tasks_of(place, arm)
    held = tasks / "validation.jsonl"
    start = start_of(place, arm, tasks)
    place.answers(start, held)
    path = f"model.path={place.folder / start / 'model'}"
    settings = (path, f"rl.steps={arm.steps}", *RL, *arm.rl)
    data = f"sft_{arm.examples}.jsonl" if arm.same else "train_rl.jsonl"
    place.trained(name, "grpo", tasks / data, settings)
    place.answers(name, held)
    if controlled:
        place.answers(control(place, name, arm, tasks, start), held)


def asked(folder: Path, tasks: Path) -> list[str]:
    """The lines of the tasks that a run of RL asked for, in the order of the task file."""
    files = sorted((folder / "rollouts").glob("*.jsonl"))
    names = {row["task_id"] for file in files for row in rows_of(file)}
    lines = (tasks / "train_rl.jsonl").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if json.loads(line)["id"] in names]


def control(place: Place, name: str, arm: Arm, tasks: Path, start: str) -> str:
    """SFT on the same gold for the same processor time; the name of its folder. Arms that asked for
    the same tasks, for as many epochs, share it."""
    first, rl = (spent(place.folder / f"{n}.spent.json") for n in (start, name))
    more = asked(place.folder / name, tasks)
    each = first / arm.examples  # processor seconds of an example, the run's start with it
    longer = lasting(place, (first + rl) / (each * (arm.examples + len(more))))
    count = longer.extra[-1].removeprefix(EPOCHS)
    named = "".join([arm.mix, str(arm.examples), count, *more]).encode()
    folder = f"control_{hashlib.sha256(named).hexdigest()[:8]}"
    data = part(tasks / "train_sft.jsonl", f"{folder}.jsonl", arm.examples, more)
    (place.folder / f"{name}.control").write_text(folder, encoding="utf-8")
    longer.trained(folder, "sft", data, SFT)
    return folder


KINDS = {
    "KEEP with filter": ("KEEP", True),
    "KEEP without": ("KEEP", False),
    "DROP": ("DROP", True),
}


COLUMNS = ("RS", "balanced", *KINDS)
BASES = ("SFT", "shortcut", "control")  # what RL is compared with


def kinds(rows: Sequence[Row]) -> dict[str, float]:
    """RS, balanced RS and RS by kind of task."""
    outcomes, labels = of(rows)
    found = {"RS": statistics.fmean(outcomes), "balanced": balanced(outcomes, labels)}
    for kind, (label, filtered) in KINDS.items():
        chosen = [
            r["outcome"]
            for r in rows
            if r["label"] == label and (r["slices"]["filter"] == "with a filter") == filtered
        ]
        found[kind] = statistics.fmean(chosen)
    return found


def of(rows: Sequence[Row]) -> tuple[list[float], list[str]]:
    return [r["outcome"] for r in rows], [r["label"] for r in rows]


def shortcut(rows: Sequence[Row], tasks: Mapping[str, Task]) -> list[Row]:
    """The same texts, with DROP said wherever the recipe has a filter."""
    found: list[Row] = []
    for row in rows:
        said = row["output"]
        if row["slices"]["filter"] == "with a filter":
            said = said.replace("<status>KEEP</status>", "<status>DROP</status>")
        scored = score_row({"id": row["task_id"], "output": said}, cast("Any", tasks))
        found.append({**row, "output": said, "outcome": scored["outcome"]})
    return found


def table(out: Path) -> None:
    """Every finished arm of every seed; then the three differences that are asked."""
    print("| seed | arm | model | " + " | ".join(COLUMNS) + " | processor min |")
    print("|---|---|---|" + "---|" * (len(COLUMNS) + 1))
    gains: list[str] = []
    for folder in sorted(out.glob("seed*")):
        for name, arm in ARMS.items():
            models = models_of(folder, name, arm)
            for model, (rows, minutes) in models.items():
                print(f"| {folder.name[4:]} | {name} | {model} | {level(rows)} | {minutes:.1f} |")
            if models:
                cells = gains_of({m: r for m, (r, _) in models.items()}, BASES)
                gains.append(f"| {folder.name[4:]} | {name} | {cells} |")
    print("\n| seed | arm | RL − SFT | RL − shortcut | RL − control |\n|---|---|---|---|---|")
    print("\n".join(gains))


def level(rows: Sequence[Row]) -> str:
    return " | ".join(f"{value:.3f}" for value in kinds(rows).values())


def demo_table(demos: Sequence[Path]) -> None:
    """Models of finished demos by seed, and the differences of each seed and of all."""
    every: list[dict[str, list[Row]]] = []
    seeds: list[str] = []
    print(f"| seed | model | {' | '.join(COLUMNS)} |\n|---|---|{'---|' * len(COLUMNS)}")
    for folder in demos:
        seeds.append(str(json.loads((folder / "run.json").read_text(encoding="utf-8"))["seed"]))
        files = {model: folder / "eval" / f"{model.lower()}.json" for model in ("SFT", "RL")}
        found = {m: json.loads(f.read_text(encoding="utf-8"))["rows"] for m, f in files.items()}
        tasks = {t.id: t for t in read_tasks(folder / "tasks" / "heldout.jsonl")}
        found["shortcut"] = shortcut(found["SFT"], tasks)
        for model in ("SFT", "shortcut", "RL"):
            print(f"| {seeds[-1]} | {model} | {level(found[model])} |")
        # a document that two seeds drew is one to resample in each
        sourced = {
            m: [{**r, "source": f"{seeds[-1]} {r['source']}"} for r in found[m]] for m in found
        }
        every.append(sourced)
    pooled = {m: [row for found in every for row in found[m]] for m in every[0]}
    print("\n| seed | RL − SFT, balanced RS | RL − shortcut |\n|---|---|---|")
    for seed, models in zip([*seeds, "all"], [*every, pooled], strict=True):
        print(f"| {seed} | {gains_of(models, BASES[:2])} |")


def control_of(folder: Path, name: str) -> str:
    """The folder of an arm's control, as its run left it."""
    note = folder / f"{name}.control"
    return note.read_text(encoding="utf-8") if note.is_file() else "none"


def models_of(folder: Path, name: str, arm: Arm) -> dict[str, tuple[list[Row], float]]:
    """Rows and processor minutes of an arm's models; empty where its RL is not finished."""
    start = f"sft_{arm.mix}_{arm.examples}"
    asked = {"SFT": start, "RL": name, "control": control_of(folder, name)}
    files = {m: f for m, f in asked.items() if (folder / f"{f}.eval" / "results.json").is_file()}
    if not {"SFT", "RL"} <= files.keys():
        return {}
    rows = {m: rows_of(folder / f"{f}.eval" / "rows.jsonl") for m, f in files.items()}
    minutes = {m: spent(folder / f"{f}.spent.json") / 60 for m, f in files.items()}
    minutes["RL"] += minutes["SFT"]
    tasks = {t.id: t for t in read_tasks(folder / f"tasks_{arm.mix}" / "validation.jsonl")}
    rows["shortcut"], minutes["shortcut"] = shortcut(rows["SFT"], tasks), minutes["SFT"]
    return {m: (rows[m], minutes[m]) for m in ("SFT", "shortcut", "RL", "control") if m in rows}


def gains_of(models: Mapping[str, Sequence[Row]], bases: Sequence[str]) -> str:
    """RL minus each base in balanced RS with 95 % intervals, documents resampled."""
    cells: list[str] = []
    sources = [r["source"] for r in models["RL"]]
    for base in bases:
        if base not in models:
            cells.append("–")
            continue
        (before, labels), (after, _) = of(models[base]), of(models["RL"])
        cells.append(change(balanced_difference(before, after, labels, sources=sources)))
    return " | ".join(cells)


def main(argv: Sequence[str] | None = None) -> int:
    parser = options(__doc__, list(ARMS), splits=(), seeds=(0, 1))
    parser.add_argument("--threads", type=int, default=1, help="of the engine (%(default)s)")
    without = "leave out the control, where another arm's with as much gold is far above"
    parser.add_argument("--without-control", action="store_true", help=without)
    parser.add_argument("--demos", nargs="+", help="folders in `--out` of finished demos")
    args = parser.parse_args(argv)
    if args.demos:
        demo_table([args.out / name for name in args.demos])
        return 0
    if not args.table:
        for seed in args.seeds:
            for name in args.arms:
                place = Place(args.out, seed, args.threads, args.model, tuple(args.settings))
                run_arm(place, name, ARMS[name], not args.without_control)
    table(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
