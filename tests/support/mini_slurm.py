"""A real Slurm of four virtual nodes in a temporary folder, with or without root.

Every node is a slurmd of its own on this host; they share /tmp, ports and the host name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

from places import ROOT

NODES = ("n1", "n2", "n3", "n4")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel")
ENDS = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "DEADLINE")


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
    with contextlib.ExitStack() as held:
        made = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in made]


def wait_for(what: str, ready: object, seconds: float = 60.0) -> None:
    """Ask until `ready()` is true; raises TimeoutError naming `what`."""
    end = time.monotonic() + seconds
    while not ready():  # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)


def processes() -> list[int]:
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]


def about(pid: int, name: str) -> str:
    """A file that /proc has of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def alive(pid: int) -> bool:
    """False for a zombie too: pid 1 of a container may not reap."""
    return about(pid, "stat").rpartition(")")[2][1:2] not in ("", "Z", "X")


class MiniSlurm:
    """Start with `start()`, end with `stop()`; jobs are submitted with `self.env`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        own = {"ASSAY_ROOT": str(ROOT), "ASSAY_PYTHON": sys.executable, "ASSAY_DOCTOR": "0"}
        own |= {"SLURM_CONF": str(folder / "slurm.conf"), "OMP_NUM_THREADS": "1"}
        self.env = {**os.environ, **own}

    def start(self) -> None:
        d, ports = self.folder, free_ports(5)
        for name in ("state", "run", "log", *(f"spool/{node}" for node in NODES)):
            (d / name).mkdir(parents=True)
        d.chmod(0o755)
        key = d / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.gpus = self._fake_gpus()
        nodes = "\n".join(
            f"NodeName={n} NodeHostname={host()} NodeAddr=127.0.0.1 Port={p} CPUs=16"
            f" RealMemory=256000" + f" Gres=gpu:a100:{self.gpus}" * (self.gpus > 0)
            for n, p in zip(NODES, ports[1:], strict=True)
        )
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout
        conf = (ROOT / "tests" / "data" / "slurm.conf").read_text("utf-8")
        conf = conf.format(host=host(), user=user.strip(), d=d, ctld=ports[0], nodes=nodes)
        (d / "slurm.conf").write_text(conf)
        # forced: pytest's folders are closed to others, which munged would refuse
        places = {"key": "munge.key", "socket": "munge.sock", "pid": "run/munge.pid"}
        places |= {"log": "log/munge.log", "seed": "seed"}
        options = [f"--{k}{'' if k == 'socket' else '-file'}={d / v}" for k, v in places.items()]
        self.run("munged", "--force", *options)
        self.run("slurmctld")
        for node in NODES:
            self.run("slurmd", "-N", node)
        states = ("sinfo", "-h", "-o", "%T")
        wait_for("all nodes idle", lambda: {*self.run(*states).split()} == {"idle"})

    def _fake_gpus(self, count: int = 2) -> int:
        """Device files without a driver: Slurm then counts and hands out GPUs as on a cluster. 0
        for an ordinary user, who may make none."""
        try:
            for i in range(count):
                os.mknod(self.folder / f"nvidia{i}", stat.S_IFCHR | 0o666, os.makedev(195, i))
        except PermissionError:
            return 0
        files = f"{self.folder}/nvidia[0-{count - 1}]"
        line = f"NodeName=n[1-4] Name=gpu Type=a100 File={files}\n"
        (self.folder / "gres.conf").write_text(line, encoding="utf-8")
        return count

    def kill_node(self, node: str) -> None:
        """What a power cut does: the node's slurmd, its step daemons and their processes, at once.

        Then what the operator does: the node is declared down and its jobs are requeued.
        """
        daemon = int((self.folder / "run" / f"{node}.pid").read_text())
        # a step daemon hides its environment, but not that of what it started
        mine = {p for p in processes() if self._is_task(p, node)}
        parents = {int(about(p, "stat").rpartition(")")[2].split()[1]) for p in mine}
        steps = {p for p in parents if "slurmstepd" in about(p, "cmdline")}
        for victim in (daemon, *steps, *mine):
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        wait_for("the node's daemon gone", lambda: not alive(daemon))
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")

    def revive_node(self, node: str) -> None:
        self.run("slurmd", "-N", node)
        wait_for("the node's return", lambda: self._resumed(node))

    def _resumed(self, node: str) -> bool:
        state = self.run("sinfo", "-h", "-n", node, "-o", "%T")
        if "down" in state:
            self.try_run("scontrol", "update", f"nodename={node}", "state=resume")
        return state.split()[:1] == ["idle"]

    def _is_task(self, pid: int, node: str) -> bool:
        words = about(pid, "environ").split("\0")
        return {f"SLURMD_NODENAME={node}", f"SLURM_CONF={self.env['SLURM_CONF']}"} <= {*words}

    def stop(self) -> None:
        for state in ("RUNNING", "PENDING"):
            self.try_run("scancel", f"--state={state}")
        time.sleep(0.2)
        daemons = [int(file.read_text() or 0) for file in self.folder.glob("run/*.pid")]
        left = [p for p in processes() if str(self.folder) in about(p, "environ")]
        for pid in {*daemons, *left} - {0, os.getpid()}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def run(self, *words: str, cwd: Path | None = None, **more: str) -> str:
        """Standard output of one Slurm command; raises with its error text."""
        env = {**self.env, **more}
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, cwd=cwd)
        said = done.stderr or done.stdout
        assert done.returncode == 0, f"{' '.join(words)}: exit status {done.returncode}: {said}"
        return done.stdout

    def try_run(self, *words: str) -> str:
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else ""

    def submit(self, *words: str, cwd: Path | None = None, **more: str) -> str:
        return self.run("sbatch", "--parsable", *words, cwd=cwd, **more).strip()

    def script(self, log: Path, name: str, *words: object, options: str = "", **more: str) -> str:
        """Submit a script of slurm/ with options of sbatch; its output goes to `log`."""
        script = str(ROOT / "slurm" / f"{name}.sbatch")
        return self.submit("-o", str(log), *options.split(), script, *map(str, words), **more)

    def signal(self, job: str) -> None:
        """What Slurm sends before the time limit, to the batch shell."""
        self.run("scancel", "--signal=USR1", "--batch", job)

    def job(self, job: str) -> dict[str, str]:
        """Fields of `scontrol show job`, of the first record. A busy controller may miss one
        question: it is asked three times."""
        told = (self.try_run("scontrol", "-o", "show", "job", job) for _ in range(3))
        text = next(filter(None, told), "")
        assert text, f"scontrol knows no job {job}"
        return dict(pair.split("=", 1) for pair in text.splitlines()[0].split() if "=" in pair)

    def wait(self, job: str, seconds: float = 120.0) -> dict[str, str]:
        """Wait until the job has ended, however it ends."""
        wait_for(f"the end of job {job}", lambda: self.job(job)["JobState"] in ENDS, seconds)
        return self.job(job)
