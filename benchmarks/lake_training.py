"""Do gold scripts, and then rewards, teach a small model to answer questions over a lake?

    python -m benchmarks.lake_training --out runs/lakes --seeds 0              # all arms, resumable
    python -m benchmarks.lake_training --out runs/lakes --seeds 0 1 2 --arms sft rl rl_credit
    python -m benchmarks.lake_training --out runs/lakes --table                # of the validation
    python -m benchmarks.lake_training --out runs/lakes --seeds 0 --split heldout

Tasks are short: `assay tasks lake --carried --short`, one plain table, one or two steps after it is
loaded, answered by one script that prints the result of every step. Training, validation and
held-out tasks are over other tables. All seeds share the tasks.

`untouched` is the model as it comes. `sft` learns the gold scripts of some training tasks, as an
agent that knows them ran them in the sandbox. `rl` and `rl_credit` go on from `sft` with Dr.GRPO on
the other training tasks: `rl` pays the answer alone, `rl_credit` also the share of gold sub-answers
that the script printed. `all_gold` is the control: SFT on the examples of `sft` and on the gold of
every task that `rl` and `rl_credit` asked, for the processor time of `sft` and `rl` together.
`sft_more` takes as long with the examples of `sft` alone: what more passes do by themselves.
`gold_rl` goes on from `all_gold` as `rl` does from `sft`. Its control is `gold_more`: SFT as
`all_gold`, for the processor time of `all_gold` and `gold_rl` together.

`--split heldout_obscured` asks the twins of the held-out tasks, over tables with other names and
numbers; the table then pairs each with its plain task. Choose on the validation split, and answer
held-out tasks once. Every stage leaves a finished folder and is skipped when it is there; a stage
that was stopped goes on. One thread.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.seeds import derive_seed
from benchmarks.stages import (
    Place,
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
from train.model.source import resolve_model

TASKS = ("--carried", "--short", "--obscured", "--count", "400")
SHARES = ("--heldout-share", "0.2", "--validation-share", "0.15")
EXAMPLES = 128  # training tasks of SFT; RL asks the others
ROOM = 130  # tokens of an answer
ENGINE = ("validation=null", "engine.threads=1", "engine.micro_tokens=2048")
SFT = (*ENGINE, "sft.epochs=1", "sft.batch_size=4", "sft.lr=2e-4", "sft.max_length=480")
RL = (
    *ENGINE,
    "rl.steps=8",
    "rl.prompts_per_step=8",
    "rl.mini_batch=8",
    "rl.rollouts_per_prompt=6",
    "rl.lr=5e-5",
    "rl.schedule=cosine",
    "rl.warmup=1",
    "rl.turns=1",
    "tools.run_s=30",
    f"rl.max_new_tokens={ROOM}",
    "rl.max_length=480",
    "rl.save_every=4",
)
START = "sft"
ARMS: dict[str, tuple[str, ...]] = {  # what RL pays beside the answer
    "rl": ("reward.answer.subtasks=0",),
    "rl_credit": ("reward.answer.subtasks=0.5",),
}
CONTROL, PASSES = "all_gold", "sft_more"
AFTER, LONGER = "gold_rl", "gold_more"
NAMES = ("untouched", START, *ARMS, PASSES, CONTROL, AFTER, LONGER)
SPLITS = ("validation", "heldout", "validation_obscured", "heldout_obscured")
TWIN = "_obscured"
PAIRS = (("sft", "rl"), ("sft", "rl_credit"), ("rl", "rl_credit"), ("sft", "all_gold"))
CONTROLLED = (("all_gold", "rl"), ("all_gold", "rl_credit"), ("all_gold", "gold_rl"))
LAST = (("all_gold", "gold_more"), ("gold_more", "gold_rl"))
REPEATED = (("sft", "sft_more"), ("sft_more", "rl"), ("sft_more", "all_gold"))


def tasks_of(place: Place) -> Path:
    return place.tasks("lake", "--seed", "0", *TASKS, *SHARES)


def gold(place: Place, tasks: Path) -> Path:
    """The kept rollouts of the agent that knows the gold script of every task."""
    rollouts, kept = tasks.with_suffix(".rollouts.jsonl"), tasks.with_suffix(".parquet")
    if not kept.is_file():
        agent = ("--solver", "reference", "--model", place.model, "sampling.n=1", "tools.turns=1")
        assay("rollout", "--tasks", tasks, *agent, "tools.run_s=30", "--out", rollouts)
        assay("select", "--rollouts", rollouts, "--strategy", "fv", "--out", kept)
    return kept


def answer(place: Place, name: str, split: str) -> None:
    """Greedy answers to the tasks of a split. The untouched model answers for all seeds."""
    target = answers(place.out, place.seed, name, split)
    if not (target / "results.json").is_file():
        words = ("--tasks", f"krama:{tasks_of(place) / split}.jsonl", "krama.agent=lake-script")
        room = (
            f"sampling.max_new_tokens={ROOM}",
            "tools.run_s=30",
            "engine.threads=1",
            "--no-baselines",
        )
        assay("eval", "--model", place.trained(name), *words, *room, "--out", target)


def answers(out: Path, seed: int, name: str, split: str) -> Path:
    """The folder of an arm's answers to a split."""
    return (out if name == "untouched" else out / f"seed{seed}") / f"{name}.{split}"


