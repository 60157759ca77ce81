# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportMissingImports=false, reportMissingTypeStubs=false
"""The trainable model: a differentiable forward over packed groups.

Working weights are in the compute type (bf16 by default); the optimiser (train/model/optim.py)
holds float32 masters. The weights are the very tensors the embedded engine decodes with."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from configs.loader import ConfigError
from configs.machine import ModelConfig
from rollouts.engines.engine import ModelError, TrainedEngine, context_of
from rollouts.engines.torch.engine import TorchEngine, TransformersEngine
from rollouts.engines.torch.kernels import kernels_for
from rollouts.engines.torch.llama import Llama, to_state
from rollouts.engines.torch.load import (
    folder_is_llama,
    load_llama,
    load_transformers,
)
from train.model.folder import save_folder, save_module
from train.model.forward import again, fused_hidden, fused_logp, plain_hidden
from train.model.loss import linear_logp
from train.model.packing import Layout, Packed


def with_adapters(module: Any, config: ModelConfig) -> Any:
    """The module with adapters on every linear layer of its blocks; only they are trained.

    No dropout: a step must not depend on how often it was tried. The first matrices are drawn from
    a seed of their own, so that a resumed run starts from the same module.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ModuleNotFoundError:
        raise ConfigError(
            f"model.lora_rank={config.lora_rank}: peft is not installed; install the extra `lora`"
        ) from None
    settings = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return get_peft_model(module, settings)


def merged(module: Any) -> Any:
    """A copy of the model with the adapters added in, and without them."""
    return copy.deepcopy(module).merge_and_unload()


