"""run.json and config.yaml: what a run was made of, so that it can be made again."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from configs.loader import config_hash, dump, to_dict
from rewards.files import file_hash, write_text
from rewards.provenance import revision
from rewards.versions import GOLD, installed
from rollouts.machine import usable_cores

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
KEPT = ("audit", "kernels")  # what a record that is written again keeps


def write_run_record(
    folder: Path,
    config: Any,
    inputs: Mapping[str, Path] | None = None,
    started: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Write `config.yaml` and `run.json`; a resumed run keeps the earlier starts in `starts`, and
    what was found of its tasks and its model before the first step (`KEPT`).

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
        "inputs": {name: file_hash(p) for name, p in (inputs or {}).items()},
        **{name: earlier[name] for name in KEPT if name in earlier},
        **more,
    }
    _write(folder, record)
    return record


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
