"""Will it fit, and how long might it take: arithmetic on a model's shape, before any GPU is held.

Byte counts follow what the two backends keep: FSDP2 in verl (float32 weights, gradients and two
moments, cut over all devices; bf16 copies of one layer at a time) and DeepSpeed ZeRO (bf16 weights
and gradients, float32 masters and moments). Estimates, not measurements: activations of attention
kernels and the allocator's gaps come on top, so a tenth of each GPU is kept free.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.cluster import ClusterConfig
from configs.loader import ConfigError
from configs.schema import GrpoRunConfig, SftRunConfig

GB = 1e9
SLACK = 0.10  # share of a GPU that is kept free
LOGIT_BYTES = 8  # bf16 logits, their float32 copy, the gradient's share
# An A100 as its data sheet has it, and what of it one usually gets.
FLOPS, FLOPS_SHARE = 312e12, 0.40
BANDWIDTH, BANDWIDTH_SHARE = 2.0e12, 0.60


@dataclass(frozen=True)
class Shape:
    """What of a decoder's configuration decides its size."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    tied: bool

    @property
    def parameters(self) -> int:
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        per_layer = attention + 3 * self.hidden * self.mlp + 2 * self.hidden
        return self.layers * per_layer + self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def kv_bytes(self) -> int:
        """Of one token, in bf16."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_dim


# Shapes from the models' own config.json, for a dry run without the weights.
KNOWN = {
    "Qwen/Qwen3-4B": Shape(36, 2560, 32, 8, 128, 9728, 151936, True),
    "Qwen/Qwen3-8B": Shape(36, 4096, 32, 8, 128, 12288, 151936, False),
    "Qwen/Qwen3-32B": Shape(64, 5120, 64, 8, 128, 25600, 151936, False),
    "HuggingFaceTB/SmolLM2-135M-Instruct": Shape(30, 576, 9, 3, 64, 1536, 49152, True),
}


def shape_of(path: str | None) -> Shape:
    """From a folder's config.json, or of a known hub name. Raises `ConfigError` otherwise."""
    file = Path(str(path)) / "config.json"
    if file.is_file():
        return _read(json.loads(file.read_text(encoding="utf-8")))
    if path in KNOWN:
        return KNOWN[str(path)]
    raise ConfigError(
        f"model.path={path}: no folder with config.json, and no known name "
        f"({', '.join(KNOWN)}); an estimate needs the model's shape"
    )


def _read(config: dict[str, Any]) -> Shape:
    heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
    return Shape(
        layers=int(config["num_hidden_layers"]),
        hidden=hidden,
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        mlp=int(config["intermediate_size"]),
        vocab=int(config["vocab_size"]),
        tied=bool(config.get("tie_word_embeddings", False)),
    )


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
    trained = count if not config.model.lora_rank else _lora_count(shape, config.model.lora_rank)
    tokens = max(cluster.micro_tokens, config.rl.max_length) / cluster.sequence_parallel
    state = (4 * count + 12 * trained) / cluster.devices
    parts = {
        "weights (float32, cut)": 4 * count / cluster.devices,
        "gradients and moments (cut)": 12 * trained / cluster.devices,
        "bf16 weights of two layers": 4 * count / shape.layers,
        "activations (checkpointed)": _activations(shape, tokens),
        "logits": tokens * shape.vocab * LOGIT_BYTES,
        "server: weights (bf16)": 2 * count / cluster.tensor_parallel,
        "server: cache of keys and values": max(
            0.0, cluster.server_memory * cluster.gpu_memory_gb * GB
            - 2 * count / cluster.tensor_parallel
        ),
        "training state during rollouts": 0.0 if cluster.offload else state,
    }  # fmt: skip
    if cluster.server_memory * cluster.gpu_memory_gb * GB < 2 * count / cluster.tensor_parallel:
        raise ConfigError(
            f"cluster.server_memory={cluster.server_memory}: the server's weights alone are "
            f"{2 * count / cluster.tensor_parallel / GB:.0f} GB a GPU; raise it or "
            "cluster.tensor_parallel"
        )
    names = list(parts)
    return Memory(parts, {
        "training": tuple(names[:5]), "rolling out": tuple(names[5:])
    })  # fmt: skip


def sft_memory(config: SftRunConfig, shape: Shape) -> Memory:
    """DeepSpeed ZeRO, one sequence of `sft.max_length` on each GPU at a time."""
    cluster, count = config.cluster, shape.parameters
    trained = count if not config.model.lora_rank else _lora_count(shape, config.model.lora_rank)
    cut = cluster.devices
    host = 0.0 if cluster.offload else 1.0
    tokens = float(config.sft.max_length)
    parts = {
        "weights (bf16)": 2 * count / (cut if cluster.zero_stage == 3 else 1),
        "gradients (bf16, cut)": 2 * trained / cut,
        "masters and moments (float32, cut)": host * 12 * trained / cut,
        "bf16 weights of two layers": (4 * count / shape.layers) * (cluster.zero_stage == 3),
        "activations (checkpointed)": _activations(shape, tokens),
        "logits": tokens * shape.vocab * LOGIT_BYTES,
    }
    return Memory(parts, {"training": tuple(parts)})


