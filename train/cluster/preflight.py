"""What a job is asked to run, checked before it is submitted and once more when it starts.

    python -m train.cluster.preflight [sft|grpo|grpo_multinode ARGS…]      in a job (slurm/lib.sh)
    python -m train.cluster.preflight --job [OPTIONS] slurm/X.sbatch ARGS… before (slurm/chain.sh)

Are the words ones that the command knows? Are the settings valid, and does the job have the nodes,
tasks, GPUs, cores and memory that they count on? In a job also: is this the checkout that it was
meant to run? Our packages have plain names (`train`, `rewards`), which an installed package or a
file in the working directory could shadow; a job that runs someone else's code must not start.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from assay import COMMANDS, subcommand
from assay.console import near_miss, understands
from assay.task import TaskError
from configs.loader import ConfigError
from configs.schema import GrpoRunConfig, SftRunConfig, load_run
from train.cli.training import given, parser_of
from train.cluster.slurm import refuse_command, refuse_words
from train.memory import GB, grpo_report, node_bytes, sft_report
from train.model.source import shape_of

OURS = ("assay", "configs", "rewards", "rollouts", "data_gen", "train")
CORES_A_RANK = 8  # of a DeepSpeed run: offloaded updates are done by them
BACKENDS = {
    "sft": ("embedded", "deepspeed"),
    "grpo": ("embedded", "verl"),
    "grpo_multinode": ("verl", "verl"),  # the script's own, named or not
}
SCRIPTS = {
    "sft.sbatch": "sft",
    "grpo_1node.sbatch": "grpo",
    "grpo_multinode.sbatch": "grpo_multinode",
}
# options of sbatch: what Slurm tells the job of them
TOLD = {
    "nodes": "SLURM_NNODES",
    "gpus-per-node": "SLURM_GPUS_ON_NODE",
    "cpus-per-task": "SLURM_CPUS_PER_TASK",
    "mem": "SLURM_MEM_PER_NODE",
}
UNITS = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}  # of --mem, in MB


@dataclass(frozen=True)
class Asked:
    """A script's command, its backend, and its settings as they will be resolved."""

    command: str
    backend: str
    config: SftRunConfig | GrpoRunConfig


def asked(command: str, words: Sequence[str]) -> Asked:
    """From the arguments of a script: `sft`, `grpo` (one node) or `grpo_multinode`.

    Raises `ConfigError`, or ends (SystemExit), for what the command itself would refuse.
    """
    kind = SftRunConfig if command == "sft" else GrpoRunConfig
    found = given(parser_of(command, "", kind, BACKENDS[command]), words)
    where = (found.config, found.settings, found.family)
    config = load_run(SftRunConfig, *where) if command == "sft" else load_run(GrpoRunConfig, *where)
    return Asked(command, found.backend, config)


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
    free = (want.command == "grpo_multinode" and cluster.nodes == 1) or cluster.rollout_devices
    if cluster.nodes != nodes and not free:
        found.append(
            f"cluster.nodes={cluster.nodes} and the job has {nodes}; sbatch "
            f"--nodes={cluster.nodes}, or set cluster.nodes={nodes}"
        )
    if cluster.device == "cuda":
        found += _cores(want, nodes, environ) + _memory(want, nodes, environ)
    have = int(environ.get("SLURM_GPUS_ON_NODE") or devices)
    if cluster.rollout_devices and nodes * have < cluster.devices + cluster.rollout_devices:
        found.append(
            f"{cluster.devices} GPUs train and {cluster.rollout_devices} draw rollouts "
            f"(cluster.trainer=separate_async), and the job has {nodes} node(s) × {have}; ask for "
            "more with sbatch --nodes and --gpus-per-node"
        )
    if cluster.device == "cuda" and have < cluster.gpus_per_node:
        found.append(
            f"cluster.gpus_per_node={cluster.gpus_per_node} and the job has {have} GPU(s) on a "
            f"node; sbatch --gpus-per-node={cluster.gpus_per_node}, or set "
            f"cluster.gpus_per_node={have or 1}"
        )
    return found


@dataclass(frozen=True)
class Needs:
    """What one node of a job has to have: cores, and GB of memory (0: not known)."""

    cores: int
    memory_gb: int = 0


