"""What a command asks of benchmarks, and what a benchmark tells the evaluator: how it is opened,
asked, recorded and tabulated; and the one table from a benchmark's name to its room on this floor.
Nothing else names one."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from assay.console import ALL_TASKS, TaskFilter
from assay.task import Score, Task, TaskError
from configs.answers import AGENT, EvaluationConfig, RolloutConfig
from rollouts.engines.server import EMBEDDED
from rollouts.environment import Budget
from rollouts.prompts import MESSAGE, ChatTokenizer, room_for
from rollouts.sampler import Plan
from rollouts.trajectory import Trajectory
from rollouts.words.templates import Prompts, lines

Row = dict[str, Any]
HELD = ("heldout", "test", "eval")  # splits that nothing is trained on
HELDOUT = "heldout.jsonl"  # in the folder of a build
OURS = Prompts({})
OF_A_RELEASE = "test tasks of the release"  # what reports call published tasks


@dataclass(frozen=True, kw_only=True)
class Command(RolloutConfig):
    """What `assay rollout` was asked for: its settings, of which nothing is left open but what the
    tasks, the words and the weights decide, and its options."""

    who: str
    """Who answers: `--model`, or `--solver`."""

    out: Path
    seed: int = 0
    family: Sequence[str] = ()
    env: Sequence[str] = ()
    chosen: TaskFilter = ALL_TASKS
    limit: int = 0

    solver: str | None = None
    """As the option says it; None: the command has none."""

    asked_in: Prompts = OURS
    """What `prompts` names, once it is read."""


@dataclass(frozen=True, kw_only=True)
class Evaluation(EvaluationConfig, Command):
    """The same of `assay eval`."""

    tasks: Sequence[str]
    name: str = ""
    json: bool = False
    part: str = ""
    gather: Sequence[Path] = ()
    include_trained: bool = False
    strict: bool = False
    no_baselines: bool = False


@dataclass(frozen=True)
class Opened:
    """The tasks of one `--tasks` word.

    `benchmark` is its name where the word has a prefix; `notes` are for the record (and lines to
    print); `heldout` is False where rows are known to be training rows; `split` says in words which
    rows these are, and `asked` what its tasks are called where "held-out tasks" does not fit.
    """

    tasks: Sequence[Task]
    benchmark: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    said: Sequence[str] = ()
    heldout: bool = True
    split: str = ""
    asked: str = ""


def all_heldout(tasks: Sequence[Task]) -> bool:
    """Whether every task says that it is of a split to test on."""
    return all(task.split in HELD for task in tasks)


def splits_of(where: object, tasks: Sequence[Task]) -> str:
    """`WHERE (12 of split heldout)`: which rows these are, for the report."""
    counts = Counter(task.split for task in tasks)
    return f"{where} ({', '.join(f'{n} of split {name}' for name, n in sorted(counts.items()))})"


@dataclass(frozen=True)
class Found:
    """A benchmark's own results: numbers for results.json, and text to print and keep. Among the
    numbers, `shown` are tables for the report, fields of `train.evaluation.tables.Table`."""

    numbers: Mapping[str, Any]
    text: str


def in_words(text: str, tasks: Sequence[Task], command: Command) -> str:
    """A benchmark's tables with a line below that says whose words its tasks were asked in, and so
    whether its numbers compare with published ones."""
    said = list(lines(command.asked_in.record(tasks)))
    return "\n".join([text.rstrip("\n"), "", *said]) if said else text


def plain_plan(task: Task, command: Command, tokenizer: ChatTokenizer | None) -> Plan:
    """Tasks of no benchmark: an answer with room for gold, or an episode with tools."""
    return Plan(command.sampling.max_new_tokens or room_for(task, tokenizer), budget_of(command))


def published_room(task: Task, command: Command, tokenizer: ChatTokenizer, published: int) -> int:
    """Tokens of one message in a benchmark whose paper gives every message `published` of them, or
    more where gold is longer. Our own decoder on a CPU gives 4,096: a small model that does not
    end its answers would take hours for the rest (`sampling.max_new_tokens` asks for it)."""
    if command.server.kind == EMBEDDED:
        from rollouts.engines.torch.load import choose_device

        if choose_device(command.engine.device) == "cpu":
            return room_for(task, tokenizer, MESSAGE)
    return room_for(task, tokenizer, published)


def budget_of(command: Command, turns: int = 5, seconds: float | None = None) -> Budget:
    """Bounds of an episode: what the command line says, else these."""
    count = command.tools.turns or turns
    run_s = command.tools.run_s or 200.0
    return Budget(count, count * run_s if seconds is None else seconds, command.tools.max_length)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark, on the evaluation's floor.

    The tasks of its families (`FAMILIES`) are asked and recorded its way, also in a plain file.
    `open` reads what follows its prefix (`NAME:DIR…`), `plan` says how a task is asked, `more`
    which further fields a row keeps, `rewards` which settings of its families' scorers its own
    settings mean (they apply to words with its prefix), `tables` writes its official files into a
    folder, from the rows of its tasks in their order; `report` adds files of its own to a run's
    folder and gives the text to print, "" for none; `several` does so for several runs side by
    side, given the folder for its files and the name of a base model.
    """

    open: Callable[[str, Evaluation], Opened]
    plan: Callable[[Task, Command, ChatTokenizer | None], Plan] = plain_plan
    more: Callable[[Task, Trajectory, Score, Evaluation], Row] = lambda task, run, score, _: {}
    rewards: Callable[[Evaluation], Mapping[str, Mapping[str, Any]]] = lambda _: {}
    tables: Callable[[Sequence[Task], Sequence[Row], Path, Evaluation], Found] | None = None
    report: Callable[[Path], str] | None = None
    several: Callable[[Sequence[Path], Path, str], str] | None = None


