# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownVariableType=false
"""A model folder, an adapter folder or a hub name as an engine on this machine."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

from configs.schema import EngineConfig
from rewards.task import TaskError
from rollouts.prompts import ChatTokenizer
from train.model.adapters import AdapterError, add_adapters
from train.model.folder import save_folder
from train.model.source import resolve_model
from train.run.setup import load_checked, prepare

ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def load_local(args: Any, slots: int) -> tuple[Any, ChatTokenizer]:
    """(engine that decodes `slots` answers side by side, tokenizer). Raises one sentence for a
    model that cannot be loaded."""
    if slots < 1:
        raise TaskError(f"--slots {slots}: give 1 or more")
    config = EngineConfig(threads=args.threads, device=args.device, dtype=args.dtype)
    machine = prepare(config)
    adapter = Path(args.model).expanduser()
    if not (adapter / ADAPTER).is_file():
        folder = resolve_model(args.model)
        tokenizer = ChatTokenizer(folder, args.calls)
        policy = load_checked(folder, config, machine, train=False)
        return policy.engine(tokenizer.stop_ids, slots), tokenizer
    base = resolve_model(_read_adapter(adapter)["base_model_name_or_path"])
    own = any((adapter / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json"))
    tokenizer = ChatTokenizer(adapter if own else base, args.calls)
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.out, prefix=".merged-") as merged:
        save_folder(base, Path(merged), merged_weights(base, adapter))
        policy = load_checked(Path(merged), config, machine, train=False)
    return policy.engine(tokenizer.stop_ids, slots), tokenizer


def base_folder(model: str) -> Path:
    """The folder with the model's own configuration: of an adapter, its base model's."""
    adapter = Path(model).expanduser()
    if (adapter / ADAPTER).is_file():
        return resolve_model(_read_adapter(adapter)["base_model_name_or_path"])
    return resolve_model(model)


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
