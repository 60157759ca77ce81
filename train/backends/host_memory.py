"""Memory of a node itself, beside its GPUs: what DeepSpeed and verl keep there, and when.

Estimates from what the two libraries do (verl 0.9.1, SGLang 0.5.12), not measurements.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from configs.schema import GrpoRunConfig, SftRunConfig
from rollouts.sandbox.model import Limits
from train.model.shape import Shape

GB = 1e9
PROCESS = 2e9  # a Python process with torch and a CUDA context
OBJECT_STORE = 20e9  # slurm/ray.sh gives Ray half of /dev/shm, at most this


@dataclass(frozen=True)
class HostMemory:
    """Bytes on one node, by what they are for.

    `phases`: names of the parts that are there at the same time. `bounds`: what may come on top,
    at most; never a reason to refuse, since it is a limit and not a need.
    """

    parts: dict[str, float]
    phases: dict[str, tuple[str, ...]]
    bounds: dict[str, float] = field(default_factory=dict[str, float])

    def most(self) -> tuple[float, str]:
        """(bytes, when) of the phase that takes most."""
        sizes = {why: sum(self.parts[n] for n in names) for why, names in self.phases.items()}
        why = max(sizes, key=lambda name: sizes[name])
        return sizes[why], why

    def lines(self) -> list[str]:
        told = {**self.parts, **self.bounds} if len(self.parts) > 2 else self.bounds
        return [f"  {name:<44}{value / GB:8.2f} GB" for name, value in told.items() if value]


def sft_host_memory(config: SftRunConfig, shape: Shape) -> HostMemory:
    """A DeepSpeed run: reading the model, and what `cluster.offload` moves to the host."""
    cluster, count = config.cluster, shape.parameters
    trained = shape.adapters(config.model.lora_rank) or count
    # stage 3 is cut while it is read; below that every process reads the whole model
    loading = 2 * count * (1 if cluster.zero_stage == 3 else cluster.gpus_per_node)
    if not cluster.offload:
        return HostMemory({"read": loading}, {"while the model is read": ("read",)})
    # masters, moments, and float32 gradients twice: added up, and as the optimiser takes them
    kept = 20 * trained / cluster.nodes
    if cluster.zero_stage == 3:
        kept += 2 * count / cluster.nodes
    return HostMemory(
        {"read": loading, "kept": kept},
        {
            "weights, gradients, masters and moments": ("kept",),
            "while the model is read": ("read",),
        },
    )


def grpo_host_memory(config: GrpoRunConfig, shape: Shape) -> HostMemory:
    """A verl run with SGLang servers on the training GPUs."""
    cluster, count = config.cluster, shape.parameters
    gpus, nodes = cluster.gpus_per_node, cluster.nodes
    workers = -(-cluster.rollout_workers // nodes)
    copied = 4.0 * count / nodes if config.model.lora_rank else 0.0
    parts = {
        # verl reads in float32; with tied embeddings every rank the whole model, else the first
        "the model while it is read (float32)": 4.0 * count * (gpus if shape.tied else 1),
        # verl merges adapters in place and puts the base model back from a copy
        "copy of the base model (float32, adapters)": copied,
        # a server's weights leave the GPU during the update, and wait here
        "servers: copy of their weights (bf16)": 2.0 * count * gpus / cluster.tensor_parallel,
        "weights and moments (float32, offloaded)": 12.0 * count / nodes * cluster.offload,
        "Ray's object store": OBJECT_STORE,
        "processes": PROCESS * (2 * gpus + workers),
    }
    names = list(parts)  # the first while reading; the next three during the run
    one = Limits()
    jail = (one.total_mb + one.work_mb + one.tmp_mb + one.shm_mb) * 1024.0**2
    jails = workers * cluster.sandbox_workers
    return HostMemory(
        parts,
        {"while the model is read": (names[0], *names[4:]), "during the run": tuple(names[1:])},
        {f"tools: at most, {jails} jails at their limit": jails * jail},
    )
