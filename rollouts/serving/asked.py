"""What a request asks for, read from its body. What cannot be done is refused, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from rollouts.prompts import ChatTokenizer, PromptError
from rollouts.serving.messages import messages_of, row_of, tools_of
from rollouts.serving.refused import RequestError
from rollouts.trajectory import Sampling

MOST_SAMPLES = 128
MOST_STOPS = 4
_BOTH = (
    "model",
    "n",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "top_k",
    "max_tokens",
    "return_token_ids",
    # what changes nothing here
    "user",
    "metadata",
    "store",
)
CHAT_FIELDS = frozenset(
    (
        *_BOTH,
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "max_completion_tokens",
        "logprobs",
    )
)
COMPLETION_FIELDS = frozenset((*_BOTH, "prompt", "logprobs", "echo", "best_of"))
# field: the values that ask for nothing
_OFF: Mapping[str, tuple[Any, ...]] = {
    "frequency_penalty": (0, None),
    "presence_penalty": (0, None),
    "logit_bias": ({}, None),
    "top_logprobs": (0, None),
    "echo": (False, None),
    "best_of": (1, None),
    "suffix": ("", None),
    "tool_choice": ("auto", "none", None),
    "response_format": ({"type": "text"}, None),
}


@dataclass(frozen=True)
class Limits:
    """`context`: tokens a sequence may have; `name`: of the model, as clients say it."""

    name: str
    context: int


@dataclass(frozen=True)
class Asked:
    """One prompt and what to do with it. `seed` None: the server's own."""

    ids: list[int]
    sampling: Sampling
    n: int
    seed: int | None
    stops: tuple[str, ...]
    logprobs: bool
    stream: bool
    usage_chunk: bool
    token_ids: bool
    reads_calls: bool


def read_chat(body: Any, tokenizer: ChatTokenizer, limits: Limits) -> Asked:
    """Raises `RequestError` naming the field."""
    row = _object(body, CHAT_FIELDS, limits)
    messages = messages_of(row.get("messages"), tokenizer)
    tools = tools_of(row.get("tools")) if row.get("tool_choice") != "none" else []
    try:
        ids = tokenizer.prompt(messages, tools)
    except PromptError as error:
        raise RequestError(str(error), "messages") from None
    most = row.get("max_completion_tokens")
    if most is None:
        most = row.get("max_tokens")
    wanted = row.get("logprobs")
    if not isinstance(wanted, bool | None):
        raise RequestError("logprobs: wanted true or false", "logprobs")
    return _asked(row, ids, most, bool(wanted), limits, reads_calls=bool(tools))


def read_completion(body: Any, tokenizer: ChatTokenizer, limits: Limits) -> list[Asked]:
    """One for each prompt. Raises `RequestError` naming the field."""
    row = _object(body, COMPLETION_FIELDS, limits)
    wanted = row.get("logprobs")
    if wanted not in (None, False, True, 0, 1):
        raise RequestError("logprobs: wanted at most 1 (the sampled token's own)", "logprobs")
    most = 16 if row.get("max_tokens") is None else row["max_tokens"]  # the protocol's default
    logprobs = wanted is not None and wanted is not False  # 0: the sampled token's own
    return [
        _asked(row, ids, most, logprobs, limits, reads_calls=False)
        for ids in _prompts(row.get("prompt"), tokenizer)
    ]


def _object(body: Any, fields: frozenset[str], limits: Limits) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise RequestError("the body is no JSON object")
    row = cast("dict[str, Any]", body)
    for name, value in row.items():
        if name in _OFF:
            if value not in _OFF[name]:
                raise RequestError(f"{name}: {value!r} is not supported; leave it out", name)
        elif name not in fields:
            raise RequestError(f"{name}: no such field here; leave it out", name)
    model = row.get("model", limits.name)
    if model not in (limits.name, "default"):
        raise RequestError(
            f"model: {model!r} is not served here; ask for {limits.name!r}",
            "model",
            404,
            "model_not_found",
        )
    return row


def _asked(
    row: Mapping[str, Any],
    ids: list[int],
    most: Any,
    logprobs: bool,
    limits: Limits,
    *,
    reads_calls: bool,
) -> Asked:
    room = limits.context - len(ids)
    if room < 1 or (most is not None and _whole(most, "max_tokens", 1) > room):
        asked = f" and {most} for the answer" if most is not None else ""
        raise RequestError(
            f"this model's maximum context length is {limits.context} tokens; the prompt has "
            f"{len(ids)}{asked}",
            "messages",
            400,
            "context_length_exceeded",
        )
    seed = row.get("seed")
    sampling = Sampling(
        max_new_tokens=room if most is None else int(most),
        temperature=_number(row, "temperature", 0.0, 100.0, 1.0),
        top_p=_number(row, "top_p", 0.0, 1.0, 1.0, above=True),
        top_k=max(0, _whole(row.get("top_k") or 0, "top_k", -1)),
    )
    return Asked(
        ids=ids,
        sampling=sampling,
        n=_whole(1 if row.get("n") is None else row["n"], "n", 1, MOST_SAMPLES),
        seed=None if seed is None else _whole(seed, "seed", None),
        stops=_stops(row.get("stop")),
        logprobs=logprobs,
        stream=bool(row.get("stream")),
        usage_chunk=row_of(row.get("stream_options")).get("include_usage") is True,
        token_ids=bool(row.get("return_token_ids")),
        reads_calls=reads_calls,
    )


def _number(
    row: Mapping[str, Any], name: str, low: float, high: float, unset: float, above: bool = False
) -> float:
    value = row.get(name)
    if value is None:
        return unset
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not low <= value <= high or (above and value == low):
        least = f"more than {low:g}" if above else f"{low:g} or more"
        raise RequestError(f"{name}: wanted a number, {least} and at most {high:g}", name)
    return float(value)


def _whole(value: Any, name: str, low: int | None, high: int | None = None) -> int:
    good = isinstance(value, int) and not isinstance(value, bool)
    if not good or (low is not None and value < low) or (high is not None and value > high):
        bounds = "" if low is None else f", {low} or more" + (f", at most {high}" if high else "")
        raise RequestError(f"{name}: wanted a whole number{bounds}", name)
    return int(value)


def _stops(value: Any) -> tuple[str, ...]:
    listed: list[Any] = [value] if isinstance(value, str) else (value or [])
    if not isinstance(listed, list) or len(listed) > MOST_STOPS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RequestError(f"stop: wanted a text, or a list of up to {MOST_STOPS}", "stop")
    if not all(isinstance(text, str) and text for text in listed):
        raise RequestError("stop: wanted texts that are not empty", "stop")
    return tuple(listed)


def _prompts(value: Any, tokenizer: ChatTokenizer) -> list[list[int]]:
    """Texts, or token ids: of one prompt or of several."""
    several: list[Any] = [value]
    if isinstance(value, list):
        inner = cast("list[Any]", value)
        several = [inner] if inner and all(_is_id(i) for i in inner) else inner
    found: list[list[int]] = []
    for one in several:
        ids = cast("list[Any]", one) if isinstance(one, list) else []
        if isinstance(one, str):
            ids = tokenizer.encode(one)
        if not ids or not all(map(_is_id, ids)):
            raise RequestError(
                "prompt: wanted a text or token ids, or a list of them, none empty", "prompt"
            )
        if max(ids) >= tokenizer.size:
            raise RequestError(
                f"prompt: {max(ids)} is no token id; the vocabulary has {tokenizer.size}", "prompt"
            )
        found.append(ids)
    if not found:
        raise RequestError("prompt: the list is empty", "prompt")
    return found


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
