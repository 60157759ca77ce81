"""What a run keeps in memory: the one model of it. Arithmetic on a model's shape, without torch.

Bytes are counted of what is known to be kept: by the embedded loop (train.model.optim,
train.model.policy), by DeepSpeed ZeRO (bf16 weights; float32 gradients, masters and moments) and by
verl's FSDP2 beside a rollout server (float32 weights, gradients and moments, cut over all devices).
What a layer and the logits take agrees with steps on fake tensors
(tests/train/test_memory.py). Each sum is the least that a run takes: what it leaves out is
`ASSUMED`, and every report prints it."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from assay.machine import PROC, available_memory, machine_memory
from configs.loader import ConfigError
from configs.machine import EngineConfig, ModelConfig
from configs.schema import GrpoRunConfig, SftRunConfig
from rollouts.engines.engine import ModelError, Shape
from train.model.source import shape_of

SHORT = 8 << 30  # bytes; training a model of 135M parameters takes up to 6 GB
MORE = 1 << 29  # bytes that a loop's heap may grow by where memory is not short
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def total_memory(device: str) -> tuple[str, int]:
    """(name, bytes) of the device that an embedded run would use; 0 where it cannot be told."""
    if device != "cpu":
        asked = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
        with suppress(OSError, subprocess.SubprocessError, ValueError, IndexError):
            said = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10)
            return "this GPU", int(said.stdout.split()[0]) << 20
    return "this machine", machine_memory(PROC, "MemTotal") or 0


def memory_is_short() -> bool:
    """Whether freed pages are better given back at once than kept for the next batch."""
    left = available_memory()
    return left is not None and left < SHORT


def require_memory(folder: Path, device: str, a_parameter: int = 4) -> None:
    """Raise `ModelError` in one sentence where a model of `a_parameter` bytes a parameter does not
    fit into what is left on the device."""
    weights = sum(p.stat().st_size for p in folder.glob("*.safetensors"))
    if not weights:
        raise ModelError(f"{folder} holds no *.safetensors weights; give a Hugging Face folder")
    need, on_gpu = weights // 2 * a_parameter, device == "cuda"
    free = available_memory()
    if on_gpu:
        import torch

        free = int(torch.cuda.mem_get_info()[0])
    if free is not None and need > free:
        spread = "spread it over GPUs with --backend (docs/clusters.md)"
        raise ModelError(
            f"{folder}: about {need / 1e9:.1f} GB of {'GPU ' if on_gpu else ''}memory needed, "
            f"{free / 1e9:.1f} GB available; use a smaller model, set model.lora_rank, or "
            f"{spread if on_gpu else 'take a machine with more memory'}"
        )


def choose_allocation() -> None:
    """Set how glibc keeps what tensors leave. To get a page from the system takes longer than much
    of what is then computed in it, so freed blocks stay in the heap, to be used again.

    Where memory is short, blocks of 2 MiB and more are mapped by themselves and returned when they
    are freed: in the heap, activations of changing shape leave gaps that add up.
    """
    if memory_is_short():
        _set_malloc({_M_MMAP_THRESHOLD: 2 << 20})
    else:
        _set_malloc({_M_MMAP_THRESHOLD: 32 << 20, _M_TRIM_THRESHOLD: 1 << 30})  # 32 MiB is its most


def _set_malloc(values: Mapping[int, int]) -> None:
    for name, value in values.items():
        _glibc("mallopt", name, value)


def give_back_memory() -> None:
    """Return freed heap pages to the system."""
    _glibc("malloc_trim", 0)


def _glibc(name: str, *values: int) -> None:
    """Call a function of glibc; nothing where there is another C library."""
    with suppress(OSError, AttributeError):
        getattr(ctypes.CDLL(None), name)(*values)


class Heap:
    """Gives back what a loop leaves in the heap, when that has grown.

    Freed blocks are kept for the next step. Those of changing sizes leave gaps, and what does not
    fit into them makes the heap larger step by step. What a step needs is not given back: pages
    that are asked for again cost more than many a computation in them.
    """

    def __init__(self) -> None:
        self.first: int | None = None  # resident after the first step

    def settle(self) -> None:
        """To be called at one place of the loop, where little is in use."""
        now = resident_memory()
        if self.first is None:
            self.first = now
        grown = now is not None and self.first is not None and now - self.first > MORE
        if grown or memory_is_short():
            give_back_memory()


def resident_memory(proc: Path = PROC) -> int | None:
    """Bytes of this process that are in memory; None where Linux does not say."""
    try:
        pages = int((proc / "self" / "statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


GB = 1e9
DEFAULT = "HuggingFaceTB/SmolLM2-135M-Instruct"
# Of a model that is trained whole, embedded, in bf16: weight and gradient, float32 master, gradient
# and two moments, and a packed copy for decoding.
BYTES_A_PARAMETER = 22
FREE = 0.10  # share of a GPU that the allocator's gaps take
TIGHT = 0.85  # of what is left: above it a run may not fit
CONTEXT = 0.8e9  # a CUDA context and the libraries' workspaces
PROCESS = 2e9  # a Python process with torch and a CUDA context, on the host: a guess
OBJECT_STORE = 20e9  # slurm/ray.sh gives Ray half of /dev/shm, at most this
BUCKET = 1e9  # gradients that DeepSpeed collects before it sends them
ROWS = 1024  # positions whose float32 logits a DeepSpeed run has at the same time
# of an entry of the logits in verl: flash-attn's cross-entropy overwrites them with the gradient
LOGIT_BYTES = {"flash_attention_2": 2, "sdpa": 6}
ASSUMED = (
    "assumed: the least that is kept, from a model's shape; not measured. Gaps of the allocator, "
    "NCCL's buffers, copies for logged entropies and sandboxes of tools come on top"
)

Parts = dict[str, float]
Run = SftRunConfig | GrpoRunConfig


# --- one device, embedded --------------------------------------------------------------------


def state_bytes(engine: EngineConfig, model: ModelConfig, shape: Shape) -> Parts:
    """What does not depend on lengths. `engine.dtype=auto` counts as bfloat16."""
    width = 4 if engine.dtype == "float32" else 2
    trained = shape.adapters(model.lora_rank) or shape.parameters
    return {
        "weights": float(width * shape.parameters),
        "gradients, masters, moments": float((width + 16) * trained),
        "decoding: weights": float(width * shape.parameters),
    }


def token_bytes(engine: EngineConfig, shape: Shape) -> float:
    """Activations that one token of a micro-batch leaves for the backward pass."""
    width = 4 if engine.dtype == "float32" else 2
    heads = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    layer = 8 * shape.hidden + 3 * heads + 5 * shape.mlp
    if engine.gradient_checkpointing:
        return float(width * (shape.layers * shape.hidden + layer))
    return float(width * shape.layers * layer)


def cache_bytes(engine: EngineConfig, shape: Shape) -> float:
    """Keys and values of one token of one answer that is being decoded."""
    return (2.0 if engine.dtype == "float32" else 1.0) * shape.kv_bytes


def embedded(config: Run, shape: Shape) -> Parts:
    """On one device; `engine.micro_tokens` and `engine.slots` decide the last two parts."""
    engine = config.engine
    parts = state_bytes(engine, config.model, shape)
    parts["activations of a micro-batch"] = token_bytes(engine, shape) * engine.micro_tokens
    if isinstance(config, GrpoRunConfig):
        answers = min(engine.slots, config.rl.prompts_per_step * config.rl.rollouts_per_prompt)
        kept = cache_bytes(engine, shape) * answers * config.rl.max_length
        parts["decoding: keys and values"] = kept
    return parts


def local_report(config: Run) -> str:
    """Lines for the dry run of an embedded run. Never refuses: it may be meant for another
    machine, and loading the model asks again."""
    try:
        shape = shape_of(config.model.path or DEFAULT)
    except ConfigError as error:
        return f"memory: not estimated ({error})"
    parts = embedded(config, shape)
    lines = [f"memory on one device, {shape.parameters / GB:.2f}e9 parameters:", *_lines(parts)]
    total, (name, there) = sum(parts.values()), total_memory(config.engine.device)
    lines += [f"  {'together':<38}{total / GB:8.2f} GB", ASSUMED]
    if there and total > there:
        backend = "verl" if isinstance(config, GrpoRunConfig) else "deepspeed"
        lines.append(
            f"does not fit: {name} has {there / GB:.0f} GB; lower engine.micro_tokens "
            "or engine.slots, set engine.gradient_checkpointing=true or model.lora_rank, or spread "
            f"it over GPUs with --backend {backend}"
        )
    return "\n".join(lines)


def _lines(parts: Parts) -> list[str]:
    return [f"  {name:<38}{value / GB:8.2f} GB" for name, value in parts.items() if value]


# --- many devices ----------------------------------------------------------------------------


def inputs_bytes(shape: Shape, tokens: float) -> float:
    """What the layers keep of the forward pass: each its input, in bf16."""
    return 2.0 * tokens * shape.layers * shape.hidden


def back_bytes(shape: Shape, tokens: float) -> float:
    """The most that is there in the backward pass, beside the layers' inputs: while a layer is
    computed again and its gradients are made, or while the embedding's gradient is. Norms have
    copies in float32, attention keeps no scores. The gradient of a head that is the embedding too
    waits for the embedding's own."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    layer = tokens * (18 * shape.hidden + 10 * queries + 10 * keys + 12 * shape.mlp)
    embedding = 2.0 * shape.vocab * shape.hidden
    return max(layer + embedding * shape.tied, embedding * (3 if shape.tied else 1))


