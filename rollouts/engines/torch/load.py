# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Reading a model folder, for the decoder and for the trainer: our own path where the architecture
has one, transformers' class elsewhere. What cannot be read is refused in one sentence. And which
device and which number format are used on this machine.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from torch import Tensor

from rollouts.engines.engine import ModelError
from rollouts.engines.torch.llama import Llama, from_state, why_not

FAILURES = (AttributeError, TypeError, ValueError, RuntimeError, LookupError)  # of transformers
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
        with _without_adapter(folder) as seen:
            loaded: Any = library.AutoModelForCausalLM.from_pretrained(
                seen,
                config=config,
                dtype=DTYPES[dtype],
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # said below, by name
            )
    except SafetensorError as error:
        raise ModelError(f"{folder}: damaged ({error}); get or make the files again") from None
    except (*FAILURES, ImportError, OSError) as error:
        raise ModelError(
            f"{folder}: transformers cannot load this model of model_type "
            f"{config.model_type!r} ({_first(error)})"
        ) from None
    model, found = cast("tuple[Any, Any]", loaded)
    _check_whole(folder, config, found)
    return model.to(device).eval()


@contextmanager
def _without_adapter(folder: Path) -> Generator[Path]:
    """The folder, or links to what is in it but an adapter: where peft is installed, transformers
    would add that to the weights. Our own decoder does not, and neither may depend on a package."""
    adapter = "adapter_config.json"
    if not (folder / adapter).exists():
        yield folder
        return
    with TemporaryDirectory() as place:
        for path in folder.iterdir():
            if path.name != adapter:
                (Path(place) / path.name).symlink_to(path.resolve())
        yield Path(place)


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


# --- weights: safetensors, whose errors name neither the file nor their kind -----------------


_NUMBER = re.compile(r"os error (\d+)")


def read_weights(path: Path) -> dict[str, Any]:
    """The tensors of a file. Raises `ModelError` for one that is damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(str(path))
    except SafetensorError as error:
        raise ModelError(f"{path}: damaged ({error}); get or make the file again") from None


def write_weights(path: Path, tensors: Mapping[str, Any]) -> None:
    """Write a file, not atomically, which others may read as they may any file of this process: the
    library's own are private. Raises `OSError` naming it for a disk that is full."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(dict(tensors), str(path), {"format": "pt"})
        path.chmod(mode)
    except SafetensorError as error:
        number = _NUMBER.search(str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None


def read_state(folder: Path) -> dict[str, Tensor]:
    """All tensors of a Hugging Face folder with safetensors weights."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    else:
        names = ["model.safetensors"]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ModelError(f"{folder} has no {missing[0]}; give a Hugging Face folder with weights")
    state: dict[str, Tensor] = {}
    for name in names:
        state |= read_weights(folder / name)
    return state


# --- device and number format ----------------------------------------------------------------


# These hold a processor's instructions back, from torch and from its products.
LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


def choose_device(wanted: str) -> str:
    """The device, "cpu" or "cuda"; "auto" is the GPU where torch sees one.

    Raises `ModelError` when "cuda" is wanted and torch sees no GPU.
    """
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ModelError("device cuda: torch sees no GPU; choose auto or cpu")
    return "cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu"


def choose_dtype(wanted: str, device: str) -> str:
    """The number format, "bfloat16" or "float32": what is wanted, or what is fast on `device`.

    A CPU without bfloat16 instructions computes it tens of times slower than float32, an Intel one
    with AVX512-BF16 and no AMX twice as slow.
    """
    if wanted != "auto":
        return wanted
    return "bfloat16" if device != "cpu" or _bfloat16_is_fast() else "float32"


@cache
def computes_bfloat16() -> bool:
    """Whether torch can multiply bfloat16 matrices on this CPU at all."""
    small = torch.ones(2, 2, dtype=torch.bfloat16)
    try:
        torch.mm(small, small)
    except RuntimeError:
        return False
    return True


def by_instructions(
    capabilities: Mapping[str, Any], onednn: bool | None, limits: Mapping[str, str]
) -> bool:
    """Whether bfloat16 is fast, by what the processor has. Where nothing tells, it is not.

    `capabilities`: of `torch.cpu.get_capabilities`. `onednn`: what torch answers when asked for
    bfloat16 products, which on x86 counts emulation as a yes (None: it cannot be asked). `limits`:
    the variables of `LIMITS` that are set: what they leave of the instructions is not known.
    """
    if limits or not onednn:
        return False
    if capabilities.get("architecture") == "x86_64":
        # Intel's AVX512-BF16 multiplies at half its own float32 rate: machines whose AMX is hidden
        vectors = not str(capabilities.get("cpu_name", "")).startswith("Intel")
        return bool(capabilities.get("amx_bf16") or (vectors and capabilities.get("avx512_bf16")))
    return True  # elsewhere oneDNN has it by instructions alone


@cache
def _bfloat16_is_fast() -> bool:
    limits = {name: os.environ[name] for name in LIMITS if os.environ.get(name)}
    return computes_bfloat16() and by_instructions(torch.cpu.get_capabilities(), _onednn(), limits)


def _onednn() -> bool | None:
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # pyright: ignore[reportPrivateUsage]
    except (AttributeError, RuntimeError):  # this build of torch has no oneDNN
        return None
