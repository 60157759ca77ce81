# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# torch and transformers ship partial types: what is unknown there cannot be known here.
"""Checkpoints that a kill at any moment cannot tear, and a resume that refuses to mix two runs.

A checkpoint is a folder `step_000012/`: one safetensors file for each group of tensors, the
random states, `meta.json`, and `manifest.json` with the SHA-256 of every file. It is written beside
its place, flushed to disk and renamed, so a folder of that name is whole; the manifest catches
what a damaged disk or a half-finished removal leaves. `latest` names the newest for other tools.
One process writes a folder at a time."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.files import file_hash
from configs.loader import ConfigError, config_hash, locked_difference, to_dict
from rollouts.engines.torch.load import read_weights, write_weights
from train.model.optim import MasterAdamW
from train.run.stop import Stopped

_STEP = re.compile(r"(?:\.old-)?step_(\d+)$")
_MANIFEST = "manifest.json"


class CheckpointError(ConfigError):
    """A checkpoint that cannot be written or must not be used; the message says what to do."""


@dataclass(frozen=True)
class Checkpoint:
    """`tensors[group][name]` and `meta` as given to `save`; `step` is the last finished step."""

    path: Path
    step: int
    tensors: dict[str, dict[str, Tensor]]
    meta: dict[str, Any]


def save(
    folder: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    meta: Mapping[str, Any],
    *,
    config: Any = None,
    keep: int = 2,
) -> Path:
    """Write `folder/step_XXXXXX` whole or not at all, then remove all but the `keep` newest.

    Groups are free to name ("model", "optimiser"); `meta` is JSON data such as the position in
    the training data. The random states of torch, Python and numpy and the resolved `config` go
    with it. Raises `CheckpointError` before writing when the disk is too small.
    """
    folder.mkdir(parents=True, exist_ok=True)
    require_disk(folder, tensor_bytes(tensors), f"the checkpoint of step {step}")
    _clear(folder)
    work = folder / f".tmp-{step:06d}-{os.getpid()}"
    work.mkdir()
    numpy_random, states = _random_states()
    for group, named in {**tensors, "random": states}.items():
        write_weights(work / f"{group}.safetensors", _saveable(named))
    record: dict[str, Any] = {"step": step, "random": numpy_random, "meta": dict(meta)}
    if config is not None:
        record |= {"config": to_dict(config), "config_hash": config_hash(config)}
    (work / "meta.json").write_text(json.dumps(record), encoding="utf-8")
    prints = {path.name: file_hash(path) for path in sorted(work.iterdir())}
    (work / _MANIFEST).write_text(json.dumps(prints), encoding="utf-8")
    for path in work.iterdir():
        _flush(path)
    _flush(work)
    target = folder / f"step_{step:06d}"
    _put(work, target)
    _point(folder / "latest", target.name)
    _prune(folder, keep)
    return target


def load_latest(folder: Path, config: Any = None) -> Checkpoint | None:
    """The newest whole checkpoint, or None. One that is damaged is skipped, and said.

    With `config`, raises `CheckpointError` naming every locked field that has changed.
    """
    for path in _candidates(folder):
        if not _is_whole(path, read=True):
            print(f"{path}: damaged; the run goes on from an older one", file=sys.stderr)
            continue
        record = json.loads((path / "meta.json").read_text(encoding="utf-8"))
        if config is not None:
            _refuse_changes(path, record.get("config"), config)
        tensors = {f.stem: read_weights(f) for f in sorted(path.glob("*.safetensors"))}
        meta = {**record["meta"], "_random": record["random"]}
        return Checkpoint(path, int(record["step"]), tensors, meta)
    return None


def tidy(folder: Path, newest: Checkpoint, keep: int) -> None:
    """After a kill: `latest` names the newest, and what was half written or damaged is gone."""
    _clear(folder)
    _point(folder / "latest", newest.path.name.removeprefix(".old-"))
    _prune(folder, keep)


def keep_newest(folder: Path) -> None:
    """Of a loop that has ended: its last checkpoint alone, from which more steps may follow."""
    _prune(folder, 1)


def _clear(folder: Path) -> None:
    for leftover in folder.glob(".tmp-*"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def restore_random(checkpoint: Checkpoint) -> None:
    """Put torch, Python and numpy back to where they stood when `checkpoint` was written."""
    states, plain = checkpoint.tensors["random"], checkpoint.meta["_random"]
    torch.set_rng_state(states["torch"])
    for name, state in states.items():
        if name.startswith("cuda") and torch.cuda.is_available():
            torch.cuda.set_rng_state(state, int(name.removeprefix("cuda")))
    version, numbers, gauss = plain["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, position, has_gauss, cached = plain["numpy"]
    np.random.set_state((kind, states["numpy"].numpy(), position, has_gauss, cached))


def tensor_bytes(tensors: Mapping[str, Mapping[str, Tensor]]) -> int:
    return sum(t.nbytes for named in tensors.values() for t in named.values())


def require_disk(folder: Path, need: int, what: str) -> None:
    """Raise `CheckpointError` unless `need` bytes and 100 MB of slack are free at `folder`."""
    place = next(p for p in (folder, *folder.resolve().parents) if p.exists())
    free, wanted = shutil.disk_usage(place).free, need + 100_000_000
    if free < wanted:
        raise CheckpointError(
            f"{place}: {free / 1e9:.2f} GB free, {what} needs {wanted / 1e9:.2f} GB; "
            "free some, or set out=DIR on another disk"
        )


def _refuse_changes(path: Path, old: Mapping[str, Any] | None, config: Any) -> None:
    changed = locked_difference(old, config) if old is not None else []
    if not changed:
        return

    def value(data: Any, dotted: str) -> Any:
        for part in dotted.split("."):
            data = data.get(part, "nothing") if isinstance(data, Mapping) else "nothing"
        return data

    now = to_dict(config)
    told = ", ".join(f"{n} was {value(old, n)!r} and is {value(now, n)!r}" for n in changed)
    raise CheckpointError(
        f"{path.parent}: cannot resume, because {told}; put the old value back, or set another out="
    )


def _random_states() -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Plain part and tensor part of every random state."""
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    version, numbers, gauss = random.getstate()
    states = {"torch": torch.get_rng_state(), "numpy": torch.from_numpy(np.asarray(keys).copy())}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for device in range(torch.cuda.device_count()):
            states[f"cuda{device}"] = torch.cuda.get_rng_state(device)
    plain = {
        "python": [version, list(numbers), gauss],
        "numpy": [str(kind), int(position), int(has_gauss), float(cached)],
    }
    return plain, states


