# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""A verl checkpoint as an ordinary Hugging Face folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from configs.loader import ConfigError


def export(out: Path, step: int | None = None, target: Path | None = None) -> Path:
    """Merge the shards of `global_step_N` (default: the newest) into `out/model`; bf16 weights.

    The folder appears whole. Raises `ConfigError` when there is no checkpoint.
    """
    from train.setup import publish
    from train.verl_backend.main import last_step

    step = last_step(out) if step is None else step
    actor = out / f"global_step_{step}" / "actor"
    if not actor.is_dir():
        raise ConfigError(f"{actor}: no such checkpoint; train first, or name another step")
    work = out / ".tmp-model"
    shutil.rmtree(work, ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp", "--local_dir",
         str(actor), "--target_dir", str(work)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise ConfigError(f"verl's model merger failed: {done.stderr.strip()[-500:]}")
    for path in (actor / "huggingface").iterdir():  # tokenizer and template, where it left any out
        if path.is_file() and not (work / path.name).exists():
            shutil.copyfile(path, work / path.name)
    return publish(work, target or out / "model")