def head_bytes(shape: Shape, answer: float) -> float:
    """The most while a DeepSpeed run computes its loss: bf16 logits of the answer, which their
    gradient overwrites, what they are made of, and three float32 copies of `ROWS` positions."""
    return 2 * answer * (shape.vocab + shape.hidden) + 12 * min(ROWS, answer) * shape.vocab


def norm_bytes(shape: Shape, tokens: float) -> float:
    """Copies of the last norm: one in float32, one in bf16."""
    return 6.0 * tokens * shape.hidden


def deepspeed(config: SftRunConfig, shape: Shape) -> Parts:
    """On each GPU: ZeRO, one sequence of `sft.max_length` at a time, a quarter learned from."""
    cluster, count = config.cluster, shape.parameters
    trained = shape.adapters(config.model.lora_rank) or count
    third, here = cluster.zero_stage == 3, float(not cluster.offload)
    tokens = float(config.sft.max_length)
    loss = head_bytes(shape, tokens / 4) + norm_bytes(shape, tokens)
    return {
        "weights (bf16)": here * 2 * count / cluster.devices if third else 2.0 * count,
        "gradients (float32, cut)": here * 4 * trained / cluster.devices,
        "masters and moments (float32, cut)": here * 12 * trained / cluster.devices,
        "two layers gathered (bf16)": 4.0 * count / shape.layers * third,
        "gradients on their way (bf16)": min(BUCKET, 2.0 * trained),
        "CUDA": CONTEXT,
        "layers' inputs": inputs_bytes(shape, tokens),
        "the loss, or a layer computed again": max(loss, back_bytes(shape, tokens)),
    }