class Policy(Protocol):
    """What the loops need of a model."""

    def named(self) -> list[tuple[str, Tensor]]:
        """(name, leaf tensor) of everything that is trained, in a fixed order."""
        ...

    def logp(self, packed: Packed, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
        """Log-probabilities (N,) of the packed targets, and entropies (N,) without gradient."""
        ...

    def engine(self, stop_ids: list[int], slots: int) -> TrainedEngine:
        """An engine that decodes with these weights, as they are at the time."""
        ...

    def save(self, folder: Path) -> None:
        """Write an ordinary Hugging Face folder."""
        ...


def device_of(policy: Policy) -> torch.device:
    """Where the policy's weights live."""
    return policy.named()[0][1].device


def layout_of(policy: Policy) -> Layout:
    """How `policy.logp` lays a micro-batch out."""
    if not isinstance(policy, LlamaPolicy):
        return "padded"
    return "tree" if device_of(policy).type == "cpu" else "apart"


class LlamaPolicy:
    """The hand-written path for Llama-shaped models."""

    def __init__(self, model: Llama, folder: Path) -> None:
        self.model, self.folder, self.recompute = model, folder, False
        shape = model.shape
        self.kernels = kernels_for(
            model.embed, (shape.hidden, shape.mlp, shape.vocab), shape.head_dim
        )
        for _, tensor in model.named():
            tensor.requires_grad_(True)

    def named(self) -> list[tuple[str, Tensor]]:
        return list(self.model.named())

    def logp(self, packed: Packed, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
        """Of the N tokens of rollouts: log-probabilities and entropies (N,)."""
        model, target = self.model, packed.target
        if self.kernels is None:
            hidden = plain_hidden(model, packed, self.recompute)
            found = linear_logp(hidden, model.head, target, temperature)
        else:
            hidden = fused_hidden(model, packed, self.kernels, self.recompute)
            found = fused_logp(hidden, model.head, target, temperature, self.kernels)
        return found[0].index_select(0, packed.expand), found[1].index_select(0, packed.expand)

    def checkpoint_layers(self) -> None:
        """Keep the activations of one layer at a time from now on."""
        self.recompute = True

    def engine(self, stop_ids: list[int], slots: int) -> TrainedEngine:
        return TorchEngine(self.model, stop_ids, slots)

    def save(self, folder: Path) -> None:
        save_folder(self.folder, folder, to_state(self.model))


_TABLES = ("wpe", "embed_positions", "position_embeddings", "position_embedding")


def learned_positions(module: Any) -> int:
    """The longest sequence of a model that has a learned vector for each position; 0 for others,
    which compute positions and can read on beyond their context."""
    tables = {n.rpartition(".")[2] for n, m in module.named_modules() if hasattr(m, "weight")}
    found = any(name in _TABLES for name in tables)
    return context_of(module.config.to_dict()) if found else 0


class TransformersPolicy:
    """Any causal LM of transformers: prompts are repeated, and all logits are computed."""

    def __init__(self, folder: Path, dtype: str, device: str) -> None:
        self.folder, self._adapted = folder, False
        self.module: Any = load_transformers(folder, dtype, device)
        learn_padding(self.module)
        self._positions = learned_positions(self.module)

    def named(self) -> list[tuple[str, Tensor]]:
        return [(n, p) for n, p in self.module.named_parameters() if p.requires_grad]

    def logp(self, packed: Packed, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
        """One row of the module's batch a completion: its prompt, then itself."""
        # of rollouts that share a token one is computed for it
        owner = dict(zip(packed.expand.tolist(), packed.row.tolist(), strict=True))
        rows = sorted(set(owner.values()))
        where = {row: i for i, row in enumerate(rows)}
        paths = (torch.tensor(packed.paths[row], device=packed.ids.device) for row in rows)
        sequences = [packed.ids[path] for path in paths]
        width = max(map(len, sequences))
        if 0 < self._positions < width:
            raise ModelError(
                f"{self.folder} has learned positions for {self._positions} tokens, and a sequence "
                f"has {width}; set sft.max_length or rl.max_length to {self._positions} or less"
            )
        ids = packed.ids.new_zeros(len(rows), width)
        mask = torch.zeros_like(ids)
        for i, sequence in enumerate(sequences):
            ids[i, : len(sequence)], mask[i, : len(sequence)] = sequence, 1
        # without a cache: it is changed in place, which gradients do not bear, and a layer that is
        # computed again would fill it twice
        logits = self.module(ids, attention_mask=mask, use_cache=False).logits
        line = torch.tensor([where[owner[u]] for u in range(len(owner))], device=ids.device)
        # a branch's first token is predicted by its prompt's last; positions count from 0
        chosen = logits[line, packed.positions[packed.source]].float() / temperature
        law = chosen.log_softmax(-1)
        entropy = -(law.exp() * law).sum(-1).detach()
        logp = law.gather(1, packed.target[:, None])[:, 0]
        return logp.index_select(0, packed.expand), entropy.index_select(0, packed.expand)

    def engine(self, stop_ids: list[int], slots: int) -> TrainedEngine:
        return TransformersEngine(self.module, stop_ids, slots)

    def checkpoint_layers(self) -> None:
        """Keep the activations of one layer at a time from now on. transformers does so in training
        mode alone, in which it would drop activations too, so its layers are wrapped here.

        Raises `ModelError` where transformers does not say which layers that can be done with.
        """
        from transformers.modeling_layers import GradientCheckpointingLayer

        def wrapped(forward: Callable[..., Any]) -> Callable[..., Any]:
            def run(*given: Any, **named: Any) -> Any:
                if not torch.is_grad_enabled():
                    return forward(*given, **named)
                return again(partial(forward, **named), *given)

            return run

        layers = [m for m in self.module.modules() if isinstance(m, GradientCheckpointingLayer)]
        if not layers:
            raise ModelError(
                f"{self.folder}: transformers has no gradient checkpointing for a model of type "
                f"{self.module.config.model_type}; set engine.gradient_checkpointing=false"
            )
        for layer in layers:
            layer.forward = wrapped(layer.forward)

    def add_adapters(self, config: ModelConfig) -> None:
        """Train low-rank adapters instead of the weights; `save` merges them in."""
        self.module, self._adapted = with_adapters(self.module, config).eval(), True

    def save(self, folder: Path) -> None:
        save_module(self.folder, folder, merged(self.module) if self._adapted else self.module)


def learn_padding(module: Any) -> None:
    """Let the padding token's embedding learn: chat models often pad with their end-of-turn token,
    which stands in every prompt, and an embedding layer gives its padding row no gradient."""
    module.get_input_embeddings().padding_idx = None


def load_policy(
    folder: Path,
    dtype: str = "bfloat16",
    device: str = "cpu",
    adapters: ModelConfig | None = None,
) -> LlamaPolicy | TransformersPolicy:
    """The fast path where the architecture allows it, transformers elsewhere, and for adapters."""
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} has no config.json; give a Hugging Face model folder")
    if device.startswith("cuda"):
        # its gradients differ from run to run, and `backward` (optim.py) comes too late to choose
        torch.backends.cuda.enable_cudnn_sdp(False)
    if adapters is not None and adapters.lora_rank:
        policy = TransformersPolicy(folder, dtype, device)  # our own path has no place for them
        policy.add_adapters(adapters)
        return policy
    if folder_is_llama(folder):
        return LlamaPolicy(load_llama(folder, dtype, device), folder)
    return TransformersPolicy(folder, dtype, device)
