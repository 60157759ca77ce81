"""`python -m train.cluster.preflight [COMMAND ARGS…]`: what a job asks before it starts anything.

Is this the checkout that the job was meant to run? Our packages have plain names (`train`,
`rewards`), which an installed package or a file in the working directory could shadow; a job that
runs someone else's code must not start. And, for `sft`, `grpo` and `grpo_multinode`: are the
settings valid, and does the job have the nodes, tasks and GPUs that they count on?
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from assay.task import TaskError
from configs.loader import ConfigError
from train.cluster.settings import asked, mismatches

OURS = ("assay", "configs", "rewards", "rollouts", "data_gen", "train")


def strays(root: Path) -> list[str]:
    """One sentence for every package of ours that does not come from the checkout `root`."""
    found: list[str] = []
    for name in OURS:
        file = getattr(importlib.import_module(name), "__file__", None)
        if file is None or root.resolve() not in Path(file).resolve().parents:
            found.append(f"package {name} comes from {file}, not from {root}; unset PYTHONPATH")
    return found


def main(argv: Sequence[str]) -> int:
    problems = strays(Path(os.environ.get("ASSAY_ROOT", ".")))
    if argv and not problems:
        try:
            want = asked(argv[0], argv[1:])
            seen = len(list(Path("/dev").glob("nvidia[0-9]*")))
            problems = mismatches(want, os.environ, seen)
        except (ConfigError, TaskError) as error:
            problems = [str(error)]
    for problem in problems:
        print(f"preflight: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
