# peft, torch and safetensors ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportMissingImports=false
"""A model's folder: written, with what its base has beside the weights; with the adapters of
another one added in; and loaded as an engine of this machine.

Plain LoRA is added here, without peft and in float32. Whatever else an adapter's configuration
asks for (DoRA, PiSSA, embeddings, whole modules) peft itself computes.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from configs.machine import EngineConfig
from rollouts.engines.engine import ModelError
from rollouts.engines.torch.engine import load_engine, set_threads
from rollouts.engines.torch.load import (
    choose_device,
    choose_dtype,
    load_transformers,
    read_state,
    read_weights,
    write_weights,
)
from rollouts.prompts import TEMPLATE_FILE, ChatTokenizer
from train.memory import choose_allocation, require_memory
from train.model.source import resolve_model

if TYPE_CHECKING:
    from configs.answers import DecodingConfig

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


# --- adapters of peft, added into the weights that they were trained on

ADAPTER_CONFIG, ADAPTER = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."  # of peft's names
Scale = Callable[[str, int], float]  # of a module's name and its rank

# Settings of LoraConfig that plain LoRA has, or that say nothing of a trained adapter. Another one
# that is set means something else.
PLAIN = frozenset(
    """
    peft_type base_model_name_or_path r lora_alpha rank_pattern alpha_pattern use_rslora
    target_modules exclude_modules layers_to_transform layers_pattern task_type lora_dropout
    revision inference_mode auto_mapping peft_version megatron_core runtime_config
    qalora_group_size eva_config init_lora_weights ensure_weight_tying
    """.split()  # noqa: SIM905
)
# First values of the adapters; the others change the base model's weights too.
FIRST = (True, False, None, "gaussian", "orthogonal", "eva")
NEUTRAL: tuple[Any, ...] = (None, False, "none", {}, [])


class AdapterError(ValueError):
    """A tensor of an adapter that cannot be added to a model: its name, and why not."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} {why}")
        self.name = name


def add_adapters(
    weights: Mapping[str, Tensor], adapters: Mapping[str, Tensor], scale: float | Scale
) -> dict[str, Tensor]:
    """`weights` with scale · B A added where `adapters` has a pair (A, B), computed in float32 and
    rounded once to the weight's own format; all others are the same tensors.

    Names of `adapters` are peft's. Raises `AdapterError` for one that is no such pair.
    """
    made, left = dict(weights), dict(adapters)
    for name in [key for key in left if key.endswith(".lora_A.weight")]:
        stem = name.removesuffix(".lora_A.weight")
        module = stem.removeprefix(PREFIX)
        target = f"{module}.weight"
        first, second = left.pop(name), left.pop(f"{stem}.lora_B.weight", None)
        if target not in made or second is None:
            raise AdapterError(name, "fits no weight of the base model")
        if made[target].shape != (len(second), first.shape[1]):
            raise AdapterError(name, f"does not fit {target} of shape {(*made[target].shape,)}")
        factor = scale(module, len(first)) if callable(scale) else scale
        change = factor * (second.float() @ first.float())
        made[target] = (made[target].float() + change).to(made[target].dtype)
    if left:
        raise AdapterError(next(iter(left)), "is no low-rank adapter")
    return made


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter, and not a whole model beside a stray file of one."""
    whole = any(folder.glob("*.safetensors")) and not (folder / ADAPTER).is_file()
    return (folder / ADAPTER_CONFIG).is_file() and not whole


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a LoRA adapter. Raises `ModelError` for another kind, or a part of
    one."""
    found: Any = None
    try:
        found = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        needed = ("base_model_name_or_path", "r", "lora_alpha")
        right = found.get("peft_type", "LORA") == "LORA" and all(found[name] for name in needed)
    except (ValueError, KeyError, AttributeError):
        right = False
    if not right or not (folder / ADAPTER).is_file():
        raise ModelError(
            f"{folder}: wanted a LoRA adapter with {ADAPTER_CONFIG} (base_model_name_or_path, r, "
            f"lora_alpha) and {ADAPTER}"
        )
    return found


def scale_of(config: Mapping[str, Any]) -> Scale:
    """alpha / rank of each module, as peft has it: the first pattern that fits its name counts."""
    alphas: Mapping[str, float] = config.get("alpha_pattern") or {}

    def scale(module: str, rank: int) -> float:
        fits = (a for key, a in alphas.items() if re.match(rf"(.*\.)?({key})$", module))
        alpha = float(next(fits, config["lora_alpha"]))
        return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)

    return scale


def not_plain(config: Mapping[str, Any]) -> list[str]:
    """What an adapter has beside plain LoRA, as `setting=value`."""
    more = [k for k, v in config.items() if k not in PLAIN and v not in NEUTRAL]
    if config.get("init_lora_weights", True) not in FIRST:
        more.append("init_lora_weights")
    return [f"{name}={config[name]}" for name in sorted(more)]


def save_merged(adapter: Path, base: Path, folder: Path) -> None:
    """Write the base model with an adapter added in, beside the base model's tokenizer. Raises
    `ModelError`."""
    config, tensors = read_config(adapter), read_weights(adapter / ADAPTER)
    special = not_plain(config)
    try:
        if special:
            raise AdapterError(", ".join(special), "is more than plain LoRA")
        save_folder(base, folder, add_adapters(read_state(base), tensors, scale_of(config)))
    except AdapterError as error:
        _merge_by_peft(adapter, base, folder, tensors, error)


def _merge_by_peft(
    adapter: Path, base: Path, folder: Path, tensors: Mapping[str, Tensor], why: AdapterError
) -> None:
    """peft's own sum, in float32."""
    try:
        from peft import PeftModel, get_peft_model_state_dict
    except ModuleNotFoundError:
        raise ModelError(
            f"{adapter}: {why} (base model {base}); install the extra `lora`, with which peft "
            "adds it, or merge the adapter into its base model and give that folder"
        ) from None
    module = load_transformers(base, "float32")
    try:
        model: Any = PeftModel.from_pretrained(module, str(adapter))
        known = get_peft_model_state_dict(model)
        wanted = _laws(model)
        merged = model.merge_and_unload()
    except (ValueError, RuntimeError, TypeError, LookupError, AttributeError) as error:
        said = " ".join(str(error).split())[:300]
        raise ModelError(
            f"{adapter}: peft cannot add it to the base model {base} ({said})"
        ) from None
    if strange := sorted(name for name in tensors if "lora_" in name and name not in known):
        raise ModelError(
            f"{adapter}: {strange[0]} fits no weight of the base model {base}; it has to be the "
            "one that the adapter was trained on"
        )
    if not torch.allclose(_laws(merged), wanted, atol=1e-3):
        raise ModelError(
            f"{adapter}: merged into the base model {base} it computes something else, as adapters "
            "on tied weights do; train it on an untied model, or serve it unmerged"
        )
    save_module(base, folder, merged)


@torch.no_grad()
def _laws(module: Any) -> Tensor:
    """Log-probabilities (1, 16, V) of any text."""
    ids = torch.arange(3, 19, device=module.device)[None]
    return module(ids % module.config.get_text_config().vocab_size).logits.log_softmax(-1)


# --- an engine of this machine


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
