"""What a job's script will be asked to run, read without running it: to refuse early.

A plan is checked when it is submitted, a job when it starts; both before anything waits for hours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from configs.loader import ConfigError
from configs.schema import GrpoRunConfig, SftRunConfig
from train.cli.options import FLAGS
from train.memory import GB, grpo_report, node_bytes, sft_report
from train.model.shape import shape_of
from train.run.settings import load_run

ROOT = Path(__file__).resolve().parent.parent.parent  # where every job starts
CORES_A_RANK = 8  # of a DeepSpeed run: offloaded updates are done by them
BACKENDS = {
    "sft": ("embedded", "deepspeed"),
    "grpo": ("embedded", "verl"),
    "grpo_multinode": ("verl",),
}


@dataclass(frozen=True)
class Asked:
    """A script's command, its backend, and its settings as they will be resolved."""

    command: str
    backend: str
    config: SftRunConfig | GrpoRunConfig


def asked(command: str, words: Sequence[str]) -> Asked:
    """From the arguments of a script: `sft`, `grpo` (one node) or `grpo_multinode`.

    Raises `ConfigError` for what the command itself would refuse.
    """
    known = BACKENDS[command]
    given: dict[str, str | None] = {"--backend": known[0], "--config": None}
    settings: list[str] = []
    families: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name in given or name in FLAGS or name == "--family":
            if not equals and not rest:
                raise ConfigError(f"{name}: its value is missing")
            value = value if equals else rest.pop(0)
            if name in given:
                given[name] = value
            elif name in FLAGS:
                settings.append(f"{FLAGS[name][0]}={value}")
            else:  # as in the job, which starts in the checkout
                families.append(str(ROOT / value) if ".py" in value else value)
        elif word.startswith("-"):
            flags = ", ".join([*given, "--family", *FLAGS])
            raise ConfigError(f"{word}: wanted {flags} or key=value")
        else:
            settings.append(word)
    backend = str(given["--backend"])
    if backend not in known:
        raise ConfigError(f"--backend {backend}: wanted {' or '.join(known)} here")
    file = None if given["--config"] is None else ROOT / given["--config"]
    if command == "sft":
        return Asked(command, backend, load_run(SftRunConfig, file, settings, families))
    return Asked(command, backend, load_run(GrpoRunConfig, file, settings, families))


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

    def options(self) -> dict[str, str]:
        """For sbatch. Memory that is not known: all of the node's."""
        memory = f"{self.memory_gb}G" if self.memory_gb else "0"
        return {"cpus-per-task": str(self.cores), "mem": memory}


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
    have = environ.get("SLURM_CPUS_ON_NODE")
    need = needs(want, nodes).cores
    if want.backend == "verl":
        have, why = (
            environ.get("ASSAY_RAY_CPUS") or have,
            (
                f"verl asks Ray for {need} (three a GPU, one a rollout worker), for which it would "
                "wait for ever"
            ),
        )
        least = need
    else:
        least, why = (
            want.config.cluster.gpus_per_node,
            (f"DeepSpeed starts {want.config.cluster.gpus_per_node} processes on it"),
        )
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


def refuse_stage(command: str, words: Sequence[str], nodes: str) -> dict[str, str]:
    """Cores and memory that a stage over GPUs needs, as options of sbatch; {} for other stages.

    Raises `ConfigError` for a stage of a plan whose job could only fail.

    `nodes` is sbatch's option, which may be a range; GPUs may come from the site, so the job asks
    for those itself. A model that is not there yet cannot be estimated.
    """
    want = asked(command, words)
    if nodes.isdigit():
        problems = mismatches(want, {"SLURM_NNODES": nodes}, want.config.cluster.gpus_per_node)
        if problems:
            raise ConfigError(problems[0])
    if want.backend == "embedded":
        return {}
    config = want.config
    if command == "grpo_multinode" and nodes.isdigit():
        config = replace(config, cluster=replace(config.cluster, nodes=int(nodes)))
    asks: dict[str, str] = {}
    if config.cluster.device == "cuda":
        asks = needs(want, int(nodes) if nodes.isdigit() else config.cluster.nodes).options()
    try:
        shape_of(config.model.path)
    except ConfigError:
        return asks
    if isinstance(config, SftRunConfig):
        sft_report(config)
    else:
        grpo_report(config)
    return asks
