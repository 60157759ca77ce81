"""Harmless respellings of refinement and JSON gold, and what the release says of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from assay.task import Answer, Task
from rewards.cdr.json_score import parse_json
from rewards.cdr.predictions import TEXT, profile_of
from rewards.cdr.refinement import gold_answer, score_refinement
from rewards.cdr.structured import gold_response, score_structured
from rewards.parse import render


def text_spellings(task: Task) -> Mapping[str, str]:
    """A tagged answer in other spaces, cases, orders and frames."""
    gold = task.gold
    status = str(gold.get("status", gold.get("reference_status"))).strip().upper()
    text = str(gold.get("text", gold.get("reference_text")))
    whole = gold_answer(gold)
    head, body = f"<status>{status}</status>", f"<clean_text>{text}</clean_text>"
    return {
        "a line each": f"{head}\n{body}",
        "spaces around": f"  {whole}\n",
        "spaces around the status": render(f" {status} ", text),
        "text, spaces around": render(status, f"\n {text} \n"),
        "text, CRLF": render(status, text.replace("\n", "\r\n")),
        "text, trailing blanks": render(status, text.replace("\n", " \t\n")),
        "text, two spaces for one": render(status, text.replace(" ", "  ")),
        "text, tabs for spaces": render(status, text.replace(" ", "\t")),
        "text, a space before marks": render(status, text.replace(",", " ,")),
        "text, more empty lines": render(status, text.replace("\n\n", "\n\n\n\n")),
        "status in lower case": render(status.lower(), text),
        "tags in upper case": f"<STATUS>{status}</STATUS><CLEAN_TEXT>{text}</CLEAN_TEXT>",
        "text before status": body + head,
        "chatter before": f"Here is the result:\n{whole}",
        "chatter after": f"{whole}\nI hope this helps.",
        "trailing period": f"{whole}.",
        "code fence": f"```\n{whole}\n```",
        "thinking before": f"<think>easy</think>{whole}",
        "byte order mark": f"\ufeff{whole}",
        "text in quotes": render(status, f'"{text}"'),
    }


def text_benchmark(task: Task, answer: Answer) -> float | None:
    """The release's forgiving reading."""
    return score_refinement(task.gold, answer.text, "release").outcome


def json_spellings(task: Task) -> Mapping[str, str]:
    """An object in other spaces, orders, cases and number forms."""
    gold = task.gold
    if profile_of(gold) == TEXT:
        return text_spellings(task)
    whole = gold_response(gold)
    value = parse_json(whole)
    return {
        "indented": json.dumps(value, indent=2),
        "no spaces": json.dumps(value, separators=(",", ":")),
        "spaces around": f"\n {whole} \n",
        "tabs": json.dumps(value, indent="\t"),
        "keys in other order": json.dumps(_turned(value)),
        "lists in other order": json.dumps(_mapped(value, list, _backwards)),
        "texts in upper case": json.dumps(_mapped(value, str, str.upper)),
        "texts with spaces": json.dumps(_mapped(value, str, _spaced)),
        "escapes": json.dumps(value, ensure_ascii=True),
        "whole numbers as 1.0": json.dumps(_mapped(value, int, float)),
        "a key twice, the same": _twice(value),
        "byte order mark": f"\ufeff{whole}",
        "numbers as text": json.dumps(_mapped(value, int, str)),
        "single quotes": str(value),
        "trailing comma": whole[:-1] + "," + whole[-1:],
        "code fence": f"```json\n{whole}\n```",
        "chatter before": f"Here it is: {whole}",
        "chatter after": f"{whole}\nI hope this helps.",
        "trailing period": f"{whole}.",
        "in a tag": f"<answer>{whole}</answer>",
    }


def json_benchmark(task: Task, answer: Answer) -> float | None:
    """The release's reading: the first JSON of a response."""
    return score_structured(task.gold, answer.text, "release").outcome


def _turned(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {k: _turned(v) for k, v in reversed(list(items))}
    if isinstance(value, list):
        return [_turned(v) for v in cast("list[Any]", value)]
    return value


def _backwards(value: list[Any]) -> list[Any]:
    return value[::-1]


def _spaced(value: str) -> str:
    return f" {value} "


def _mapped(value: Any, kind: type, change: Any) -> Any:
    """Every value of exactly this kind changed, the innermost first."""
    if isinstance(value, dict):
        value = {k: _mapped(v, kind, change) for k, v in cast("dict[str, Any]", value).items()}
    elif isinstance(value, list):
        value = [_mapped(v, kind, change) for v in cast("list[Any]", value)]
    return change(value) if type(value) is kind else value


def _twice(value: Any) -> str:
    """The first key a second time, with the same value."""
    whole = json.dumps(value)
    if not isinstance(value, dict) or not value:
        return whole
    name, first = next(iter(cast("dict[str, Any]", value).items()))
    return "{" + f"{json.dumps(name)}: {json.dumps(first)}, " + whole[1:]
