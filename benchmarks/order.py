"""Does training on exact gold make a small model follow the order of the steps?

    python -m benchmarks.order --out runs/order --seeds 0                      # all arms, resumable
    python -m benchmarks.order --out runs/order --seeds 0 1 2 --arms sft sft_states
    python -m benchmarks.order --out runs/order --table                        # of the validation
    python -m benchmarks.order --out runs/order --seeds 0 1 2 --split heldout --arms sft sft_states

An order group has the same text and the same two steps in both orders (`assay tasks order`): half
of the groups have a filter and a mapper (order_f), half have two mappers (order_m). OCS is the
share of groups in which both tasks are right; of order_f only groups count whose text the filter
rejects, for in the others both orders have the same gold.

Arms differ in the form of the answer (`plain`, or the state after every step before the result), in
the number of SFT examples, and in what Dr.GRPO adds: `outcome` pays success alone.
`all_gold` is the control of the arms with RL: SFT on the
SFT examples and on the gold of every task that `states_outcome` asked for, for as many epochs as
its processor time allows.

Choose on the validation split; `--split heldout` answers the
held-out tasks, once for the arms that it names. Every stage leaves a finished folder and is skipped
when it is there; a stage that was stopped goes on. One thread.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.stages import (
    Stages,
    assay,
    change,
    lasting,
    level,
    options,
    part,
    rows_of,
    seeds_of,
    spent,
)
from train.evaluation.stats import mean_interval, paired_difference

FORMS = {"plain": "states=false", "states": "states=true"}
TASKS = (
    "mapper_share=0.5",
    "drop_share=0.75",
    "max_chars=90",
    "thresholds=[45,50,55,60]",
    "train_sft=480",
    "train_rl=120",
    "validation=30",
    "heldout=60",
    "brief=true",
)
SHARED = ("validation=null", "engine.threads=1", "engine.micro_tokens=1536")
SFT = ("sft.epochs=1", "sft.max_length=320", "sft.save_every=30")
RL = (
    "rl.steps=12",
    "rl.prompts_per_step=8",
    "rl.mini_batch=8",
    "rl.rollouts_per_prompt=6",
    "rl.lr=5e-5",
    "rl.schedule=cosine",
    "rl.warmup=1",
    "rl.temperature=0.7",
    "rl.max_length=320",
    "rl.save_every=3",
)
ROOM = {"plain": 64, "states": 144}  # tokens of an answer
SHARES = {"format": 0, "status": 0, "progress": 0, "success": 1}  # of the reward: success alone
OUTCOME = tuple(f"reward.refinement.{name}={share}" for name, share in SHARES.items())


@dataclass(frozen=True)
class Arm:
    """An answer form, a number of SFT examples, and settings of the RL that starts there."""

    form: str
    examples: int = 240
    rl: tuple[str, ...] = ()
    batch: int = 8  # examples in a step of SFT

    @property
    def start(self) -> str:
        """The SFT arm that the RL of this arm starts from. An arm without RL is its own start."""
        first = "sft" if self.form == "plain" else "sft_states"
        return first if self.examples == 240 else f"{first}_{self.examples}"


ARMS: dict[str, Arm] = {
    "sft": Arm("plain"),
    "sft_states": Arm("states"),
    "sft_480": Arm("plain", 480, batch=4),
    "sft_states_480": Arm("states", 480, batch=4),
    "sft_960": Arm("plain", 960, batch=4),
    "sft_states_960": Arm("states", 960, batch=4),
    # after 240 examples no start is right on both orders of any order_f group, which RL cannot mend
    "outcome": Arm("plain", 480, OUTCOME),
    "states_outcome": Arm("states", 480, OUTCOME),
}
CONTROL = "all_gold"
NAMES = (*ARMS, CONTROL)
BASES = ("sft", "sft_states", "sft_480", "sft_states_480", "outcome", "states_outcome")


def form_of(name: str) -> str:
    return "states" if name == CONTROL else ARMS[name].form


@dataclass(frozen=True)
class Place:
    """The folders of one seed: `seedS/FORM/` holds tasks, `seedS/FORM/ARM` a training run."""

    out: Path
    seed: int
    model: str | None = None
    extra: tuple[str, ...] = ()

    def folder(self, form: str) -> Path:
        return self.out / f"seed{self.seed}" / form

    def tasks(self, form: str) -> Path:
        folder = self.folder(form)
        if not (folder / "certificate.json").is_file():
            words = ("--out", folder, "--seed", self.seed, *TASKS, FORMS[form])
            assay("tasks", "order", *words)
        return folder

    def train(self, name: str, command: str, data: Path, settings: Sequence[str]) -> None:
        stages = Stages(self.folder(form_of(name)), self.seed, self.extra)
        stages.train(name, command, data, (*SHARED, *settings))

    def answer(self, name: str, split: str) -> None:
        """Greedy answers of a trained model to the tasks of a split."""
        form = form_of(name)
        target = self.folder(form) / f"{name}.{split}"
        if not (target / "results.json").is_file():
            tasks = self.tasks(form) / f"{split}.jsonl"
            words = ("--tasks", tasks, "--out", target)
            room = (f"sampling.max_new_tokens={ROOM[form]}", "engine.threads=1", "--no-baselines")
            assay("eval", "--model", self.folder(form) / name / "model", *words, *room)


def run_arm(place: Place, name: str, split: str) -> None:
    """Train an arm, with the start and the tasks that it needs, and answer a split."""
    if name == CONTROL:
        train_control(place)
    else:
        train_arm(place, name)
    place.answer(name, split)


def train_arm(place: Place, name: str) -> None:
    arm = ARMS[name]
    tasks = place.tasks(arm.form)
    if not arm.rl:
        data = part(tasks / "train_sft.jsonl", f"sft_{arm.examples}.jsonl", arm.examples)
        model = [f"model.path={place.model}"] if place.model else []
        place.train(name, "sft", data, (*SFT, f"sft.batch_size={arm.batch}", *model))
        return
    train_arm(place, arm.start)
    start = f"model.path={place.folder(arm.form) / arm.start / 'model'}"
    room = f"rl.max_new_tokens={ROOM[arm.form]}"
    place.train(name, "grpo", tasks / "train_rl.jsonl", (*RL, room, start, *arm.rl))


def train_control(place: Place, of: str = "states_outcome") -> None:
    """SFT on the examples of the start of `of` and on the gold of every task that `of` asked."""
    train_arm(place, of)
    arm, folder = ARMS[of], place.folder(ARMS[of].form)
    files = sorted((folder / of / "rollouts").glob("*.jsonl"))
    names = {str(row["task_id"]) for file in files for row in rows_of(file)}
    lines = (folder / "train_rl.jsonl").read_text(encoding="utf-8").splitlines()
    asked = [line for line in lines if json.loads(line)["id"] in names]
    first, rl = (spent(folder / f"{name}.spent.json") for name in (arm.start, of))
    times = (first + rl) / (first / arm.examples * (arm.examples + len(asked)))
    data = part(folder / "train_sft.jsonl", "all_gold.jsonl", arm.examples, asked)
    size = f"sft.batch_size={ARMS[arm.start].batch}"
    lasting(place, times).train(CONTROL, "sft", data, (*SFT, size))


@dataclass(frozen=True)
class Group:
    """One order group as a model answered it: the outcome of each slot."""

    key: str  # seed and group: what intervals are clustered by
    track: str
    sensitive: bool
    outcomes: dict[str, float]

    @property
    def right(self) -> float:
        return float(all(value == 1.0 for value in self.outcomes.values()))


def groups_of(out: Path, seed: int, name: str, split: str) -> list[Group]:
    """The groups of a seed with an arm's answers; [] where it has none yet."""
    folder = out / f"seed{seed}" / form_of(name)
    target = folder / f"{name}.{split}"
    if not (target / "results.json").is_file():
        return []
    answers = {row["task_id"]: row for row in rows_of(target / "rows.jsonl")}
    found: dict[str, Group] = {}
    for task in rows_of(folder / f"{split}.jsonl"):
        meta, key = task["meta"], f"{seed} {task['group']}"
        group = found.setdefault(key, Group(key, task["track"], bool(meta["sensitive"]), {}))
        group.outcomes[meta["order_slot"]] = float(answers[task["id"]]["outcome"] or 0.0)
    return list(found.values())


