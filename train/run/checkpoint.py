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
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.files import file_hash, write_text
from assay.task import SavedAndStopped
from configs.loader import ConfigError, locked_difference, to_dict
from rollouts.engines.torch.load import read_weights, write_weights
from train.model.optim import MasterAdamW

_STEP = re.compile(r"(?:\.old-)?step_(\d+)$")
_MANIFEST = "manifest.json"
Tensors = Mapping[str, Mapping[str, Tensor]]  # group → name → tensor


class CheckpointError(ConfigError):
    """A checkpoint that cannot be written or must not be used; the message says what to do."""


@dataclass(frozen=True)
class Checkpoint:
    """What `Checkpoints.write` was given, the random states among the `tensors`, and `meta.json`.
    `step` is the last finished step."""

    path: Path
    step: int
    tensors: dict[str, dict[str, Tensor]]
    meta: dict[str, Any]


def never() -> bool:
    """Nobody asks to stop."""
    return False


@dataclass(frozen=True)
class Checkpoints:
    """One loop's checkpoint folder, of which the `keep` newest stay. The locked fields of `config`,
    as resolved, bind a resume.

    `stop` is asked after every step whether the run is to save and end.
    """

    folder: Path
    config: Any
    keep: int = 2
    stop: Callable[[], bool] = never

    def restore(self, optimiser: MasterAdamW, last: int) -> int:
        """Load the newest whole checkpoint into `optimiser`; returns its step, 0 if none. What a
        kill left half written is removed.

        Raises `CheckpointError` naming a locked field that has changed since, and when the
        checkpoint is of a step after `last`: its model is not the one that was asked for.
        """
        found = self.newest()
        if found is None:
            return 0
        if found.step > last:
            raise CheckpointError(
                f"{found.path}: the run is at step {found.step} already and now ends after {last}; "
                f"ask for {found.step} steps or more, or set another out="
            )
        self.tidy(found)
        optimiser.load(found.tensors["optimiser"])
        restore_random(found)
        return found.step

    def save(self, step: int, optimiser: MasterAdamW) -> None:
        """Everything a restart needs: masters, moments and random states. The place in the data
        follows from the step."""
        self.write(step, {"optimiser": optimiser.state()})

    def after_step(self, step: int, last: int, every: int, optimiser: MasterAdamW) -> None:
        """Save when `step` is due, the last, or when a stop was asked for: then raises `Stopped`.

        What is saved when does not change the numbers, so an interrupted run ends like a whole one.
        """
        asked = self.stop() and step < last
        if asked or step % every == 0 or step == last:
            self.save(step, optimiser)
        if asked:
            raise Stopped(step, getattr(self.stop, "asked", None))

    def write(self, step: int, tensors: Tensors) -> None:
        """`step_XXXXXX` whole or not at all, with the random states of torch, Python and numpy and
        the settings; then all but the newest go. Raises `CheckpointError` before anything is
        written when the disk is too small."""
        folder = self.folder
        folder.mkdir(parents=True, exist_ok=True)
        require_disk(folder, tensor_bytes(tensors), f"the checkpoint of step {step}")
        self._clear()
        work = folder / f".tmp-{step:06d}-{os.getpid()}"
        work.mkdir()
        numpy_random, states = _random_states()
        for group, named in {**tensors, "random": states}.items():
            write_weights(work / f"{group}.safetensors", _saveable(named))
        record = {"step": step, "random": numpy_random, "config": to_dict(self.config)}
        (work / "meta.json").write_text(json.dumps(record), encoding="utf-8")
        prints = {path.name: file_hash(path) for path in sorted(work.iterdir())}
        (work / _MANIFEST).write_text(json.dumps(prints), encoding="utf-8")
        for path in (*work.iterdir(), work):
            _flush(path)
        target = folder / f"step_{step:06d}"
        aside = folder / f".old-{target.name}"  # readable until its successor has its place
        if target.exists():
            shutil.rmtree(aside, ignore_errors=True)
            target.rename(aside)
        work.rename(target)
        _flush(folder)
        shutil.rmtree(aside, ignore_errors=True)
        write_text(folder / "latest", f"{target.name}\n")
        self.keep_newest(self.keep)

    def newest(self) -> Checkpoint | None:
        """The newest whole checkpoint, or None. One that is damaged is skipped, and said. Raises
        `CheckpointError` naming every locked field that has changed."""
        for path in self._candidates():
            if not _is_whole(path, read=True):
                print(f"{path}: damaged; the run goes on from an older one", file=sys.stderr)
                continue
            meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
            self._refuse_changes(meta["config"])
            tensors = {f.stem: read_weights(f) for f in sorted(path.glob("*.safetensors"))}
            return Checkpoint(path, int(meta["step"]), tensors, meta)
        return None

    def tidy(self, newest: Checkpoint) -> None:
        """After a kill: `latest` names the newest, and what was half written or damaged is gone."""
        self._clear()
        write_text(self.folder / "latest", newest.path.name.removeprefix(".old-") + "\n")
        self.keep_newest(self.keep)

    def keep_newest(self, count: int = 1) -> None:
        """Remove all but the newest. Of a loop that has ended: its last checkpoint alone, from
        which more steps may follow."""
        found = self._candidates()
        kept = [path for path in found if _is_whole(path)][:count]
        for path in found:
            if path not in kept:
                (path / _MANIFEST).unlink(missing_ok=True)  # so that a kill leaves no half truth
                shutil.rmtree(path, ignore_errors=True)

    def _clear(self) -> None:
        for leftover in self.folder.glob(".tmp-*"):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)

    def _candidates(self) -> list[Path]:
        """Step folders, newest first; one that had been set aside comes after its successor."""
        found: dict[Path, tuple[int, bool]] = {}
        for path in self.folder.glob("*step_*"):
            if (named := _STEP.fullmatch(path.name)) and path.is_dir():
                found[path] = (int(named[1]), not path.name.startswith("."))
        return sorted(found, key=lambda path: found[path], reverse=True)

    def _refuse_changes(self, old: Mapping[str, Any]) -> None:
        def value(data: Any, dotted: str) -> Any:
            for part in dotted.split("."):
                data = data.get(part, "nothing") if isinstance(data, Mapping) else "nothing"
            return data

        now = to_dict(self.config)
        changed = locked_difference(old, self.config)
        if changed:
            told = (f"{n} was {value(old, n)!r} and is {value(now, n)!r}" for n in changed)
            raise CheckpointError(
                f"{self.folder}: cannot resume, because {', '.join(told)}; put the old value back, "
                "or set another out="
            )


