"""A real Slurm of four virtual nodes in a temporary folder, with or without root.

Every node is a slurmd of its own on this host; they share /tmp, ports and the host name.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from places import ROOT

NODES = ("n1", "n2", "n3", "n4")
CONF = """\
ClusterName=mini
SlurmctldHost={host}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={d}/munge.sock,cred_expire=5
SlurmctldPort={ctld}
StateSaveLocation={d}/state
SlurmctldPidFile={d}/run/ctld.pid
SlurmctldLogFile={d}/log/ctld.log
SlurmdPidFile={d}/run/%n.pid
SlurmdLogFile={d}/log/%n.log
SlurmdSpoolDir={d}/spool/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
SchedulerParameters=sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
KillWait=5
DefMemPerNode=400
{nodes}
PartitionName=main Nodes=n[1-4] Default=YES MaxTime=60 PriorityTier=1 GraceTime=30
PartitionName=high Nodes=n[1-4] MaxTime=60 PriorityTier=2 PreemptMode=OFF
"""
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel")


def missing() -> str | None:
    """Why a real Slurm cannot be started here, or None."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    lacking = [p for p in PROGRAMS if shutil.which(p) is None]
    if lacking:
        return f"no {lacking[0]} here; apt-get install --no-install-recommends slurm-wlm munge"
    if not Path("/sys/fs/cgroup").is_dir():
        return "no /sys/fs/cgroup, without which slurmd 22.05 does not start"
    try:
        socket.gethostbyname(host())
    except OSError:
        return f"the host name {host()} does not resolve"
    return None


