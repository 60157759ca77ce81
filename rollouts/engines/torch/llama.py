# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Llama-shaped weights as plain tensors, and the arithmetic that decoding and training share.

Mistral, Qwen2 and Qwen3 have this shape too, with biases or norms of queries and keys beside it.
Projections that read the same input are stored as one matrix (query, key and value; gate and
up), so a layer is four matrix products. Shapes: D hidden, H query heads, K key/value heads,
C head size, M MLP width, V vocabulary.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rollouts.engines.engine import ModelError, Shape, shape_in
from rollouts.engines.torch.kernels import Kernels, kernels_for


@dataclass(frozen=True, kw_only=True)
class LlamaShape(Shape):
    """Sizes of a Llama-shaped model, and the rotary frequencies (C/2,)."""

    eps: float
    inv_freq: Tensor = field(repr=False, compare=False)
    rope_scale: float = 1.0

    @property
    def repeat(self) -> int:
        """Query heads that share one key/value head."""
        return self.heads // self.kv_heads


@dataclass(frozen=True)
class Layer:
    """One block: qkv ((H+2K)·C, D), o (D, H·C), gate_up (2M, D), down (D, M), two norms (D,).

    Where the model has them: biases of qkv ((H+2K)·C,) and o (D,), norms of a query and a key (C,).
    """

    norm_attn: Tensor
    qkv: Tensor
    o: Tensor
    norm_mlp: Tensor
    gate_up: Tensor
    down: Tensor
    qkv_bias: Tensor | None = None
    o_bias: Tensor | None = None
    norm_q: Tensor | None = None
    norm_k: Tensor | None = None

    def named(self) -> Iterator[tuple[str, Tensor]]:
        for part in fields(self):
            tensor = getattr(self, part.name)
            if tensor is not None:
                yield part.name, tensor


@dataclass(frozen=True)
class Llama:
    """All weights. `head` is `embed` itself when the two are tied."""

    shape: LlamaShape
    embed: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Tensor

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """(name, tensor) of every distinct weight, in a fixed order."""
        yield "embed", self.embed
        for index, layer in enumerate(self.layers):
            for name, tensor in layer.named():
                yield f"layers.{index}.{name}", tensor
        yield "norm", self.norm
        if not self.shape.tied:
            yield "head", self.head


FAMILIES = ("llama", "mistral", "qwen2", "qwen3")  # model_type of those computed here
# Rotary scalings whose frequencies do not change with the length of the text.
ROPES = ("default", "linear", "llama3", "yarn")


def why_not(config: Any) -> str:
    """Why this module does not compute what a transformers config describes; "" where it does."""
    kind = str(getattr(config, "model_type", "") or "unknown")
    if kind not in FAMILIES:
        return f"model_type {kind!r} is none of {', '.join(FAMILIES)}"
    if getattr(config, "mlp_bias", False):
        return "mlp_bias: its MLP has biases"
    if getattr(config, "hidden_act", "silu") != "silu":
        return f"hidden_act {config.hidden_act!r} is not 'silu'"
    if getattr(config, "quantization_config", None) is not None:
        return "quantization_config: its weights are quantised"
    window, longest = _window(config), int(config.max_position_embeddings)
    if window is not None and window < longest:
        return f"sliding_window {window} is shorter than its context of {longest}"
    rope: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    kind = str(rope.get("rope_type") or "default")
    if kind not in ROPES:
        return f"rotary scaling {kind!r} changes with the length of the text"
    if float(rope.get("partial_rotary_factor") or 1) != 1:
        return "partial_rotary_factor: it turns a part of each head only"
    return ""


def _window(config: Any) -> int | None:
    """Keys that a token of some layer sees at most; None: all before it. Qwen names its layers
    one by one, and keeps a window that none of them uses."""
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    if window is None or (kinds is not None and "sliding_attention" not in kinds):
        return None
    return int(window)


