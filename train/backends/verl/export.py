# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""A verl checkpoint as an ordinary Hugging Face folder.

python -m train.backends.verl.export RUN [--step N] [--out DIR]     default: the newest, RUN/model
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from configs.loader import ConfigError
from rollouts.prompts import keep_template, template_arguments
from train.run.run import publish
from train.run.trained_on import NAME as TRAINED

if TYPE_CHECKING:
    from torch import Tensor


def export(out: Path, step: int | None = None, target: Path | None = None) -> Path:
    """Merge the shards of `global_step_N` (default: the newest) into `out/model`: bf16 weights, or
    those of the base model with the adapters added in.

    The folder appears whole. Raises `ConfigError` when there is no checkpoint, or when it cannot be
    read.
    """
    step = last_step(out) if step is None else step
    actor = out / f"global_step_{step}" / "actor"
    if not actor.is_dir():
        raise ConfigError(f"{actor}: no such checkpoint; train first, or name another step")
    work = out / ".tmp-model"
    shutil.rmtree(work, ignore_errors=True)
    model = _model(out)
    try:
        if (actor / META).is_file():
            save_merged(actor, Path(model["path"]), work)
        else:
            with contextlib.redirect_stdout(sys.stderr):  # it says every shard it reads
                _merge(actor, work)
    except Exception as error:  # of torch, transformers, the file system: all mean the same here
        begun = f" into {model['path']}, which the run started from" if model else ""
        raise ConfigError(f"the shards of {actor} cannot be merged{begun}: {error}") from error
    for path in (actor / "huggingface").iterdir():  # tokenizer and template, where it left any out
        if path.is_file() and not (work / path.name).exists():
            shutil.copyfile(path, work / path.name)
    more = model.get("chat_template_kwargs")
    keep_template(work, template_arguments(Path(model["path"]), more) if model else {})
    known = out / "verl" / TRAINED  # of all steps: an earlier one saw no more
    if known.is_file():
        shutil.copyfile(known, work / TRAINED)
    return publish(work, target or out / "model")


def _model(out: Path) -> dict[str, Any]:
    """The section `model` of the settings that the run wrote; empty where it wrote none."""
    settings = out / "verl" / "config.yaml"
    if not settings.is_file():
        return {}
    return yaml.safe_load(settings.read_text(encoding="utf-8"))["model"]


def _merge(actor: Path, target: Path) -> None:
    """In this process: another would spend ten seconds on imports that a run has made already."""
    from verl.model_merger.base_model_merger import ModelMergerConfig
    from verl.model_merger.fsdp_model_merger import FSDPModelMerger

    target.mkdir(parents=True)
    config = ModelMergerConfig(
        operation="merge",
        backend="fsdp",
        local_dir=str(actor),
        target_dir=str(target),
        hf_model_config_path=str(actor / "huggingface"),
    )
    merger = FSDPModelMerger(config)
    merger.merge_and_save()
    merger.cleanup()


# --- adapters: verl's own merger puts them aside, and saves the base model without them ------

META = "lora_train_meta.json"  # verl writes it beside the shards of a model with adapters


def save_merged(actor: Path, base: Path, target: Path) -> None:
    """Write `base` with the adapters in the shards of `actor` added in, in the base's own format.
    Raises `ModelError` or `AdapterError` for another base model than the run started from."""
    from rollouts.engines.torch.load import read_state
    from train.model.folder import add_adapters, save_folder

    about = json.loads((actor / META).read_text(encoding="utf-8"))
    scale = about["lora_alpha"] / about["r"]
    save_folder(base, target, add_adapters(read_state(base), read_adapters(actor), scale))


def read_adapters(actor: Path) -> dict[str, Tensor]:
    """Adapters under peft's names, each put together from the shards of all ranks."""
    import torch

    count = int(json.loads((actor / "fsdp_config.json").read_text(encoding="utf-8"))["world_size"])
    files = [actor / f"model_world_size_{count}_rank_{rank}.pt" for rank in range(count)]
    # whole pickles: verl saves distributed tensors, with the mesh they lie on
    shards = [torch.load(file, map_location="cpu", weights_only=False) for file in files]
    return {
        name.replace(".default.weight", ".weight"): _whole([shard[name] for shard in shards])
        for name in shards[0]
        if "lora_" in name
    }


def _whole(parts: list[Any]) -> Tensor:
    """One tensor of the parts that the ranks hold. With `fsdp_size` below the number of devices
    groups of ranks hold the same parts; the first group is enough."""
    import torch
    from torch.distributed.tensor import DTensor, Shard

    first = parts[0]
    if not isinstance(first, DTensor):
        return first
    placement = first.placements[-1]
    if not isinstance(placement, Shard):
        return first._local_tensor  # pyright: ignore[reportPrivateUsage]
    group = parts[: first.device_mesh.mesh.shape[-1]]
    return torch.cat([part._local_tensor for part in group], dim=placement.dim)


# --- which checkpoints of a run stay on disk. verl's own list of them lives in memory: it forgets
# those of earlier starts, and removes one before the tracker names its successor.

TRACKER = "latest_checkpointed_iteration.txt"
LAST_WRITTEN = "data.pt"  # after all shards, before the tracker

STOP = "STOP"  # a file: the driver was asked to stop, and the trainer is another process


def last_step(out: Path) -> int:
    """Newest checkpoint that the tracker file names, 0 if none."""
    try:
        return int((out / TRACKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0


def settle(out: Path) -> None:
    """Before a start: remove what a killed save left, and mend a tracker that was being written.

    Without a number in it verl ends with a traceback; written in place, it may be empty.
    """
    whole = [step for step, folder in _folders(out).items() if (folder / LAST_WRITTEN).is_file()]
    if (out / TRACKER).exists() and not last_step(out) and whole:
        work = out / f".{TRACKER}.tmp"
        work.write_text(str(max(whole)), encoding="utf-8")
        work.replace(out / TRACKER)
    for step, folder in _folders(out).items():
        if step > last_step(out) and step not in whole:
            shutil.rmtree(folder, ignore_errors=True)


def prune(out: Path, keep: int) -> None:
    """Keep the newest `keep` checkpoints up to the one that the tracker names; 0: all."""
    folders, newest = _folders(out), last_step(out)
    done = sorted(step for step in folders if step <= newest)
    for step in done[:-keep] if keep else []:
        shutil.rmtree(folders[step], ignore_errors=True)


def _folders(out: Path) -> dict[int, Path]:
    found = {path.name.removeprefix("global_step_"): path for path in out.glob("global_step_*")}
    return {int(step): path for step, path in found.items() if step.isdigit()}


# --- the command ------------------------------------------------------------------------------


def main(argv: list[str]) -> int:
    """Exit status 0, or 2 with one sentence when there is nothing to export."""
    from train.backends.verl.settings import require_verl

    parser = argparse.ArgumentParser("python -m train.backends.verl.export", description=__doc__)
    parser.add_argument("run", type=Path, help="the run's out=")
    parser.add_argument("--step", type=int, help="default: the newest")
    parser.add_argument("--out", type=Path, help="default: RUN/model")
    args = parser.parse_args(argv)
    try:
        require_verl()
        print(f"model: {export(args.run, args.step, args.out)}")
    except ConfigError as error:
        print(f"export: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
