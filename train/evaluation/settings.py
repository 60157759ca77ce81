# Records here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""The settings that decide a model's answers and their scores: a journal is gone on with only where
all of them are as they were (assay/journal.py), and a comparison names those that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.journal import families_hash, weights_hash
from assay.task import Task
from rollouts.prompts import ChatTokenizer, template_arguments
from rollouts.words.templates import in_short

# options that change neither an answer nor a score; tasks and code stand for themselves
FREE = (
    *("out", "in_flight", "threads", "json", "key_env", "name", "price", "slots", "device"),
    *("no_baselines", "tasks", "family", "request", "include_trained", "patience", "timeout"),
    *("part", "gather", "limit", "track", "licence", "max_cost", "max_total_tokens", "words"),
    *("server_python", "gpus", "prompts", "asked_in"),
)
THINKING = "enable_thinking"  # the argument of chat templates
# settings that a comparison of two evaluations does not name: what was compared, and how it ran
OF_ITSELF = (
    *("weights", "tokenizer", "families", "model", "endpoint_model", "dtype", "engine"),
    *("device", "limit"),
)


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
    on the command line, by `server.request`, else by its folder. None where nothing says so."""
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
