"""What a call begins with: scratch sizes, a shared directory, the code, its inputs, stdin."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from rollouts.sandbox import jail, scene, wire
from rollouts.sandbox.model import MIB, Limits
from rollouts.sandbox.results import listing

if TYPE_CHECKING:
    from rollouts.sandbox.inside import Job


def receive(job: Job, request: dict[str, Any]) -> tuple[bytes, int]:
    """Write the inputs; the code itself comes first. Returns the code and an open stdin."""
    if job.stage.namespaces:
        if _scratch(job.limits) != _scratch(Limits()):
            jail.resize_scratch(*_scratch(job.limits))
        name = request.get("shared")
        if name:
            jail.overlay(name)
        if job.stage.shared:
            jail.hide_shared()
        if name:
            os.close(job.work_fd)
            job.work_fd = os.open(job.place.work, os.O_RDONLY | os.O_DIRECTORY)
            if job.ruleset >= 0:  # made ahead, for the directory that the overlay now covers
                os.close(job.ruleset)
                job.ruleset = scene.ahead_ruleset(job.stage, job.place)
    source = wire.receive(job.conn, request["code"])
    with open(f"{job.place.work}/main.py", "wb") as file:
        file.write(source)
    for name, size in request["files"]:
        _receive_file(job, f"{job.place.work}/{name}", size)
    stdin = os.open(os.devnull, os.O_RDONLY)
    if request.get("stdin"):
        path = f"{job.place.tmp}/.stdin"
        _receive_file(job, path, request["stdin"])
        os.dup2(os.open(path, os.O_RDONLY), stdin)
        os.unlink(path)
    job.before = listing(job.work_fd)
    return source, stdin


def _scratch(limits: Limits) -> tuple[tuple[int, int], int, int]:
    return (limits.work_mb, limits.work_files), limits.tmp_mb, limits.shm_mb


def _receive_file(job: Job, path: str, size: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        while size:
            part = wire.receive(job.conn, min(size, MIB))
            file.write(part)
            size -= len(part)
