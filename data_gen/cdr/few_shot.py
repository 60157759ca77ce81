"""Tasks of the mode few_shot get their examples: a pass over the split files of a build.

Examples are drawn from training tasks, so they are known only when the splits are. The pass reads
and writes one task at a time; of texts it holds the pool alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from assay.console import Progress
from assay.files import atomic_write
from assay.rows import read_rows
from assay.task import Task, json_line
from configs.cdr import InstructConfig
from rollouts.cdr.shots import Pool, Shots, pool_of, shows_examples, with_examples

TRAIN = "train.jsonl"


def shots_of(config: InstructConfig) -> Shots:
    return Shots(config.shots, config.shot_chars, config.seed)


def show_examples(folder: Path, names: Sequence[str], shots: Shots) -> dict[str, Any]:
    """Ask the tasks of some files of `folder`, `TRAIN` among them, behind examples; returns what
    the manifest says of it."""
    pool = pool_of(_tasks(folder / TRAIN), shots.longest)
    fixed: Counter[str] = Counter()
    with Progress("examples", "tasks") as progress:
        for name in names:
            with atomic_write(folder / name) as out:
                for task in _tasks(folder / name):
                    asked = with_examples(task, pool, shots)
                    fixed[task.track] += shows_examples(task) and "examples" not in asked.meta
                    out.write(json_line(asked.to_json()))
                    progress.add(1)
    return counts(pool, fixed, shots)


def counts(pool: Pool, fixed: Counter[str], shots: Shots) -> dict[str, Any]:
    """What was shown: the size of the pool by track, and tasks that show the fixed examples."""
    return {
        "shots": shots.count,
        "shot_chars": shots.longest,
        "pool": {track: sum(map(len, mine.values())) for track, mine in sorted(pool.items())},
        "fixed": {track: count for track, count in sorted(fixed.items()) if count},
    }


def said(counted: dict[str, Any]) -> str:
    """A sentence about tasks without examples of their track, "" when there is none."""
    if not counted["fixed"]:
        return ""
    tracks = ", ".join(f"{count} of {track}" for track, count in counted["fixed"].items())
    return (
        f"few_shot: two fixed examples in {tracks}: training has no other document for them whose "
        f"input and answer have {counted['shot_chars']} characters or less; raise the bound"
    )


def _tasks(path: Path) -> Iterator[Task]:
    return (Task.from_json(row, where) for where, row in read_rows(path))
