"""What do SFT and Dr.GRPO teach a small model on CDR-Bench's five tracks, at true length?

    assay tasks cdr --config configs/cdr_train.yaml --corpus PATH --out TASKS
    python -m benchmarks.tracks --tasks TASKS --out runs/tracks --seeds 0             # resumable
    python -m benchmarks.tracks --tasks TASKS --out runs/tracks --seeds 0 --split heldout
    python -m benchmarks.tracks --tasks TASKS --out runs/tracks --table --split heldout

A seed draws its own tasks from the splits of TASKS: inputs of at most `--max-chars` characters,
equally many of every track, order groups whole. `sft` imitates the gold of `--examples` tasks of a
track. `rl` goes on from there with Dr.GRPO on other tasks of the training split. `all_gold` is the
control: SFT from the untouched model on the same tasks, on the gold of every task that `rl` asked,
and on as much gold of the other tasks that `rl` could have asked as the processor time of `sft` and
`rl` together allows. `copy` gives the input back and says KEEP, which is also the best policy that
never drops; `drop` gives it back and says DROP.

Every row is asked in its three prompt variants, greedy, as the benchmark does. Nothing here chooses
a setting. Every stage leaves a finished folder and is skipped when it is there. One thread.

On a GPU give `engine.micro_tokens=32768` and other settings of its size, and `--slots` rows that an
evaluation decodes side by side.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.task import write_jsonl
from benchmarks.stages import Stages, assay, change, level, options, part, rows_of, seeds_of, spent
from train.evaluation.stats import mean_interval, paired_difference
from train.model.source import resolve_model

Row = dict[str, Any]
TRACKS = ("atomic_m", "atomic_f", "agnostic_m", "order_m", "order_f")
POOL = 96  # tasks of a track that RL may ask
SHARED = ("validation=null", "engine.threads=1", "engine.micro_tokens=1536")
SFT = ("sft.epochs=1", "sft.batch_size=4", "sft.max_length=1400", "sft.save_every=15")
RL = (
    "rl.steps=8",
    "rl.prompts_per_step=5",
    "rl.mini_batch=5",
    "rl.rollouts_per_prompt=8",
    "rl.balance=track",
    "rl.lr=5e-5",
    "rl.schedule=cosine",
    "rl.warmup=1",
    "rl.temperature=0.7",
    "rl.max_new_tokens=640",
    "rl.max_length=1600",
    "rl.save_every=2",
    "reward.refinement.wrong_drop=0.3",
)
CHEATS = {"copy": "cheat:copy", "drop": "cheat:drop"}
TRAINED = ("sft", "rl", "all_gold")
ARMS = (*CHEATS, "untouched", *TRAINED)


def drawn(tasks: Iterable[Row], count: int, seed: int, taken: frozenset[str]) -> list[Row]:
    """At least `count` tasks of every track, by hash of seed and group; order groups whole, and
    none of the groups in `taken`. Tracks take turns, so that every batch has several."""
    groups: dict[str, dict[str, list[Row]]] = {track: {} for track in TRACKS}
    for task in tasks:
        groups[task["track"]].setdefault(task["group"] or task["id"], []).append(task)
    columns: list[list[Row]] = []
    for found in groups.values():
        names = sorted((n for n in found if n not in taken), key=lambda n: _hash(seed, n))
        column: list[Row] = []
        for name in names:
            if len(column) < count:
                column += found[name]
        columns.append(column)
    longest = max(map(len, columns))
    return [column[i] for i in range(longest) for column in columns if i < len(column)]


def _hash(seed: int, name: str) -> str:
    return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()


@dataclass(frozen=True)
class Draw:
    """The tasks of one seed. `tasks` is what `assay tasks cdr` wrote."""

    tasks: Path
    folder: Path
    seed: int
    max_chars: int
    examples: int
    rows: int  # of a track in an evaluation

    def short(self, split: str) -> Iterator[Row]:
        for task in rows_of(self.tasks / f"{split}.jsonl"):
            if len(task["gold"]["input_text"]) <= self.max_chars:
                yield task

    def training(self) -> tuple[Path, Path]:
        """Files of the SFT examples and of the tasks that RL may ask."""
        sft, rl = self.folder / "train_sft.jsonl", self.folder / "train_rl.jsonl"
        if not rl.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            every = list(self.short("train"))
            examples = drawn(every, self.examples, self.seed, frozenset())
            taken = frozenset(str(task["group"] or task["id"]) for task in examples)
            write_jsonl(sft, examples)
            write_jsonl(rl, drawn(every, POOL, self.seed, taken))
        return sft, rl

    def asked(self, split: str) -> Path:
        """A folder as `cdr:DIR` wants it: the benchmark's rows that an evaluation asks."""
        folder = self.folder / f"asked_{split}"
        if not (folder / "heldout.jsonl").is_file():
            tasks = drawn(self.short(split), self.rows, self.seed, frozenset())
            names = {task["id"] for task in tasks}
            for track in TRACKS:
                rows = rows_of(self.tasks / "tracks" / f"{track}.jsonl")
                target = folder / "tracks" / f"{track}.jsonl"
                target.parent.mkdir(parents=True, exist_ok=True)
                write_jsonl(target, (row for row in rows if row["instance_id"] in names))
            write_jsonl(folder / "heldout.jsonl", tasks)
        return folder


