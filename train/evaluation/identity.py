# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""What decides an evaluation's answers and scores: options, the model's weights, own code."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rewards.families import family_of
from rewards.task import Task
from rollouts.prompts import template_arguments

# options that change neither an answer nor a score; tasks and code stand for themselves
FREE = (
    *("out", "workers", "threads", "json", "key_env", "name", "price", "chunk", "slots"),
    *("no_baselines", "tasks", "family", "request", "include_trained", "patience", "timeout"),
    *("part", "gather"),
)
THINKING = "enable_thinking"  # the argument of chat templates
# settings that a comparison of two evaluations does not name: what was compared, and how it ran
OF_ITSELF = (
    *("weights", "families", "model", "endpoint_model", "device", "dtype", "engine", "limit"),
)
_ENDS = 1 << 16  # bytes of each end of a weight file that are looked at


def settings_of(args: Any, tasks: Sequence[Task]) -> dict[str, Any]:
    """For the record, and to refuse going on with another evaluation."""
    found: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in sorted(vars(args).items())
        if name not in FREE
    }
    folder = Path(args.model).expanduser()
    if folder.is_dir():
        found["weights"] = weights_hash(folder)
    found["families"] = families_hash(tasks)
    return found


def thinking(args: Any) -> bool | None:
    """Whether the model is told to think before it answers: by `--request`, else by its folder's
    own arguments of the chat template. None where nothing says so."""
    fields: Mapping[str, Any] = getattr(args, "request_fields", None) or {}
    asked = fields.get("chat_template_kwargs")
    found = asked if isinstance(asked, dict) else {}
    folder = Path(args.model).expanduser()
    if THINKING not in found and folder.is_dir():
        found = template_arguments(folder)
    value = found.get(THINKING)
    return None if value is None else bool(value)


def asked_how(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What of an evaluation's record says how the model was asked, for a comparison of two."""
    settings: Mapping[str, Any] = meta.get("settings") or {}
    found = {name: value for name, value in settings.items() if name not in OF_ITSELF}
    return found | {"thinking": meta.get("thinking")}


def weights_hash(folder: Path) -> str:
    """A hash of names, sizes and ends of the weight files: enough to tell two checkpoints apart,
    without reading them whole."""
    whole = hashlib.sha256()
    for path in sorted(p for p in folder.iterdir() if p.suffix in (".safetensors", ".bin")):
        size = path.stat().st_size
        with open(path, "rb") as file:
            head = file.read(_ENDS)
            file.seek(max(0, size - _ENDS))
            whole.update(f"{path.name}\0{size}\0".encode() + head + file.read(_ENDS))
    return whole.hexdigest()[:16]


def families_hash(tasks: Iterable[Task]) -> dict[str, str]:
    """Own families by the content of their file (of a module: its name)."""
    found: dict[str, str] = {}
    for family in {task.family: family_of(task) for task in tasks}.values():
        place = Path(family.origin.rpartition(":")[0])
        if family.origin:
            code = place.read_bytes() if place.is_file() else family.origin.encode()
            found[family.name] = hashlib.sha256(code).hexdigest()[:16]
    return found


def digest(tasks: Sequence[Task]) -> str:
    """A hash of what is asked: another prompt or gold gives another one; another place of the same
    files does not."""
    whole = hashlib.sha256()
    for task in tasks:
        names = {name: Path(path).name for name, path in task.files.items()}
        whole.update(replace(task, files=names).content_hash().encode())
    return whole.hexdigest()
