"""Which checkpoints of a verl run stay on disk. verl's own list of them lives in memory: it forgets
those of earlier starts, and removes one before the tracker names its successor."""

from __future__ import annotations

import shutil
from pathlib import Path

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
