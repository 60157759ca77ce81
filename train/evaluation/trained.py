"""Rows that the model was trained on: counted, said, and left out unless they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.task import Task, TaskError
from train.evaluation.answering import is_folder
from train.run.trained_on import NAME, read_trained


@dataclass(frozen=True)
class Seen:
    """What the model's record says of the tasks asked for.

    `stages` is None where there is no record to look at. `ids` are the tasks that were trained on;
    they are among the tasks evaluated only if `included`.
    """

    stages: tuple[str, ...] | None = None
    ids: frozenset[str] = frozenset()
    included: bool = False
    said: str = field(default="", compare=False)

    def to_json(self) -> dict[str, Any]:
        """For results.json."""
        count = len(self.ids)
        return {
            "record": self.stages is not None,
            "stages": list(self.stages or ()),
            "rows": count,
            "left_out": 0 if self.included else count,
            "included": self.included and bool(count),
            "said": self.said,
        }


UNKNOWN = Seen()


def without_trained(tasks: Sequence[Task], args: Any) -> tuple[list[Task], Seen]:
    """The tasks to ask, and what is known. Raises `TaskError` where none is left."""
    if not is_folder(args.model):
        return list(tasks), UNKNOWN
    record = read_trained(Path(args.model).expanduser())
    if record is None:
        said = f"{args.model} has no {NAME}: what it was trained on is not known; none is left out"
        return list(tasks), Seen(said=said)
    ids = frozenset(task.id for task in tasks if record.saw(task))
    seen = Seen(tuple(map(str, record.stages)), ids, args.include_trained)
    if not ids:
        said = f"none of {len(tasks)} rows was trained on ({record})"
        return list(tasks), Seen(seen.stages, said=said)
    what = f"{len(ids)} of {len(tasks)} rows were trained on ({record})"
    if args.include_trained:
        return list(tasks), _saying(seen, f"{what}; they are asked too: this is no held-out result")
    if len(ids) == len(tasks):
        raise TaskError(
            f"--model {args.model}: all {len(tasks)} rows of --tasks were trained on ({record}) "
            "and are left out; give held-out tasks, or --include-trained to ask them"
        )
    kept = [task for task in tasks if task.id not in ids]
    return kept, _saying(seen, f"{what} and are left out; --include-trained asks them too")


def _saying(seen: Seen, said: str) -> Seen:
    return Seen(seen.stages, seen.ids, seen.included, said)
