"""The `assay` command: a table of subcommands, each imported only when it is called."""

from __future__ import annotations

import importlib
import sys

# name: (module with `main(argv) -> exit status`, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("train.cli.demo", "tasks, SFT, Dr.GRPO, evaluation and report on this machine"),
    "tasks": ("data_gen.cli", "build or import tasks and splits"),
    "execute": ("rewards.gold.cli", "run gold recipes over JSONL or parquet"),
    "score": ("rewards.cli", "score outputs against gold, JSONL in and out"),
    "rollout": ("rollouts.cli", "sample answers to tasks from a model and score them"),
    "select": ("data_gen.selection.cli", "keep rollouts by a strategy, as a training set"),
    "sft": ("train.cli.sft", "supervised fine-tuning"),
    "grpo": ("train.cli.grpo", "Dr.GRPO on the embedded engine"),
    "eval": ("train.cli.eval", "score a checkpoint on held-out tasks"),
    "report": ("train.report.write", "static HTML report of one or more runs"),
    "audit": (
        "data_gen.dare.audit",
        "what in table tasks is leaky, or fools the scorer",
    ),
    "slurm": ("train.cluster.cli", "submit a chain of jobs to Slurm; shards and merges"),
    "sandbox": ("rollouts.sandbox.cli", "run Python in the sandbox, or serve it"),
    "doctor": ("train.doctor", "say what this machine can run"),
}


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return "usage: assay COMMAND [options]\n\n" + "\n".join(lines) + "\n\nassay COMMAND --help\n"


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; returns its exit status (2 for a command that does not exist)."""
    args = sys.argv[1:] if argv is None else argv
    if not args or args[0] in ("-h", "--help", "help"):
        print(usage(), end="")
        return 0 if args else 2
    if args[0] not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(args[0], COMMANDS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        print(f"assay: no command {args[0]!r}{hint}\n\n{usage()}", end="", file=sys.stderr)
        return 2
    module = importlib.import_module(COMMANDS[args[0]][0])
    try:
        return int(module.main(args[1:]) or 0)
    except KeyboardInterrupt:
        print("\nassay: interrupted; run the same command again to resume", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 141


if __name__ == "__main__":
    sys.exit(main())
