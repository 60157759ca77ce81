"""Will it fit, and how long might it take: arithmetic on a model's shape, before any GPU is held.

Byte counts follow what the two backends keep: FSDP2 in verl (float32 weights, gradients and two
moments, cut over all devices; bf16 copies of one layer at a time) and DeepSpeed ZeRO (bf16 weights
and gradients, float32 masters and moments). Estimates, not measurements: activations of attention
kernels and the allocator's gaps come on top, so a tenth of each GPU is kept free.
"""

from __future__ import annotations

from dataclasses import dataclass

from configs.cluster import ClusterConfig
from configs.loader import ConfigError
from configs.schema import GrpoRunConfig, SftRunConfig
from train.backends.host_memory import (
    HostMemory,
    grpo_host_memory,
    sft_host_memory,
)
from train.model.shape import Shape, shape_of

GB = 1e9
SLACK = 0.10  # share of a GPU that is kept free
LOGIT_BYTES = 8  # bf16 logits, their float32 copy, the gradient's share
# An A100 as its data sheet has it, and what of it one usually gets.
FLOPS, FLOPS_SHARE = 312e12, 0.40
BANDWIDTH, BANDWIDTH_SHARE = 2.0e12, 0.60


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU, by what they are for; `phases` add up what is there at the same time."""

    parts: dict[str, float]
    phases: dict[str, tuple[str, ...]]

    def of(self, phase: str) -> float:
        return sum(self.parts[name] for name in self.phases[phase])

    def lines(self, cluster: ClusterConfig) -> list[str]:
        told = [f"  {name:<34}{value / GB:8.2f} GB" for name, value in self.parts.items()]
        for phase in self.phases:
            told.append(
                f"  at once while {phase:<20}{self.of(phase) / GB:8.2f} GB "
                f"of {cluster.gpu_memory_gb:g}"
            )
        return told

    def refuse(self, cluster: ClusterConfig, advice: str) -> None:
        """Raises `ConfigError` when a phase cannot fit."""
        room = cluster.gpu_memory_gb * GB * (1 - SLACK)
        for phase in self.phases:
            if self.of(phase) > room:
                largest = max(self.phases[phase], key=lambda name: self.parts[name])
                raise ConfigError(
                    f"does not fit: {phase} needs about {self.of(phase) / GB:.0f} GB on each GPU, "
                    f"{room / GB:.0f} of {cluster.gpu_memory_gb:g} GB can be used; most of it is "
                    f"{largest} ({self.parts[largest] / GB:.0f} GB); {advice}"
                )


def grpo_memory(config: GrpoRunConfig, shape: Shape) -> Memory:
    """verl with FSDP2 and a rollout server on the same GPUs."""
    cluster, count = config.cluster, shape.parameters
    trained = shape.adapters(config.model.lora_rank) or count
    tokens = _micro_tokens(config)
    state = (4 * count + 12 * trained) / cluster.devices
    server, weights = server_bytes(cluster), 2 * count / cluster.tensor_parallel
    parts = {
        "weights (float32, cut)": 4 * count / cluster.devices,
        "gradients and moments (cut)": 12 * trained / cluster.devices,
        "bf16 weights of two layers": 4 * count / shape.layers,
        "activations (checkpointed)": _activations(shape, tokens),
        "logits": tokens * shape.vocab * LOGIT_BYTES,
        "server: weights (bf16)": weights,
        "server: cache of keys and values": max(0.0, server - weights),
        "training state during rollouts": 0.0 if cluster.offload else state,
    }
    names = list(parts)
    return Memory(parts, {"training": tuple(names[:5]), "rolling out": tuple(names[5:])})


def server_bytes(cluster: ClusterConfig) -> float:
    """What a rollout server may take of one GPU: weights and cache."""
    return cluster.server_memory * cluster.gpu_memory_gb * GB


def _micro_tokens(config: GrpoRunConfig) -> float:
    """Tokens that one GPU holds at a time. verl cuts a step into pieces of at most `micro_tokens`
    × `sequence_parallel` tokens and shares each out over that many GPUs."""
    cluster, longest = config.cluster, config.rl.max_length
    if cluster.micro_batch:
        return cluster.micro_batch * longest / cluster.sequence_parallel
    return cluster.micro_tokens


def refuse_impossible(config: GrpoRunConfig, shape: Shape) -> None:
    """Raises `ConfigError` for what would stop verl or SGLang at the first step of a run."""
    rl, cluster = config.rl, config.cluster
    for name in ("sequence_parallel", "tensor_parallel"):
        if shape.heads % getattr(cluster, name):
            raise ConfigError(
                f"cluster.{name}={getattr(cluster, name)} does not divide the model's "
                f"{shape.heads} attention heads; set a divisor"
            )
    _refuse_length("rl.max_length", rl.max_length, shape)
    piece = cluster.micro_tokens * cluster.sequence_parallel
    if not cluster.micro_batch and piece < rl.max_length:
        raise ConfigError(
            f"cluster.micro_tokens={cluster.micro_tokens} × cluster.sequence_parallel="
            f"{cluster.sequence_parallel} = {piece} tokens is less than one answer of "
            f"rl.max_length={rl.max_length}, where verl's update ends; raise one of the former"
        )


def _refuse_cache(config: GrpoRunConfig, shape: Shape) -> None:
    cluster = config.cluster
    weights = 2 * shape.parameters / cluster.tensor_parallel
    cache = server_bytes(cluster) - weights
    if cache <= 0:
        raise ConfigError(
            f"cluster.server_memory={cluster.server_memory}: the server's weights alone are "
            f"{weights / GB:.0f} GB a GPU; raise it or cluster.tensor_parallel"
        )
    answer = config.rl.max_length * shape.kv_bytes / cluster.tensor_parallel
    if answer > cache:
        raise ConfigError(
            f"does not fit: keys and values of one answer of rl.max_length={config.rl.max_length} "
            f"are {answer / GB:.1f} GB a GPU, the rollout server's cache is {cache / GB:.1f} GB; "
            "raise cluster.server_memory or cluster.tensor_parallel, or lower rl.max_length"
        )


def _refuse_length(name: str, length: int, shape: Shape) -> None:
    if shape.positions and length > shape.positions:
        raise ConfigError(
            f"{name}={length}: the model was made for {shape.positions} positions; lower it, or "
            "give its config.json a rope_scaling"
        )


def sft_memory(config: SftRunConfig, shape: Shape) -> Memory:
    """DeepSpeed ZeRO, one sequence of `sft.max_length` on each GPU at a time."""
    cluster, count = config.cluster, shape.parameters
    trained = shape.adapters(config.model.lora_rank) or count
    cut, third = cluster.devices, cluster.zero_stage == 3
    here = 0.0 if cluster.offload else 1.0
    tokens = float(config.sft.max_length)
    parts = {
        "weights (bf16)": here * 2 * count / cut if third else 2.0 * count,
        "gradients (bf16, cut)": 2 * trained / cut,
        "masters and moments (float32, cut)": here * 12 * trained / cut,
        "bf16 weights of two layers": (4 * count / shape.layers) * third,
        "activations (checkpointed)": _activations(shape, tokens),
        "logits": tokens * shape.vocab * LOGIT_BYTES,
    }
    return Memory(parts, {"training": tuple(parts)})


def _activations(shape: Shape, tokens: float) -> float:
    """One saved input a layer, and the working set of the layer being recomputed, in bf16."""
    saved = shape.layers * shape.hidden
    wide = 2 * shape.heads * shape.head_dim + 2 * shape.kv_heads * shape.head_dim
    return 2 * tokens * (saved + 8 * shape.hidden + 2 * wide + 6 * shape.mlp)


def grpo_report(config: GrpoRunConfig) -> str:
    """Batch arithmetic, memory and time of a verl run. Raises `ConfigError` if it cannot fit."""
    rl, cluster = config.rl, config.cluster
    shape = shape_of(config.model.path)
    refuse_impossible(config, shape)
    rollouts = rl.prompts_per_step * rl.rollouts_per_prompt
    ranks = cluster.devices // cluster.sequence_parallel
    servers = cluster.devices // cluster.tensor_parallel
    update = rl.mini_batch * rl.rollouts_per_prompt
    lines = [
        f"model: {shape.parameters / 1e9:.2f}e9 parameters, {shape.kv_bytes / 1e3:.0f} kB of keys "
        "and values a token",
        f"devices: {cluster.nodes} node(s) × {cluster.gpus_per_node} = {cluster.devices}; {ranks} "
        f"data-parallel rank(s) of {cluster.sequence_parallel}, {servers} rollout server(s) of "
        f"{cluster.tensor_parallel}",
        f"rollouts: {rollouts} a step, {rollouts / servers:g} a server; "
        f"{rl.prompts_per_step // rl.mini_batch} update(s) of {update}, {update / ranks:g} a rank",
    ]
    if rl.top_p < 1 or rl.top_k:
        lines.append(
            f"sampling: top_p {rl.top_p:g}, top_k {rl.top_k}: from a truncated policy, while the "
            "loss and the log-probabilities are the full one's; rl.top_p=1 rl.top_k=0 is unbiased"
        )
    if cluster.device == "cpu":
        return "\n".join([*lines, "device: the CPU smoke device; no memory or time is estimated"])
    _refuse_cache(config, shape)
    memory = grpo_memory(config, shape)
    memory.refuse(
        cluster,
        "raise cluster.sequence_parallel or cluster.nodes, set cluster.offload=true, or "
        "lower cluster.micro_tokens, cluster.server_memory or rl.max_length",
    )
    lines += ["memory on each GPU (estimate):", *memory.lines(cluster)]
    lines += _host_lines(grpo_host_memory(config, shape), cluster)
    lines.append(_checkpoints(config, shape))
    lines.append(_grpo_time(config, shape, memory))
    return "\n".join(lines)


def _host_lines(host: HostMemory, cluster: ClusterConfig) -> list[str]:
    """What a dry run says of a node's own memory. Raises `ConfigError` when it cannot fit."""
    size, why = host.most()
    if 0 < cluster.host_memory_gb * GB < size:
        raise ConfigError(
            f"does not fit: each node needs about {size / GB:.0f} GB of its own memory ({why}), "
            f"cluster.host_memory_gb={cluster.host_memory_gb:g}; raise cluster.nodes or set "
            "cluster.offload=false"
        )
    return [f"memory of each node itself (estimate): {size / GB:.0f} GB, {why}", *host.lines()]


