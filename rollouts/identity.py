# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""What decides a model's answers and their scores: options, weights, tokenizer, tasks, own code.

A journal of answers (rollouts/journal.py) is gone on with only where all of it is as it was.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from assay.family import family_of
from assay.files import file_hash, write_text
from assay.task import Task
from rollouts.machine import cache_folder
from rollouts.prompts import ChatTokenizer, template_arguments
from rollouts.words.prompts import in_short

# options that change neither an answer nor a score; tasks and code stand for themselves
FREE = (
    *("out", "in_flight", "threads", "json", "key_env", "name", "price", "slots", "device"),
    *("no_baselines", "tasks", "family", "request", "include_trained", "patience", "timeout"),
    *("part", "gather", "limit", "track", "licence", "max_cost", "max_total_tokens", "words"),
    *("server_python", "prompts", "asked_in"),
)
THINKING = "enable_thinking"  # the argument of chat templates
# settings that a comparison of two evaluations does not name: what was compared, and how it ran
OF_ITSELF = (
    *("weights", "tokenizer", "families", "model", "endpoint_model", "dtype", "engine"),
    *("device", "limit"),
)
WEIGHTS = ("*.safetensors", "*.bin", "config.json", "adapter_config.json")
LARGE = 4_000_000_000  # bytes; reading that many is said


def settings_of(
    args: Any,
    tasks: Sequence[Task],
    folders: Sequence[Path] = (),
    tokenizer: ChatTokenizer | None = None,
) -> dict[str, Any]:
    """For the record, and to refuse going on with something else. `folders` hold the weights, an
    adapter's and its base model's."""
    found: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in sorted(vars(args).items())
        if name not in FREE
    }
    if folders:
        found["weights"] = weights_hash(folders)
    if tokenizer is not None:
        found["tokenizer"] = tokenizer.fingerprint
    found["families"] = families_hash(tasks)
    prompts = getattr(args, "asked_in", None)
    if prompts is not None and (words := prompts.settings(tasks)):
        found["words"] = words
    return found


def thinking(args: Any) -> bool | None:
    """Whether the model is told to think before it answers: by the arguments of its chat template
    on the command line, by `--request`, else by its folder. None where nothing says so."""
    fields: Mapping[str, Any] = getattr(args, "request_fields", None) or {}
    asked = fields.get("chat_template_kwargs")
    found = dict(asked) if isinstance(asked, dict) else {}
    found |= getattr(args, "chat_template_kwargs", None) or {}
    folder = Path(args.model).expanduser()
    if THINKING not in found and folder.is_dir():
        found = template_arguments(folder)
    value = found.get(THINKING)
    return None if value is None else bool(value)


def asked_how(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What of an evaluation's record says how the model was asked, for a comparison of two."""
    settings: Mapping[str, Any] = meta.get("settings") or {}
    found = {name: value for name, value in settings.items() if name not in OF_ITSELF}
    return found | {"thinking": meta.get("thinking"), "words": in_short(meta.get("words"))}


def weights_hash(folders: Sequence[Path]) -> str:
    """A hash of the whole weight files and the configuration of models, by their names."""
    whole = hashlib.sha256()
    for folder in folders:
        paths = {path for pattern in WEIGHTS for path in folder.glob(pattern)}
        for path in sorted(paths):
            whole.update(f"{path.name}\0{known_hash(path)}\0".encode())
    return whole.hexdigest()[:16]


def known_hash(path: Path) -> str:
    """SHA-256 of a file. It is kept in the user's cache by the file's size and times, so that the
    gigabytes of a model are read once."""
    stat = path.stat()
    about = [str(path.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
    try:
        name = hashlib.sha256(str(about[0]).encode("utf-8", "surrogateescape")).hexdigest()[:32]
        kept = cache_folder() / "hashes" / f"{name}.json"
    except RuntimeError:  # there is no home
        return file_hash(path)
    try:
        held: Any = json.loads(kept.read_text(encoding="utf-8"))
        if held["of"] == about:
            return str(held["sha256"])
    except (OSError, ValueError, TypeError, LookupError):
        pass
    if stat.st_size > LARGE:
        size = f"{stat.st_size / 1e9:.0f} GB"
        print(f"reading {path} ({size}) once, to know these weights again", file=sys.stderr)
    found = file_hash(path)
    with contextlib.suppress(OSError):  # it is only a cache
        write_text(kept, json.dumps({"of": about, "sha256": found}))
    return found


def families_hash(tasks: Iterable[Task]) -> dict[str, str]:
    """Own families by the content of their file (of a module: its name)."""
    found: dict[str, str] = {}
    for family in {task.family: family_of(task) for task in tasks}.values():
        place = Path(family.origin.rpartition(":")[0])
        if family.origin:
            code = place.read_bytes() if place.is_file() else family.origin.encode()
            found[family.name] = hashlib.sha256(code).hexdigest()[:16]
    return found


def task_hash(task: Task) -> str:
    """A hash of what is asked: another prompt, gold or file gives another one; another place of the
    same files does not. Paths of files are absolute. Of a folder, names and sizes count."""
    names = {name: Path(path).name for name, path in task.files.items()}
    whole = hashlib.sha256(replace(task, files=names).content_hash().encode())
    for path in task.files.values():
        whole.update(_content(path).encode())
    return whole.hexdigest()[:16]


@lru_cache(maxsize=4096)
def _content(path: str) -> str:
    place = Path(path)
    if place.is_file():
        return file_hash(place)
    inner = sorted(p for p in place.rglob("*") if p.is_file()) if place.is_dir() else []
    return "\n".join(f"{p.relative_to(place)} {p.stat().st_size}" for p in inner)
