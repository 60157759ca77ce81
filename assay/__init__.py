"""What own families and tools import, and the `assay` command.

    from assay import Answer, Family, Score, Task, tool

`PUBLIC` says where each name is; it is loaded when it is first used, and so is a subcommand when it
is called.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.family import Audit as Audit
    from assay.family import Cheat as Cheat
    from assay.family import Family as Family
    from assay.family import Floor as Floor
    from assay.family import score_answer as score  # noqa: F401
    from assay.task import Answer as Answer
    from assay.task import Score as Score
    from assay.task import Task as Task
    from assay.task import TaskError as TaskError
    from data_gen.certificate import Refused as Refused
    from data_gen.pipeline import Builder as Builder
    from rollouts.episode import rollout as rollout
    from rollouts.tools import Context as Context
    from rollouts.tools import tool as tool

# a public name: `module:name`
PUBLIC = {
    "Answer": "assay.task:Answer",
    "Audit": "assay.family:Audit",
    "Builder": "data_gen.pipeline:Builder",
    "Cheat": "assay.family:Cheat",
    "Context": "rollouts.tools:Context",
    "Family": "assay.family:Family",
    "Floor": "assay.family:Floor",
    "Refused": "data_gen.certificate:Refused",
    "Score": "assay.task:Score",
    "Task": "assay.task:Task",
    "TaskError": "assay.task:TaskError",
    "rollout": "rollouts.episode:rollout",
    "score": "assay.family:score_answer",
    "tool": "rollouts.tools:tool",
}


def __getattr__(name: str) -> Any:
    """A public name, loaded when it is first asked for."""
    if name not in PUBLIC:
        raise AttributeError(f"module 'assay' has no attribute {name!r}")
    module, _, entry = PUBLIC[name].partition(":")
    found = globals()[name] = getattr(importlib.import_module(module), entry)
    return found


# name: (module with `main(argv) -> exit status` or module:function, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": (
        "train.cli.training:demo",
        "tasks, SFT, Dr.GRPO, evaluation and report on this machine",
    ),
    "tasks": ("data_gen.cli", "build or import tasks and splits"),
    "execute": ("rewards.gold.execute", "run gold recipes over JSONL or parquet"),
    "score": ("rewards.score", "score outputs against gold, JSONL in and out"),
    "rollout": ("train.cli.answers:rollout", "sample answers to tasks from a model and score them"),
    "select": ("data_gen.selection", "keep rollouts by a strategy, as a training set"),
    "sft": ("train.cli.training:sft", "supervised fine-tuning"),
    "grpo": ("train.cli.training:grpo", "Dr.GRPO on the embedded engine"),
    "serve": ("train.cli.answers:serve", "an OpenAI-compatible endpoint on the embedded engine"),
    "eval": ("train.cli.answers:evaluate", "score a checkpoint on held-out tasks"),
    "compare": ("train.cli.compare", "paired differences between runs on the same tasks"),
    "report": ("train.cli.report", "static HTML report of one or more runs"),
    "view": ("train.cli.view", "rollouts to read, as a static page or while a run goes on"),
    "audit": (
        "data_gen.audit",
        "the laws of every family over tasks; what cheats and attacks earn",
    ),
    "export": ("data_gen.exports.cli", "tasks for Harbor, verifiers, TRL, inspect and NeMo Gym"),
    "push": ("data_gen.push", "a set of tasks as a dataset folder, here or on a hub"),
    "pull": ("data_gen.pull", "a pushed set of tasks, checked, as `assay tasks` leaves it"),
    "verify": ("assay.record", "compare files with the record of what made them"),
    "slurm": (
        "train.cluster.slurm",
        "shards of an input, parts of an evaluation, and what merges them",
    ),
    "sandbox": ("rollouts.sandbox.cli", "run Python in the sandbox, or serve it"),
    "doctor": ("train.doctor", "say what this machine can run"),
}


_RECORDED = (0, 3)  # done; done, but some rows had no outcome
# How long a thread of torch waits in a loop for the others before it sleeps: 0.1 ms. libgomp's
# own value is some milliseconds. Where other programs use the cores, the loops keep the last thread
# from a core, and every operation takes that long.
SPINS = "10000"
# Read by torch when it first takes memory, and by oneDNN when it first multiplies.
# Large tensors lie in pages of 2 MiB, where Linux has them for programs that ask: for weights that
# every step reads, fewer addresses are looked up. oneDNN keeps the code of a product for each shape
# that it met: of 1,024 shapes, unless told otherwise. A demo took 0.8 GB more so than with 32.
MEMORY = {"THP_MEM_ALLOC_ENABLE": "1", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "32"}


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return "usage: assay COMMAND [options]\n\n" + "\n".join(lines) + "\n\nassay COMMAND --help\n"


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; returns its exit status (2 for a command that does not exist). Without
    words it is the program, takes them from its own, and ends cleanly at TERM."""
    if argv is not None:
        return _front(argv)
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # read when torch is loaded
    os.environ |= {**MEMORY, **os.environ}
    try:
        from assay.console import as_program

        return as_program(lambda: _front(sys.argv[1:]))
    except (MemoryError, OSError) as error:  # before the words for it could be loaded
        if isinstance(error, OSError) and error.errno != errno.ENOMEM:
            raise
        print("assay: out of memory", file=sys.stderr)
        return 1


def subcommand(name: str) -> Callable[[list[str]], int]:
    """What runs a subcommand, loaded."""
    module, _, entry = COMMANDS[name][0].partition(":")
    return getattr(importlib.import_module(module), entry or "main")


def _front(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help", "help"):
        print(usage(), end="")
        return 0 if args else 2
    if args[0] in ("-V", "--version", "version"):
        from importlib import metadata

        print(f"assay {metadata.version('assay')}")
        return 0
    if args[0] not in COMMANDS:
        from assay.console import near_miss

        hint = near_miss(args[0], [*COMMANDS])
        print(f"assay: no command {args[0]!r}{hint}\n\n{usage()}", end="", file=sys.stderr)
        return 2
    try:
        from assay import record as provenance  # not for the version or the list of commands

        provenance.forget()
        status = int(subcommand(args[0])(args[1:]) or 0)
        sys.stdout.flush()  # a reader that went away is met here, not at exit
        if status in _RECORDED:
            provenance.write_records(args)
        return status
    except (Exception, KeyboardInterrupt) as error:
        from assay.console import PIPE, status_of

        found = status_of(error, f"assay {args[0]}")
        if found is None:  # a bug
            raise
        if found == PIPE:  # what is still buffered has nowhere to go
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return found
