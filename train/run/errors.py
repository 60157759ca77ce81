"""Turn the mistakes a user can mend into one sentence and an exit status, at the edge only."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from assay.console import status_of


@dataclass
class Status:
    """Exit status of a command (`assay.console`)."""

    code: int = 0


@contextmanager
def say_known_errors(command: str) -> Generator[Status]:
    """Run a command's body; errors that name their own remedy are printed without a traceback.

    Those are `TaskError`s. For
    mains that are started by themselves; the front door does the same for every command.
    """
    status = Status()
    try:
        yield status
    except Exception as error:
        code = status_of(error, command)
        if code is None:
            raise
        status.code = code
