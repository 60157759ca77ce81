"""`python -m train.cluster.preflight`: is this the checkout that the job was meant to run?

Our packages have plain names (`train`, `rewards`), which an installed package or a file in the
working directory could shadow; a job that runs someone else's code must not start.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

OURS = ("assay", "configs", "rewards", "rollouts", "data_gen", "train")


def strays(root: Path) -> list[str]:
    """One sentence for every package of ours that does not come from the checkout `root`."""
    found: list[str] = []
    for name in OURS:
        file = getattr(importlib.import_module(name), "__file__", None)
        if file is None or root.resolve() not in Path(file).resolve().parents:
            found.append(f"package {name} comes from {file}, not from {root}; unset PYTHONPATH")
    return found


def main() -> int:
    problems = strays(Path(os.environ.get("ASSAY_ROOT", ".")))
    for problem in problems:
        print(f"preflight: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