def cells(groups: Sequence[Group]) -> Iterator[str]:
    """RS, then for each track OCS with its interval and RS by slot, then RS of kept texts."""
    every = [value for g in groups for value in g.outcomes.values()]
    yield f"{statistics.fmean(every):.3f}"
    for track in ("order_f", "order_m"):
        hard = [g for g in groups if g.track == track and g.sensitive]
        yield level(mean_interval([g.right for g in hard], [g.key for g in hard]))
        yield " / ".join(
            f"{statistics.fmean(g.outcomes[slot] for g in hard):.2f}" for slot in hard[0].outcomes
        )
    kept = [v for g in groups if not g.sensitive for v in g.outcomes.values()]
    yield f"{statistics.fmean(kept):.2f}"


def table(out: Path, split: str) -> None:
    """Every finished arm, by seed and pooled; then differences of OCS, paired by group."""
    seeds = seeds_of(out)
    data = {(s, n): found for s in seeds for n in NAMES if (found := groups_of(out, s, n, split))}
    print(
        "| arm | seed | RS | OCS order_f | pre / post | OCS order_m | canonical / swapped |", end=""
    )
    print(" RS kept by a filter | processor min |\n|" + "---|" * 9)
    for name in NAMES:
        mine = [s for s in seeds if (s, name) in data]
        for seed in mine:
            took = spent(out / f"seed{seed}" / form_of(name) / f"{name}.spent.json") / 60
            print(f"| {name} | {seed} | {' | '.join(cells(data[seed, name]))} | {took:.1f} |")
        if len(mine) > 1:
            pooled = [g for s in mine for g in data[s, name]]
            print(f"| {name} | all | {' | '.join(cells(pooled))} | |")
    print("\n| difference of OCS | seeds | order_f | order_m | both |\n|---|---|---|---|---|")
    for place, base in enumerate(BASES):
        for name in NAMES:
            if name not in BASES[: place + 1]:
                difference(data, seeds, base, name)