def updating(config: GrpoRunConfig, shape: Shape) -> Parts:
    """On each GPU while verl's FSDP2 learns. A step is cut into pieces of at most `micro_tokens` ×
    `sequence_parallel` tokens, each shared out over that many GPUs."""
    cluster, count = config.cluster, shape.parameters
    trained = shape.adapters(config.model.lora_rank) or count
    tokens = float(cluster.micro_tokens)
    if cluster.micro_batch:
        tokens = cluster.micro_batch * config.rl.max_length / cluster.sequence_parallel
    ends = shape.vocab * shape.hidden * (1 if shape.tied else 2)  # embedding and head
    layer = (count - ends) / shape.layers
    logits = LOGIT_BYTES[cluster.attention] * tokens * shape.vocab + norm_bytes(shape, tokens)
    return {
        "weights (float32, cut)": 4 * count / cluster.devices,
        "gradients and moments (cut)": 12 * trained / cluster.devices,
        "two layers, embedding, head (bf16)": 4 * layer + 2 * ends,
        "gradients on their way": 6 * layer,
        "CUDA": CONTEXT,
        "layers' inputs": inputs_bytes(shape, tokens),
        "the logits, or a layer computed again": max(logits, back_bytes(shape, tokens)),
    }


def rolling_out(config: GrpoRunConfig, shape: Shape) -> Parts:
    """On each GPU while its rollout server answers."""
    cluster, count = config.cluster, shape.parameters
    trained = shape.adapters(config.model.lora_rank) or count
    weights = 2 * count / cluster.tensor_parallel
    server = cluster.server_memory * cluster.gpu_memory_gb * GB  # weights and cache
    waits = (4 * count + 12 * trained) / cluster.devices
    return {
        "server: weights (bf16)": weights,
        "server: cache of keys and values": max(0.0, server - weights),
        "CUDA": CONTEXT,
        "training state during rollouts": 0.0 if cluster.offload else waits,
    }


