"""Can one small model do several kinds of tasks as well as a specialist of each, and what is lost
when it learns one after the other?

    python -m experiments.one_model --out runs/one --seeds 0                  # all arms
    python -m experiments.one_model --out runs/one --seeds 0 --split heldout
    python -m experiments.one_model --out runs/one --table --split heldout

Three kinds that need no tools: `refine` (the demo's short refinement tasks), `order` (order groups,
answers with states) and `sql` (short text-to-SQL questions). Arms are SFT on gold:

- `refine`, `order`, `sql`: a specialist each, 160 examples;
- `mix`: all of these, in turns; `mix_third`: a third of each, so that it costs as one specialist;
- `refine_then_sql`: the specialist for `refine` goes on with the examples of `sql`;
  `replay` does the same with a tenth of the examples of `refine` among them;
- `mix_rl`: Dr.GRPO from `mix` on other tasks of the three kinds, in turns.

Every model answers the same tasks of all three kinds, greedily. The untouched model has next to
none right, so what is forgotten can be seen only of what was learned before (`refine_then_sql`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from assay.task import write_jsonl
from experiments import demo_search, order, study
from experiments.study import Answer, Place, Row, Table, answers_of, rows_of

KINDS = ("refine", "order", "sql")
EXAMPLES, POOL, ASKED, REPLAYED = 160, 40, 60, 16
SFT, RL = study.settings_of("one_model", "sft", "rl")
# an arm of SFT: how many examples of each kind, and the arm it goes on from
TAUGHT: dict[str, tuple[Mapping[str, int], str]] = {
    **{kind: ({kind: EXAMPLES}, "untouched") for kind in KINDS},
    "mix": (dict.fromkeys(KINDS, EXAMPLES), "untouched"),
    "mix_third": (dict.fromkeys(KINDS, EXAMPLES // len(KINDS)), "untouched"),
    "refine_then_sql": ({"sql": EXAMPLES}, "refine"),
    "replay": ({"sql": EXAMPLES, "refine": REPLAYED}, "refine"),
}
ARMS = ("untouched", *TAUGHT, "mix_rl")
PAIRS = [("specialist", name) for name in ("mix", "mix_third", "mix_rl")]
PAIRS += [("refine", "refine_then_sql"), ("refine_then_sql", "replay"), ("mix", "mix_rl")]


def tasks_of(place: Place, kind: str) -> Path:
    """The tasks of a kind. Those of `sql` take long and are the same for all seeds."""
    folder = (place.out if kind == "sql" else place.folder) / f"tasks_{kind}"
    if kind == "refine":
        words = ("--seed", place.seed, *demo_search.SHORT, *demo_search.SPLITS)
        return place.tasks("demo", *words, folder=folder)
    if kind == "order":
        words = ("--seed", place.seed, *order.TASKS, order.FORMS["states"])
        return place.tasks("order", *words, folder=folder)
    shares = ("--heldout-share", 0.25, "--validation-share", 0.15)
    words = ("--carried", "--short", "--count", 420, *shares, "--seed", 0)
    return place.tasks("sql", *words, folder=folder)


def training(place: Place, kind: str) -> tuple[list[Row], list[Row]]:
    """Tasks of a kind for SFT, and others for RL."""
    tasks = tasks_of(place, kind)
    if kind != "sql":
        sft, rl = (rows_of(tasks / f"train_{stage}.jsonl") for stage in ("sft", "rl"))
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


def train_arm(place: Place, name: str) -> None:
    """Train an arm, with what it starts from."""
    if name == "untouched":
        return
    data, reinforced = place.folder / f"{name}.jsonl", name == "mix_rl"
    counts, before = (dict.fromkeys(KINDS, POOL), "mix") if reinforced else TAUGHT[name]
    train_arm(place, before)
    write_jsonl(data, in_turns([training(place, k)[reinforced][:n] for k, n in counts.items()]))
    command, settings = ("grpo", RL) if reinforced else ("sft", SFT)
    place.train(name, command, data, place.trained(before), settings)


def asked(place: Place, split: str) -> list[Row]:
    """The tasks that every model answers: as many of each kind."""
    return [row | {"kind": k} for k in KINDS for row in rows_of(split_of(place, k, split))[:ASKED]]


def split_of(place: Place, kind: str, split: str) -> Path:
    return tasks_of(place, kind) / f"{split}.jsonl"


def table(out: Path, split: str) -> None:
    """Outcome by arm and kind; `specialist` has each kind's own."""
    shown = Table(KINDS, PAIRS)
    for seed in study.seeds_of(out):
        folder = out / f"seed{seed}"
        kinds = {row["id"]: row["kind"] for row in rows_of(folder / f"asked_{split}.kinds.jsonl")}
        special: list[Answer] = []
        for name in ARMS:
            found: list[Answer] = []
            for row in answers_of(folder / f"{name}.{split}"):
                kind, outcome = kinds[row["task_id"]], float(row["outcome"] or 0.0)
                found.append(Answer(row["task_id"], row["source"], {kind: outcome}))
            special += [one for one in found if name in one.values]
            shown.add(name, seed, found, study.spent(folder / f"{name}.spent.json"))
        shown.add("specialist", seed, special)
    shown.show()


def main(argv: Sequence[str] | None = None) -> int:
    args = study.options(__doc__, ARMS).parse_args(argv)
    for place in study.places(args):
        tasks = place.folder / f"asked_{args.split}.jsonl"
        rows = asked(place, args.split)
        kinds = tasks.with_suffix(".kinds.jsonl")
        write_jsonl(kinds, [{"id": row["id"], "kind": row.pop("kind")} for row in rows])
        write_jsonl(tasks, rows)
        for name in args.arms:
            train_arm(place, name)
            room = "sampling.max_new_tokens=144"
            place.answer(place.folder / f"{name}.{args.split}", place.trained(name), tasks, room)
    table(args.out, args.split)
    return 0


if __name__ == "__main__":
    sys.exit(main())