def _shape(config: Any) -> LlamaShape:
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    reason = why_not(config)
    if reason:
        raise ModelError(f"the embedded decoder does not compute this model: {reason}")
    rotary: Any = LlamaRotaryEmbedding(config)
    return LlamaShape(
        **asdict(shape_in(config.to_dict())),
        eps=config.rms_norm_eps,
        inv_freq=rotary.inv_freq.float().clone(),
        rope_scale=float(getattr(rotary, "attention_scaling", 1.0)),
    )


def parts_of(shape: LlamaShape) -> dict[str, dict[str, tuple[int, ...]]]:
    """A tensor of `Layer` → those of a layer of transformers that it is made of, and their
    shapes."""
    hidden, mlp, head = shape.hidden, shape.mlp, shape.head_dim
    heads = {"q": shape.heads * head, "k": shape.kv_heads * head, "v": shape.kv_heads * head}
    return {
        "norm_attn": {"input_layernorm.weight": (hidden,)},
        "qkv": {f"self_attn.{p}_proj.weight": (n, hidden) for p, n in heads.items()},
        "o": {"self_attn.o_proj.weight": (hidden, heads["q"])},
        "norm_mlp": {"post_attention_layernorm.weight": (hidden,)},
        "gate_up": {f"mlp.{p}_proj.weight": (mlp, hidden) for p in ("gate", "up")},
        "down": {"mlp.down_proj.weight": (hidden, mlp)},
        "qkv_bias": {f"self_attn.{p}_proj.bias": (n,) for p, n in heads.items()},
        "o_bias": {"self_attn.o_proj.bias": (hidden,)},
        "norm_q": {"self_attn.q_norm.weight": (head,)},
        "norm_k": {"self_attn.k_norm.weight": (head,)},
    }


def from_state(config: Any, state: dict[str, Tensor], dtype: torch.dtype) -> Llama:
    """Fuse a transformers Llama state dict. Raises `ModelError` naming a missing tensor."""

    def take(name: str, wanted: tuple[int, ...]) -> Tensor:
        if name not in state:
            raise ModelError(
                f"the checkpoint has no tensor {name!r}; is it a causal language model?"
            )
        if (found := tuple(state[name].shape)) != wanted:
            raise ModelError(
                f"the tensor {name} has the shape {found}, and config.json means {wanted}; "
                "configuration and weights are of two models"
            )
        return state[name].to(dtype)

    # as transformers has it: Qwen2 knows no choice, and its output has no bias
    kind, asked = config.model_type, bool(getattr(config, "attention_bias", False))
    absent = {
        "qkv_bias": not (kind == "qwen2" or (asked and kind != "mistral")),
        "o_bias": not (asked and kind in ("llama", "qwen3")),
        "norm_q": kind != "qwen3",
        "norm_k": kind != "qwen3",
    }
    shape = _shape(config)
    layers: list[Layer] = []
    for index in range(shape.layers):
        made: dict[str, Tensor] = {}
        for part, names in parts_of(shape).items():
            if not absent.get(part):
                parts = [take(f"model.layers.{index}.{name}", names[name]) for name in names]
                made[part] = torch.cat(parts) if len(parts) > 1 else parts[0].contiguous()
        layers.append(Layer(**made))
    table = (shape.vocab, shape.hidden)
    embed = take("model.embed_tokens.weight", table).contiguous()
    shape = replace(shape, inv_freq=shape.inv_freq.to(embed.device))
    head = embed if shape.tied else take("lm_head.weight", table).contiguous()
    return Llama(shape, embed, tuple(layers), take("model.norm.weight", (shape.hidden,)), head)


def to_state(model: Llama) -> dict[str, Tensor]:
    """The inverse of `from_state`: transformers' names, one tensor each."""
    state = {"model.embed_tokens.weight": model.embed, "model.norm.weight": model.norm}
    for index, layer in enumerate(model.layers):
        for part, tensor in layer.named():
            sizes = parts_of(model.shape)[part]
            parts = tensor.split([size[0] for size in sizes.values()])
            state |= zip((f"model.layers.{index}.{name}" for name in sizes), parts, strict=True)
    if not model.shape.tied:
        state["lm_head.weight"] = model.head
    return {name: tensor.detach().contiguous() for name, tensor in state.items()}


