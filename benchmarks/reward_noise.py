"""How much reward noise does Dr.GRPO stand? Exact gold lets a run be told wrong on purpose.

    python -m benchmarks.reward_noise --out runs/noise --seeds 0 1 2     # all arms, resumable
    python -m benchmarks.reward_noise --out runs/noise --seeds 0 --arms exact random_30
    python -m benchmarks.reward_noise --out runs/noise --table

Every arm starts from the same SFT model of its seed (240 examples of the demo's short tasks) and
differs in its reward alone. `random_P` flips P % of the rewards to 1 − reward, each for itself;
`task_P` flips every reward of P % of the tasks, as wrong gold texts do; `status_only` is a verifier
with a systematic defect: it never looks at the text. A flip of both signs leaves the expected
advantage at (1 − 2·P) times the exact one, so `random_50` carries no signal.

Answers are greedy and to validation tasks; all outcomes are exact. No arm is chosen by them.
Folders, seeds and resuming are those of `benchmarks.demo_search`, whose SFT starts are shared where
`--out` is the same.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.demo_search import (
    RL,
    Arm,
    Place,
    Row,
    kinds,
    of,
    start_of,
    tasks_of,
)
from benchmarks.stages import change, options, rows_of, seeds_of, spent
from train.evaluation.stats import balanced_difference

START = Arm(240, 12)
SMALL = (
    "rl.steps=12",
    "rl.prompts_per_step=8",
    "rl.mini_batch=8",
    "reward.refinement.wrong_drop=0.3",  # as in the demo
)
SHARES = ("format", "progress", "success")
ARMS: dict[str, tuple[str, ...]] = {
    "exact": (),
    **{f"random_{p}": (f"noise.share={p / 100}",) for p in (5, 15, 30, 50)},
    **{f"task_{p}": (f"noise.share={p / 100}", "noise.by=task") for p in (15, 30)},
    # its audit would refuse a reward that pays for a wrong text, which is what is studied here
    "status_only": (
        *(f"reward.refinement.{name}=0" for name in SHARES),
        "reward.refinement.status=1",
        "rl.audit=off",
    ),
}


def folder_of(name: str) -> str:
    return f"noise_{name}"


def run_arm(place: Place, name: str) -> None:
    """The start, RL under the arm's reward, and answers of both to the validation tasks."""
    tasks = tasks_of(place, START)
    start = start_of(place, START, tasks)
    place.answers(start, tasks / "validation.jsonl")
    model = f"model.path={place.folder / start / 'model'}"
    settings = (model, *RL, *SMALL, *ARMS[name])
    place.trained(folder_of(name), "grpo", tasks / "train_rl.jsonl", settings)
    place.answers(folder_of(name), tasks / "validation.jsonl")


def answered(out: Path, seed: int, folder: str) -> list[Row]:
    """Rows of a finished evaluation, keyed by seed too; [] where there is none."""
    target = out / f"seed{seed}" / f"{folder}.eval"
    if not (target / "results.json").is_file():
        return []
    return [{**r, "source": f"{seed} {r['source']}"} for r in rows_of(target / "rows.jsonl")]


def table(out: Path) -> None:
    """Every finished arm by seed and pooled; then differences to the start and to `exact`."""
    seeds = seeds_of(out)
    folders = {"SFT": f"sft_short_{START.examples}", **{n: folder_of(n) for n in ARMS}}
    data = {
        (s, n): rows for s in seeds for n, f in folders.items() if (rows := answered(out, s, f))
    }
    print("| arm | seed | RS | balanced | KEEP with filter | KEEP without | DROP | processor min |")
    print("|---|---|---|---|---|---|---|---|")
    for name, folder in folders.items():
        mine = [s for s in seeds if (s, name) in data]
        for seed in mine:
            minutes = spent(out / f"seed{seed}" / f"{folder}.spent.json") / 60
            print(f"| {name} | {seed} | {cells(data[seed, name])} | {minutes:.1f} |")
        if len(mine) > 1:
            print(f"| {name} | all | {cells([r for s in mine for r in data[s, name]])} | |")
    print("\n| arm | seeds | arm − SFT, balanced RS | arm − exact |\n|---|---|---|---|")
    for name in ARMS:
        gains = (gain(data, seeds, base, name) for base in ("SFT", "exact"))
        mine = " ".join(str(s) for s in seeds if (s, name) in data)
        if mine:
            print(f"| {name} | {mine} | {' | '.join(gains)} |")


def cells(rows: Sequence[Row]) -> str:
    return " | ".join(f"{value:.3f}" for value in kinds(rows).values())


def gain(data: dict[tuple[int, str], list[Row]], seeds: Sequence[int], base: str, name: str) -> str:
    """The pooled difference over the seeds that have both, documents resampled."""
    both = [s for s in seeds if (s, base) in data and (s, name) in data]
    if name == base or not both:
        return "–"
    pooled = {n: [r for s in both for r in data[s, n]] for n in (base, name)}
    (before, labels), (after, _) = of(pooled[base]), of(pooled[name])
    sources = [r["source"] for r in pooled[name]]
    return change(balanced_difference(before, after, labels, sources=sources))


def main(argv: Sequence[str] | None = None) -> int:
    parser = options(__doc__, list(ARMS), splits=())
    parser.add_argument("--threads", type=int, default=1, help="of the engine (%(default)s)")
    args = parser.parse_args(argv)
    if not args.table:
        for seed in args.seeds:
            place = Place(args.out, seed, args.threads, args.model, tuple(args.settings))
            for name in args.arms:
                run_arm(place, name)
    table(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