def needs(want: Asked, nodes: int) -> Needs:
    """Of a run over GPUs: with less it waits for ever, crawls, or is killed for its memory."""
    cluster, config = want.config.cluster, want.config
    # for other nodes than it was written for the cut may not come out even: that is said elsewhere
    with suppress(ValueError):
        config = replace(config, cluster=replace(cluster, nodes=nodes))
    if want.backend == "verl":
        # verl reserves three of Ray's CPUs for each GPU, one for each rollout worker, and some for
        # itself; with fewer it waits for ever (spec: verl 0.9.1, resources)
        cores = 3 * cluster.gpus_per_node - (-(cluster.rollout_workers + 2) // nodes)
    else:
        cores = CORES_A_RANK * cluster.gpus_per_node
    try:
        shape = shape_of(config.model.path)
    except ConfigError:  # an earlier stage makes the model
        return Needs(cores)
    return Needs(cores, int(-(-node_bytes(config, shape) * 1.1 // GB)))


def _cores(want: Asked, nodes: int, environ: Mapping[str, str]) -> list[str]:
    # a step has those of its task, also where the job has the whole node (--exclusive)
    have = environ.get("SLURM_CPUS_PER_TASK") or environ.get("SLURM_CPUS_ON_NODE")
    need = least = needs(want, nodes).cores
    if want.backend == "verl":
        have = environ.get("ASSAY_RAY_CPUS") or have
        why = f"verl asks Ray for {need} (three a GPU, one a rollout worker), for which it would "
        why += "wait for ever"
    else:
        least = want.config.cluster.gpus_per_node
        why = f"DeepSpeed starts {least} processes on it"
    if not have or int(have) >= least:
        return []
    return [f"the job has {have} cores on a node, and {why}; sbatch --cpus-per-task={need} or more"]


def _memory(want: Asked, nodes: int, environ: Mapping[str, str]) -> list[str]:
    """Only where the job has a limit: Slurm gives it in MB, and 0 means all of the node's."""
    have = int(environ.get("SLURM_MEM_PER_NODE") or 0)
    if not have and environ.get("SLURM_MEM_PER_CPU", "0") != "0":
        have = int(environ["SLURM_MEM_PER_CPU"]) * int(environ.get("SLURM_CPUS_ON_NODE") or 1)
    need = needs(want, nodes).memory_gb
    if not have or not need or have * 1024**2 >= need * 1e9:
        return []
    return [
        f"the job has {have * 1024**2 / 1e9:.0f} GB of memory on a node, and the run needs about "
        f"{need} GB (--dry-run says what for); sbatch --mem={need}G or more"
    ]


def refuse_job(words: Sequence[str]) -> None:
    """Raise `ConfigError`, or end with the command's own words, for a job that could only fail.

    `words`: options of sbatch as `--name=value`, the script, and its arguments.
    """
    at = next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))
    if at == len(words) or not Path(words[at]).is_file():
        raise ConfigError(f"{' '.join(words[at:]) or 'no script'}: no such script; see slurm/")
    script, args = Path(words[at]), list(words[at + 1 :])
    lines = script.read_text(encoding="utf-8").splitlines()
    own = [w for line in lines if line.startswith("#SBATCH") for w in line.split()[1:]]
    options = {k[2:]: v for k, _, v in (word.partition("=") for word in [*own, *words[:at]])}
    command = [word.replace("{task}", "0") for word in args[[*args, "--"].index("--") + 1 :]]
    if script.name in SCRIPTS and not command:
        return _refuse_training(SCRIPTS[script.name], args, options)
    if script.name == "serve_eval.sbatch":
        _refuse_words(["slurm", "part", "--index=0", *args])
        refuse_words(command)
        return _refuse_words(["eval", *command, "--out=x"])
    if script.name == "data_array.sbatch":
        _refuse_words(["slurm", "shard", "--index=0", *args])
        refuse_command(command)
    if script.name != "grpo_multinode.sbatch":  # there `--` is followed by any module
        _refuse_words(command)


def _refuse_words(words: list[str]) -> None:
    if not words or words[0] not in COMMANDS:
        name = words[0] if words else ""
        raise ConfigError(f"assay has no command {name!r}{near_miss(name, [*COMMANDS])}")
    understands(subcommand(words[0]), words[1:])


def _refuse_training(command: str, args: Sequence[str], options: Mapping[str, str]) -> None:
    want = asked(command, args)
    told = {TOLD[name]: value for name, value in options.items() if name in TOLD}
    if not told["SLURM_NNODES"].isdigit():  # a range: known when the job starts
        return
    if "mem" in options:
        text = options["mem"].upper().removesuffix("B")
        unit = UNITS.get(text[-1], 0)
        told[TOLD["mem"]] = str(int(float(text[:-1]) * unit) if unit else int(text))
    if "gpus-per-node" in options:  # `a100:8` too
        told[TOLD["gpus-per-node"]] = options["gpus-per-node"].rpartition(":")[2]
    problems = mismatches(want, told, want.config.cluster.gpus_per_node)
    if problems:
        raise ConfigError("; ".join(problems))
    if want.backend == "embedded":
        return
    config, nodes = want.config, int(told["SLURM_NNODES"])
    try:
        shape_of(config.model.path)
    except ConfigError:  # an earlier job makes the model
        return
    if isinstance(config, SftRunConfig):
        sft_report(config)
    else:
        grpo_report(replace(config, cluster=replace(config.cluster, nodes=nodes)))


def strays(root: Path) -> list[str]:
    """One sentence for every package of ours that does not come from the checkout `root`."""
    found: list[str] = []
    for name in OURS:
        file = getattr(importlib.import_module(name), "__file__", None)
        if file is None or root.resolve() not in Path(file).resolve().parents:
            found.append(f"package {name} comes from {file}, not from {root}; unset PYTHONPATH")
    return found


def main(argv: Sequence[str]) -> int:
    problems: list[str] = []
    try:
        if argv[:1] == ["--job"]:
            refuse_job(argv[1:])
        else:
            problems = strays(Path(os.environ.get("ASSAY_ROOT", ".")))
            if argv and not problems:
                want = asked(argv[0], argv[1:])
                seen = len(list(Path("/dev").glob("nvidia[0-9]*")))
                problems = mismatches(want, os.environ, seen)
    except (ConfigError, TaskError) as error:
        problems = [str(error)]
    for problem in problems:
        print(f"preflight: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
