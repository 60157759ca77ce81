"""What breaks an episode: bad input, broken infrastructure, or a bug."""

from __future__ import annotations

import traceback
from typing import Any

from assay.task import TaskError
from rollouts.environment import EnvironmentFailure
from rollouts.sandbox.errors import SandboxError

BROKEN = (OSError, SandboxError, EnvironmentFailure)  # what counts as infrastructure
FORESEEN = (TaskError,)  # bad input, said in one sentence: these end the run
_REPORT = 20_000  # characters of a traceback that are kept, its end


def bug_report(error: BaseException) -> tuple[str, dict[str, Any]]:
    """(one line for a trajectory's `failure`, what its `notes` keep): broken infrastructure in
    words, with what an endpoint's error notes; of an exception that nobody foresaw the traceback,
    as `bug`."""
    said = f"{type(error).__name__}: {error}"[:500]
    if isinstance(error, BROKEN):
        notes: Any = getattr(error, "notes", None)  # of an `EndpointError`
        return said, dict(notes or {})
    whole = "".join(traceback.format_exception(error))
    return f"bug: {said}", {"bug": whole[-_REPORT:]}
