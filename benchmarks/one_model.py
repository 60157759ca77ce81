"""Can one small model do several kinds of tasks as well as a specialist of each, and what is lost
when it learns one after the other?

    python -m benchmarks.one_model --out runs/one --seeds 0                  # all arms, resumable
    python -m benchmarks.one_model --out runs/one --seeds 0 --split heldout
    python -m benchmarks.one_model --out runs/one --table --split heldout

Three kinds that need no tools: `refine` (the demo's short refinement tasks), `order` (order groups,
answers with states) and `sql` (short text-to-SQL questions). Arms are SFT on gold:

- `refine`, `order`, `sql`: a specialist each, 160 examples;
- `mix`: all of these, in turns; `mix_third`: a third of each, so that it costs as one specialist;
- `refine_then_sql`: the specialist for `refine` goes on with the examples of `sql`;
  `replay` does the same with a tenth of the examples of `refine` among them;
- `mix_rl`: Dr.GRPO from `mix` on other tasks of the three kinds, in turns.

Every model answers the same tasks of all three kinds, greedily. The untouched model has next to
none right, so what is forgotten can be seen only of what was learned before (`refine_then_sql`).
Every stage leaves a finished folder and is skipped when it is there. One thread.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.task import write_jsonl
from benchmarks import demo_search, order
from benchmarks.stages import Place, Stages, assay, change, level, options, rows_of, spent
from train.evaluation.stats import mean_interval, paired_difference
from train.model.source import resolve_model

Row = dict[str, Any]
KINDS = ("refine", "order", "sql")
EXAMPLES, POOL, ASKED, REPLAYED = 160, 40, 60, 16
SHARED = ("validation=null", "engine.threads=1", "engine.micro_tokens=2048")
SFT = (
    "sft.epochs=1",
    "sft.batch_size=4",
    "sft.lr=1.5e-4",
    "sft.max_length=512",
    "sft.save_every=30",
)
RL = (
    "rl.steps=12",
    "rl.prompts_per_step=9",
    "rl.mini_batch=9",
    "rl.rollouts_per_prompt=6",
    "rl.lr=5e-5",
    "rl.schedule=cosine",
    "rl.warmup=1",
    "rl.temperature=0.7",
    "rl.max_new_tokens=144",
    "rl.max_length=512",
    "rl.save_every=3",
    "reward.refinement.wrong_drop=0.3",
)
# an arm of SFT: how many examples of each kind, and the arm it goes on from
TAUGHT: dict[str, tuple[Mapping[str, int], str | None]] = {
    **{kind: ({kind: EXAMPLES}, None) for kind in KINDS},
    "mix": (dict.fromkeys(KINDS, EXAMPLES), None),
    "mix_third": (dict.fromkeys(KINDS, EXAMPLES // len(KINDS)), None),
    "refine_then_sql": ({"sql": EXAMPLES}, "refine"),
    "replay": ({"sql": EXAMPLES, "refine": REPLAYED}, "refine"),
}
ARMS = ("untouched", *TAUGHT, "mix_rl")


def build(folder: Path, kind: str, seed: int) -> None:
    """The tasks of a kind, built once. Those of `sql` take long and are the same for all seeds."""
    target = tasks_of(folder, kind)
    if not (target / "certificate.json").is_file():
        words = ("--out", target, "--seed", seed)
        if kind == "refine":
            assay("tasks", "demo", *words, *demo_search.SHORT, *demo_search.SPLITS)
        elif kind == "order":
            assay("tasks", "order", *words, *order.TASKS, order.FORMS["states"])
        else:
            shares = ("--heldout-share", 0.25, "--validation-share", 0.15)
            words = ("--out", target, "--seed", 0)
            assay("tasks", "sql", "--carried", "--short", "--count", 420, *shares, *words)


def tasks_of(folder: Path, kind: str) -> Path:
    """The folder of a kind's tasks; `folder` is that of a seed."""
    return (folder.parent if kind == "sql" else folder) / f"tasks_{kind}"


def training(folder: Path, kind: str) -> tuple[list[Row], list[Row]]:
    """Tasks of a kind for SFT, and others for RL."""
    tasks = tasks_of(folder, kind)
    if kind != "sql":
        parts = (rows_of(tasks / f"train_{stage}.jsonl") for stage in ("sft", "rl"))
        sft, rl = parts
        return sft[:EXAMPLES], rl[:POOL]
    every = rows_of(tasks / "train.jsonl")
    return every[:EXAMPLES], every[EXAMPLES : EXAMPLES + POOL]


def in_turns(columns: Sequence[Sequence[Row]]) -> list[Row]:
    """All rows; kinds alternate in proportion to their numbers, in their own order."""
    placed = [
        ((place + 0.5) / len(column), number, row)
        for number, column in enumerate(columns)
        for place, row in enumerate(column)
    ]
    return [row for _, _, row in sorted(placed, key=lambda one: one[:2])]


def data_of(folder: Path, name: str) -> Path:
    """The task file of an arm."""
    target = folder / f"{name}.jsonl"
    if name == "mix_rl":
        write_jsonl(target, in_turns([training(folder, kind)[1] for kind in KINDS]))
    else:
        counts, _ = TAUGHT[name]
        write_jsonl(target, in_turns([training(folder, k)[0][:n] for k, n in counts.items()]))
    return target