def node_bytes(config: Run, shape: Shape) -> float:
    """Of a node's own memory: reading the model, or what waits on the host beside the processes,
    whichever is more."""
    cluster, count = config.cluster, shape.parameters
    nodes, gpus = cluster.nodes, cluster.gpus_per_node
    if isinstance(config, SftRunConfig):
        trained = shape.adapters(config.model.lora_rank) or count
        third = cluster.zero_stage == 3
        # stage 3 is cut while it is read; below that every process reads the whole model
        reading = 2.0 * count * (1 if third else gpus)
        # masters, moments, and float32 gradients twice: added up, and as the optimiser takes them
        kept = cluster.offload * (20.0 * trained + 2.0 * count * third) / nodes
        return max(reading, kept) + PROCESS * gpus
    # verl reads in float32; with tied embeddings every rank the whole model, else the first
    reading = 4.0 * count * (gpus if shape.tied else 1)
    # the base model while adapters are merged, and servers' weights during the update
    kept = 4.0 * count / nodes * bool(config.model.lora_rank)
    kept += 2.0 * count * gpus / cluster.tensor_parallel
    kept += 12.0 * count / nodes * cluster.offload
    workers = -(-cluster.rollout_workers // nodes)
    return max(reading, kept) + OBJECT_STORE + PROCESS * (2 * gpus + workers)


def checkpoint_bytes(config: Run, shape: Shape) -> float:
    """Of a checkpoint of a run over GPUs: float32 masters and moments of what is trained; under
    DeepSpeed all weights too."""
    trained = shape.adapters(config.model.lora_rank) or shape.parameters
    return 12.0 * trained + 2.0 * shape.parameters * isinstance(config, SftRunConfig)


def _on_gpus(config: Run, shape: Shape, phases: dict[str, Parts], advice: str) -> list[str]:
    """Memory of each GPU and node, and disk. Raises `ConfigError` where the least does not fit."""
    cluster = config.cluster
    room = cluster.gpu_memory_gb * GB * (1 - FREE)
    lines = ["memory on each GPU:"]
    for phase, parts in phases.items():
        least = sum(parts.values())
        if least > room:
            largest = max(parts, key=lambda name: parts[name])
            raise ConfigError(
                f"does not fit: {phase} needs at least {least / GB:.0f} GB on each GPU, "
                f"{room / GB:.0f} of {cluster.gpu_memory_gb:g} GB can be used; most of it is "
                f"{largest} ({parts[largest] / GB:.0f} GB); {advice}"
            )
        doubt = "; may not fit" if least > TIGHT * room else ""
        total = f"{least / GB:.1f} GB or more of {cluster.gpu_memory_gb:g}{doubt}"
        lines += [*_lines(parts), f"  at once while {phase}: {total}"]
    return [*lines, *_on_nodes(config, shape), ASSUMED]


def _on_nodes(config: Run, shape: Shape) -> list[str]:
    cluster, keep = config.cluster, config.checkpoint.keep
    node, disk = node_bytes(config, shape), checkpoint_bytes(config, shape)
    if 0 < cluster.host_memory_gb * GB < node:
        raise ConfigError(
            f"does not fit: each node needs about {node / GB:.0f} GB of its own memory, "
            f"cluster.host_memory_gb={cluster.host_memory_gb:g}; raise cluster.nodes or set "
            "cluster.offload=false"
        )
    return [
        f"memory of each node itself: {node / GB:.0f} GB, with {PROCESS / GB:g} GB a process",
        f"disk: {disk / GB:.1f} GB a checkpoint, {(keep + 1) * disk / GB:.1f} GB at most "
        f"(checkpoint.keep={keep}, and the one being written)",
    ]


def sft_report(config: SftRunConfig, examples: int | None = None) -> str:
    """Say how a DeepSpeed run divides its batch and how much memory it needs. Raises `ConfigError`
    if it cannot fit."""
    cluster, sft = config.cluster, config.sft
    shape = shape_of(config.model.path)
    if sft.batch_size % cluster.devices:
        raise ConfigError(
            f"sft.batch_size={sft.batch_size} cannot be shared out evenly over "
            f"{cluster.devices} devices; make it a multiple"
        )
    _refuse_length("sft.max_length", sft.max_length, shape)
    moved = f", optimiser{' and weights' * (cluster.zero_stage == 3)} on the host"
    lines = [
        f"model: {shape.parameters / 1e9:.2f}e9 parameters",
        f"devices: {cluster.nodes} node(s) × {cluster.gpus_per_node} = {cluster.devices}, ZeRO "
        f"stage {cluster.zero_stage}{moved if cluster.offload else ''}",
        f"batch: {sft.batch_size} examples a step, {sft.batch_size // cluster.devices} a device, "
        "one at a time",
    ]
    if examples is not None:
        steps = -(-examples * sft.epochs // sft.batch_size)
        lines.append(f"steps: {steps} for {examples} examples, {sft.epochs} epoch(s)")
    if cluster.device == "cpu":
        return "\n".join([*lines, "device: the CPU; no memory is estimated"])
    advice = (
        "raise cluster.nodes, set cluster.zero_stage=3 or cluster.offload=true, train "
        "with model.lora_rank, or lower sft.max_length"
    )
    phases = {"training": deepspeed(config, shape)}
    return "\n".join([*lines, *_on_gpus(config, shape, phases, advice)])


def grpo_report(config: GrpoRunConfig) -> str:
    """Say how a verl run divides its batch and how much memory it needs. Raises `ConfigError` if it
    cannot fit."""
    rl, cluster = config.rl, config.cluster
    shape = shape_of(config.model.path)
    _refuse_impossible(config, shape)
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
        return "\n".join([*lines, "device: the CPU; no memory is estimated"])
    phases = {"updating": updating(config, shape), "rolling out": rolling_out(config, shape)}
    _refuse_cache(config, shape, *list(phases["rolling out"].values())[:2])
    advice = (
        "raise cluster.sequence_parallel or cluster.nodes, set cluster.offload=true, or "
        "lower cluster.micro_tokens, cluster.server_memory or rl.max_length"
    )
    return "\n".join([*lines, *_on_gpus(config, shape, phases, advice)])


def _refuse_impossible(config: GrpoRunConfig, shape: Shape) -> None:
    """Raises `ConfigError` for what would stop verl or SGLang at the first step of a run."""
    rl, cluster = config.rl, config.cluster
    cuts = {"sequence_parallel": cluster.sequence_parallel}
    cuts["tensor_parallel"] = cluster.tensor_parallel
    for name, count in cuts.items():
        if shape.heads % count:
            raise ConfigError(
                f"cluster.{name}={count} does not divide the model's {shape.heads} attention "
                "heads; set a divisor"
            )
    _refuse_length("rl.max_length", rl.max_length, shape)
    piece = cluster.micro_tokens * cluster.sequence_parallel
    if not cluster.micro_batch and piece < rl.max_length:
        raise ConfigError(
            f"cluster.micro_tokens={cluster.micro_tokens} × cluster.sequence_parallel="
            f"{cluster.sequence_parallel} = {piece} tokens is less than one answer of "
            f"rl.max_length={rl.max_length}, where verl's update ends; raise one of the former"
        )


def _refuse_cache(config: GrpoRunConfig, shape: Shape, weights: float, cache: float) -> None:
    cluster = config.cluster
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
