"""Memory of one GPU of a run over several: arithmetic on a model's shape.

Byte counts follow what the two backends keep: FSDP2 in verl (float32 weights, gradients and two
moments, cut over all devices; bf16 copies of the layers in use) and DeepSpeed ZeRO (bf16 weights,
float32 gradients, masters and moments). What a layer and the logits take agrees with steps on fake
tensors (tests/train/backends/test_estimate_fake.py). What is not known exactly is a range.
"""

from __future__ import annotations

from dataclasses import dataclass

from configs.cluster import ClusterConfig
from configs.loader import ConfigError
from configs.schema import GrpoRunConfig, SftRunConfig
from train.backends.ranges import Range, known, total
from train.model.shape import Shape

GB = 1e9
SLACK = 0.10  # share of a GPU that is kept free: the allocator's gaps
ROWS = 1024  # positions whose float32 logits a DeepSpeed run has at the same time
CONTEXT = Range(0.8e9, 2.5e9)  # CUDA context, libraries' workspaces, NCCL's buffers
# DeepSpeed's defaults: weights that ZeRO-3 keeps gathered, and the bucket that gradients wait in
LIVE_WEIGHTS, BUCKET = 2 * 1.05e9, Range(1e9, 2e9)
# Bytes of an entry of the logits in verl: with flash-attn's cross-entropy the gradient overwrites
# them, with torch's own the law and two copies of the gradient are there beside them. The entropy
# that is logged takes two more copies, unless torch.compile leaves them out.
LOGIT_BYTES = {"flash_attention_2": Range(2, 6), "sdpa": Range(6, 8)}
ANSWER_SHARE = Range(0.25, 1.0)  # of a sequence that is learned from: only its logits exist


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU, by what they are for; `phases` add up what is there at the same time."""

    parts: dict[str, Range]
    phases: dict[str, tuple[str, ...]]
    assumed: tuple[str, ...] = ()

    def of(self, phase: str) -> Range:
        return total(self.parts[name] for name in self.phases[phase])

    def lines(self, cluster: ClusterConfig) -> list[str]:
        told = [
            f"  {name:<38}{(value * (1 / GB)).text('.2f'):>12} GB"
            for name, value in self.parts.items()
            if value.high
        ]
        for phase in self.phases:
            told.append(
                f"  at once while {phase:<24}{(self.of(phase) * (1 / GB)).text('.2f'):>12} GB "
                f"of {cluster.gpu_memory_gb:g}"
            )
        return [*told, *(f"  assumed: {text}" for text in self.assumed), *self._doubts(cluster)]

    def _doubts(self, cluster: ClusterConfig) -> list[str]:
        room = _room(cluster)
        return [
            f"  may not fit: {phase} takes up to {self.of(phase).high / GB:.0f} GB, and "
            f"{room / GB:.0f} of {cluster.gpu_memory_gb:g} GB can be used"
            for phase in self.phases
            if self.of(phase).low <= room < self.of(phase).high
        ]

    def refuse(self, cluster: ClusterConfig, advice: str) -> None:
        """Raises `ConfigError` when a phase cannot fit, even at the low end."""
        room = _room(cluster)
        for phase in self.phases:
            least = self.of(phase).low
            if least > room:
                largest = max(self.phases[phase], key=lambda name: self.parts[name].low)
                raise ConfigError(
                    f"does not fit: {phase} needs at least {least / GB:.0f} GB on each GPU, "
                    f"{room / GB:.0f} of {cluster.gpu_memory_gb:g} GB can be used; most of it is "
                    f"{largest} ({self.parts[largest].low / GB:.0f} GB); {advice}"
                )


def _room(cluster: ClusterConfig) -> float:
    return cluster.gpu_memory_gb * GB * (1 - SLACK)


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
    """The most while a DeepSpeed run computes its loss: what `logit_bytes` has, and three float32
    copies of `ROWS` positions."""
    return logit_bytes(shape, answer) + 12 * min(ROWS, answer) * shape.vocab


def logit_bytes(shape: Shape, answer: float) -> float:
    """bf16 logits of the answer, which their gradient overwrites, and what they are made of."""
    return 2 * answer * (shape.vocab + shape.hidden)


def norm_bytes(shape: Shape, tokens: float) -> float:
    """Copies of the last norm: one in float32, one in bf16."""
    return 6.0 * tokens * shape.hidden


def sft_memory(config: SftRunConfig, shape: Shape) -> Memory:
    """DeepSpeed ZeRO, one sequence of `sft.max_length` on each GPU at a time."""
    cluster, count = config.cluster, shape.parameters
    trained = shape.adapters(config.model.lora_rank) or count
    cut, third = cluster.devices, cluster.zero_stage == 3
    here = 0.0 if cluster.offload else 1.0
    tokens, layer = float(config.sft.max_length), 2.0 * count / shape.layers
    gathered = Range(2 * layer, max(2 * layer, min(LIVE_WEIGHTS, 2.0 * count)))
    answer = ANSWER_SHARE * tokens
    parts = {
        "weights (bf16)": known(here * 2 * count / cut if third else 2.0 * count),
        "gradients (float32, cut)": known(here * 4 * trained / cut),
        "masters and moments (float32, cut)": known(here * 12 * trained / cut),
        "weights gathered at a time (bf16)": gathered * float(third),
        "gradients on their way (bf16)": Range(
            min(BUCKET.low, 2.0 * trained), min(BUCKET.high, 2.0 * trained)
        ),
        "CUDA, NCCL": CONTEXT,
        "layers' inputs": known(inputs_bytes(shape, tokens)),
        "a layer computed again": known(back_bytes(shape, tokens)),
        "logits": Range(head_bytes(shape, answer.low), head_bytes(shape, answer.high))
        + known(norm_bytes(shape, tokens)),
    }
    *state, layer_name, logits = parts
    return Memory(
        parts,
        {"computing the loss": (*state, logits), "going back": (*state, layer_name)},
        (
            f"a sequence of sft.max_length={config.sft.max_length} tokens, a quarter to all of "
            "them learned from",
            "DeepSpeed's default buckets; ZeRO-3 holds two layers to a billion weights gathered",
        ),
    )


def grpo_memory(config: GrpoRunConfig, shape: Shape) -> Memory:
    """verl with FSDP2 and a rollout server on the same GPUs."""
    cluster, count = config.cluster, shape.parameters
    trained = shape.adapters(config.model.lora_rank) or count
    tokens = micro_tokens(config)
    ends = shape.vocab * shape.hidden * (1 if shape.tied else 2)  # embedding and head
    layer = (count - ends) / shape.layers
    state = (4 * count + 12 * trained) / cluster.devices
    server, weights = server_bytes(cluster), 2 * count / cluster.tensor_parallel
    parts = {
        "weights (float32, cut)": known(4 * count / cluster.devices),
        "gradients and moments (cut)": known(12 * trained / cluster.devices),
        "two layers, embedding, head (bf16)": known(4 * layer + 2 * ends),
        # bf16, then float32 while they are added up over the devices
        "gradients on their way": Range(6 * layer, 6 * (layer + ends)),
        "CUDA, NCCL": CONTEXT,
        "layers' inputs": known(inputs_bytes(shape, tokens)),
        "a layer computed again": known(back_bytes(shape, tokens)),
        "logits": LOGIT_BYTES[cluster.attention] * (tokens * shape.vocab)
        + known(norm_bytes(shape, tokens)),
        "server: weights (bf16)": known(weights),
        "server: cache of keys and values": known(max(0.0, server - weights)),
        "training state during rollouts": known(0.0 if cluster.offload else state),
    }
    names = list(parts)
    step = tuple(names[:6])
    return Memory(
        parts,
        {
            "computing the loss": (*step, "logits"),
            "going back": (*step, "a layer computed again"),
            "rolling out": ("CUDA, NCCL", *names[8:]),
        },
        (
            f"{tokens:.0f} tokens on a GPU at a time; logits of all of them, at "
            f"{LOGIT_BYTES[cluster.attention].text('g')} bytes an entry",
        ),
    )


def server_bytes(cluster: ClusterConfig) -> float:
    """What a rollout server may take of one GPU: weights and cache."""
    return cluster.server_memory * cluster.gpu_memory_gb * GB


def micro_tokens(config: GrpoRunConfig) -> float:
    """Tokens that one GPU holds at a time. verl cuts a step into pieces of at most `micro_tokens`
    × `sequence_parallel` tokens and shares each out over that many GPUs."""
    cluster, longest = config.cluster, config.rl.max_length
    if cluster.micro_batch:
        return cluster.micro_batch * longest / cluster.sequence_parallel
    return cluster.micro_tokens
