# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownVariableType=false
"""A model folder, an adapter folder or a hub name as an engine on this machine."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.schema import EngineConfig
from rewards.task import TaskError
from rollouts.engines.torch.device import choose_device, choose_dtype
from rollouts.engines.torch.engine import load_engine, set_threads
from rollouts.prompts import ChatTokenizer
from train.model.adapters import AdapterError, add_adapters
from train.model.source import resolve_model
from train.run.memory import choose_allocation, require_memory

ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def folders_of(model: str) -> list[Path]:
    """The folders that a model's weights come from: its own, or an adapter's and its base model's.

    Raises one sentence for a model that is not there.
    """
    adapter = Path(model).expanduser()
    if (adapter / ADAPTER).is_file():
        return [adapter, resolve_model(_read_adapter(adapter)["base_model_name_or_path"])]
    return [resolve_model(model)]


def tokenizer_of(
    folders: Sequence[Path], calls: str, template: Mapping[str, Any] | None = None
) -> ChatTokenizer:
    """The model's tokenizer: an adapter's own where it has one, else its base model's."""
    names = ("tokenizer.json", "tokenizer_config.json")
    own = next((f for f in folders if any((f / name).is_file() for name in names)), folders[-1])
    return ChatTokenizer(own, calls, template)


def load_local(
    folders: Sequence[Path],
    tokenizer: ChatTokenizer,
    config: EngineConfig,
    slots: int,
    scratch: Path | None = None,
) -> Any:
    """The engine that decodes `slots` answers of a model side by side. An adapter is merged into
    its base model in a folder of `scratch` (None: of the temporary folder), which goes away.

    Raises one sentence for a model that cannot be loaded.
    """
    choose_allocation()
    set_threads(config.threads or "auto")
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, device)
    if len(folders) == 1:
        require_memory(folders[0], device)
        return load_engine(folders[0], tokenizer.stop_ids, slots, dtype, device)
    adapter, base = folders
    from train.model.folder import save_folder  # what only an adapter needs

    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch, prefix=".merged-") as merged:
        save_folder(base, Path(merged), merged_weights(base, adapter))
        require_memory(Path(merged), device)
        return load_engine(Path(merged), tokenizer.stop_ids, slots, dtype, device)


def merged_weights(base: Path, adapter: Path) -> dict[str, Any]:
    """The base model's weights with a low-rank adapter of peft added in: W + scale · B A.

    Raises `TaskError` for an adapter that holds anything else.
    """
    from safetensors.torch import load_file

    config = _read_adapter(adapter)
    scale = float(config["lora_alpha"]) / (
        math.sqrt(config["r"]) if config.get("use_rslora") else config["r"]
    )
    weights: dict[str, Any] = {}
    for path in sorted(base.glob("*.safetensors")):
        weights |= load_file(path)
    try:
        return add_adapters(weights, load_file(adapter / ADAPTER_WEIGHTS), scale)
    except AdapterError as error:
        raise TaskError(
            f"--model {adapter}: {error} (base model {base}); merge the adapter into its base "
            "model first and give that folder"
        ) from None


def _read_adapter(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    try:
        found = json.loads((folder / ADAPTER).read_text(encoding="utf-8"))
        wrong = found.get("use_dora") or found.get("peft_type", "LORA") != "LORA"
        whole = bool(found["base_model_name_or_path"] and found["r"] and found["lora_alpha"])
    except (ValueError, KeyError, AttributeError):
        wrong = whole = False
    if wrong or not whole or not (folder / ADAPTER_WEIGHTS).is_file():
        raise TaskError(
            f"--model {folder}: wanted a LoRA adapter with {ADAPTER} (base_model_name_or_path, r, "
            f"lora_alpha) and {ADAPTER_WEIGHTS}"
        )
    return found
