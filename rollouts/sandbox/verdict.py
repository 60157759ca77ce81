"""From what init answered to a result: how it ended, in one word and one sentence."""

from __future__ import annotations

import os
import re
import signal

from rollouts.sandbox.exchange import Answer, Call
from rollouts.sandbox.model import Limits, Report, Result, Status
from rollouts.sandbox.text import join

_OUT_OF_MEMORY = re.compile(r"^(\S*MemoryError\b|.*std::bad_alloc)", re.MULTILINE)
_NO_ROOM = re.compile(r"^OSError: \[Errno (28|27|122)\]", re.MULTILINE)


def to_result(
    answer: Answer, call: Call, report: Report | None, queued: float, handed: float
) -> Result:
    """Name what happened: `status` and one sentence."""
    out, err = (join(*stream) for stream in answer.streams)
    code = None if answer.status is None else os.waitstatus_to_exitcode(answer.status)
    status, why = judge(answer, code, err, call.limits)
    return Result(
        status=status,
        exit_code=code,
        signal=-code if code is not None and code < 0 else None,
        stdout=out,
        stderr=err,
        stdout_bytes=answer.streams[0][2],
        stderr_bytes=answer.streams[1][2],
        files=answer.files,
        refused=answer.refused,
        wall_s=answer.wall,
        cpu_s=answer.cpu,
        peak_mb=answer.peak / (1 << 20),
        layers=report.short() if report else {},
        why=why,
        queue_s=queued,
        spawn_s=max(0.0, answer.started - handed),
    )


def judge(answer: Answer, code: int | None, stderr: str, limits: Limits) -> tuple[Status, str]:
    """The status, and why: killed by us first, then the limits that the kernel enforced."""
    if answer.end == "timeout":
        return "timeout", f"still running after {limits.wall_s:g} s"
    if answer.end == "cpu":
        return "timeout", f"used more than {limits.cpu_seconds} s of processor time"
    if answer.end == "memory":
        return "memory", f"all processes together used more than {limits.total_mb} MB"
    if answer.end == "disk":
        return "disk", "more files or bytes than the work directory may hold"
    if answer.end.startswith("input"):
        return "disk", f"the input files do not fit into the work directory ({answer.end})"
    if answer.end != "exit" or code is None:
        return "sandbox_error", f"the jail ended early ({answer.end}): {stderr[-300:]}"
    if code == 0:
        return "ok", ""
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and answer.cpu >= limits.cpu_seconds):
        return "timeout", f"used more than {limits.cpu_seconds} s of processor time"
    last = stderr.rstrip().rpartition("\n")[2]
    if _OUT_OF_MEMORY.match(last) or last.startswith("OSError: [Errno 12]"):
        return "memory", f"one process asked for more than {limits.memory_mb} MB"
    if _NO_ROOM.match(last) or answer.full or code == -signal.SIGXFSZ:
        return "disk", "no room left in the work directory, or a file above its limit"
    if code < 0:
        return "error", f"ended by signal {-code}"
    return "error", f"exit status {code}"