def difference(
    data: dict[tuple[int, str], list[Group]], seeds: Sequence[int], base: str, name: str
) -> None:
    """A row: OCS of `name` minus OCS of `base` over the seeds that have both."""
    both = [s for s in seeds if (s, base) in data and (s, name) in data]
    if not both:
        return
    pairs = [
        (a, b)
        for s in both
        for a, b in zip(data[s, base], data[s, name], strict=True)
        if a.sensitive
    ]
    row: list[str] = []
    for tracks in (("order_f",), ("order_m",), ("order_f", "order_m")):
        chosen = [(a, b) for a, b in pairs if a.track in tracks]
        before, after = [a.right for a, _ in chosen], [b.right for _, b in chosen]
        sources = [a.key for a, _ in chosen]
        row.append(change(paired_difference(before, after, sources=sources)))
    print(f"| {base} → {name} | {' '.join(map(str, both))} | {' | '.join(row)} |")


def main(argv: Sequence[str] | None = None) -> int:
    parser = options(__doc__, NAMES, splits=("validation", "heldout"))
    args = parser.parse_args(argv)
    if not args.table:
        for seed in args.seeds:
            place = Place(args.out, seed, args.model, tuple(args.settings))
            for name in args.arms:
                run_arm(place, name, args.split)
    table(args.out, args.split)
    return 0


if __name__ == "__main__":
    sys.exit(main())
