"""Who reads train/grpo.py can read all that it loads: few files, and none that is far away."""

from __future__ import annotations

import ast
from pathlib import Path

from places import ROOT

# with curricula, refilled groups, gold states and what is reached from them, checkpoints that are
# checked, Qwen's shapes, micro-batches that share beginnings, memory that is kept, exact gradients
# and layouts of a GPU, templates read for what they say (chat_template, control_tokens), a model's
# context, what a saved folder holds, and whether a run learned anything (verdict)
MAX_LINES = 7100
MAX_FILES = 45  # besides the packages' own one-line files
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
    sizes = {p: p.read_text(encoding="utf-8").count("\n") for p in reach("train.grpo")}
    assert sum(sizes.values()) <= MAX_LINES
    assert len([p for p in sizes if p.name != "__init__.py"]) <= MAX_FILES
    names = {p.relative_to(ROOT).as_posix() for p in sizes}
    assert "train/model/loss.py" in names  # the walk works
    assert not [n for n in names if "/cdr/" in n or "/dare/" in n or "/krama/" in n]
