"""What a call begins with: scratch sizes, shared directories, the code, its inputs, stdin."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, BinaryIO

from rollouts.sandbox import jail, mounts, wire
from rollouts.sandbox.interpreter import closed_folder
from rollouts.sandbox.job import Job
from rollouts.sandbox.model import MIB, Limits
from rollouts.sandbox.results import listing


def receive(job: Job, request: dict[str, Any]) -> tuple[bytes, int]:
    """Write the inputs; the code itself comes first. Returns the code and an open stdin."""
    folders: list[tuple[str, str]] = request["shared"]
    if job.stage.namespaces:
        if _scratch(job.limits) != _scratch(Limits()):
            mounts.resize_scratch(*_scratch(job.limits))
        if job.limits.threads > 1:
            jail.show_cpus(min(job.limits.threads, len(os.sched_getaffinity(0))))
        if job.stage.shared:
            _show(job, folders)
    else:
        _lend(job, folders)
    source = wire.receive(job.conn, request["code"])
    with _fresh(f"{job.place.work}/main.py", job.place.work) as file:
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


def _show(job: Job, folders: Sequence[tuple[str, str]]) -> None:
    """Mount what this call may see: an overlay under the work directory, folders as they are."""
    work = job.place.work
    for name in [name for folder, name in folders if not folder]:
        try:
            mounts.overlay(name)
        except OSError:  # before Linux 5.11: links to the files instead
            _plain(f"{jail.SHARED}/{name}")
            mounts.give(name, jail.GIVEN)
            mirror(jail.GIVEN, work)
            continue
        os.close(job.work_fd)
        job.work_fd = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    for folder, name in folders:
        if folder:
            os.makedirs(f"{work}/{folder}", exist_ok=True)
            try:
                mounts.layer(name, f"{work}/{folder}")
            except OSError:
                _plain(f"{jail.SHARED}/{name}")
                mounts.give(name, f"{work}/{folder}")
    mounts.hide_shared()


def _plain(top: str) -> None:
    """Raise unless a tree holds nothing that could be written to through a read-only mount."""
    left = [top]
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
                elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                    raise OSError(
                        errno.EPERM, f"the shared directory holds a socket or FIFO: {entry.name!r}"
                    )


def _lend(job: Job, folders: Sequence[tuple[str, str]]) -> None:
    """Without mounts: links to the files, and the right to read what they point to."""
    paths = [job.stage.shared[name] for _, name in folders]
    links = 0
    for path, (folder, _) in zip(paths, folders, strict=True):
        try:
            links += mirror(path, f"{job.place.work}/{folder}")
        except PermissionError as error:
            raise OSError(error.errno, _closed(path, error)) from None
    job.place = replace(job.place, shared=tuple(paths))
    job.limits = replace(job.limits, work_files=job.limits.work_files + links)


def _closed(path: str, error: PermissionError) -> str:
    """What to do about a shared directory that the user of the call may not read."""
    folder = closed_folder(f"{path}/.") or error.filename or path
    return (
        f"the shared directory {path} is closed to the user that model code runs as: "
        f"chmod o+rx {folder}, or put the files elsewhere"
    )


def mirror(source: str, target: str) -> int:
    """Make the directories of `source` in `target`, and a link for each file; returns how many
    entries that took. Real directories, because walking through a tree passes links by."""
    count, left = 0, [(source, target)]
    while left:
        above, here = left.pop()
        os.makedirs(here, exist_ok=True)
        with os.scandir(above) as entries:
            for entry in entries:
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    left.append((entry.path, f"{here}/{entry.name}"))
                else:
                    os.symlink(entry.path, f"{here}/{entry.name}")
    return count


def _scratch(limits: Limits) -> tuple[tuple[int, int], int, int]:
    return (limits.work_mb, limits.work_files), limits.tmp_mb, limits.shm_mb


def _receive_file(job: Job, path: str, size: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with _fresh(path, os.path.dirname(path)) as file:
        while size:
            part = wire.receive(job.conn, min(size, MIB))
            file.write(part)
            size -= len(part)


def _fresh(path: str, directory: str) -> BinaryIO:
    """A new file in the place of a shared one; never through a link that a shared tree holds."""
    if os.path.realpath(directory) != directory:
        raise OSError(errno.ELOOP, "an input file below a link of a shared directory")
    if os.path.lexists(path):
        os.unlink(path)
    return open(path, "xb")
