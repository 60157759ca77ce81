# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""What of a decoder's configuration decides how much memory it takes. Without torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.loader import ConfigError
from rollouts.engines.engine import context_of
from train.model.source import local_model


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder with gated MLPs and grouped keys and values."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    tied: bool
    positions: int = 0  # longest sequence it was made for; 0: not known

    @property
    def parameters(self) -> int:
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        per_layer = attention + 3 * self.hidden * self.mlp + 2 * self.hidden
        return self.layers * per_layer + self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def kv_bytes(self) -> int:
        """Of one token, in bf16."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_dim

    def adapters(self, rank: int) -> int:
        """Parameters of LoRA adapters on all linear layers of the blocks."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = 2 * (self.hidden + q) + 2 * (self.hidden + kv)
        return self.layers * rank * (attention + 3 * (self.hidden + self.mlp))


# Shapes from the models' own config.json, for a dry run without the weights.
KNOWN = {
    "Qwen/Qwen3-4B": Shape(36, 2560, 32, 8, 128, 9728, 151936, True, 40960),
    "Qwen/Qwen3-8B": Shape(36, 4096, 32, 8, 128, 12288, 151936, False, 40960),
    "Qwen/Qwen3-32B": Shape(64, 5120, 64, 8, 128, 25600, 151936, False, 40960),
    "HuggingFaceTB/SmolLM2-135M-Instruct": Shape(30, 576, 9, 3, 64, 1536, 49152, True, 8192),
}


def shape_of(path: str | None) -> Shape:
    """From the config.json of a folder or of a model that is on this machine, or of a known hub
    name. Raises `ConfigError` otherwise."""
    folder = local_model(path) if path else None
    file = (folder or Path(str(path)).expanduser()) / "config.json"
    if file.is_file():
        try:
            return _read(json.loads(file.read_text(encoding="utf-8")))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{file}: not the configuration of a decoder that can be estimated "
                f"({type(error).__name__}: {error})"
            ) from None
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
        positions=context_of(config),
    )


def context_in(folder: Path) -> int:
    """The longest sequence that the model of a folder was made for; 0: not known."""
    try:
        return context_of(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, AttributeError):
        return 0
