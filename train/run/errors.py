"""Turn the mistakes a user can mend into one sentence and an exit status, at the edge only."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from configs.loader import ConfigError
from rewards.console import status_of
from rewards.task import TaskError


@dataclass
class Status:
    """Exit status of a command (`rewards.console`)."""

    code: int = 0


@contextmanager
def say_known_errors(command: str) -> Generator[Status]:
    """Run a command's body; errors that name their own remedy are printed without a traceback.

    Those are `ConfigError` and `TaskError`, of which every error that a user can mend is one. For
    mains that are started by themselves; the front door does the same for every command.
    """
    status = Status()
    try:
        yield status
    except Exception as error:
        code = status_of(error, command, (TaskError, ConfigError))
        if code is None:
            raise
        status.code = code


def say_unscored(rows: Sequence[Mapping[str, Any]], name: str, what: str) -> int:
    """Exit status of an evaluation: 3 when rows have no outcome, which is said with the reason of
    the first, else 0. `name` is the key of a row's id, `what` a row is called."""
    broken = [row for row in rows if row["outcome"] is None]
    if not broken:
        return 0
    first = broken[0]
    print(
        f"assay eval: {len(broken)} of {len(rows)} {what} have no outcome and count nowhere; "
        f"the first: {first[name]}: {first['failure'] or first['why']}",
        file=sys.stderr,
    )
    return 3
