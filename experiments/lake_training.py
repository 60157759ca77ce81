"""Do gold scripts, and then rewards, teach a small model to answer questions over a lake?

    python -m experiments.lake_training --out runs/lakes --seeds 0              # all arms
    python -m experiments.lake_training --out runs/lakes --seeds 0 1 2 --arms sft rl rl_credit
    python -m experiments.lake_training --out runs/lakes --table                # of the validation
    python -m experiments.lake_training --out runs/lakes --seeds 0 --split heldout

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
held-out tasks once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from assay.task import derive_seed, write_jsonl
from experiments import study
from experiments.study import Answer, Place, Row, Table, answers_of, rows_of

TASKS, SFT, RL, ANSWERED = study.settings_of("lake_training", "tasks", "sft", "rl", "answered")
EXAMPLES = 128  # training tasks of SFT; RL asks the others
AGENT = ("tools.turns=1", "tools.run_s=30")
ARMS = {"rl": "0", "rl_credit": "0.5"}  # what RL pays for sub-answers
BEFORE = {"all_gold": "sft", "gold_rl": "all_gold", "gold_more": "gold_rl"}
CONTROLS = ("sft_more", "all_gold", "gold_more")
NAMES = ("untouched", "sft", *ARMS, *CONTROLS[:2], "gold_rl", CONTROLS[2])
SPLITS = ("validation", "heldout", "validation_obscured", "heldout_obscured")
TWIN = "_obscured"
ALIKE = ("untouched",)  # answers once for all seeds
PAIRS = (
    *(("sft", name) for name in ("rl", "rl_credit", "all_gold", "sft_more")),
    ("rl", "rl_credit"),
    *(("sft_more", name) for name in ("rl", "all_gold")),
    *(("all_gold", name) for name in ("rl", "rl_credit", "gold_rl", "gold_more")),
    ("gold_more", "gold_rl"),
)
COLUMNS = ("outcome", "exact", "numeric", "string", "list", "sub-answers", "did not run", "tokens")


def tasks_of(place: Place) -> Path:
    return place.tasks("lake", *TASKS)


def halves(tasks: Path) -> tuple[Path, Path]:
    """The training tasks of SFT and those of RL: kinds of questions are mixed in both."""
    rows = rows_of(tasks / "train.jsonl")
    rows.sort(key=lambda row: derive_seed("lake-training", row["id"]))
    sft, rl = tasks / "train_sft.jsonl", tasks / "train_rl.jsonl"
    write_jsonl(sft, rows[:EXAMPLES])
    write_jsonl(rl, rows[EXAMPLES:])
    return sft, rl


def train_arm(place: Place, name: str) -> None:
    """Train an arm and, before it, its start."""
    first, rest = halves(tasks_of(place))
    if name == "sft":
        place.train(name, "sft", place.gold(first, AGENT), place.model, SFT)
    elif name in CONTROLS:
        train_control(place, first, name)
    elif name != "untouched":
        before = BEFORE.get(name, "sft")
        train_arm(place, before)
        paid = f"reward.answer.subtasks={ARMS.get(name, ARMS['rl'])}"
        place.train(name, "grpo", rest, place.trained(before), (*RL, paid))


def train_control(place: Place, first: Path, control: str) -> None:
    """SFT on the examples of `sft`, and on the gold of every task that RL asked where the control
    has that."""
    train_arm(place, BEFORE.get(control, "sft"))
    for name in ["rl"] if control == "sft_more" else ARMS:
        train_arm(place, name)
    data, rows = first, rows_of(first)
    if control != "sft_more":
        names = place.asked(*ARMS)
        rows += [row for row in rows_of(first.with_name("train_rl.jsonl")) if row["id"] in names]
        data = first.with_name(f"all_gold_{place.seed}.jsonl")  # beside the lakes
        write_jsonl(data, rows)
    pair = ("all_gold", "gold_rl") if control == "gold_more" else ("sft", "rl")
    took, epoch = sum(map(place.spent, pair)), place.spent("sft") / EXAMPLES * len(rows)
    place.lasting(took / epoch).train(control, "sft", place.gold(data, AGENT), place.model, SFT)


def items(out: Path, seed: int, name: str, split: str) -> list[Answer]:
    """An arm's answers to a split; a twin has the key of its plain task."""
    rows = {
        row["task_id"]: row for row in answers_of(study.folder_of(out, seed, name, split, ALIKE))
    }
    plain = rows_of(out / "tasks" / f"{split.removesuffix(TWIN)}.jsonl") if rows else []
    tables = {task["id"]: str(task["meta"]["tables"][0]) for task in plain}
    found: list[Answer] = []
    for task in rows_of(out / "tasks" / f"{split}.jsonl") if rows else []:
        row: Row = rows[task["id"]]
        of, outcome = task["meta"].get("plain", task["id"]), float(row["outcome"] or 0.0)
        why = str(row["more"]["category"])
        values = {
            "outcome": outcome,
            "exact": float(outcome == 1.0),
            str(task["gold"]["answer_type"]).partition("_")[0]: outcome,
            "sub-answers": float((row.get("parts") or {}).get("subtask_credit", 0.0)),
            "did not run": float(why in ("code_fails", "contract_broken", "no_reply")),
            "recalled": float(why == "recalled"),
            "tokens": float(row["tokens_out"]),
        }
        found.append(Answer(of, tables[of], values))
    return found


def table(out: Path, split: str) -> None:
    """Levels and differences; of twins also the differences from their plain tasks."""
    shown = Table(COLUMNS, PAIRS, shared=True)
    shown.fill(out, NAMES, lambda name, seed: items(out, seed, name, split))
    shown.show()
    if split.endswith(TWIN):
        print("\nplain → twin\n")
        columns = ("outcome", "exact", "sub-answers", "recalled")
        twins = Table(columns, [(f"{n}, plain", n) for n in NAMES], shared=True)
        for name in NAMES:
            for seed in study.seeds_of(out):
                plain = items(out, seed, name, split.removesuffix(TWIN))
                twins.add(f"{name}, plain", seed, plain)
                twins.add(name, seed, items(out, seed, name, split) if plain else [])
        twins.show()


def main(argv: Sequence[str] | None = None) -> int:
    args = study.options(__doc__, NAMES, SPLITS).parse_args(argv)
    for place in study.places(args):
        for name in args.arms:
            train_arm(place, name)
            target = study.folder_of(place.out, place.seed, name, args.split, ALIKE)
            tasks = f"krama:{tasks_of(place) / args.split}.jsonl"
            place.answer(target, place.trained(name), tasks, *ANSWERED)
    table(args.out, args.split)
    return 0


if __name__ == "__main__":
    sys.exit(main())