def train_arm(stages: Stages, name: str, untouched: Path) -> Path:
    """The model of an arm, trained with what it starts from."""
    if name == "untouched":
        return untouched
    before = "mix" if name == "mix_rl" else TAUGHT[name][1]
    start = untouched if before is None else train_arm(stages, before, untouched)
    command, settings = ("grpo", RL) if name == "mix_rl" else ("sft", SFT)
    words = (*SHARED, *settings, f"model.path={start}")
    stages.train(name, command, data_of(stages.folder, name), words)
    return stages.folder / name / "model"


def asked(folder: Path, split: str) -> Path:
    """The tasks that every model answers: as many of each kind, with the kind in `meta`."""
    target = folder / f"asked_{split}.jsonl"
    if not target.is_file():
        rows = [
            row for k in KINDS for row in rows_of(tasks_of(folder, k) / f"{split}.jsonl")[:ASKED]
        ]
        write_jsonl(target, rows)
    return target


def kinds_of(folder: Path, split: str) -> dict[str, str]:
    """Task id to kind."""
    return {
        row["id"]: kind
        for kind in KINDS
        for row in rows_of(tasks_of(folder, kind) / f"{split}.jsonl")[:ASKED]
    }


def run_seed(place: Place, names: Sequence[str], split: str) -> None:
    folder, untouched = place.folder, Path(place.model)
    for kind in KINDS:
        build(folder, kind, place.seed)
    stages = Stages(folder, place.seed, place.extra)
    for name in names:
        model, target = train_arm(stages, name, untouched), folder / f"{name}.{split}"
        if not (target / "results.json").is_file():
            words = ("--tasks", asked(folder, split), "--out", target, "--no-baselines")
            room = ("sampling.max_new_tokens=144", "engine.threads=1")
            assay("eval", "--model", model, *words, *room)


def answers(out: Path, name: str, split: str) -> dict[str, dict[str, tuple[float, str]]]:
    """By kind: task (with its seed) to outcome and source; {} where nothing is finished."""
    found: dict[str, dict[str, tuple[float, str]]] = {}
    for folder in sorted(out.glob("seed*")):
        target = folder / f"{name}.{split}"
        if (target / "results.json").is_file():
            kinds = kinds_of(folder, split)
            for row in rows_of(target / "rows.jsonl"):
                key, mark = f"{folder.name} {row['task_id']}", f"{folder.name} {row['source']}"
                mine = found.setdefault(kinds[row["task_id"]], {})
                mine[key] = (float(row["outcome"] or 0.0), mark)
    return found


def table(out: Path, split: str) -> None:
    """Outcome by arm and kind over all seeds; then differences to the specialist of each kind."""
    data = {name: found for name in ARMS if (found := answers(out, name, split))}
    heads = " | ".join(KINDS)
    print(f"| arm | seeds | {heads} | mean | processor min a seed |\n|{'---|' * (len(KINDS) + 4)}")
    for name, found in data.items():
        seeds = {key.split()[0] for kind in found.values() for key in kind}
        cells: list[str] = []
        for kind in KINDS:
            values = [value for value, _ in found[kind].values()]
            one = mean_interval(values, [source for _, source in found[kind].values()])
            cells.append(level(one))
        mean = statistics.fmean(statistics.fmean(v for v, _ in found[k].values()) for k in KINDS)
        took = [spent(out / seed / f"{name}.spent.json") / 60 for seed in seeds]
        minutes = "" if name == "untouched" else f"{statistics.fmean(took):.1f}"
        print(f"| {name} | {len(seeds)} | {' | '.join(cells)} | {mean:.3f} | {minutes} |")
    print(f"\n| difference | {heads} |\n|{'---|' * (len(KINDS) + 1)}")
    pairs = [("refine", "refine_then_sql"), ("refine_then_sql", "replay"), ("mix", "mix_rl")]
    for name in ("mix", "mix_third", "mix_rl"):
        differences(f"specialist → {name}", {kind: kind for kind in KINDS}, name, data)
    for base, name in pairs:
        differences(f"{base} → {name}", dict.fromkeys(KINDS, base), name, data)


def differences(title: str, bases: Mapping[str, str], name: str, data: Mapping[str, Any]) -> None:
    """A row: for each kind, the outcome of `name` minus that of the kind's base."""
    cells: list[str] = []
    for kind, base in bases.items():
        before, after = data.get(base, {}).get(kind, {}), data.get(name, {}).get(kind, {})
        keys = [key for key in after if key in before]
        if not keys:
            cells.append("–")
            continue
        sources = [after[key][1] for key in keys]
        old, new = ([side[key][0] for key in keys] for side in (before, after))
        found = paired_difference(old, new, sources=sources)
        cells.append(change(found))
    print(f"| {title} | {' | '.join(cells)} |")


def main(argv: Sequence[str] | None = None) -> int:
    parser = options(__doc__, ARMS)
    args = parser.parse_args(argv)
    if not args.table:
        for seed in args.seeds:
            place = Place(args.out, seed, str(resolve_model(args.model)), tuple(args.settings))
            run_seed(place, args.arms, args.split)
    table(args.out, args.split)
    return 0


if __name__ == "__main__":
    sys.exit(main())
