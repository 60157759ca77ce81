"""What a node has beside its GPUs: shared memory, ports, cores, kernel features, fast storage.

Every probe takes the places it looks at, and none fails on a system that has no such place.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from train.backends.verl.ray_cluster import FIRST, SPAN, STEP, base_port
from train.doctor.finding import Finding

PROC = Path("/proc")
SHM = Path("/dev/shm")
RAY_SHM = 160e6  # slurm/ray.sh ends below it: half is Ray's object store
NCCL_SHM = 1e9  # what NVIDIA's documents give a container with several GPUs
SCRATCH_BYTES, SCRATCH_S = 64 << 20, 2.0
SLOW = 100e6  # bytes a second


def shared_memory(least: float = 0.0, folder: Path = SHM) -> Finding:
    """Free bytes of the memory that processes of a node share: Ray's objects and NCCL's buffers."""
    try:
        use = shutil.disk_usage(folder)
    except OSError:
        return Finding("shm", f"{folder} is not here; run on Linux", least == 0)
    text = f"{use.free / 1e9:.2f} of {use.total / 1e9:.2f} GB free at {folder}"
    if use.free >= least:
        return Finding("shm", text)
    return Finding(
        "shm",
        f"{text}, and the run needs {least / 1e9:.2f} GB there; give the container more "
        "(--shm-size), or remove what other jobs left in it",
        False,
    )


def ports(
    environ: Mapping[str, str], proc: Path = PROC, free: Callable[[int], bool] | None = None
) -> Finding:
    """Whether this job's ports for Ray are free, and below those the system hands out by itself."""
    job = int(environ.get("SLURM_JOB_ID") or 0)
    try:
        base = base_port(job, int(environ.get("SLURM_RESTART_COUNT") or 0), free)
    except OSError as error:
        return Finding("ports", f"{error}; end what listens there, or take another node", False)
    text = f"{base} to {base + STEP - 1} are free, for Ray"
    low = _number(proc / "sys/net/ipv4/ip_local_port_range")
    if low is not None and low < FIRST + SPAN:
        return Finding(
            "ports",
            f"{text}; the system hands out ports from {low} on, so one of them may be taken when "
            f"Ray asks for it: sysctl net.ipv4.ip_local_port_range='{FIRST + SPAN} 60999'",
        )
    return Finding("ports", text)


def rendezvous() -> Finding:
    """Whether the ranks of a run on this node can meet: a port on the loopback interface."""
    try:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            one.listen(1)
            with socket.create_connection(one.getsockname(), timeout=5):
                return Finding("ports", "processes here can meet on 127.0.0.1")
    except OSError as error:
        return Finding(
            "ports", f"no process can listen on 127.0.0.1 ({error}); bring up `lo`", False
        )


# file under /proc/sys: (the value that forbids, what to do)
FORBID = {
    "user/max_user_namespaces": (0, "sysctl user.max_user_namespaces=15000"),
    "kernel/unprivileged_userns_clone": (0, "sysctl kernel.unprivileged_userns_clone=1"),
    "kernel/apparmor_restrict_unprivileged_userns": (
        1,
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for python",
    ),
}


def user_namespaces(sandbox: Mapping[str, Any], proc: Path = PROC) -> Finding:
    """`sandbox`: what `rollouts.sandbox.pool.machine_report` found by doing
    it. The kernel's own settings say why it did not work."""
    if sandbox.get("layers", {}).get("user_ns"):
        return Finding("userns", "user namespaces can be made")
    why = [
        f"{name.replace('/', '.', 1)}={value}: {cure}"
        for name, (value, cure) in FORBID.items()
        if _number(proc / "sys" / name) == value
    ]
    reason = sandbox.get("missing", {}).get("user_ns")
    told = "; ".join(why) or reason or "not Linux, or a container's filter refuses them"
    return Finding("userns", f"no user namespaces ({told})", False)


