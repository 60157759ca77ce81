"""run.json and config.yaml: what a run was made of, so that it can be made again."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from assay.files import file_hash, weights_hash, write_text
from assay.machine import usable_cores
from assay.record import GOLD, installed, revision
from configs.loader import ConfigError, config_hash, dump, to_dict

PACKAGES = (
    "assay",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "wandb",
    "tensorboard",
    *GOLD,
)
BINDING = {
    "data": "the data",
    "validation": "the validation tasks",
    "model": "the weights of the model it starts from",
    "tokenizer": "the tokenizer or its chat template",
}
"""Inputs that a run which goes on must not change, in words."""
KEPT = ("audit", "kernels", "wandb")  # what a record that is written again keeps


def write_run_record(
    folder: Path,
    config: Any,
    inputs: Mapping[str, Path | str] | None = None,
    started: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Write `config.yaml` and `run.json`; a resumed run keeps the earlier starts in `starts`, and
    what was found of its tasks and its model before the first step (`KEPT`). Of `inputs` that are
    paths the hash is written, of others what they say.

    `started`: this process's own, when it writes the record again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "config.yaml", dump(config))
    earlier = read_run_record(folder)
    starts: list[str] = earlier.get("starts", [])
    if started not in starts:
        starts = [*starts, started or now()]
    record: dict[str, Any] = {
        "command": sys.argv,
        "starts": starts,
        "seed": getattr(config, "seed", None),
        "config_hash": config_hash(config),
        "config": to_dict(config),
        "versions": installed(PACKAGES),
        **({"code": code} if (code := revision()) else {}),
        "machine": machine(),
        "inputs": hashes_of(inputs) if inputs else earlier.get("inputs", {}),
        **{name: earlier[name] for name in KEPT if name in earlier},
        **more,
    }
    _write(folder, record)
    return record


def hashes_of(inputs: Mapping[str, Path | str]) -> dict[str, str]:
    """The inputs of a run by their content: files and folders whole, models by their weights."""
    return {name: of if isinstance(of, str) else _hash_of(of) for name, of in inputs.items()}


def _hash_of(path: Path) -> str:
    """Of a model's folder its weights and configuration; of any other path all of it."""
    is_model = path.is_dir() and any(path.glob("*.safetensors"))
    return weights_hash([path]) if is_model else file_hash(path)


def refuse_other_inputs(inputs: Mapping[str, Path | str], out: Path) -> None:
    """Raise `ConfigError` naming what a run that has begun here worked on and is another now, by
    content. `inputs` are hashes."""
    old: dict[str, Any] = read_run_record(out).get("inputs") or {}
    changed = [
        said
        for name, said in BINDING.items()
        if name in inputs and old.get(name, inputs[name]) != inputs[name]
    ]
    if changed and has_begun(out):
        raise ConfigError(
            f"{out} holds a run that began with something else: {', '.join(changed)} changed "
            "since; put it back to go on, or set another out="
        )


def has_begun(out: Path) -> bool:
    """Whether a run in this folder has anything to go on from."""
    return any(out.glob("checkpoints/*/*")) or (out / "tasks").is_dir()


def note_in_record(folder: Path, **more: Any) -> None:
    """Add to the run.json of a folder, or begin it with that."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, read_run_record(folder) | more)


def _write(folder: Path, record: Mapping[str, Any]) -> None:
    write_text(folder / "run.json", json.dumps(record, indent=2, default=str) + "\n")


def now() -> str:
    """The time, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def read_run_record(folder: Path) -> dict[str, Any]:
    """The record, or {} when there is none that can be read."""
    try:
        found: Any = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def machine() -> dict[str, Any]:
    """System, processor and cores of this machine, and its GPUs where torch sees some."""
    found: dict[str, Any] = {
        "system": platform.platform(),
        "cpu": cpu_name(),
        "cores": usable_cores(),
    }
    torch = sys.modules.get("torch")  # who has not loaded it uses no GPU
    if torch is not None and torch.cuda.is_available():
        count = torch.cuda.device_count()
        found["gpus"] = [torch.cuda.get_device_name(i) for i in range(count)]
    return found


def cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
