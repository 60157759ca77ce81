"""Will it fit, and how long might it take: arithmetic on a model's shape, before any GPU is held.

What a dry run prints of a run over GPUs, and what it refuses. Estimates, not measurements: where
something is not known before the run, both ends of a range are printed, and what each assumes.
"""

from __future__ import annotations

from configs.cluster import ClusterConfig
from configs.loader import ConfigError
from configs.schema import GrpoRunConfig, SftRunConfig
from train.backends.gpu_memory import GB, grpo_memory, server_bytes, sft_memory
from train.backends.host_memory import (
    HostMemory,
    grpo_host_memory,
    sft_host_memory,
)
from train.backends.times import grpo_time, sft_time
from train.model.shape import Shape, shape_of


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
    cache = memory.parts["server: cache of keys and values"].low
    lines += grpo_time(config, shape, cache).lines(rl.steps)
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
    lines += sft_time(config, shape).lines(steps)
    return "\n".join(lines)


def _offloaded(cluster: ClusterConfig) -> str:
    if not cluster.offload:
        return ""
    return f", optimiser{' and weights' if cluster.zero_stage == 3 else ''} on the host"
