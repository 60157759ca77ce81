"""What do SFT and RL add over a default model's script on modelling and time-series tasks?

    python -m experiments.table_training --out runs/tables --seeds 0
    python -m experiments.table_training --out runs/tables --seeds 0 1 2 --arms sft fv av bv dv
    python -m experiments.table_training --out runs/tables --table                # of validation
    python -m experiments.table_training --out runs/tables --seeds 0 --split heldout

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
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.task import derive_seed, read_tasks, write_jsonl
from experiments import study
from experiments.study import Answer, Place, Row, Table, answers_of, rows_of

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
TASKS, SCRIPT, SFT, AGAIN, RL, EVEN = study.settings_of(
    "table_training", "tasks", "script", "sft", "again", "rl", "even"
)
AGENTS = {"default": "reference", "drawn": "drawn", "forest": "forest"}
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


def tasks_of(place: Place) -> Path:
    return place.tasks("dare", *TASKS)


def rollouts(place: Place, tasks: Path, target: Path, n: int, *words: str) -> Path:
    """Sampled rollouts of tasks, with token ids; what is there already is kept."""
    note = target.with_suffix(".spent.json")
    if not study.done(note):
        sampling = (f"sampling.n={n}", "--seed", place.seed, "engine.threads=1")
        words = ("--tasks", str(tasks), *words, *SCRIPT, "--out", str(target))
        study.assay("rollout", *words, *sampling, note=note)
    return target


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


def scripts(place: Place, agent: str, names: Sequence[str]) -> Path:
    """What a scripted agent does on every training task, once for all seeds; of these tasks, where
    it gave a usable file."""
    tasks, known = tasks_of(place), set(names)
    words = ("--model", place.model, "--solver", AGENTS[agent])
    every = rollouts(place, tasks / "train.jsonl", tasks / f"{agent}.jsonl", 1, *words)
    target = place.folder / f"{agent}.{len(known)}.jsonl"
    target.parent.mkdir(parents=True, exist_ok=True)
    study.part(every, target, 0, lambda row: row["task_id"] in known and row["reward"] >= 0.1)
    return target


def selected(files: Sequence[Path], strategy: str, target: Path, *more: str) -> Path:
    """`assay select` on rollouts."""
    words = ("--rollouts", *files, "--strategy", strategy, "--fastest-by", "cost")
    study.assay("select", *words, *more, "--out", target)
    return target


def usable(place: Place) -> list[Path]:
    """What each agent did on the training tasks."""
    return [scripts(place, agent, shuffled(place)) for agent in AGENTS]


def train_arm(place: Place, name: str) -> None:
    """Train an arm, with what it needs."""
    if name in AGENTS or study.done(place.folder / f"{name}.spent.json"):
        return
    folder, data = place.folder, place.folder / f"{name}.parquet"
    if name == "sft":  # the drawn scripts of the first tasks of a seed
        files = [scripts(place, "drawn", shuffled(place)[:EXAMPLES])]
        place.train(name, "sft", selected(files, "av", data, *ANY), place.model, SFT)
    elif name == "sft_all":
        selected(usable(place), "av", data, *ANY, "--deduplicate")
        place.train(name, "sft", data, place.model, (*SFT, "sft.epochs=1"))
    elif name in ("rl", "rl_even"):
        train_arm(place, "sft_all")
        settings = (*RL, *EVEN) if name == "rl_even" else RL
        start = place.trained("sft_all")
        place.train(name, "grpo", tasks_of(place) / "train.jsonl", start, settings)
    elif name == "all_gold":
        train_arm(place, "rl")
        selected(usable(place), "av", data, *ANY, "--per-task", "1")
        rows = [kept_rows(folder / f"{n}.parquet") for n in ("sft_all", "all_gold")]
        first, rl = place.spent("sft_all"), place.spent("rl")
        longer = place.lasting((first + rl) / (first * rows[1] / rows[0]))
        longer.train(name, "sft", data, place.model, SFT)
    else:
        start = "sft" if name in STRATEGIES else "sft_all"
        choose_rows(place, start)
        place.train(name, "sft", data, place.trained(start), AGAIN)


def choose_rows(place: Place, start: str) -> None:
    """Training sets of the four strategies from the same rollouts of `start`, cut to equal rows.
    `START.kept.json` has the rows that each strategy keeps before the cut."""
    note = place.folder / f"{start}.kept.json"
    if note.is_file():
        return
    train_arm(place, start)
    weak, tasks = start == "sft", read_tasks(tasks_of(place) / "train.jsonl")
    names = set(shuffled(place)[EXAMPLES:][:ASKED]) if weak else {task.id for task in tasks}
    asked = tasks_of(place) / f"asked.{start}.seed{place.seed}.jsonl"  # they name files beside it
    write_jsonl(asked, (task.to_json() for task in tasks if task.id in names))
    words = ("--model", place.trained(start), "engine.slots=60")
    file = rollouts(place, asked, place.folder / f"{start}.sampled.jsonl", SAMPLED, *words)
    kept: dict[str, int] = {}
    for name, strategy in zip(STRATEGIES if weak else STRONG, STRATEGIES, strict=True):
        whole = selected([file], strategy, place.folder / f"{name}.whole.parquet", *RULES)
        kept[name] = kept_rows(whole)
    for name in kept:
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


def items(tasks: Sequence[Row], rows: Sequence[Row]) -> list[Answer]:
    """Score of every task, and whether its file was usable."""
    found = {row["task_id"]: row for row in rows}
    answers: list[Answer] = []
    for task in tasks:
        row = found[task["id"]]
        outcome, usable = float(row["outcome"] or 0.0), float((row["reward"] or 0.0) >= 0.1)
        values = {"score": outcome, task["track"]: outcome, "usable": usable}
        answers.append(Answer(task["id"], task["meta"]["table_group"], values))
    return answers


def table(out: Path, split: str) -> None:
    def answers(name: str, seed: int) -> list[Answer]:
        rows = answers_of(study.folder_of(out, seed, name, split, AGENTS))
        return items(rows_of(out / "tasks" / f"{split}.asked.jsonl") if rows else [], rows)

    shown = Table(("score", *TRACKS, "usable"), PAIRS, shared=True)
    shown.fill(out, NAMES, answers)
    shown.show()


def main(argv: Sequence[str] | None = None) -> int:
    args = study.options(__doc__, NAMES).parse_args(argv)
    for place in study.places(args):
        tasks = chosen_tasks(tasks_of(place), args.split)
        for name in args.arms:
            train_arm(place, name)
            model = f"solver:{AGENTS[name]}" if name in AGENTS else place.trained(name)
            target = study.folder_of(place.out, place.seed, name, args.split, AGENTS)
            place.answer(target, model, tasks, *SCRIPT)
    table(args.out, args.split)
    return 0


if __name__ == "__main__":
    sys.exit(main())
