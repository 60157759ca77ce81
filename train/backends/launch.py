"""Start one process for each device of this node and pass signals on to them.

Not torchrun: it dies of USR1, which is how a cluster says that time is running out.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from assay.console import DONE, status_of
from configs.loader import ConfigError, dump
from configs.machine import ClusterConfig
from configs.schema import SftRunConfig, load_run
from train.lengths import sft_before
from train.memory import sft_report
from train.run.checkpoint import StopFlag, require_disk
from train.run.data import AUTO, asked_for, training_rows, with_folder
from train.run.record import hashes_of, refuse_other_inputs, write_run_record
from train.run.run import held, settled

GRACE_S = 30.0
ENDED_WELL = (0, 75, 130)  # done, or saved because it was asked to stop or interrupted


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def first_host(nodelist: str) -> str:
    """The first name of Slurm's list, such as `n[03-07,9],login1`: n03.

    Read here because `scontrol` is not inside a container.
    """
    depth, first = 0, ""
    for letter in nodelist:
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "," and not depth:
            break
        first += letter
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first)


def threads_of(environ: Mapping[str, str], processes: int) -> int:
    """Threads that each of `processes` ranks may use: its share of the job's cores on this node."""
    cores = int(environ.get("SLURM_CPUS_PER_TASK") or len(os.sched_getaffinity(0)))
    return max(1, cores // processes)


def rendezvous(environ: Mapping[str, str]) -> tuple[int, int, str, int]:
    """(nodes, this node's number, address, port) of the meeting point, from Slurm if it is there.

    The port comes from the job's id and restart, so that all nodes agree without talking.
    """
    nodes = int(environ.get("SLURM_NNODES", "1"))
    if nodes == 1:
        return 1, 0, "127.0.0.1", free_port()
    restart = int(environ.get("SLURM_RESTART_COUNT", "0"))
    port = 20000 + (int(environ["SLURM_JOB_ID"]) * 7 + restart) % 10000
    return nodes, int(environ["SLURM_NODEID"]), first_host(environ["SLURM_JOB_NODELIST"]), port


def launch(words: Sequence[str], processes: int) -> int:
    """Run `python -m WORDS` as `processes` ranks on this node; the first failure's exit status.

    USR1 and TERM reach every rank; when one fails the others are ended (TERM, then KILL).
    """
    nodes, node, address, port = rendezvous(os.environ)
    threads = threads_of(os.environ, processes)
    ranks: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: object) -> None:
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(number)

    def wait_for_them(number: int, frame: object) -> None:
        """A terminal interrupts the ranks by itself; they save. Once more ends this process."""
        signal.signal(number, signal.default_int_handler)

    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, pass_on)
    signal.signal(signal.SIGINT, wait_for_them)
    for local in range(processes):
        env = {
            **os.environ,
            "RANK": str(node * processes + local),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(nodes * processes),
            "LOCAL_WORLD_SIZE": str(processes),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
            # by itself each of them would start as many as the node has cores
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(threads),
        }
        ranks.append(subprocess.Popen([sys.executable, "-m", *words], env=env))
    codes: list[int] = []
    live = list(ranks)
    while live:
        time.sleep(0.2)
        for rank in [r for r in live if r.poll() is not None]:
            live.remove(rank)
            codes.append(int(rank.returncode))
            if rank.returncode not in ENDED_WELL:
                _end(live)
    bad = [code for code in codes if code not in ENDED_WELL]
    code = bad[0] if bad else max(codes)
    return code if code >= 0 else 128 - code


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    """The others wait for a message that will not come: TERM, and KILL after a while."""
    for rank in ranks:
        rank.terminate()
    until = time.monotonic() + GRACE_S
    for rank in ranks:
        try:
            rank.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            rank.kill()


def require_devices(cluster: ClusterConfig) -> None:
    """Raises `ConfigError` where every rank would end with a traceback of its own."""
    if importlib.util.find_spec("deepspeed") is None:
        raise ConfigError(
            "--backend deepspeed: deepspeed is not installed; install the extra `deepspeed` "
            "(docs/clusters.md)"
        )
    if cluster.device == "cpu":
        return
    there = len(list(Path("/dev").glob("nvidia[0-9]*")))
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    have = there if shown is None else min(there, len([d for d in shown.split(",") if d.strip()]))
    if have < cluster.gpus_per_node:
        raise ConfigError(
            f"cluster.gpus_per_node={cluster.gpus_per_node} and this node has {have} GPU(s); set "
            "cluster.gpus_per_node, or try it on a tiny model with cluster.device=cpu"
        )


def on_devices(config: SftRunConfig) -> int:
    """`assay sft --backend deepspeed`: one process a device, on this node's share of the nodes."""
    if config.validation not in (None, AUTO):
        raise ConfigError("--backend deepspeed does not evaluate while it trains; leave validation")
    rows = training_rows(config.data, asked_for(config), config.prompts)
    config = with_folder(settled(replace(config, validation=None), config.cluster.device))
    config, said = sft_before(config, rows, here=False)
    print(said, flush=True)
    if os.environ.get("SLURM_NODEID", "0") != "0":  # the first node's process holds the folder
        return _launched(config)
    with held(Path(config.out)):
        return _launched(config)


def _launched(config: SftRunConfig) -> int:
    require_devices(config.cluster)
    out = Path(config.out)
    require_disk(out, 1_000_000_000, "checkpoints of this run")
    print(sft_report(config), flush=True)
    (out / "DONE").unlink(missing_ok=True)
    node = os.environ.get("SLURM_NODEID", "0")
    if node == "0":
        inputs = {"data": Path(config.data), "model": Path(str(config.model.path))}
        inputs = hashes_of({name: path for name, path in inputs.items() if path.exists()})
        refuse_other_inputs(inputs, out)
        write_run_record(out, config, inputs)
    settings = out / f"deepspeed_node_{node}.yaml"  # every node starts its own ranks
    dump(config, settings)
    if config.cluster.device == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    return launch(["train.backends.launch", str(settings)], config.cluster.gpus_per_node)


def main(path: str) -> int:
    """Body of one rank."""
    stop = StopFlag().listen()  # before the long imports: USR1 would end the process
    try:
        from train.backends.deepspeed import main as train

        train(load_run(SftRunConfig, path), stop)
    except Exception as error:
        code = status_of(error, "assay sft")
        if code is None:
            raise
        return code
    return DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