def rope_tables(shape: LlamaShape, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin (N, C) for N positions, computed in float32 as transformers does."""
    angles = positions.float()[:, None] * shape.inv_freq.to(positions.device)[None, :]
    angles = torch.cat([angles, angles], dim=-1)
    scale = shape.rope_scale
    return (angles.cos() * scale).to(dtype), (angles.sin() * scale).to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x (N, heads, C) with tables (N, 1, C)."""
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + turned * sin


def split_heads(
    projected: Tensor, layer: Layer, shape: LlamaShape, tables: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (T, H, C) and keys (T, K, C) at their places, and values (T, K, C), of what a layer
    projected (T, (H+2K)·C); `tables` are cos and sin (T, C)."""
    cos, sin = tables[0][:, None], tables[1][:, None]
    heads = projected.view(len(projected), -1, shape.head_dim)
    cut = shape.heads + shape.kv_heads
    turned = positioned(heads[:, :cut], layer, shape, cos, sin)
    return turned[:, : shape.heads], turned[:, shape.heads :], heads[:, cut:]


def positioned(turn: Tensor, layer: Layer, shape: LlamaShape, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries and keys (N, H+K, C), normed where the model does that, and rotated."""
    if layer.norm_q is not None and layer.norm_k is not None:
        q, k = turn.split([shape.heads, shape.kv_heads], 1)
        normed = (rms_norm(q, layer.norm_q, shape.eps), rms_norm(k, layer.norm_k, shape.eps))
        turn = torch.cat(normed, 1)
    return rotate(turn, cos, sin)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last axis, with the scale in x's own precision."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


# --- matrix products -------------------------------------------------------------------------


Linear = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Products:
    """The matrix products of a model, maybe prepacked: (qkv, o, gated, down) a layer, head; what
    computes between them, where that is compiled (None: torch); and both in one call a layer, where
    the products are compiled too. `gated` is silu(gate) · up of (N, D)."""

    layers: list[tuple[Linear, Linear, Linear, Linear]]
    head: Linear
    kernels: Kernels | None = None
    chain: Chain | None = None

    def add_norm(
        self, x: Tensor, more: Tensor | None, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """x + more (N, D), and its norm. `x` itself may be changed."""
        if self.kernels is not None:
            return x, self.kernels.add_norm(x, more, weight, eps)
        x = x if more is None else x + more
        return x, rms_norm(x, weight, eps)


def _linear(
    weight: Tensor,
    rows: int,
    packed: bool,
    bias: Tensor | None = None,
    kernels: Kernels | None = None,
) -> Linear:
    if not packed:
        return lambda x: F.linear(x, weight, bias)
    ours = None if kernels is None else kernels.packed(weight)
    if kernels is not None and ours is not None:
        return Tiles(kernels, weight, ours, bias)
    ops = torch.ops.mkldnn
    reordered = ops._reorder_linear_weight(weight, rows)
    return lambda x: ops._linear_pointwise(x, reordered, bias, "none", [], "")


def _gated(weight: Tensor, rows: int, packed: bool, kernels: Kernels | None) -> Linear:
    """silu(gate) · up (N, M) of x (N, D), from the weight of both (2M, D)."""
    ours = kernels.packed_gates(weight) if packed and kernels is not None else None
    if kernels is not None and ours is not None:
        return Tiles(kernels, weight, ours, None, gates=True)
    both = _linear(weight, rows, packed)
    return lambda x: gated(kernels, both(x))


def gated(kernels: Kernels | None, both: Tensor) -> Tensor:
    """silu(gate) · up (N, M) of both (N, 2M)."""
    if kernels is not None:
        return kernels.silu_mul(both)
    gate, up = both.chunk(2, -1)
    return F.silu(gate).mul_(up)


def can_prepack(weight: Tensor) -> bool:
    """Whether oneDNN's weight layout is there for this tensor; the ops are private, so we try."""
    if weight.device.type != "cpu" or weight.dtype not in (torch.bfloat16, torch.float32):
        return False
    try:
        probe = weight.new_ones(32, 32)
        return bool(torch.isfinite(_linear(probe, 8, True)(weight.new_ones(8, 32))).all())
    except (RuntimeError, AttributeError, NotImplementedError, TypeError):
        return False


def products(model: Llama, rows: int, packed: bool) -> Products:
    """Products for about `rows` rows at once; prepacked ones copy the weights as they are now."""
    kernels = kernels_of(model)

    def make(weight: Tensor, bias: Tensor | None = None) -> Linear:
        bias = None if bias is None else bias.detach()
        return _linear(weight.detach(), rows, packed, bias, kernels)

    layers = [
        (
            make(b.qkv, b.qkv_bias),
            make(b.o, b.o_bias),
            _gated(b.gate_up.detach(), rows, packed, kernels),
            make(b.down),
        )
        for b in model.layers
    ]
    head = make(model.head)
    every = [*(product for layer in layers for product in layer), head]
    return Products(layers, head, kernels, chain(model, every))


def kernels_of(model: Llama) -> Kernels | None:
    """The compiled kernels that this model uses here; None: torch's own operations."""
    shape = model.shape
    return kernels_for(model.embed, (shape.hidden, shape.mlp), shape.head_dim)


# Products of up to so many rows are bound by reading the weights; there our own are faster. Of more
# rows they are bound by arithmetic, and torch's are.
FEW = 256


@dataclass(frozen=True)
class Tiles:
    """A linear map whose weight (N, D) is kept a second time, as c/products.c wants it."""

    kernels: Kernels
    weight: Tensor
    packed: Tensor
    bias: Tensor | None
    gates: bool = False  # the weight has gates and what they open: the result is gated

    def __call__(self, x: Tensor) -> Tensor:
        if len(x) <= FEW:
            return self.kernels.product(x, self.packed, self.bias, self.gates)
        found = F.linear(x, self.weight, self.bias)
        return self.kernels.silu_mul(found) if self.gates else found


@dataclass(frozen=True)
class Chain:
    """Where `between` of c/decode.c finds the weights of each layer."""

    kernels: Kernels
    addresses: list[ctypes.Array[ctypes.c_void_p]]  # a layer: `weights_of`
    sizes: list[tuple[int, int, int, int]]  # a layer: hidden, inner, mlp, outputs of what follows
    eps: float
    held: list[Tensor | None]  # what the addresses belong to

    def run(self, index: int, mixed: Tensor, x: Tensor, scratch: Tensor, out: Tensor) -> None:
        """From the attention `mixed` (R, H·C) of layer `index` to what the next one projects, or
        the logits, in `out`; `x` (R, D) is what runs through, `scratch` is from `scratch_for`."""
        where, sizes = ctypes.addressof(self.addresses[index]), self.sizes[index]
        self.kernels.run("between", mixed, x, where, scratch, out, len(x), *sizes, self.eps)

    def scratch_for(self, x: Tensor) -> Tensor:
        """Room for the rows of `x`."""
        hidden, _, mlp, _ = self.sizes[0]  # all layers have these
        return x.new_empty(len(x) * (2 * hidden + mlp))


def chain(model: Llama, products: Sequence[object]) -> Chain | None:
    """The chain of a model's products: qkv, o, gated and down a layer, and the head. None where
    some are not `Tiles`."""
    tiles = [product for product in products if isinstance(product, Tiles)]
    if len(tiles) < len(products):
        return None
    norms = [b.norm_attn for b in model.layers[1:]] + [model.norm]
    found = Chain(tiles[-1].kernels, [], [], model.shape.eps, [])
    for index, (b, norm) in enumerate(zip(model.layers, norms, strict=True)):
        o, gates, down, then = tiles[4 * index + 1 : 4 * index + 5]
        own = (o.packed, o.bias, b.norm_mlp, gates.packed, down.packed)
        tensors = (*own, norm, then.packed, then.bias)
        places = (None if t is None else t.data_ptr() for t in tensors)
        found.addresses.append((ctypes.c_void_p * len(tensors))(*places))
        sizes = (len(o.weight), o.weight.shape[1], down.weight.shape[1], len(then.weight))
        found.sizes.append(sizes)
        found.held.extend(tensors)
    return found