def host() -> str:
    return socket.gethostname().split(".")[0]


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on, all different."""
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def wait_for(what: str, ready: object, seconds: float = 60.0) -> None:
    """Ask until `ready()` is true; raises TimeoutError naming `what`."""
    end = time.monotonic() + seconds
    while not ready():  # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)


def alive(pid: int) -> bool:
    """False for a zombie too: pid 1 of a container may not reap."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class MiniSlurm:
    """Start with `start()`, end with `stop()`; jobs are submitted with `self.env`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            **os.environ,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "ASSAY_ROOT": str(ROOT),
            "ASSAY_PYTHON": sys.executable,
            "ASSAY_DOCTOR": "0",
            "OMP_NUM_THREADS": "1",
        }

    def start(self) -> None:
        d, ports = self.folder, free_ports(5)
        for name in ("state", "run", "log", "spool"):
            (d / name).mkdir(parents=True)
        d.chmod(0o755)
        key = d / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.gpus = self._fake_gpus()
        gres = f" Gres=gpu:a100:{self.gpus}" if self.gpus else ""
        nodes = "\n".join(
            f"NodeName={n} NodeHostname={host()} NodeAddr=127.0.0.1 Port={p} CPUs=16"
            f" RealMemory=256000{gres}"
            for n, p in zip(NODES, ports[1:], strict=True)
        )
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout
        conf = CONF.format(host=host(), user=user.strip(), d=d, ctld=ports[0], nodes=nodes)
        (d / "slurm.conf").write_text(conf)
        # forced: pytest's folders are closed to others, which munged would refuse
        self.run(
            "munged",
            "--force",
            f"--key-file={key}",
            f"--socket={d}/munge.sock",
            f"--pid-file={d}/munge.pid",
            f"--log-file={d}/munge.log",
            f"--seed-file={d}/seed",
        )
        self.run("slurmctld")
        for node in NODES:
            self.start_node(node)
        wait_for("all nodes idle", lambda: set(self.states()) == {"idle"})

    def _fake_gpus(self, count: int = 2) -> int:
        """Device files without a driver: Slurm then counts and hands out GPUs as on a cluster. 0
        for an ordinary user, who may make none."""
        try:
            for i in range(count):
                os.mknod(self.folder / f"nvidia{i}", stat.S_IFCHR | 0o666, os.makedev(195, i))
        except PermissionError:
            return 0
        files = f"{self.folder}/nvidia[0-{count - 1}]"
        (self.folder / "gres.conf").write_text(
            f"NodeName=n[1-4] Name=gpu Type=a100 File={files}\n", encoding="utf-8"
        )
        return count

    def start_node(self, node: str) -> None:
        (self.folder / "spool" / node).mkdir(exist_ok=True)
        self.run("slurmd", "-N", node)

    def kill_node(self, node: str) -> None:
        """What a power cut does: the node's slurmd, its step daemons and their processes, at once.

        Then what the operator does: the node is declared down and its jobs are requeued.
        """
        pid = int((self.folder / "run" / f"{node}.pid").read_text())
        # a step daemon hides its environment, but not that of what it started
        mine = {p for p in processes() if self._is_task(p, node)}
        daemons = {
            p for p in processes() if "slurmstepd" in command(p) and mine & set(descendants(p))
        }
        for victim in (pid, *daemons, *mine):
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                continue
        wait_for("the node's daemon gone", lambda: not alive(pid))
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")

    def kill_daemon(self, node: str) -> None:
        """The node's slurmd alone, as when it crashes: its jobs' step daemons run on."""
        pid = int((self.folder / "run" / f"{node}.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        wait_for("the node's daemon gone", lambda: not alive(pid))

    def revive_node(self, node: str) -> None:
        self.start_node(node)
        wait_for("the node's return", lambda: self._resumed(node))

    def _resumed(self, node: str) -> bool:
        if "down" in self.run("sinfo", "-h", "-n", node, "-o", "%T"):
            self.try_run("scontrol", "update", f"nodename={node}", "state=resume")
        return self.run("sinfo", "-h", "-n", node, "-o", "%T").split()[:1] == ["idle"]

    def _is_task(self, pid: int, node: str) -> bool:
        words = environ(pid).split("\0")
        return (
            f"SLURMD_NODENAME={node}" in words and f"SLURM_CONF={self.env['SLURM_CONF']}" in words
        )

    def stop(self) -> None:
        self.try_run("scancel", "--state=RUNNING")
        self.try_run("scancel", "--state=PENDING")
        time.sleep(0.2)
        pids = [p for p in self.folder.glob("run/*.pid")] + [self.folder / "munge.pid"]
        for file in pids:
            try:
                os.kill(int(file.read_text()), signal.SIGKILL)
            except (OSError, ValueError):
                continue
        for pid in processes():
            if str(self.folder) in environ(pid) and pid != os.getpid():
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    continue

    def states(self) -> list[str]:
        return self.run("sinfo", "-h", "-o", "%T").split()

    def run(self, *words: str, cwd: Path | None = None, **more: str) -> str:
        """Standard output of one Slurm command; raises with its error text."""
        done = subprocess.run(
            words, env={**self.env, **more}, capture_output=True, text=True, check=False, cwd=cwd
        )
        said = done.stderr or done.stdout
        assert done.returncode == 0, f"{' '.join(words)}: exit status {done.returncode}: {said}"
        return done.stdout

    def try_run(self, *words: str) -> None:
        subprocess.run(words, env=self.env, capture_output=True, check=False)

    def submit(self, *words: str, cwd: Path | None = None, **more: str) -> str:
        return self.run("sbatch", "--parsable", *words, cwd=cwd, **more).strip()

    def script(self, log: Path, name: str, *words: object, options: str = "", **more: str) -> str:
        """Submit a script of slurm/ with options of sbatch; its output goes to `log`."""
        script = str(ROOT / "slurm" / f"{name}.sbatch")
        return self.submit("-o", str(log), *options.split(), script, *map(str, words), **more)

    def job(self, job: str) -> dict[str, str]:
        """Fields of `scontrol show job`, of the first record. A busy controller may miss one
        question: it is asked three times."""
        for attempt in range(3):
            try:
                text = self.run("scontrol", "-o", "show", "job", job).splitlines()[0]
                break
            except AssertionError:
                if attempt == 2:
                    raise
                time.sleep(0.5)
        return dict(pair.split("=", 1) for pair in text.split() if "=" in pair)

    def state(self, job: str) -> str:
        return self.job(job)["JobState"]

    def wait(self, job: str, *states: str, seconds: float = 120.0) -> dict[str, str]:
        """Wait until the job is in one of `states` (default: any it ends in)."""
        ends = states or ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "DEADLINE")
        wait_for(f"job {job} in {ends}", lambda: self.state(job) in ends, seconds)
        return self.job(job)


def processes() -> Sequence[int]:
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]


def environ(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for other in processes():
        try:
            parent = int(Path(f"/proc/{other}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if parent == pid:
            found += [other, *descendants(other)]
    return found
