# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""What slurm/grpo_multinode.sbatch asks about Ray: addresses, ports, whether all nodes are there.

python -m train.backends.verl.ray_cluster address            this node's IPv4 address
python -m train.backends.verl.ray_cluster port JOB RESTART   a base port that is free here
python -m train.backends.verl.ray_cluster wait ADDRESS --nodes N --gpus G --seconds S
python -m train.backends.verl.ray_cluster watch ADDRESS --nodes N --since T   exit 3: one is lost
python -m train.backends.verl.ray_cluster lost ADDRESS --nodes N --since T    the same, asked once
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FIRST, SPAN, STEP = 20000, 10000, 20
# A node that Ray has declared dead never comes back; a head that does not answer may only be busy.
SILENT_S, TELL_S, ASK_S = 120.0, 60.0, 5.0
EXIT_LOST = 3
STARTS, EARLY_S = 3, 180.0


def address(interface: str = "") -> str:
    """The IPv4 address of an interface, or of this host's name; never a loopback one of it.

    Raises OSError when there is none.
    """
    if interface:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            asked = struct.pack("256s", interface.encode()[:15])
            return socket.inet_ntoa(fcntl.ioctl(one.fileno(), 0x8915, asked)[20:24])  # SIOCGIFADDR
    found = [str(i[4][0]) for i in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    outside = [ip for ip in found if not ip.startswith("127.")]
    if outside or not found:
        return outside[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))  # sends nothing: asks which interface would be used
            return str(one.getsockname()[0])
        except OSError:
            return found[0]


def base_port(job: int, restart: int, free: Callable[[int], bool] | None = None) -> int:
    """A base from the job's id and restart, the first of which STEP ports are free on this host."""
    is_free = free or _is_free
    for attempt in range(SPAN // STEP):
        base = FIRST + (job * 4 + restart + attempt) * STEP % SPAN
        if all(is_free(base + i) for i in range(STEP)):
            return base
    raise OSError(f"no {STEP} free ports in a row between {FIRST} and {FIRST + SPAN}")


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("", port))
        except OSError:
            return False
    return True


@dataclass(frozen=True)
class Standing:
    """A cluster as its head has it: nodes alive, their GPUs, and when others died (epoch, s)."""

    nodes: int
    gpus: int
    deaths: tuple[float, ...] = ()

    def lost(self, nodes: int, since: float) -> bool:
        """Whether a node is missing, or died after `since`: another may have joined for it."""
        return self.nodes < nodes or any(death >= since for death in self.deaths)


def standing(where: str) -> Standing:
    """Raises when the head does not answer."""
    from ray._raylet import GcsClient

    found = list(GcsClient(address=where).get_all_node_info(timeout=10).values())
    live = [n for n in found if n.state == 0]  # GcsNodeInfo.ALIVE
    deaths = tuple(n.end_time_ms / 1000 for n in found if n.state != 0)
    return Standing(len(live), int(sum(n.resources_total.get("GPU", 0) for n in live)), deaths)


def ask(where: str) -> tuple[Standing | None, str]:
    """The cluster, if its head answers, and why not."""
    try:
        return standing(where), ""
    except Exception as error:  # not up yet, busy, or gone: every error means that
        return None, f"no answer ({type(error).__name__})"


def wait(where: str, nodes: int, gpus: int, seconds: float) -> int:
    """0 when `nodes` nodes with `gpus` GPUs together are there; 1 after `seconds`."""
    end, said = time.monotonic() + seconds, ""
    while True:
        have, now = ask(where)
        if have:
            now = f"{have.nodes} of {nodes} nodes, {have.gpus} of {gpus} GPUs"
        if now != said:
            print(f"ray at {where}: {now}", flush=True)
            said = now
        if have and have.nodes >= nodes and have.gpus >= gpus:
            return 0
        if time.monotonic() > end:
            print(f"ray at {where}: still {now} after {seconds:.0f} s", file=sys.stderr)
            return 1
        time.sleep(0.5)


def watch(where: str, nodes: int, since: float) -> int:
    """Print a line a minute; EXIT_LOST when Ray has declared a node dead, or its head is silent.

    verl's actors end with errors of their own soon after; a job that ends with those is not
    requeued, so this has to be quicker than they are, or be asked again (`lost`).
    """
    answered, told = time.monotonic(), 0.0
    while True:
        now = time.monotonic()
        have, text = ask(where)
        if have:
            answered, text = now, f"{have.nodes} of {nodes} nodes alive"
            if have.lost(nodes, since):
                print(f"ray: {text}, one was lost", file=sys.stderr)
                return EXIT_LOST
        if now - told > TELL_S:
            print(f"ray: {text}", flush=True)
            told = now
        if now - answered > SILENT_S:
            print(f"ray: no answer for {SILENT_S:.0f} s", file=sys.stderr)
            return EXIT_LOST
        time.sleep(ASK_S)


def lost(where: str, nodes: int, since: float) -> int:
    """EXIT_LOST when a node is missing or has died after `since`, or the head is gone; else 0."""
    have, text = ask(where)
    if have is None:
        print(f"ray: {text}", file=sys.stderr)
    return EXIT_LOST if have is None or have.lost(nodes, since) else 0


def start(options: list[str]) -> int:
    """`ray start OPTIONS`, which must hold --block; its exit status.

    Ray gives a node 30 s to come up, which a busy one may miss: an early failure is tried again,
    but not once the cluster was whole (the file ASSAY_RAY_UP is there): the run on it is lost then.
    """
    whole = Path(os.environ.get("ASSAY_RAY_UP") or "/nonexistent")
    asked: list[int] = []
    code = 1
    for attempt in range(1, STARTS + 1):
        began = time.monotonic()
        words = [sys.executable, "-m", "ray.scripts.scripts", "start", *options]
        ray = subprocess.Popen(words)

        def pass_on(number: int, frame: object, ray: subprocess.Popen[bytes] = ray) -> None:
            asked.append(number)
            ray.send_signal(number)

        signal.signal(signal.SIGTERM, pass_on)
        code = ray.wait()
        if code == 0 or asked or whole.exists() or time.monotonic() - began > EARLY_S:
            break
        print(f"ray start failed (attempt {attempt} of {STARTS})", flush=True)
    return max(code, 0)


def main(argv: list[str]) -> int:
    if argv[:1] == ["start"]:
        return start(argv[1:])
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    kinds.add_parser("address")
    port = kinds.add_parser("port")
    port.add_argument("job", type=int)
    port.add_argument("restart", type=int)
    for name in ("wait", "watch", "lost"):
        one = kinds.add_parser(name)
        one.add_argument("where", metavar="ADDRESS")
        one.add_argument("--nodes", type=int, required=True)
        one.add_argument("--gpus", type=int, default=0)
        one.add_argument("--seconds", type=float, default=300)
        one.add_argument("--since", type=float, default=0, help="seconds since 1970")
    args = parser.parse_args(argv)
    if args.kind == "address":
        print(address(os.environ.get("ASSAY_INTERFACE", "")))
    elif args.kind == "port":
        print(base_port(args.job, args.restart))
    elif args.kind == "wait":
        return wait(args.where, args.nodes, args.gpus, args.seconds)
    else:
        return {"watch": watch, "lost": lost}[args.kind](args.where, args.nodes, args.since)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