def _saveable(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, contiguous, and each with storage of its own, as safetensors wants them."""
    out: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in named.items():
        flat = tensor.detach().cpu().contiguous()
        start = flat.untyped_storage().data_ptr()
        if start in seen or flat.untyped_storage().nbytes() != flat.nbytes:
            flat = flat.clone()
        seen.add(start)
        out[name] = flat
    return out


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _put(work: Path, target: Path) -> None:
    """Rename `work` to `target`; an older folder of that name stays readable until it is done."""
    aside = target.with_name(f".old-{target.name}")
    if target.exists():
        shutil.rmtree(aside, ignore_errors=True)
        target.rename(aside)
    work.rename(target)
    _flush(target.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _point(pointer: Path, name: str) -> None:
    temporary = pointer.with_name(".tmp-latest")
    temporary.write_text(name + "\n", encoding="utf-8")
    _flush(temporary)
    temporary.replace(pointer)


def _candidates(folder: Path) -> list[Path]:
    """Step folders, newest first; one that `_put` had set aside comes after its successor."""
    found = [p for p in folder.glob("*step_*") if _STEP.fullmatch(p.name) and p.is_dir()]

    def order(path: Path) -> tuple[int, bool]:
        matched = _STEP.fullmatch(path.name)
        return (int(matched[1]) if matched else -1, not path.name.startswith("."))

    return sorted(found, key=order, reverse=True)


def _is_whole(path: Path, read: bool = False) -> bool:
    """Whether all files of the manifest are there; with `read`, as they were written."""
    try:
        prints = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
        files = [(path / name, print_) for name, print_ in prints.items()]
        return all(f.is_file() and (not read or file_hash(f) == print_) for f, print_ in files)
    except (OSError, ValueError, AttributeError):
        return False


def _prune(folder: Path, keep: int) -> None:
    whole = [p for p in _candidates(folder) if _is_whole(p)]
    for path in _candidates(folder):
        if path not in whole[:keep]:
            (path / _MANIFEST).unlink(missing_ok=True)  # so that a kill now leaves no half truth
            shutil.rmtree(path, ignore_errors=True)


def never() -> bool:
    """Nobody asks to stop."""
    return False


@dataclass(frozen=True)
class Checkpoints:
    """One loop's checkpoint folder. The locked fields of `config`, as resolved, bind a resume.

    `stop` is asked after every step whether the run is to save and end.
    """

    folder: Path
    config: Any
    keep: int = 2
    stop: Callable[[], bool] = never

    def restore(self, optimiser: MasterAdamW, last: int) -> int:
        """Load the newest whole checkpoint into `optimiser`; returns its step, 0 if none.

        Raises `CheckpointError` naming a locked field that has changed since, and when the
        checkpoint is of a step after `last`: its model is not the one that was asked for.
        """
        found = load_latest(self.folder, self.config)
        if found is None:
            return 0
        if found.step > last:
            raise CheckpointError(
                f"{found.path}: the run is at step {found.step} already and now ends after {last}; "
                f"ask for {found.step} steps or more, or set another out="
            )
        tidy(self.folder, found, self.keep)
        optimiser.load(found.tensors["optimiser"])
        restore_random(found)
        return found.step

    def save(self, step: int, optimiser: MasterAdamW) -> None:
        """Everything a restart needs: masters, moments and random states. The place in the data
        follows from the step."""
        tensors = {"optimiser": optimiser.state()}
        save(self.folder, step, tensors, {}, config=self.config, keep=self.keep)

    def after_step(self, step: int, last: int, every: int, optimiser: MasterAdamW) -> None:
        """Save when `step` is due, the last, or when a stop was asked for: then raises `Stopped`.

        What is saved when does not change the numbers, so an interrupted run ends like a whole one.
        """
        asked = self.stop() and step < last
        if asked or step % every == 0 or step == last:
            self.save(step, optimiser)
        if asked:
            raise Stopped(step, getattr(self.stop, "asked", None))