def build_tasks(what: str, *words: str, quiet: bool = False) -> None:
    """`assay tasks` with these words, which says itself what is wrong; `quiet`: but nothing on
    standard output. Raises `TaskError` that begins with `what`."""
    command = [sys.executable, "-m", "assay", "tasks", *words]
    out = subprocess.DEVNULL if quiet else None
    if subprocess.run(command, check=False, stdout=out).returncode:
        raise TaskError(f"{what}: the tasks could not be made; see above")


FAMILIES = {  # of the tasks of each benchmark
    "cdr": ("refinement", "structured"),
    "dare": ("table",),
    "krama": ("answer",),
}
# a field that gold has of the rows of a benchmark, and not of a text of one's own
ROWS = {"cdr": "instance_id"}


@cache
def benchmark(name: str) -> Benchmark:
    """A benchmark by its name; its room is loaded when it is first asked for: a command that
    samples answers needs one of them at most."""
    return importlib.import_module(f"train.evaluation.{name}").BENCHMARK


def benchmark_of(family: str) -> str:
    """The benchmark that a family's tasks belong to, "" for any other family."""
    return next((name for name, families in FAMILIES.items() if family in families), "")


def way_of(task: Task, asked: str = "") -> Benchmark | None:
    """The benchmark whose way a task is asked and recorded: that which it was `asked` of, or its
    own. None for any other task, and for a text of one's own of a benchmark's families."""
    name = asked or benchmark_of(task.family)
    if not name or (name in ROWS and ROWS[name] not in task.gold):
        return None
    return benchmark(name)


def plan_of(task: Task, command: Command, tokenizer: ChatTokenizer | None, asked: str = "") -> Plan:
    """How a task is asked."""
    way = way_of(task, asked)
    return (way.plan if way is not None else plain_plan)(task, command, tokenizer)


# --- `krama.agent`: who acts on a benchmark's tasks, beside the benchmark's own agents ------------

# name → (tool that stands for it, messages of its model). The first as it was published with
# on lakes: 20 actions, then the answer; the other one's own bounds end it earlier.
OTHER_AGENTS = {"smolagents": ("smolagents", 21), "datawise": ("datawise", 60)}


def acted_on(tasks: Sequence[Task], command: Evaluation, prefix: str) -> list[Task]:
    """The tasks with the agent that is asked for as their tool, where it acts on any benchmark's
    tasks. Raises `TaskError` for another benchmark's agent where only words with this prefix are
    asked."""
    if command.krama.agent in OTHER_AGENTS:
        return [replace(task, tools=(OTHER_AGENTS[command.krama.agent][0],)) for task in tasks]
    if command.krama.agent and all(word.startswith(prefix) for word in command.tasks):
        raise TaskError(
            f"{AGENT}={command.krama.agent}: it works on lakes; give {' or '.join(OTHER_AGENTS)}"
        )
    return list(tasks)


def agents_budget(task: Task, command: Command) -> Budget:
    """The bounds of an episode: an agent that needs more messages has the same seconds of tools."""
    plain, agents = budget_of(command), dict(OTHER_AGENTS.values())
    turns = max((agents.get(tool, 0) for tool in task.tools), default=0)
    return replace(plain, turns=turns) if turns and not command.tools.turns else plain