def halves(tasks: Path) -> tuple[Path, Path]:
    """The training tasks of SFT and those of RL: kinds of questions are mixed in both."""
    lines = (tasks / "train.jsonl").read_text(encoding="utf-8").splitlines()
    lines.sort(key=lambda line: derive_seed("lake-training", json.loads(line)["id"]))
    first = part(tasks / "train.jsonl", "train_sft.jsonl", 0, lines[:EXAMPLES])
    return first, part(tasks / "train.jsonl", "train_rl.jsonl", 0, lines[EXAMPLES:])


def train_arm(place: Place, name: str) -> None:
    """Train an arm and, before it, its start."""
    if name == "untouched":
        return
    first, rest = halves(tasks_of(place))
    if name == START:
        place.train(name, "sft", gold(place, first), place.model, SFT)
        return
    before = {CONTROL: START, AFTER: CONTROL, LONGER: AFTER}.get(name, START)
    train_arm(place, before)
    if name in (PASSES, CONTROL, LONGER):
        train_control(place, first, name)
        return
    place.train(name, "grpo", rest, place.trained(before), (*RL, *ARMS.get(name, ARMS["rl"])))


def train_control(place: Place, first: Path, control: str) -> None:
    """SFT on the examples of `sft`, and on the gold of every task that RL asked where the control
    has that."""
    arms = () if control == PASSES else tuple(ARMS)
    for name in arms or ("rl",):
        train_arm(place, name)
    files = [f for name in arms for f in (place.folder / name / "rollouts").glob("*.jsonl")]
    names = {str(row["task_id"]) for file in files for row in rows_of(file)}
    lines = (first.parent / "train_rl.jsonl").read_text(encoding="utf-8").splitlines()
    asked = [line for line in lines if json.loads(line)["id"] in names]
    took = {n: spent(place.folder / f"{n}.spent.json") for n in (START, "rl", CONTROL, AFTER)}
    pair = (CONTROL, AFTER) if control == LONGER else (START, "rl")
    epoch = took[START] / EXAMPLES * (EXAMPLES + len(asked))
    place = lasting(place, sum(took[n] for n in pair) / epoch)
    if asked:
        first = part(first, f"all_gold_{place.seed}.jsonl", EXAMPLES, asked)  # beside the lakes
    place.train(control, "sft", gold(place, first), place.model, SFT)


@dataclass(frozen=True)
class Answer:
    """One answer. `table` is what intervals are clustered by; `plain` the task of a twin, or the
    task itself."""

    plain: str
    table: str
    answer_type: str
    outcome: float
    credit: float
    why: str  # the category of the failure
    tokens: int

    @property
    def exact(self) -> float:
        return float(self.outcome == 1.0)


def answers_of(out: Path, seed: int, name: str, split: str) -> list[Answer]:
    """An arm's answers to a split, in the order of its tasks; [] where it has none yet."""
    target = answers(out, seed, name, split)
    if not (target / "results.json").is_file():
        return []
    rows = {row["task_id"]: row for row in rows_of(target / "rows.jsonl")}
    plain = rows_of(out / "tasks" / f"{split.removesuffix(TWIN)}.jsonl")
    table = {task["id"]: str(task["meta"]["tables"][0]) for task in plain}
    found: list[Answer] = []
    for task in rows_of(out / "tasks" / f"{split}.jsonl"):
        row, of = rows[task["id"]], task["meta"].get("plain", task["id"])
        credit = (row.get("parts") or {}).get("subtask_credit", 0.0)
        found.append(
            Answer(
                of,
                table[of],
                task["gold"]["answer_type"],
                float(row["outcome"] or 0.0),
                float(credit),
                str(row["more"]["category"]),
                int(row["tokens_out"]),
            )
        )
    return found


