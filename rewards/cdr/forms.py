"""How `assay audit` hands in a text for CDR-Bench's tasks: the answer formats of their prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from assay.family import Form
from assay.task import Task
from rewards.cdr.json_score import parse_json
from rewards.cdr.predictions import TEXT, profile_of
from rewards.parse import render


def _keep(task: Task, text: str) -> str:
    return render("KEEP", text)


def _drop(task: Task, text: str) -> str:
    return render("DROP", text)


def _plain(task: Task, text: str) -> str:
    return text


TEXT_FORMS: Mapping[str, Form] = {"keep": _keep, "drop": _drop, "plain": _plain}


def _every_field(task: Task, text: str) -> str:
    """The object that the prompt asks for, with the text as the value of every field."""
    if profile_of(task.gold) == TEXT:
        return render("KEEP", text)
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    return json.dumps(dict.fromkeys(_asked(task.gold), value))


def _asked(gold: Mapping[str, Any]) -> list[str]:
    """Names of the fields that are asked for."""
    reference = gold.get("reference_json") or gold.get("reference_text")
    wanted = parse_json(reference) if isinstance(reference, str) else reference
    return [*cast("Mapping[str, Any]", wanted)] if isinstance(wanted, Mapping) else []


JSON_FORMS: Mapping[str, Form] = {"plain": _plain, "every field": _every_field}
