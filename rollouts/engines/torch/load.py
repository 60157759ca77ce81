# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""Reading a model folder, for the decoder and for the trainer: our own path where the architecture
has one, transformers' class elsewhere. What cannot be read is refused in one sentence."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

import torch

from rollouts.engines.engine import ModelError
from rollouts.engines.torch.llama import Llama, from_state, read_state, why_not

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def load_llama(folder: Path, dtype: str = "bfloat16", device: str = "cpu") -> Llama:
    """Weights of a Llama-shaped Hugging Face folder. Raises `ModelError` if it is none."""
    config = model_config(folder)
    state = {k: v.to(device) for k, v in read_state(folder).items()}
    return from_state(config, state, DTYPES[dtype])


def load_transformers(folder: Path, dtype: str = "bfloat16", device: str = "cpu") -> Any:
    """The causal language model in a folder, as transformers computes it, with every weight from
    its files. Raises `ModelError`."""
    import transformers
    from safetensors import SafetensorError
    from transformers.utils import logging

    library: Any = transformers  # its own annotations are partial
    config = model_config(folder)
    if getattr(config, "quantization_config", None) is not None:
        raise ModelError(
            f"{folder}: its weights are quantised (quantization_config in config.json); give the "
            "model as it was before that, or serve it elsewhere and give its address"
        )
    if type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(
            f"{folder}: model_type {config.model_type!r} is no causal language model of "
            f"transformers {transformers.__version__}"
        )
    logging.disable_progress_bar()
    try:
        loaded: Any = library.AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=DTYPES[dtype],
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # said below, by name
        )
    except SafetensorError as error:
        raise ModelError(f"{folder}: damaged ({error}); get or make the files again") from None
    except (
        ImportError,
        OSError,
        ValueError,
        RuntimeError,
        TypeError,
        LookupError,
        AttributeError,
    ) as error:
        raise ModelError(
            f"{folder}: transformers cannot load this model of model_type "
            f"{config.model_type!r} ({_first(error)})"
        ) from None
    model, found = cast("tuple[Any, Any]", loaded)
    _check_whole(folder, config, found)
    return model.to(device).eval()


def _check_whole(folder: Path, config: Any, found: Any) -> None:
    """Raises `ModelError` where the files do not hold every weight of the model."""
    other: list[Any] = found.get("mismatched_keys") or []
    for name, stored, wanted in sorted(other):
        raise ModelError(
            f"{folder}: the tensor {name} has the shape {tuple(stored)}, and config.json means "
            f"{tuple(wanted)}; configuration and weights are of two models"
        )
    missing: list[str] = found.get("missing_keys") or []
    for name in sorted(missing):
        raise ModelError(
            f"{folder}: the checkpoint has no tensor {name!r}; is it a causal language model of "
            f"model_type {config.model_type!r}?"
        )


def folder_is_llama(folder: Path) -> bool:
    """Whether the folder's config describes a model the embedded decoder computes. If not, why is
    said: a slow run wants a reason."""
    reason = why_not(model_config(folder))
    if reason:
        print(
            f"{folder}: transformers' own forward pass is used, which is slower: {reason}",
            file=sys.stderr,
        )
    return not reason


def model_config(folder: Path) -> Any:
    """transformers' configuration of the model in a folder. Raises `ModelError` for a model that
    transformers does not know by itself: code of a folder is not run."""
    import transformers
    from transformers import CONFIG_MAPPING

    file = folder / "config.json"
    try:
        raw: Any = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: cannot be read ({_first(error)})") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("model_type"), str):
        raise ModelError(f"{file}: no model_type; give a folder that `save_pretrained` wrote")
    kind = raw["model_type"]
    if kind not in CONFIG_MAPPING:
        own = raw.get("auto_map")
        why = "its own code (auto_map) is not run" if own else "a newer one may"
        raise ModelError(
            f"{file}: transformers {transformers.__version__} does not know model_type {kind!r}; "
            f"{why}. Serve the model elsewhere and give its address with --model URL"
        )
    auto: Any = transformers.AutoConfig  # its types are partial
    try:
        return auto.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # the checks of each architecture's own class
        raise ModelError(f"{file}: transformers cannot read it ({_first(error)})") from None


def _first(error: BaseException) -> str:
    """What an error says, in a line."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said[:300]}"
