"""A model folder, an adapter folder or a hub name as an engine on this machine."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.answers import DecodingConfig
from configs.machine import EngineConfig
from rollouts.engines.torch.engine import load_engine, set_threads
from rollouts.engines.torch.load import choose_device, choose_dtype
from rollouts.prompts import TEMPLATE_FILE, ChatTokenizer
from train.memory import choose_allocation, require_memory
from train.model.adapters import is_adapter, read_config, save_merged
from train.model.policy import KEPT, TOKENIZER, copy_kept
from train.model.source import resolve_model


def folders_of(model: str) -> list[Path]:
    """The folders that a model's weights come from: its own, or an adapter's and its base model's.

    Raises one sentence for a model that is not there.
    """
    adapter = Path(model).expanduser()
    if is_adapter(adapter):
        return [adapter, resolve_model(read_config(adapter)["base_model_name_or_path"])]
    return [resolve_model(model)]


def tokenizer_of(
    folders: Sequence[Path], calls: str, template: Mapping[str, Any] | None = None
) -> ChatTokenizer:
    """The model's tokenizer: an adapter's own where it has one, else its base model's. What ends an
    answer besides is said by the base model alone (generation_config.json)."""
    if len(folders) == 1 or not (folders[0] / "tokenizer_config.json").is_file():
        return ChatTokenizer(folders[-1], calls, template)
    both = tempfile.TemporaryDirectory()
    copy_kept(folders[1], Path(both.name), KEPT)
    copy_kept(folders[0], Path(both.name), (*TOKENIZER, TEMPLATE_FILE))
    tokenizer = ChatTokenizer(Path(both.name), calls, template)
    weakref.finalize(tokenizer, both.cleanup)  # it may read the folder again
    return tokenizer


def load_local(
    folders: Sequence[Path],
    tokenizer: ChatTokenizer,
    config: EngineConfig | DecodingConfig,
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
    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch, prefix=".merged-") as merged:
        save_merged(adapter, base, Path(merged))
        require_memory(Path(merged), device)
        return load_engine(Path(merged), tokenizer.stop_ids, slots, dtype, device)
