"""Who reads train/grpo.py can read all that it loads: few files, none of one kind of task."""

from __future__ import annotations

import ast
from pathlib import Path

from places import ROOT

# the loop and `assay grpo` around it: data, lengths, environments, the audit of tasks, the run
MAX_FILES = 78  # besides the packages' own one-line files
OURS = ("configs", "rewards", "rollouts", "data_gen", "train")


def reach(entry: str) -> set[Path]:
    """First-party files that importing `entry` loads."""
    seen: set[Path] = set()
    todo = [entry]
    while todo:
        module = todo.pop()
        place = ROOT / module.replace(".", "/")
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if not path.is_file() or path in seen:
                continue
            seen.add(path)
            todo.append(module.rpartition(".")[0] or module)
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.Import):
                    todo += [a.name for a in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module:
                    todo += [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
    return {p for p in seen if p.relative_to(ROOT).parts[0] in OURS}


def test_the_rl_loop_reaches_little() -> None:
    files = reach("train.grpo")
    assert len([p for p in files if p.name != "__init__.py"]) <= MAX_FILES
    names = {p.relative_to(ROOT).as_posix() for p in files}
    assert "train/model/loss.py" in names  # the walk works
    assert not [n for n in names if "/cdr/" in n or "/dare/" in n or "/krama/" in n]
