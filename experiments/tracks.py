"""What do SFT and Dr.GRPO teach a small model on CDR-Bench's five tracks, at true length?

    assay tasks cdr --config configs/cdr_train.yaml --corpus PATH --out TASKS
    python -m experiments.tracks --tasks TASKS --out runs/tracks --seeds 0
    python -m experiments.tracks --tasks TASKS --out runs/tracks --seeds 0 --split heldout
    python -m experiments.tracks --tasks TASKS --out runs/tracks --table --split heldout

A seed draws its own tasks from the splits of TASKS: inputs of at most `--max-chars` characters,
equally many of every track, order groups whole. `sft` imitates the gold of `--examples` tasks of a
track. `rl` goes on from there with Dr.GRPO on other tasks of the training split. `all_gold` is the
control: SFT from the untouched model on the same tasks, on the gold of every task that `rl` asked,
and on as much gold of the other tasks that `rl` could have asked as the processor time of `sft` and
`rl` together allows. `copy` gives the input back and says KEEP, which is also the best policy that
never drops; `drop` gives it back and says DROP.

Every row is asked in its three prompt variants, greedy, as the benchmark does. Nothing here chooses
a setting. On a GPU give `engine.micro_tokens=32768` and other settings of its size, and `--slots`
rows that an evaluation decodes side by side.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

from assay.task import write_jsonl
from experiments import study
from experiments.study import Answer, Place, Row, Table, answers_of, rows_of

TRACKS = ("atomic_m", "atomic_f", "agnostic_m", "order_m", "order_f")
POOL = 96  # tasks of a track that RL may ask
SFT, RL = study.settings_of("tracks", "sft", "rl")
CHEATS = {"copy": "cheat:copy", "drop": "cheat:drop"}
ARMS = (*CHEATS, "untouched", "sft", "rl", "all_gold")
PAIRS = (("sft", "rl"), ("all_gold", "rl"), ("sft", "all_gold"), ("copy", "sft"))
COLUMNS = ("RS", "RS@3", "RG", "OCS@3", *(f"RS {track}" for track in TRACKS))
SLICES = ("length_bucket", "recipe_length", "order_slot", "domain", "difficulty", "style")


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


def short(args: argparse.Namespace, split: str) -> Iterator[Row]:
    for task in rows_of(args.tasks / f"{split}.jsonl"):
        if len(task["gold"]["input_text"]) <= args.max_chars:
            yield task


def training(place: Place, args: argparse.Namespace) -> tuple[Path, Path]:
    """Files of the SFT examples and of the tasks that RL may ask."""
    sft, rl = place.folder / "train_sft.jsonl", place.folder / "train_rl.jsonl"
    if not rl.is_file():
        place.folder.mkdir(parents=True, exist_ok=True)
        every = list(short(args, "train"))
        examples = drawn(every, args.examples, place.seed, frozenset())
        taken = frozenset(str(task["group"] or task["id"]) for task in examples)
        write_jsonl(sft, examples)
        write_jsonl(rl, drawn(every, POOL, place.seed, taken))
    return sft, rl


def asked(place: Place, args: argparse.Namespace) -> Path:
    """A folder as `cdr:DIR` wants it: the benchmark's rows that an evaluation asks."""
    folder = place.folder / f"asked_{args.split}"
    if not (folder / "heldout.jsonl").is_file():
        tasks = drawn(short(args, args.split), args.rows, place.seed, frozenset())
        names = {task["id"] for task in tasks}
        (folder / "tracks").mkdir(parents=True, exist_ok=True)
        for track in TRACKS:
            rows = rows_of(args.tasks / "tracks" / f"{track}.jsonl")
            chosen = (row for row in rows if row["instance_id"] in names)
            write_jsonl(folder / "tracks" / f"{track}.jsonl", chosen)
        write_jsonl(folder / "heldout.jsonl", tasks)
    return folder


def train_arm(place: Place, args: argparse.Namespace, name: str) -> None:
    """Train an arm, with what it needs."""
    sft, rl = training(place, args)
    if name == "sft":
        place.train(name, "sft", sft, place.model, SFT)
    elif name == "rl":
        train_arm(place, args, "sft")
        place.train(name, "grpo", rl, place.trained("sft"), RL)
    elif name == "all_gold":
        train_arm(place, args, "rl")
        data = control(place, rows_of(sft), rows_of(rl))
        place.train(name, "sft", data, place.model, SFT)


