"""What the studies share: stages whose finished folders are kept, and tables of their answers.

A study trains arms from the same start, answers the same tasks with each, and compares. Every stage
is an `assay` command. It leaves a finished folder and is skipped when it is there, so a study that
was stopped goes on. `OUT/seedS/ARM` is a training run, `OUT/seedS/ARM.SPLIT` its greedy answers,
`ARM.spent.json` the processor seconds of its training.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from assay.rows import read_rows
from train.evaluation.stats import Interval, clustered_mean, mean_interval
from train.evaluation.tables import with_interval
from train.model.source import resolve_model

ROOT = Path(__file__).resolve().parents[1]
ROUNDING = "engine.rounding=nearest"  # what most tables in docs/results.md were made with
EPOCHS = "sft.epochs="
FOREIGN = {"sft": ("rl.", "reward."), "grpo": ("sft.",)}  # settings that a command does not have
Row = dict[str, Any]
_SETTINGS = yaml.safe_load(Path(__file__).with_name("studies.yaml").read_text(encoding="utf-8"))


def settings_of(name: str, *kinds: str) -> tuple[tuple[str, ...], ...]:
    """The words that studies.yaml has for a study: a tuple for each kind, in their order."""
    return tuple(tuple(_SETTINGS[name][kind].split()) for kind in kinds)


def rows_of(path: Path) -> list[Row]:
    return [row for _, row in read_rows(path)]


def spent(note: Path) -> float:
    """Processor seconds of a stage so far; NaN where it has not begun."""
    return float(json.loads(note.read_text())["seconds"]) if note.is_file() else math.nan


def done(note: Path) -> bool:
    return note.is_file() and bool(json.loads(note.read_text())["done"])


def assay(*words: object, note: Path | None = None) -> None:
    """One `assay` command, shown and run; its processor seconds are added up in `note`. Ends the
    study with the command's status where it fails or was stopped."""
    print("$ assay", *words, flush=True)
    before = os.times()
    status = subprocess.run([sys.executable, "-m", "assay", *map(str, words)], cwd=ROOT).returncode
    after = os.times()
    took = after.children_user - before.children_user
    took += after.children_system - before.children_system
    if note is not None:
        note.parent.mkdir(parents=True, exist_ok=True)
        seconds = took + (spent(note) if note.is_file() else 0.0)
        note.write_text(json.dumps({"seconds": seconds, "done": status == 0}))
    if status:
        sys.exit(status)


