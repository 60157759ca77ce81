"""Does training on exact gold make a small model follow the order of the steps?

    python -m experiments.order --out runs/order --seeds 0                      # all arms
    python -m experiments.order --out runs/order --seeds 0 1 2 --split heldout --arms sft sft_states
    python -m experiments.order --out runs/order --table                        # of the validation

An order group has the same text and the same two steps in both orders (`assay tasks order`): half
of the groups have a filter and a mapper (order_f), half have two mappers (order_m). OCS is the
share of groups in which both tasks are right; of order_f only groups count whose text the filter
rejects, for in the others both orders have the same gold.

Arms differ in the form of the answer (`plain`, or the state after every step before the result), in
the number of SFT examples, and in what Dr.GRPO adds: `outcome` pays success alone. `all_gold` is
the control of the arms with RL: SFT on the SFT examples and on the gold of every task that
`states_outcome` asked for, for as many epochs as its processor time allows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments import study
from experiments.study import Answer, Place, Row, Table, answers_of, rows_of

FORMS = {"plain": "states=false", "states": "states=true"}
TASKS, SFT, RL = study.settings_of("order", "tasks", "sft", "rl")
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
CONTROL, OF = "all_gold", "states_outcome"
NAMES = (*ARMS, CONTROL)
BASES = ("sft", "sft_states", "sft_480", "sft_states_480", "outcome", "states_outcome")
PAIRS = [(a, b) for n, a in enumerate(BASES) for b in NAMES if b not in BASES[: n + 1]]
COLUMNS = ("RS", "OCS order_f", "OCS order_m", "OCS", "RS kept by a filter")


def form_of(name: str) -> str:
    return "states" if name == CONTROL else ARMS[name].form


def tasks_of(place: Place, form: str) -> Path:
    words = ("--seed", place.seed, *TASKS, FORMS[form])
    return place.tasks("order", *words, folder=place.folder / form)


def train_arm(place: Place, name: str) -> None:
    """Train an arm, with the start and the tasks that it needs."""
    if name == CONTROL:
        train_control(place)
        return
    arm = ARMS[name]
    tasks = tasks_of(place, arm.form)
    if not arm.rl:
        data = tasks / f"sft_{arm.examples}.jsonl"
        study.part(tasks / "train_sft.jsonl", data, arm.examples)
        words = (*SFT, f"sft.batch_size={arm.batch}")
        place.train(name, "sft", data, place.model, words)
        return
    train_arm(place, arm.start)
    words = (*RL, f"rl.max_new_tokens={ROOM[arm.form]}", *arm.rl)
    place.train(name, "grpo", tasks / "train_rl.jsonl", place.trained(arm.start), words)


def train_control(place: Place) -> None:
    """SFT on the examples of the start of `OF` and on the gold of every task that `OF` asked."""
    train_arm(place, OF)
    arm, folder = ARMS[OF], tasks_of(place, ARMS[OF].form)
    files = folder / f"sft_{arm.examples}.jsonl", folder / "train_rl.jsonl"
    words = (*SFT, f"sft.batch_size={ARMS[arm.start].batch}")
    place.train_on_asked(CONTROL, arm.start, OF, files, words)


def items(tasks: Sequence[Row], rows: Sequence[Row]) -> list[Answer]:
    """Every task, and every order group, as a model answered it."""
    outcomes = {row["task_id"]: float(row["outcome"] or 0.0) for row in rows}
    found: list[Answer] = []
    groups: dict[str, list[float]] = {}
    for task in tasks:
        right = outcomes[task["id"]]
        values = {"RS": right}
        if task["meta"]["sensitive"]:
            groups.setdefault(f"{task['track']} {task['group']}", []).append(right)
        else:
            values["RS kept by a filter"] = right
        found.append(Answer(task["id"], task["group"], values))
    for name, rights in groups.items():
        both = float(all(right == 1.0 for right in rights))
        track, _, group = name.partition(" ")
        found.append(Answer(name, group, {f"OCS {track}": both, "OCS": both}))
    return found


def table(out: Path, split: str) -> None:
    def answers(name: str, seed: int) -> list[Answer]:
        folder = out / f"seed{seed}"
        rows = answers_of(folder / f"{name}.{split}")
        return items(rows_of(folder / form_of(name) / f"{split}.jsonl") if rows else [], rows)

    shown = Table(COLUMNS, PAIRS)
    shown.fill(out, NAMES, answers)
    shown.show()


def main(argv: Sequence[str] | None = None) -> int:
    args = study.options(__doc__, NAMES).parse_args(argv)
    for place in study.places(args):
        for name in args.arms:
            train_arm(place, name)
            tasks = tasks_of(place, form_of(name)) / f"{args.split}.jsonl"
            room = f"sampling.max_new_tokens={ROOM[form_of(name)]}"
            place.answer(place.folder / f"{name}.{args.split}", place.trained(name), tasks, room)
    table(args.out, args.split)
    return 0


if __name__ == "__main__":
    sys.exit(main())