def landlock(sandbox: Mapping[str, Any], proc: Path = PROC) -> Finding:
    found = int(sandbox.get("layers", {}).get("landlock_abi") or 0)
    if found:
        return Finding("landlock", f"version {found} of the kernel's interface")
    try:
        release = (proc / "sys/kernel/osrelease").read_text(encoding="ascii").strip()
    except OSError:
        return Finding("landlock", "none: not Linux, or no /proc", False)
    return Finding(
        "landlock",
        f"none in kernel {release} (5.13 or newer, and `landlock` in its lsm= list; RHEL 8 and "
        "Ubuntu 20.04 have none)",
        False,
    )


def cores(count: int, gpus: int, least: int = 0, jails: int = 0) -> Finding:
    """Cores of this job, and how many each GPU's tools get. `least`: below it Ray waits for ever;
    `jails`: how many sandboxes may run at once."""
    share = f", {count / gpus:.1f} a GPU" if gpus else ""
    beside = f" for {jails} sandboxes side by side" if jails else ""
    text = f"{count} usable{share}{beside}"
    if count >= least:
        return Finding("cores", text)
    return Finding(
        "cores",
        f"{text}, and the run needs {least}; sbatch --cpus-per-task={least}, or fewer GPUs and "
        "cluster.rollout_workers",
        False,
    )


def memory(have: float | None, need: float) -> Finding:
    """Bytes of the node's own memory."""
    if have is None:
        return Finding("memory", f"not known here; the run needs about {need / 1e9:.0f} GB")
    text = f"{have / 1e9:.0f} GB of memory here, and the run needs about {need / 1e9:.0f} GB"
    if have >= need:
        return Finding("memory", text)
    return Finding(
        "memory",
        f"{text} (--dry-run says what for); sbatch --mem={need / 1e9:.0f}G or more, or more nodes",
        False,
    )


def scratch(folder: Path, need: float = 0.0) -> Finding:
    """How fast a file of 64 MB reaches the disk there, in two seconds at most, and what is free.
    `need`: bytes that a run will keep."""
    place = next((p for p in (folder, *folder.absolute().parents) if p.exists()), Path("/"))
    try:
        free = shutil.disk_usage(place).free
        speed = _write_speed(place)
    except OSError as error:
        return Finding(
            "scratch", f"{place} cannot be written to ({error.strerror}); set another folder", False
        )
    text = f"{folder}: {speed / 1e6:,.0f} MB/s written, {free / 1e9:.1f} GB free"
    if speed < SLOW:
        text += ", slow"
    if free >= need:
        return Finding("scratch", text)
    return Finding(
        "scratch",
        f"{text}, and the run's checkpoints need {need / 1e9:.1f} GB; set out=DIR on another disk, "
        "or lower checkpoint.keep",
        False,
    )


def _write_speed(folder: Path) -> float:
    """Bytes a second, flushed to the disk: the page cache alone would tell nothing."""
    block = os.urandom(4 << 20)
    with tempfile.TemporaryFile(dir=folder) as file:
        begin, written = time.perf_counter(), 0
        while written < SCRATCH_BYTES and time.perf_counter() - begin < SCRATCH_S:
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
            written += len(block)
        return written / max(time.perf_counter() - begin, 1e-6)


def _number(file: Path) -> int | None:
    """The first number of a file of the kernel's, None where it has none."""
    try:
        return int(file.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None


def findings(environ: Mapping[str, str], sandbox: Mapping[str, Any], gpus: int) -> list[Finding]:
    """All lines of this file, for no run in particular."""
    from assay.workers import usable_cores

    return [
        shared_memory(),
        ports(environ),
        cores(usable_cores(), gpus),
        scratch(scratch_folder(environ)),
        user_namespaces(sandbox),
        landlock(sandbox),
    ]


def scratch_folder(environ: Mapping[str, str]) -> Path:
    """Where slurm/env.sh puts caches, Ray and the sandbox."""
    return Path(environ.get("ASSAY_SCRATCH") or environ.get("SLURM_TMPDIR") or "/tmp")