@dataclass(frozen=True)
class Place:
    """The stages of one seed. `model` is the untouched model; `extra` are settings of every
    training run that has them."""

    out: Path
    seed: int
    model: str
    extra: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return self.out / f"seed{self.seed}"

    def tasks(self, family: str, *words: object, folder: Path | None = None) -> Path:
        """The folder of `assay tasks FAMILY`, built once; all seeds share `OUT/tasks`."""
        folder = folder or self.out / "tasks"
        if not (folder / "certificate.json").is_file():
            assay("tasks", family, "--out", folder, *words)
        return folder

    def train(
        self, name: str, command: str, data: Path, start: str, settings: Sequence[str]
    ) -> None:
        """`assay sft` or `assay grpo` from `start`; a finished run is kept, a stopped one goes
        on."""
        note = self.folder / f"{name}.spent.json"
        if not done(note):
            words = (f"data={data}", f"out={self.folder / name}", f"seed={self.seed}", ROUNDING)
            extra = [word for word in self.extra if not word.startswith(FOREIGN[command])]
            assay(command, *words, f"model.path={start}", *settings, *extra, note=note)
        shutil.rmtree(self.folder / name / "checkpoints", ignore_errors=True)  # 2 GB a run

    def trained(self, name: str) -> str:
        """The model of an arm."""
        return self.model if name == "untouched" else str(self.folder / name / "model")

    def answer(self, target: Path, model: str, tasks: object, *words: str) -> None:
        """`assay eval`, greedy, into `target`."""
        if not (target / "results.json").is_file():
            more = (*words, "engine.threads=1", "--no-baselines")
            assay("eval", "--model", model, "--tasks", tasks, "--out", target, *more)

    def spent(self, name: str) -> float:
        return spent(self.folder / f"{name}.spent.json")

    def gold(self, tasks: Path, rolled: Sequence[str], chosen: Sequence[str] = ()) -> Path:
        """The kept rollouts of the agent that knows the gold of every task."""
        rollouts, kept = tasks.with_suffix(".rollouts.jsonl"), tasks.with_suffix(".parquet")
        if not kept.is_file():
            agent = ("--solver", "reference", "--model", self.model, "sampling.n=1", *rolled)
            assay("rollout", "--tasks", tasks, *agent, "--out", rollouts)
            assay("select", "--rollouts", rollouts, "--strategy", "fv", *chosen, "--out", kept)
        return kept

    def asked(self, *names: str) -> set[str]:
        """The ids of the tasks that these runs of RL asked."""
        files = [f for name in names for f in (self.folder / name / "rollouts").glob("*.jsonl")]
        return {str(row["task_id"]) for file in files for row in rows_of(file)}

    def train_on_asked(
        self, name: str, start: str, rl: str, files: tuple[Path, Path], settings: Sequence[str]
    ) -> None:
        """The control of RL that went on from `start`: SFT on the examples of `start`, the first of
        the files, and on the gold of every task that `rl` asked, which are in the second, for the
        processor time of both."""
        few, more = files
        asked, data = self.asked(rl), few.with_name(f"{name}.jsonl")
        count = part(more, data, 0, lambda task: task["id"] in asked)
        data.write_bytes(few.read_bytes() + data.read_bytes())
        first = self.spent(start)
        times = (first + self.spent(rl)) / (first * (1 + count / len(rows_of(few))))
        self.lasting(times).train(name, "sft", data, self.model, settings)

    def lasting(self, times: float) -> Place:
        """This place, whose SFT has `times` as many epochs as a start, at least one. A start has
        one epoch, or the number that `sft.epochs=` in `extra` gives."""
        found = [word.removeprefix(EPOCHS) for word in self.extra if word.startswith(EPOCHS)]
        count = max(1, round(times * int(found[-1] if found else 1)))
        return replace(self, extra=(*self.extra, f"{EPOCHS}{count}"))


def part(
    source: Path, target: Path, count: int, chosen: Callable[[Row], bool] | None = None
) -> int:
    """Write the first `count` lines of `source`, or those that are chosen, to `target`. Returns how
    many there are."""
    lines = source.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if chosen(json.loads(line))] if chosen else lines[:count]
    target.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    return len(kept)


# --- the command line ----------------------------------------------------------------------------


def options(
    about: str | None,
    arms: Sequence[str],
    splits: Sequence[str] = ("validation", "heldout"),
    seeds: Sequence[int] = (0, 1, 2),
) -> argparse.ArgumentParser:
    """The options that the studies share. `about` is a study's docstring."""
    parser = argparse.ArgumentParser(description=(about or "").split("\n\n")[0])
    parser.add_argument("--out", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(seeds))
    parser.add_argument("--arms", nargs="+", choices=list(arms), default=list(arms))
    parser.add_argument("--split", choices=list(splits), default=splits[0])
    parser.add_argument("--model", help="instead of SmolLM2-135M-Instruct")
    parser.add_argument("--table", action="store_true", help="only print what is finished")
    parser.add_argument("settings", nargs="*", help="key=value, for every training run")
    return parser


def places(args: argparse.Namespace) -> Iterator[Place]:
    """A place a seed; none where only the table is asked."""
    for seed in () if args.table else args.seeds:
        yield Place(args.out, seed, str(resolve_model(args.model)), tuple(args.settings))


