"""`python -m train.cluster.preflight [COMMAND ARGS…]`: what a job asks before it starts anything.

Is this the checkout that the job was meant to run? Our packages have plain names (`train`,
`rewards`), which an installed package or a file in the working directory could shadow; a job that
runs someone else's code must not start. And, for `sft`, `grpo` and `grpo_multinode`: are the
settings valid, and does the job have the nodes, tasks and GPUs that they count on?
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from configs.cluster import ClusterConfig
from configs.loader import ConfigError
from train.cluster.settings import Asked, asked

OURS = ("assay", "configs", "rewards", "rollouts", "data_gen", "train")


def strays(root: Path) -> list[str]:
    """One sentence for every package of ours that does not come from the checkout `root`."""
    found: list[str] = []
    for name in OURS:
        file = getattr(importlib.import_module(name), "__file__", None)
        if file is None or root.resolve() not in Path(file).resolve().parents:
            found.append(f"package {name} comes from {file}, not from {root}; unset PYTHONPATH")
    return found


def mismatches(want: Asked, environ: Mapping[str, str], devices: int) -> list[str]:
    """What the settings count on and the job does not have, one sentence each.

    `devices`: GPUs seen on this node, for sites whose Slurm does not count them.
    """
    nodes, cluster = int(environ.get("SLURM_NNODES", "1")), want.config.cluster
    tasks = int(environ.get("SLURM_NTASKS") or nodes)
    found: list[str] = []
    if tasks != nodes:
        found.append(
            f"the job has {tasks} tasks on {nodes} node(s), which would all do the same run; "
            "sbatch --ntasks-per-node=1 (cores: --cpus-per-task)"
        )
    if want.backend == "embedded":
        if nodes > 1:
            found.append(
                f"the job has {nodes} nodes and the run uses one device; sbatch --nodes=1, or add "
                f"--backend {'deepspeed' if want.command == 'sft' else 'verl'}"
            )
        return found
    # the multi-node script says how many nodes it has; a configuration that names a number means it
    free = want.command == "grpo_multinode" and cluster.nodes == 1
    if cluster.nodes != nodes and not free:
        found.append(
            f"cluster.nodes={cluster.nodes} and the job has {nodes}; sbatch "
            f"--nodes={cluster.nodes}, or set cluster.nodes={nodes}"
        )
    return [*found, *_gpus(cluster, environ, devices)]


def _gpus(cluster: ClusterConfig, environ: Mapping[str, str], devices: int) -> list[str]:
    have = int(environ.get("SLURM_GPUS_ON_NODE") or devices)
    if cluster.device == "cpu" or have >= cluster.gpus_per_node:
        return []
    return [
        f"cluster.gpus_per_node={cluster.gpus_per_node} and the job has {have} GPU(s) on a node; "
        f"sbatch --gpus-per-node={cluster.gpus_per_node}, or set cluster.gpus_per_node={have or 1}"
    ]


def main(argv: Sequence[str]) -> int:
    problems = strays(Path(os.environ.get("ASSAY_ROOT", ".")))
    if argv and not problems:
        try:
            want = asked(argv[0], argv[1:])
            seen = len(list(Path("/dev").glob("nvidia[0-9]*")))
            problems = mismatches(want, os.environ, seen)
        except ConfigError as error:
            problems = [str(error)]
    for problem in problems:
        print(f"preflight: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