def _activations(shape: Shape, tokens: float) -> float:
    """One saved input a layer, and the working set of the layer being recomputed, in bf16."""
    saved = shape.layers * shape.hidden
    wide = 2 * shape.heads * shape.head_dim + 2 * shape.kv_heads * shape.head_dim
    return 2 * tokens * (saved + 8 * shape.hidden + 2 * wide + 6 * shape.mlp)


def _lora_count(shape: Shape, rank: int) -> int:
    """Adapters on all linear layers of the blocks."""
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    attention = 2 * (shape.hidden + q) + 2 * (shape.hidden + kv)
    mlp = 3 * (shape.hidden + shape.mlp)
    return shape.layers * rank * (attention + mlp)


def grpo_report(config: GrpoRunConfig) -> str:
    """Batch arithmetic, memory and time of a verl run. Raises `ConfigError` if it cannot fit."""
    rl, cluster = config.rl, config.cluster
    shape = shape_of(config.model.path)
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
    if cluster.device == "cpu":
        return "\n".join([*lines, "device: the CPU smoke device; no memory or time is estimated"])
    memory = grpo_memory(config, shape)
    memory.refuse(
        cluster, "raise cluster.sequence_parallel or cluster.nodes, set cluster.offload=true, or "
        "lower cluster.server_memory or rl.max_length",
    )  # fmt: skip
    lines += ["memory on each GPU (estimate):", *memory.lines(cluster), _grpo_time(config, shape)]
    return "\n".join(lines)


def _grpo_time(config: GrpoRunConfig, shape: Shape) -> str:
    """Hours of the run if answers use a quarter of their budget; A100 numbers."""
    rl, cluster = config.rl, config.cluster
    length = rl.max_new_tokens / 4
    servers = cluster.devices // cluster.tensor_parallel
    rollouts = rl.prompts_per_step * rl.rollouts_per_prompt
    weights = 2 * shape.parameters / cluster.tensor_parallel
    cache = grpo_memory(config, shape).parts["server: cache of keys and values"]
    kept = cache * cluster.tensor_parallel / (shape.kv_bytes * length)  # answers side by side
    side = max(1.0, min(rollouts / servers, kept))
    waves = -(-(rollouts / servers) // side)
    read = weights + side * shape.kv_bytes * length / 2 / cluster.tensor_parallel
    decode = waves * length * read / (BANDWIDTH * BANDWIDTH_SHARE)
    tokens = rollouts * length
    train = tokens * shape.parameters * (8 + 2) / (FLOPS * FLOPS_SHARE * cluster.devices)
    step = decode + train
    return (
        f"time (estimate, A100, answers of {length:.0f} tokens, no tools): rollouts {decode:.0f} s "
        f"+ update {train:.0f} s = {step / 60:.1f} min a step, {rl.steps} steps "
        f"{step * rl.steps / 3600:.1f} h"
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
    lines = [
        f"model: {shape.parameters / 1e9:.2f}e9 parameters",
        f"devices: {cluster.nodes} node(s) × {cluster.gpus_per_node} = {cluster.devices}, ZeRO "
        f"stage {cluster.zero_stage}{', optimiser on the host' if cluster.offload else ''}",
        f"batch: {sft.batch_size} examples a step, {sft.batch_size // cluster.devices} a device, "
        "one at a time",
    ]
    if examples is not None:
        steps = -(-examples * sft.epochs // sft.batch_size)
        lines.append(f"steps: {steps} for {examples} examples, {sft.epochs} epoch(s)")
    if cluster.device == "cpu":
        return "\n".join([*lines, "device: the CPU; no memory is estimated"])
    memory = sft_memory(config, shape)
    memory.refuse(
        cluster, "raise cluster.nodes, set cluster.zero_stage=3 or cluster.offload=true, train "
        "with model.lora_rank, or lower sft.max_length",
    )  # fmt: skip
    flops = 8 * shape.parameters * sft.max_length * sft.batch_size
    step = flops / (FLOPS * FLOPS_SHARE * cluster.devices)
    lines += ["memory on each GPU (estimate):", *memory.lines(cluster)]
    lines.append(f"time (estimate, A100, full-length examples): {step:.0f} s a step at most")
    return "\n".join(lines)
