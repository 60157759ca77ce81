# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""One answer of an evaluation as a sample of an inspect log: input, target, messages, scores."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay.task import Task
from rollouts.tool_calls import CallFormat, ToolCall, make_call
from train.view.bodies import list_of, number_of
from train.view.gold import gold_of

Row = Mapping[str, Any]
OUTCOME, REWARD = "outcome", "reward"  # the two scorers
SCORERS = (OUTCOME, REWARD)
NO_TASK = "the task is not at hand; give its file with --tasks"
_ROLES = ("system", "user", "assistant", "tool")
_STOPS = {"eos": "stop", "done": "stop", "length": "max_tokens"}  # any other one is "unknown"
_NOTED = (
    *("family", "track", "source", "group", "instance", "slices", "stop", "turns", "tool_calls"),
    *("cost", "failure", "trained_on"),
)
# what answers a call that was spelled in the text (rollouts/conversation.py)
_SPELLED = re.compile(r"<tool_response>\n(.*)\n</tool_response>", re.DOTALL)
_THIN = 1000  # characters of a text in the list of samples


def sample_of(
    row: Row, messages: Sequence[Any], task: Task | None, model: str, calls: CallFormat
) -> dict[str, Any]:
    """`messages`: the conversation, empty where the answer alone was kept. `calls`: how the model
    spells a tool call in its text."""
    prompt, talk = _conversation(row, messages, task)
    said = {"role": "assistant", "content": _text(row.get("output")), "model": model}
    whole = list(_messages(talk or [*prompt, said], calls))
    seconds = number_of(row.get("seconds"))
    used = _usage(row)
    sample: dict[str, Any] = {
        "id": str(row["task_id"]),
        "epoch": int(number_of(row.get("sample")) or 0) + 1,
        "input": list(_messages(prompt, calls)) if prompt else "",
        "target": "",
        "messages": whole,
        "output": {
            "model": model,
            "choices": [
                {"message": said, "stop_reason": _STOPS.get(str(row.get("stop")), "unknown")}
            ],
            "completion": said["content"],
            "usage": used,
            "time": seconds,
        },
        "scores": _scores(row),
        "metadata": {name: row[name] for name in _NOTED if row.get(name) not in (None, "", {}, [])},
        "model_usage": {model: used},
        "total_time": seconds,
    }
    target = _target(row, task)
    if target.why:
        sample["metadata"]["gold"] = target.why
    sample["target"] = target.text
    if row["outcome"] is None:
        why = f"no outcome: {row.get('failure') or row['why']}"
        sample["error"] = {"message": why, "traceback": why, "traceback_ansi": why}
    return sample


def summary_of(sample: Mapping[str, Any]) -> dict[str, Any]:
    """What the list of samples shows of one."""
    found = {name: sample[name] for name in ("id", "epoch", "model_usage", "total_time")}
    scores = {
        name: {**score, "answer": _thin(score.get("answer")), "metadata": {}}
        for name, score in sample["scores"].items()
    }
    asked = sample["input"] if isinstance(sample["input"], str) else sample["input"][-1:]
    more = {n: v for n, v in sample["metadata"].items() if len(json.dumps(v)) <= _THIN}
    return found | {
        "input": _thin(asked) if isinstance(asked, str) else [_thin_message(m) for m in asked],
        "target": _thin(sample["target"]),
        "metadata": more,
        "scores": scores,
        "error": sample["error"]["message"] if "error" in sample else None,
        "completed": True,
        "message_count": len(sample["messages"]),
    }


def _thin(text: Any) -> Any:
    return text[:_THIN] if isinstance(text, str) else text


def _thin_message(message: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": message["role"], "content": _thin(message["content"])}


def _scores(row: Row) -> dict[str, Any]:
    """Outcome and reward by themselves; neither, where there is no outcome."""
    if row["outcome"] is None:
        return {}
    common = {"answer": _text(row.get("output")), "explanation": str(row["why"])}
    noted = {name: row[name] for name in ("label", "said", "more") if row.get(name)}
    return {
        OUTCOME: {"value": row["outcome"], **common, "metadata": noted},
        REWARD: {"value": row["reward"], **common, "metadata": {"parts": row.get("parts") or {}}},
    }


def _usage(row: Row) -> dict[str, int]:
    read, wrote = (int(number_of(row.get(n)) or 0) for n in ("tokens_in", "tokens_out"))
    return {"input_tokens": read, "output_tokens": wrote, "total_tokens": read + wrote}


class _Target:
    """Gold in words, and why there are none."""

    def __init__(self, text: str, why: str = "") -> None:
        self.text, self.why = text, why


def _target(row: Row, task: Task | None) -> _Target:
    if task is None:
        gold = row.get("gold_text")
        return _Target(gold) if isinstance(gold, str) else _Target("", NO_TASK)
    gold = gold_of(task)
    files = gold.get("files") or {}
    shown = "\n".join(f"{name}:\n{text}" for name, text in files.items())
    return _Target(gold.get("text") or shown, str(gold.get("why") or ""))


def _conversation(
    row: Row, messages: Sequence[Any], task: Task | None
) -> tuple[list[Any], list[Any]]:
    """(what the model was asked, the whole conversation where it was kept)."""
    talk = [m for m in messages if isinstance(m, dict)]
    if talk:
        first = next((i for i, m in enumerate(talk) if m.get("role") == "assistant"), len(talk))
        return talk[:first], talk
    if task is not None:
        return list(task.prompt), []
    asked = row.get("prompt")
    return ([{"role": "user", "content": asked}] if isinstance(asked, str) else []), []


def _messages(talk: Sequence[Mapping[str, Any]], calls: CallFormat) -> Iterator[dict[str, Any]]:
    """Messages with their tool calls; a tool's answer names the call that it answers."""
    waiting: list[str] = []
    for number, message in enumerate(talk):
        role, text = str(message.get("role")), _text(message.get("content"))
        spelled = _SPELLED.fullmatch(text) if role == "user" and waiting else None
        if spelled:
            role, text = "tool", spelled[1]
        made: dict[str, Any] = {"role": role if role in _ROLES else "user", "content": text}
        if role == "assistant":
            found = _calls(message, text, number, calls)
            waiting = [call["id"] for call in found]
            made |= {"tool_calls": found} if found else {}
            made |= {"model": message["model"]} if message.get("model") else {}
        elif role == "tool":
            made["tool_call_id"] = str(message.get("tool_call_id") or next(iter(waiting), ""))
            waiting = [i for i in waiting if i != made["tool_call_id"]]
            if message.get("name"):
                made["function"] = str(message["name"])
        yield made


def _calls(
    message: Mapping[str, Any], text: str, number: int, calls: CallFormat
) -> list[dict[str, Any]]:
    """The calls of a message: an endpoint's own, else those that are spelled in the text."""
    native = [_native(c) for c in list_of(message.get("tool_calls")) if isinstance(c, dict)]
    found: list[dict[str, Any]] = []
    for place, call in enumerate(native or calls.read(text)):
        made: dict[str, Any] = {
            "id": call.id or f"call-{number}-{place}",
            "function": call.name or "unknown",
            "arguments": call.arguments,
            "type": "function",
        }
        found.append(made | ({"parse_error": call.error} if call.error else {}))
    return found


def _native(call: Mapping[str, Any]) -> ToolCall:
    function = call.get("function")
    named: Mapping[str, Any] = function if isinstance(function, dict) else {}
    return make_call(named.get("name"), named.get("arguments"), str(call.get("id") or ""))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