# --- tables --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """One item that arms are compared on: a task, or a group of tasks. `values` has the columns
    that it counts for; `source` is what intervals are clustered by; `label` its class, for columns
    that weigh classes alike."""

    key: str
    source: str
    values: Mapping[str, float]
    label: str = ""


Items = Callable[[str, int], Sequence[Answer]]  # of an arm and a seed


@dataclass(frozen=True)
class Table:
    """Answers of arms: their levels by seed and over all seeds, and paired differences. `shared`:
    all seeds answer the same tasks, so a source is the same in each."""

    columns: Sequence[str]
    pairs: Sequence[tuple[str, str]]
    balanced: Sequence[str] = ()
    shared: bool = False
    found: dict[str, dict[int, list[Answer]]] = field(default_factory=dict)
    minutes: dict[tuple[str, int], float] = field(default_factory=dict)

    def add(self, arm: str, seed: int, answers: Sequence[Answer], seconds: float = 0.0) -> None:
        if answers:
            own = [replace(a, key=f"{seed} {a.key}") for a in answers]
            if not self.shared:
                own = [replace(a, source=f"{seed} {a.source}") for a in own]
            self.found.setdefault(arm, {})[seed] = own
            self.minutes[arm, seed] = seconds / 60

    def fill(self, out: Path, arms: Iterable[str], items: Items) -> None:
        """Add the answers of each arm in each seed, and the processor seconds of its training."""
        for arm in arms:
            for seed in seeds_of(out):
                seconds = spent(out / f"seed{seed}" / f"{arm}.spent.json")
                self.add(arm, seed, items(arm, seed), seconds)

    def show(self) -> None:
        print(f"| arm | seed | {' | '.join(self.columns)} | processor min |")
        print("|---" * (len(self.columns) + 3) + "|")
        for arm, seeds in self.found.items():
            for seed, answers in seeds.items():
                took = f"{self.minutes[arm, seed]:.1f}"
                print(f"| {arm} | {seed} | {' | '.join(self.levels(answers))} | {took} |")
            if len(seeds) > 1:
                pooled = [a for found in seeds.values() for a in found]
                print(f"| {arm} | all | {' | '.join(self.levels(pooled))} | |")
        print(f"\n| difference | seeds | {' | '.join(self.columns)} |")
        print("|---" * (len(self.columns) + 2) + "|")
        for base, arm in self.pairs:
            both = [s for s in self.found.get(base, {}) if s in self.found.get(arm, {})]
            for some in [[s] for s in both] + ([both] if len(both) > 1 else []):
                cells = " | ".join(self.changes(base, arm, some))
                print(f"| {base} → {arm} | {' '.join(map(str, some))} | {cells} |")

    def levels(self, answers: Sequence[Answer]) -> Iterator[str]:
        """Each column's mean with a 95 % interval over sources."""
        for column in self.columns:
            some = [a for a in answers if column in a.values]
            values, sources = [a.values[column] for a in some], [a.source for a in some]
            if not some:
                yield "–"
            elif column in self.balanced:
                yield level(clustered_mean(values, sources, [a.label for a in some]))
            elif all(0 <= value <= 1 for value in values):
                yield level(mean_interval(values, sources))
            else:
                yield f"{statistics.fmean(values):.1f}"

    def changes(self, base: str, arm: str, seeds: Sequence[int]) -> Iterator[str]:
        """Each column's mean difference of the items that both arms have, over sources."""
        before, after = (
            {a.key: a for s in seeds for a in self.found[name][s]} for name in (base, arm)
        )
        for column in self.columns:
            keys = [k for k, a in after.items() if column in a.values and k in before]
            keys = [k for k in keys if column in before[k].values]
            if not keys:
                yield "–"
                continue
            old, new = ([side[k].values[column] for k in keys] for side in (before, after))
            labels = [after[k].label if column in self.balanced else "" for k in keys]
            sources = [after[k].source for k in keys]
            gains = [b - a for a, b in zip(old, new, strict=True)]
            yield change(clustered_mean(gains, sources, labels))


def level(found: Interval) -> str:
    """A value and its interval, as a cell of a table."""
    return with_interval(found.value, (found.low, found.high))


def change(found: Interval) -> str:
    """A difference and its interval, with signs."""
    return f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def answers_of(target: Path) -> list[Row]:
    """The rows of an evaluation; [] where it is not finished."""
    return rows_of(target / "rows.jsonl") if (target / "results.json").is_file() else []


def folder_of(out: Path, seed: int, name: str, split: str, alike: Container[str]) -> Path:
    """An arm's answers to a split; those of the arms in `alike` are the same for all seeds."""
    return (out if name in alike else out / f"seed{seed}") / f"{name}.{split}"


def seeds_of(out: Path) -> list[int]:
    """The seeds that have a folder `seedS` in `out`."""
    return sorted(int(folder.name[4:]) for folder in out.glob("seed*"))
