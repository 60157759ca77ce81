# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""What slurm/grpo_multinode.sbatch asks about Ray: addresses, ports, whether all nodes are there.

python -m train.cluster.ray_cluster address            this node's IPv4 address
python -m train.cluster.ray_cluster port JOB RESTART   a base port that is free here
python -m train.cluster.ray_cluster wait ADDRESS --nodes N --gpus G --seconds S
python -m train.cluster.ray_cluster watch ADDRESS --nodes N --since T   exit 3: one is lost
python -m train.cluster.ray_cluster lost ADDRESS --nodes N --since T    the same, asked once
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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FIRST, SPAN, STEP = 20000, 10000, 20
# A node that Ray has declared dead never comes back; a head that does not answer may only be busy.
SILENT_S, TELL_S, ASK_S = 120.0, 60.0, 5.0
EXIT_LOST = 3
STARTS, EARLY_S = 3, 180.0


def address(interface: str = "") -> str:
    """The IPv4 address of an interface, or of this host's name; never a loopback one of it, where
    there is another. Raises OSError when there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        if interface:
            asked = struct.pack("256s", interface.encode()[:15])
            return socket.inet_ntoa(fcntl.ioctl(one.fileno(), 0x8915, asked)[20:24])  # SIOCGIFADDR
        found = socket.gethostbyname(socket.gethostname())
        if found.startswith("127."):
            with suppress(OSError):
                one.connect(("192.0.2.1", 9))  # sends nothing: asks which interface would be used
                found = str(one.getsockname()[0])
        return found


def base_port(job: int, restart: int, free: Callable[[int], bool] | None = None) -> int:
    """A base from the job's id and restart, the first of which STEP ports are free on this host."""
    is_free = free or _is_free
    for attempt in range(SPAN // STEP):
        base = FIRST + (job * 4 + restart + attempt) * STEP % SPAN
        if all(is_free(base + i) for i in range(STEP)):
            return base
    raise OSError(f"no {STEP} free ports in a row between {FIRST} and {FIRST + SPAN}")


def _is_free(port: int) -> bool:
    with socket.socket() as one, suppress(OSError):
        one.bind(("", port))
        return True
    return False


@dataclass(frozen=True)
class Standing:
    """A cluster as its head has it, in words too: nodes alive, their GPUs, and when the last of the
    others died (epoch, s). Without an answer of the head there is none of that."""

    text: str
    answers: bool = False
    nodes: int = 0
    gpus: int = 0
    died: float = 0.0


def standing(where: str) -> Standing:
    """What the head says."""
    from ray._raylet import GcsClient

    try:
        found = list(GcsClient(address=where).get_all_node_info(timeout=10).values())
    except Exception as error:  # not up yet, busy, or gone: every error means that
        return Standing(f"no answer ({type(error).__name__})")
    live = [n for n in found if n.state == 0]  # GcsNodeInfo.ALIVE
    gpus = int(sum(n.resources_total.get("GPU", 0) for n in live))
    died = max((n.end_time_ms / 1000 for n in found if n.state != 0), default=0.0)
    return Standing(f"{len(live)} nodes and {gpus} GPUs", True, len(live), gpus, died)


def wait(where: str, nodes: int, gpus: int, seconds: float) -> int:
    """0 when `nodes` nodes with `gpus` GPUs together are there; 1 after `seconds`."""
    end, said = time.monotonic() + seconds, ""
    while True:
        have = standing(where)
        if have.text != said:
            said = have.text
            print(f"ray at {where}: {said} of {nodes} and {gpus}", flush=True)
        if have.nodes >= nodes and have.gpus >= gpus:
            return 0
        if time.monotonic() > end:
            print(f"ray at {where}: still {said} after {seconds:.0f} s", file=sys.stderr)
            return 1
        time.sleep(0.5)


def watch(where: str, nodes: int, since: float, once: bool) -> int:
    """Print a line a minute; EXIT_LOST when a node is missing or has died after `since`, for which
    another may have joined, or the head is silent. `once`: 0 where none of that holds now.

    verl's actors end with errors of their own soon after; a job that ends with those is not
    requeued, so this has to be quicker than they are, or be asked again (`once`).
    """
    answered, told = time.monotonic(), 0.0
    while True:
        now, have = time.monotonic(), standing(where)
        answered = now if have.answers else answered
        lost = have.answers and (have.nodes < nodes or have.died >= since)
        if lost or now - answered > SILENT_S or (once and not have.answers):
            print(f"ray: {have.text} of {nodes} nodes: one is lost", file=sys.stderr)
            return EXIT_LOST
        if once:
            return 0
        if now - told > TELL_S:
            print(f"ray: {have.text} of {nodes} nodes", flush=True)
            told = now
        time.sleep(ASK_S)


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
    parser.add_argument("kind", choices=("address", "port", "wait", "watch", "lost"))
    parser.add_argument("words", nargs="*", metavar="ADDRESS or JOB RESTART")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--since", type=float, default=0, help="seconds since 1970")
    args = parser.parse_args(argv)
    if args.kind == "address":
        print(address(os.environ.get("ASSAY_INTERFACE", "")))
    elif args.kind == "port":
        job, restart = map(int, args.words)
        print(base_port(job, restart))
    elif args.kind == "wait":
        return wait(args.words[0], args.nodes, args.gpus, args.seconds)
    else:
        return watch(args.words[0], args.nodes, args.since, args.kind == "lost")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