def control(place: Place, sft: Sequence[Row], rl: Sequence[Row]) -> Path:
    """The examples of `all_gold`: those of `sft`, then every task that `rl` asked, then others of
    the same file, until `sft` and `rl` have taken as long."""
    more = max(0, round(len(sft) * place.spent("rl") / place.spent("sft")))
    names = place.asked("rl")
    ordered = sorted(rl, key=lambda task: task["id"] not in names)  # stable: asked first
    data = place.folder / "all_gold.jsonl"
    write_jsonl(data, [*sft, *ordered[: max(more, len(names))]])
    return data


def items(tasks: Sequence[Row], rows: Sequence[Row]) -> list[Answer]:
    """Every row of the benchmark over its prompt variants, and every order group: OCS@3 is 1 where
    each of its rows is right in one variant. Every track has as many rows, so the mean over rows is
    that of the tracks."""
    answers: dict[str, list[Row]] = {}
    for row in rows:
        answers.setdefault(str(row["task_id"]).partition("#")[0], []).append(row)
    found: list[Answer] = []
    groups: dict[str, list[float]] = {}
    for task in tasks if rows else []:
        variants = answers[task["id"]]
        right = [float(row["outcome"] or 0.0) for row in variants]
        gains = [float(g) for row in variants if (g := row["parts"].get("rg")) is not None]
        values = {"RS": fmean(right), "RS@3": max(right), f"RS {task['track']}": fmean(right)}
        values |= {"RG": fmean(gains)} if gains else {}
        for slice in SLICES:
            values[f"{slice}: {task['meta'][slice]}"] = values["RS"]
        found.append(Answer(task["id"], task["meta"]["document"], values))
        if task["group"] is not None:
            groups.setdefault(task["group"], []).append(max(right))
    return found + [Answer(name, name, {"OCS@3": min(best)}) for name, best in groups.items()]


def table(out: Path, split: str) -> None:
    """Every finished arm; then RS by what a task is."""

    def answers(name: str, seed: int) -> list[Answer]:
        folder = out / f"seed{seed}"
        rows = answers_of(folder / f"{name}.{split}")
        tasks = rows_of(folder / f"asked_{split}" / "heldout.jsonl") if rows else []
        return items(tasks, rows)

    shown = Table(COLUMNS, PAIRS)
    shown.fill(out, ARMS, answers)
    shown.show()
    every = [(n, a) for n, seeds in shown.found.items() for found in seeds.values() for a in found]
    print(f"\n| slice | {' | '.join(shown.found)} |\n|---|{'---|' * len(shown.found)}")
    for slice in sorted({s for _, a in every for s in a.values if ": " in s}):
        cells: list[str] = []
        for name in shown.found:
            values = [a.values[slice] for n, a in every if n == name and slice in a.values]
            cells.append(f"{fmean(values):.3f} of {len(values)}" if values else "–")
        print(f"| {slice} | {' | '.join(cells)} |")


def main(argv: Sequence[str] | None = None) -> int:
    parser = study.options(__doc__, ARMS)
    tasks = "what `assay tasks cdr` wrote"
    parser.add_argument("--tasks", type=lambda t: Path(t).resolve(), required=True, help=tasks)
    parser.add_argument("--max-chars", type=int, default=2000, help="of an input (%(default)s)")
    text = "tasks of a track whose gold `sft` imitates (%(default)s)"
    parser.add_argument("--examples", type=int, default=48, help=text)
    parser.add_argument("--rows", type=int, default=12, help="of a track to evaluate (%(default)s)")
    parser.add_argument("--slots", type=int, default=64, help="of evaluations (%(default)s)")
    args = parser.parse_args(argv)
    words = (f"engine.slots={max(64, args.slots)}", "sampling.max_new_tokens=900")
    for place in study.places(args):
        for name in args.arms:
            train_arm(place, args, name)
            model = CHEATS.get(name) or place.trained(name)
            target = place.folder / f"{name}.{args.split}"
            place.answer(target, model, f"cdr:{asked(place, args)}", *words)
    table(args.out, args.split)
    return 0


if __name__ == "__main__":
    sys.exit(main())
