# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""A verl checkpoint as an ordinary Hugging Face folder.

python -m train.backends.verl.export RUN [--step N] [--out DIR]     default: the newest, RUN/model
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

from configs.loader import ConfigError
from rollouts.prompts import keep_template, template_arguments
from train.run.trained_on import NAME as TRAINED


def export(out: Path, step: int | None = None, target: Path | None = None) -> Path:
    """Merge the shards of `global_step_N` (default: the newest) into `out/model`: bf16 weights, or
    those of the base model with the adapters added in.

    The folder appears whole. Raises `ConfigError` when there is no checkpoint, or when it cannot be
    read.
    """
    from train.backends.verl.adapters import has_adapters, save_merged
    from train.backends.verl.retention import last_step
    from train.run.run import publish

    step = last_step(out) if step is None else step
    actor = out / f"global_step_{step}" / "actor"
    if not actor.is_dir():
        raise ConfigError(f"{actor}: no such checkpoint; train first, or name another step")
    work = out / ".tmp-model"
    shutil.rmtree(work, ignore_errors=True)
    try:
        if has_adapters(actor):
            save_merged(actor, Path(_model(out)["path"]), work)
        else:
            with contextlib.redirect_stdout(sys.stderr):  # it says every shard it reads
                _merge(actor, work)
    except ConfigError:
        raise
    except Exception as error:  # of torch, transformers, the file system: all mean the same here
        raise ConfigError(f"the shards of {actor} cannot be merged: {error}") from error
    for path in (actor / "huggingface").iterdir():  # tokenizer and template, where it left any out
        if path.is_file() and not (work / path.name).exists():
            shutil.copyfile(path, work / path.name)
    keep_template(work, _template(out))
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


def _template(out: Path) -> dict[str, Any]:
    """Arguments of the chat template that the run used."""
    model = _model(out)
    if not model:
        return {}
    return template_arguments(Path(model["path"]), model.get("chat_template_kwargs"))


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


def main(argv: list[str]) -> int:
    """Exit status 0, or 2 with one sentence when there is nothing to export."""
    from train.backends.verl.compose import require_verl

    parser = argparse.ArgumentParser(
        prog="python -m train.backends.verl.export",
        description="A step of a verl run as a model folder.",
    )
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
