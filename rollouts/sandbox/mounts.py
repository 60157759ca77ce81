"""The mounts of one call: what it may write to, what it is shown, /proc."""

from __future__ import annotations

import os
import shutil

from rollouts.sandbox import jail
from rollouts.sandbox import syscalls as sc


def bound_backlog(proc: int) -> bool:
    """In a network namespace of our own: let few connections wait. False where that is refused."""
    try:
        descriptor = os.open("sys/net/core/somaxconn", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
    except OSError:
        return False
    try:
        return os.write(descriptor, str(jail.BACKLOG).encode()) > 0
    except OSError:
        return False
    finally:
        os.close(descriptor)


def seal_proc() -> None:
    """Nothing in /proc can be written to any more, by whatever lies behind it."""
    flags = sc.MS_RDONLY | sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC
    sc.mount("none", "/proc", "", sc.MS_REMOUNT | sc.MS_BIND | flags)


def mount_scratch(work: tuple[int, int], tmp: int, shm: int) -> None:
    """The three places a call may write to. Sizes in MiB; `work` also bounds the inodes."""
    flags = sc.MS_NOSUID | sc.MS_NODEV
    sc.mount("tmpfs", jail.WORK, "tmpfs", flags, f"size={work[0]}m,{_inodes(work[1])},mode=755")
    sc.mount(
        "tmpfs", jail.TMP, "tmpfs", flags, f"size={tmp}m,{_inodes(work[1], jail.TMP)},mode=1777"
    )
    sc.mount("tmpfs", jail.SHM, "tmpfs", flags, f"size={shm}m,{_inodes(4096, jail.SHM)},mode=1777")
    jail.show_kept()


def _inodes(files: int, top: str = jail.WORK) -> str:
    return f"nr_inodes={files + len(jail.kept(top)) + 1}"


def resize_scratch(work: tuple[int, int], tmp: int, shm: int) -> None:
    """Give the mounted scratch file systems other sizes, for a call with its own limits."""
    flags = sc.MS_REMOUNT | sc.MS_NOSUID | sc.MS_NODEV
    sc.mount("none", jail.WORK, "", flags, f"size={work[0]}m,{_inodes(work[1])}")
    sc.mount("none", jail.TMP, "", flags, f"size={tmp}m,{_inodes(work[1], jail.TMP)}")
    sc.mount("none", jail.SHM, "", flags, f"size={shm}m")


def overlay(name: str) -> None:
    """Put shared directory `name` under the work directory: it can be read, never changed."""
    upper, scratch = f"{jail.WORK}/.upper", f"{jail.WORK}/.scratch"
    os.mkdir(upper)
    os.mkdir(scratch)
    data = f"lowerdir={jail.SHARED}/{name},upperdir={upper},workdir={scratch},userxattr"
    try:
        sc.mount("overlay", jail.WORK, "overlay", sc.MS_NOSUID | sc.MS_NODEV, data)
    except OSError:
        os.rmdir(upper)
        shutil.rmtree(scratch)
        raise


def layer(name: str, target: str) -> None:
    """Show shared directory `name` at `target` through a read-only overlay over an empty one: a
    socket or a FIFO in it then leads nowhere. A plain mount leaves those open to be written to."""
    data = f"lowerdir={jail.SHARED}/{name}:{jail.GIVEN},userxattr"
    flags = sc.MS_RDONLY | sc.MS_NOSUID | sc.MS_NODEV
    sc.mount("overlay", target, "overlay", flags, data)


def give(name: str, target: str) -> None:
    """Show shared directory `name` at `target`; the new mount is as read-only as the first."""
    sc.mount(f"{jail.SHARED}/{name}", target, "", sc.MS_BIND | sc.MS_REC)


def hide_shared() -> None:
    """Cover the shared directories: a call sees the ones it asked for, and no other."""
    sc.mount("tmpfs", jail.SHARED, "tmpfs", sc.MS_RDONLY | sc.MS_NOSUID | sc.MS_NODEV, "size=4k")