def checkpoint_bytes(config: SftRunConfig | GrpoRunConfig, shape: Shape) -> float:
    """Of a checkpoint of a run over GPUs: float32 masters and moments of what is trained; under
    DeepSpeed all weights too."""
    trained = shape.adapters(config.model.lora_rank) or shape.parameters
    if isinstance(config, GrpoRunConfig):
        return 12.0 * trained
    return 2.0 * shape.parameters + 12.0 * trained


def _checkpoints(config: SftRunConfig | GrpoRunConfig, shape: Shape) -> str:
    size, keep = checkpoint_bytes(config, shape), config.checkpoint.keep
    return (
        f"disk: {size / GB:.1f} GB a checkpoint, {(keep + 1) * size / GB:.1f} GB at most "
        f"(checkpoint.keep={keep}, and the one being written)"
    )


def _grpo_time(config: GrpoRunConfig, shape: Shape, memory: Memory) -> str:
    """Hours of the run if answers use a quarter of their budget; A100 numbers."""
    rl, cluster = config.rl, config.cluster
    length = rl.max_new_tokens / 4
    servers = cluster.devices // cluster.tensor_parallel
    rollouts = rl.prompts_per_step * rl.rollouts_per_prompt
    weights = 2 * shape.parameters / cluster.tensor_parallel
    cache = memory.parts["server: cache of keys and values"]
    kept = cache * cluster.tensor_parallel / (shape.kv_bytes * length)  # answers side by side
    side = max(1.0, min(rollouts / servers, kept))
    waves = -(-(rollouts / servers) // side)
    read = weights + side * shape.kv_bytes * length / 2 / cluster.tensor_parallel
    decode = waves * length * read / (BANDWIDTH * BANDWIDTH_SHARE)
    tokens = rollouts * length
    train = tokens * shape.parameters * (8 + 2) / (FLOPS * FLOPS_SHARE * cluster.devices)
    step = decode + train
    return (
        f"time (estimate, A100, answers of {length:.0f} tokens, no tools): {side:.0f} answers side "
        f"by side on a server, rollouts {decode:.0f} s + update {train:.0f} s = {step / 60:.1f} "
        f"min a step, {rl.steps} steps {step * rl.steps / 3600:.1f} h"
    )


def sft_report(config: SftRunConfig, examples: int | None = None) -> str:
    """Batch arithmetic and memory of a DeepSpeed run. Raises `ConfigError` if it cannot fit."""
    cluster, sft = config.cluster, config.sft
    shape = shape_of(config.model.path)
    if sft.batch_size % cluster.devices:
        raise ConfigError(
            f"sft.batch_size={sft.batch_size} cannot be shared out evenly over "
            f"{cluster.devices} devices; make it a multiple"
        )
    _refuse_length("sft.max_length", sft.max_length, shape)
    lines = [
        f"model: {shape.parameters / 1e9:.2f}e9 parameters",
        f"devices: {cluster.nodes} node(s) × {cluster.gpus_per_node} = {cluster.devices}, ZeRO "
        f"stage {cluster.zero_stage}{_offloaded(cluster)}",
        f"batch: {sft.batch_size} examples a step, {sft.batch_size // cluster.devices} a device, "
        "one at a time",
    ]
    steps = None if examples is None else -(-examples * sft.epochs // sft.batch_size)
    if steps is not None:
        lines.append(f"steps: {steps} for {examples} examples, {sft.epochs} epoch(s)")
    if cluster.device == "cpu":
        return "\n".join([*lines, "device: the CPU; no memory is estimated"])
    memory = sft_memory(config, shape)
    memory.refuse(
        cluster,
        "raise cluster.nodes, set cluster.zero_stage=3 or cluster.offload=true, train "
        "with model.lora_rank, or lower sft.max_length",
    )
    lines += ["memory on each GPU (estimate):", *memory.lines(cluster)]
    lines += _host_lines(sft_host_memory(config, shape), cluster)
    lines.append(_checkpoints(config, shape))
    flops = 8 * shape.parameters * sft.max_length * sft.batch_size
    step = flops / (FLOPS * FLOPS_SHARE * cluster.devices)
    total = "" if steps is None else f", {steps} steps {step * steps / 3600:.1f} h"
    lines.append(f"time (estimate, A100, full-length examples): {step:.0f} s a step at most{total}")
    return "\n".join(lines)


def _offloaded(cluster: ClusterConfig) -> str:
    if not cluster.offload:
        return ""
    return f", optimiser{' and weights' if cluster.zero_stage == 3 else ''} on the host"