def run_arm(stages: Stages, draw: Draw, name: str, split: str, untouched: Path, slots: int) -> None:
    """Train an arm, with what it needs, and answer the tasks of a split."""
    sft, rl = draw.training()
    if name in TRAINED:
        stages.train("sft", "sft", sft, (*SHARED, *SFT, f"model.path={untouched}"))
    if name in TRAINED[1:]:
        start = f"model.path={draw.folder / 'sft' / 'model'}"
        stages.train("rl", "grpo", rl, (*SHARED, *RL, start))
    if name == "all_gold":
        data = control(draw, sft, rl)
        stages.train(name, "sft", data, (*SHARED, *SFT, f"model.path={untouched}"))
    trained = draw.folder / name / "model" if name in TRAINED else untouched
    model = CHEATS.get(name, trained)
    target = draw.folder / f"{name}.{split}"
    if not (target / "results.json").is_file():
        words = ("--tasks", f"cdr:{draw.asked(split)}", "--out", target, "--no-baselines")
        side = (f"engine.slots={max(64, slots)}",)
        assay(
            "eval",
            "--model",
            model,
            *words,
            *side,
            "engine.threads=1",
            "sampling.max_new_tokens=900",
        )


def control(draw: Draw, sft: Path, rl: Path) -> Path:
    """The examples of `all_gold`: those of `sft`, then every task that `rl` asked, then others of
    the same file, until `sft` and `rl` have taken as long."""
    first, second = (spent(draw.folder / f"{name}.spent.json") for name in ("sft", "rl"))
    examples = sum(1 for _ in rows_of(sft))
    more = max(0, round(examples * second / first))
    files = sorted((draw.folder / "rl" / "rollouts").glob("*.jsonl"))
    names = {str(row["task_id"]) for file in files for row in rows_of(file)}
    lines = rl.read_text(encoding="utf-8").splitlines()
    lines.sort(key=lambda line: json.loads(line)["id"] not in names)  # stable: asked first
    return part(sft, "all_gold.jsonl", examples, lines[: max(more, len(names))])


@dataclass(frozen=True)
class Instance:
    """One row of the benchmark as a model answered its prompt variants."""

    track: str
    document: str
    group: str | None
    meta: Mapping[str, Any]
    right: tuple[float, ...]  # RS of each variant
    gains: tuple[float, ...]  # RG of each variant that has one

    @property
    def rs_at_k(self) -> float:
        return max(self.right)


def instances_of(folder: Path, name: str, split: str, seed: int) -> dict[str, Instance]:
    """By instance id; {} where the arm has no answers yet."""
    target = folder / f"{name}.{split}"
    if not (target / "results.json").is_file():
        return {}
    meta = {t["id"]: t for t in rows_of(folder / f"asked_{split}" / "heldout.jsonl")}
    answers: dict[str, list[Row]] = {}
    for row in rows_of(target / "rows.jsonl"):
        answers.setdefault(str(row["task_id"]).partition("#")[0], []).append(row)
    found: dict[str, Instance] = {}
    for key, rows in answers.items():
        task = meta[key]
        gains = (row["parts"].get("rg") for row in rows)
        group = None if task["group"] is None else f"{seed} {task['group']}"
        found[f"{seed} {key}"] = Instance(
            task["track"],
            f"{seed} {task['meta']['document']}",
            group,
            task["meta"],
            tuple(float(row["outcome"] or 0.0) for row in rows),
            tuple(float(g) for g in gains if g is not None),
        )
    return found


def ocs(instances: Iterable[Instance]) -> dict[str, float]:
    """OCS@K of every order group: 1 where each of its rows is right in one of K variants."""
    groups: dict[str, list[float]] = {}
    for one in instances:
        if one.group is not None:
            groups.setdefault(one.group, []).append(one.rs_at_k)
    return {name: min(values) for name, values in groups.items()}