def cells(found: Sequence[Answer]) -> Iterator[str]:
    """Outcome with its interval, exact answers, by type, credit, recalled, tokens."""
    yield level(mean_interval([a.outcome for a in found], [a.table for a in found]))
    yield f"{sum(a.exact for a in found):.0f} of {len(found)}"
    for kind in ("numeric_exact", "string_exact", "list_exact"):
        yield f"{statistics.fmean([a.outcome for a in found if a.answer_type == kind] or [0]):.2f}"
    yield f"{statistics.fmean(a.credit for a in found):.2f}"
    yield f"{sum(a.why in ('code_fails', 'contract_broken', 'no_reply') for a in found)}"
    yield f"{statistics.fmean(a.tokens for a in found):.0f}"


def table(out: Path, split: str) -> None:
    """Every finished arm, by seed and pooled; then differences, paired by task; of twins also the
    differences from their plain tasks."""
    seeds = seeds_of(out)
    data = {(s, n): found for s in seeds for n in NAMES if (found := answers_of(out, s, n, split))}
    head = "| arm | seed | outcome, 95 % over tables | exact | number | name | list | sub-answers |"
    print(f"{head} did not run | tokens | processor min |\n|{'---|' * 11}")
    for name in NAMES:
        mine = [s for s in seeds if (s, name) in data]
        for seed in mine[:1] if name == "untouched" else mine:
            took = spent(out / f"seed{seed}" / f"{name}.spent.json") / 60
            print(f"| {name} | {seed} | {' | '.join(cells(data[seed, name]))} | {took:.1f} |")
        if len(mine) > 1 and name != "untouched":
            pooled = [a for s in mine for a in data[s, name]]
            print(f"| {name} | all | {' | '.join(cells(pooled))} | |")
    print("\n| difference | seeds | outcome | exact | sub-answers |\n|---|---|---|---|---|")
    for base, name in (*PAIRS, *REPEATED, *CONTROLLED, *LAST):
        both = [s for s in seeds if (s, base) in data and (s, name) in data]
        pairs = [p for s in both for p in zip(data[s, base], data[s, name], strict=True)]
        difference(f"{base} → {name}", both, pairs)
        for seed in both if len(both) > 1 else ():
            one = list(zip(data[seed, base], data[seed, name], strict=True))
            difference(f"{base} → {name}", [seed], one)
    if split.endswith(TWIN):
        twins(out, seeds, split)


def twins(out: Path, seeds: Sequence[int], split: str) -> None:
    """Answers to twins beside those to their plain tasks."""
    print("\n| plain → twin | seeds | outcome | exact | sub-answers |\n|---|---|---|---|---|")
    for name in NAMES:
        pairs: list[tuple[Answer, Answer]] = []
        both: list[int] = []
        for seed in seeds:
            plain = {a.plain: a for a in answers_of(out, seed, name, split.removesuffix(TWIN))}
            twin = answers_of(out, seed, name, split)
            if plain and twin and not (both and name == "untouched"):
                both.append(seed)
                pairs += [(plain[a.plain], a) for a in twin]
        difference(name, both, pairs)
        if pairs:
            recalled = sum(twin.why == "recalled" for _, twin in pairs)
            print(f"| {name}: plain answers given to twins | | {recalled} of {len(pairs)} | | |")


def difference(label: str, seeds: Sequence[int], pairs: Sequence[tuple[Answer, Answer]]) -> None:
    """A row: second minus first, with intervals over tables."""
    if not pairs:
        return
    tables = [a.table for a, _ in pairs]
    row: list[str] = []
    for what in ("outcome", "exact", "credit"):
        before, after = ([float(getattr(p[i], what)) for p in pairs] for i in (0, 1))
        row.append(change(paired_difference(before, after, sources=tables)))
    print(f"| {label} | {' '.join(map(str, seeds))} | {' | '.join(row)} |")


def main(argv: Sequence[str] | None = None) -> int:
    parser = options(__doc__, NAMES, splits=SPLITS)
    args = parser.parse_args(argv)
    if not args.table:
        model = str(resolve_model(args.model))
        for seed in args.seeds:
            place = Place(args.out, seed, model, tuple(args.settings))
            for name in args.arms:
                train_arm(place, name)
                answer(place, name, args.split)
    table(args.out, args.split)
    return 0


if __name__ == "__main__":
    sys.exit(main())
