# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""The Hugging Face folder that a model is saved in: its weights under the names that every reader
knows, and what belongs to it of the folder that it was made from."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rollouts.engines.torch.weights import write_weights
from rollouts.prompts import TEMPLATE_FILE

CONFIG = "config.json"
# What a trained model takes over from its base. All else is of the base alone: weights in other
# formats, adapters, optimisers, where it came from, its README.
TOKENIZER = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.tiktoken",
    "*.spm",
    "spiece.model",
    "sentencepiece*.model",
    "tekken.json",
    "chat_template*.json",
    "*.jinja",
    "additional_chat_templates/*.jinja",
)
KEPT = (
    *TOKENIZER,
    TEMPLATE_FILE,
    "generation_config.json",
    "processor_config.json",
    "*preprocessor_config.json",
)


def save_folder(source: Path, folder: Path, state: Mapping[str, Tensor]) -> None:
    """Weights in one file, beside what `source` has of configuration and tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    copy_kept(source, folder, KEPT)
    _write_config(source, folder, cpu.values())
    write_weights(folder / "model.safetensors", cpu)


def save_module(
    source: Path, folder: Path, module: Any, state: Mapping[str, Tensor] | None = None
) -> None:
    """`save_folder` of a model of transformers, whose own names are not always those of the files:
    it keeps experts as one tensor, and knows which weights are tied. `state`: other values of its
    weights than those it has."""
    from transformers import GenerationConfig
    from transformers.utils import logging

    tensors = dict(module.state_dict() if state is None else state)
    folder.mkdir(parents=True, exist_ok=True)
    before, module.generation_config = module.generation_config, GenerationConfig()
    logging.disable_progress_bar()
    try:  # of the generation settings it refuses some that it reads; the source's file is kept
        module.save_pretrained(folder, state_dict={k: v.detach() for k, v in tensors.items()})
    finally:
        module.generation_config = before
    (folder / "generation_config.json").unlink(missing_ok=True)
    copy_kept(source, folder, KEPT)
    _write_config(source, folder, tensors.values())
    for path in folder.glob("*.safetensors"):  # their writer makes them private
        path.chmod((folder / CONFIG).stat().st_mode)


def copy_kept(source: Path, folder: Path, kinds: tuple[str, ...]) -> None:
    """The files of `source` with these names, where `folder` is another."""
    if source.resolve() == folder.resolve():
        return
    for path in sorted(p for kind in kinds for p in source.glob(kind) if p.is_file()):
        target = folder / path.relative_to(source)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, target)


def _write_config(source: Path, folder: Path, tensors: Any) -> None:
    """The source's config.json with the number format of the tensors. It is not written anew: other
    versions of transformers have other names for its settings. `auto_map` names code of the source,
    which was not run and is not copied."""
    sizes: Counter[torch.dtype] = Counter()
    for tensor in tensors:
        if tensor.is_floating_point():
            sizes[tensor.dtype] += tensor.numel()
    if not (source / CONFIG).is_file():
        return
    config = json.loads((source / CONFIG).read_text(encoding="utf-8"))
    config.pop("auto_map", None)
    if sizes:
        _set_dtype(config, str(sizes.most_common(1)[0][0]).removeprefix("torch."))
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (folder / CONFIG).write_text(text, encoding="utf-8")


def _set_dtype(config: dict[str, Any], dtype: str) -> None:
    """Under the name that the configuration has for it, and in its parts."""
    names = [name for name in ("dtype", "torch_dtype") if name in config] or ["torch_dtype"]
    config |= dict.fromkeys(names, dtype)
    for part in config.values():
        if isinstance(part, dict) and {"dtype", "torch_dtype"} & part.keys():
            _set_dtype(part, dtype)