def table(out: Path, split: str) -> None:
    """Every finished arm by track, all seeds pooled; then differences and slices."""
    seeds = seeds_of(out)
    data: dict[str, dict[str, Instance]] = {}
    for name in ARMS:
        parts = [instances_of(out / f"seed{s}", name, split, s) for s in seeds]
        if any(parts):
            data[name] = {key: one for found in parts for key, one in found.items()}
    print("| arm | track | seeds | RS | RS@3 | RG | OCS@3 |\n|---|---|---|---|---|---|---|")
    for name, found in data.items():
        for track in (*TRACKS, "mean of tracks"):
            mine = [one for one in found.values() if track in (one.track, "mean of tracks")]
            used = " ".join(dict.fromkeys(one.document.split()[0] for one in mine))
            print(f"| {name} | {track} | {used} | {' | '.join(cells(mine))} |")
    print("\n| arm | seed | processor min |\n|---|---|---|")
    for name in TRAINED:
        for seed in seeds:
            minutes = spent(out / f"seed{seed}" / f"{name}.spent.json") / 60
            print(f"| {name} | {seed} | {minutes:.1f} |")
    differences(data)
    sliced(data)


def cells(mine: Sequence[Instance]) -> Iterator[str]:
    """RS and RS@K with intervals over documents, RG, OCS@K with its interval over groups. Every
    track has as many instances, so the mean over instances is that of the tracks."""
    documents = [one.document for one in mine]
    for values in ([statistics.fmean(one.right) for one in mine], [one.rs_at_k for one in mine]):
        yield level(mean_interval(values, documents))
    gains = [statistics.fmean(one.gains) for one in mine if one.gains]
    yield f"{statistics.fmean(gains):.3f}" if gains else "–"
    groups = ocs(mine)
    if groups:
        yield level(mean_interval(list(groups.values()), list(groups)))
    else:
        yield "–"


def differences(data: Mapping[str, Mapping[str, Instance]]) -> None:
    """RS of one arm minus RS of another, over the instances that both answered."""
    print("\n| difference of RS | instances | value |\n|---|---|---|")
    for base, name in (("sft", "rl"), ("all_gold", "rl"), ("sft", "all_gold"), ("copy", "sft")):
        before, after = data.get(base, {}), data.get(name, {})
        keys = [key for key in after if key in before]
        if keys:
            values = [[statistics.fmean(d[k].right) for k in keys] for d in (before, after)]
            documents = [after[k].document for k in keys]
            found = paired_difference(values[0], values[1], sources=documents)
            print(f"| {base} → {name} | {len(keys)} | {change(found)} |")


def sliced(data: Mapping[str, Mapping[str, Instance]]) -> None:
    """RS by what a task is."""
    names = ("length_bucket", "recipe_length", "order_slot", "domain", "difficulty", "style")
    print(
        f"\n| slice | value | instances | {' | '.join(data)} |\n|---|---|---|{'---|' * len(data)}"
    )
    for what in names:
        values = {str(one.meta[what]) for found in data.values() for one in found.values()}
        for value in sorted(values - {"None"}):
            row: list[str] = []
            count = 0
            for found in data.values():
                mine = [one for one in found.values() if str(one.meta[what]) == value]
                count = max(count, len(mine))
                rights = [statistics.fmean(one.right) for one in mine]
                row.append(f"{statistics.fmean(rights):.3f}" if rights else "–")
            print(f"| {what} | {value} | {count} | {' | '.join(row)} |")


def main(argv: Sequence[str] | None = None) -> int:
    parser = options(__doc__, ARMS)
    parser.add_argument("--tasks", type=Path, required=True, help="what `assay tasks cdr` wrote")
    parser.add_argument("--max-chars", type=int, default=2000, help="of an input (%(default)s)")
    text = "tasks of a track whose gold `sft` imitates (%(default)s)"
    parser.add_argument("--examples", type=int, default=48, help=text)
    parser.add_argument("--rows", type=int, default=12, help="of a track to evaluate (%(default)s)")
    parser.add_argument("--slots", type=int, default=64, help="of evaluations (%(default)s)")
    args = parser.parse_args(argv)
    if not args.table:
        untouched = resolve_model(args.model)
        for seed in args.seeds:
            folder = args.out / f"seed{seed}"
            stages = Stages(folder, seed, tuple(args.settings))
            draw = Draw(
                args.tasks.resolve(), folder, seed, args.max_chars, args.examples, args.rows
            )
            for name in args.arms:
                run_arm(stages, draw, name, args.split, untouched, args.slots)
    table(args.out, args.split)
    return 0


if __name__ == "__main__":
    sys.exit(main())
