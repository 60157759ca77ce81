"""Which settings make the demo's Dr.GRPO beat its SFT start, and SFT on the same gold?

    python -m experiments.demo_search --out runs/search --seeds 0 1
    python -m experiments.demo_search --out runs/search --seeds 0 1 --arms start240 no_shortcut
    python -m experiments.demo_search --out runs --demos demo demo1    # of finished demos

An arm is a task mix, a number of SFT examples and settings of Dr.GRPO; arms share the tasks and SFT
starts they have in common. Beside every arm stands its control: SFT from the untouched model on the
gold of the same SFT examples *and* of every task that RL asks for, for as many epochs as the
processor time of the arm's SFT and RL together allows. All answers are greedy and to *validation*
tasks, whose documents are in no other split; nothing here reads the held-out tasks.

`shortcut` are the SFT model's own texts with DROP said wherever the recipe has a filter: what a
policy gains that only learns that a filter means DROP. `--demos` prints such a table of runs of
`assay demo`, from their answers to the held-out tasks. `balanced` is the mean of RS over tasks to
keep and over tasks to drop.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from assay.task import Task, read_tasks
from experiments import study
from experiments.study import Answer, Place, Row, Table, answers_of
from rewards.score import score_row

SHORT = ("difficulty=easy", "filter_place=last", "directions=[min]", "max_chars=220")
LONG = (*SHORT, "mappers=[0.25,0.35,0.4]", "sft_mappers=[0.7,0.3]")  # RL asks longer recipes
SPLITS = ("heldout_documents=0.3", "validation=140", "validation_documents=0.2")
SFT, RL = study.settings_of("demo_search", "sft", "rl")


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

    @property
    def start(self) -> str:
        """The SFT start; arms with the same tasks and examples share it."""
        return f"sft_{self.mix}_{self.examples}"


_STATUS = "reward.refinement.wrong_drop=0.3"  # a text to keep that is dropped costs
_EXACT = tuple(f"reward.refinement.{name}=0" for name in ("format", "status", "progress"))
ARMS: dict[str, Arm] = {
    "start480": Arm(480, 8),
    "start240": Arm(240, 12),
    "no_shortcut": Arm(240, 12, (_STATUS, "reward.refinement.drop_progress=false")),
    "warm": Arm(480, 12, ("rl.temperature=1.0", "rl.lr=1e-4", "rl.dynamic_sampling=1")),
    "success": Arm(
        480,
        12,
        (*_EXACT, "reward.refinement.success=1", "rl.dynamic_sampling=2", "rl.lr=1e-4"),
    ),
    # no gold but that of the start: the control is SFT on the same examples for more epochs
    "same": Arm(240, 12, (_STATUS,), same=True),
    # the demo's defaults one after another; the last one with engine.rounding=spread
    "steps16": Arm(240, 16, (_STATUS,)),
    "steps24": Arm(240, 24, (_STATUS,)),
    "warm6": Arm(240, 24, (_STATUS, "rl.warmup=6")),
    "long": Arm(240, 12, (_STATUS,), LONG),
}
BALANCED = "balanced"
COLUMNS = (BALANCED, "RS", "KEEP with filter", "KEEP without", "DROP")


def run_arm(place: Place, name: str, controlled: bool) -> None:
    arm = ARMS[name]
    words = ("--seed", place.seed, *arm.tasks, *SPLITS)
    tasks = place.tasks("demo", *words, folder=place.folder / f"tasks_{arm.mix}")
    few = tasks / f"sft_{arm.examples}.jsonl"
    study.part(tasks / "train_sft.jsonl", few, arm.examples)
    place.train(arm.start, "sft", few, place.model, SFT)
    data = few if arm.same else tasks / "train_rl.jsonl"
    settings = (*RL, f"rl.steps={arm.steps}", *arm.rl)
    place.train(name, "grpo", data, place.trained(arm.start), settings)
    names = [arm.start, name]
    if controlled:
        names.append(f"{name}.control")
        control(place, name, tasks, few)
    for one in names:
        target = place.folder / f"{one}.validation"
        room = "sampling.max_new_tokens=80"
        place.answer(target, place.trained(one), tasks / "validation.jsonl", room)


def control(place: Place, name: str, tasks: Path, few: Path) -> None:
    """SFT on the same gold for the same processor time."""
    files = few, tasks / "train_rl.jsonl"
    place.train_on_asked(f"{name}.control", ARMS[name].start, name, files, SFT)


def items(rows: Sequence[Row]) -> Iterator[Answer]:
    for row in rows:
        filtered = row["slices"]["filter"] == "with a filter"
        kind = row["label"] if row["label"] == "DROP" else "KEEP " + "with filter" * filtered
        kind = "KEEP without" if kind == "KEEP " else kind
        values = dict.fromkeys((BALANCED, "RS", kind), row["outcome"])
        yield Answer(row["task_id"], row["source"], values, row["label"])


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


def named(file: Path) -> dict[str, Task]:
    return {task.id: task for task in read_tasks(file)}


def table(out: Path) -> None:
    """Every finished arm of every seed, each with the differences that are asked."""
    for name, arm in ARMS.items():
        shown = Table(COLUMNS, [(b, "RL") for b in ("SFT", "shortcut", "control")], [BALANCED])
        for seed in study.seeds_of(out):
            folder = out / f"seed{seed}"
            for model, one in (("SFT", arm.start), ("RL", name), ("control", f"{name}.control")):
                rows = answers_of(folder / f"{one}.validation")
                seconds = study.spent(folder / f"{one}.spent.json")
                shown.add(model, seed, [*items(rows)], seconds)
                if rows and model == "SFT":
                    tasks = named(folder / f"tasks_{arm.mix}" / "validation.jsonl")
                    shown.add("shortcut", seed, [*items(shortcut(rows, tasks))])
        if "RL" in shown.found:
            print(f"\n{name}\n")
            shown.show()


def demo_table(demos: Sequence[Path]) -> None:
    """Models of finished demos by seed, and the differences of each seed and of all."""
    shown = Table(COLUMNS, [("SFT", "RL"), ("shortcut", "RL")], [BALANCED])
    for folder in demos:
        seed = int(json.loads((folder / "run.json").read_text(encoding="utf-8"))["seed"])
        files = {model: folder / "eval" / f"{model.lower()}.json" for model in ("SFT", "RL")}
        found = {m: json.loads(f.read_text(encoding="utf-8"))["rows"] for m, f in files.items()}
        found["shortcut"] = shortcut(found["SFT"], named(folder / "tasks" / "heldout.jsonl"))
        for model in ("SFT", "shortcut", "RL"):
            shown.add(model, seed, [*items(found[model])])
    shown.show()


def main(argv: Sequence[str] | None = None) -> int:
    parser = study.options(__doc__, list(ARMS), splits=("validation",), seeds=(0, 1))
    without = "leave out the control, where another arm's with as much gold is far above"
    parser.add_argument("--without-control", action="store_true", help=without)
    parser.add_argument("--demos", nargs="+", help="folders in `--out` of finished demos")
    args = parser.parse_args(argv)
    if args.demos:
        demo_table([args.out / name for name in args.demos])
        return 0
    for place in study.places(args):
        for name in args.arms:
            run_arm(place, name, not args.without_control)
    table(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