def tensor_bytes(tensors: Tensors) -> int:
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


def restore_random(checkpoint: Checkpoint) -> None:
    """Put torch, Python and numpy back to where they stood when `checkpoint` was written."""
    states, plain = checkpoint.tensors["random"], checkpoint.meta["random"]
    torch.set_rng_state(states["torch"])
    for name, state in states.items():
        if name.startswith("cuda") and torch.cuda.is_available():
            torch.cuda.set_rng_state(state, int(name.removeprefix("cuda")))
    version, numbers, gauss = plain["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, position, has_gauss, cached = plain["numpy"]
    np.random.set_state((kind, states["numpy"].numpy(), position, has_gauss, cached))


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


def _is_whole(path: Path, read: bool = False) -> bool:
    """Whether all files of the manifest are there; with `read`, as they were written."""
    try:
        prints = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
        files = [(path / name, print_) for name, print_ in prints.items()]
        return all(f.is_file() and (not read or file_hash(f) == print_) for f, print_ in files)
    except (OSError, ValueError, AttributeError):
        return False


# --- being asked to stop: USR1, TERM and the first INT set a flag; the loops save after the step
# they are in. A cluster sends one of the first two before it takes a node away. Exit status 75
# (BSD's EX_TEMPFAIL) tells the job script that the run is not done and that the same command goes
# on from here. INT is somebody at a terminal: exit status 130, and a second one ends the process.

EXIT_STOPPED, EXIT_INTERRUPTED = 75, 130
SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)


class Stopped(SavedAndStopped):
    """The run saved step `at` (or finished that stage) and ended because it was asked to, `by` a
    signal of that name."""

    def __init__(self, at: int | str, by: str | None = None) -> None:
        what = f"saved step {at}" if isinstance(at, int) else f"{at} is done"
        asked = "interrupted" if by == "SIGINT" else "asked to stop"
        super().__init__(f"{asked}; {what}, run the same command to go on")
        self.status = EXIT_INTERRUPTED if by == "SIGINT" else EXIT_STOPPED


class StopFlag:
    """Calling it tells whether a stop was asked for. `listen` installs the handlers."""

    def __init__(self) -> None:
        self.asked: str | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __call__(self) -> bool:
        return self.asked is not None

    def listen(self) -> StopFlag:
        """From now on (main thread only) USR1, TERM and INT ask for a stop instead of killing.
        What ignores INT goes on ignoring it."""
        for number in SIGNALS:
            if number == signal.SIGINT and signal.getsignal(number) == signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def deaf(self) -> None:
        """The signals mean what they meant before `listen`."""
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.asked = signal.Signals(number).name
        once_more = ""
        if number == signal.SIGINT:
            signal.signal(number, signal.default_int_handler)
            once_more = "; interrupt once more to end at once"
        print(f"{self.asked}: saving after this step{once_more}", flush=True)
