"""What a request asks for, read from its body. What cannot be done is refused, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, cast

from rollouts.prompts import ChatTokenizer, PromptError
from rollouts.tool_calls import ToolSpec, make_call
from rollouts.trajectory import Sampling

MOST_SAMPLES = 128
MOST_STOPS = 4
# "user", "metadata" and "store" change nothing here, nor does "parallel_tool_calls"
_BOTH = (
    "model n seed stop stream stream_options temperature top_p top_k max_tokens "
    "return_token_ids logprobs user metadata store"
)
CHAT_FIELDS = frozenset(
    f"{_BOTH} messages tools tool_choice parallel_tool_calls max_completion_tokens".split()
)
COMPLETION_FIELDS = frozenset(f"{_BOTH} prompt echo best_of".split())
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


class RequestError(ValueError):
    """A request that cannot be answered. `status` is HTTP's, `field` the one at fault."""

    def __init__(self, said: str, field: str = "", status: int = 400, code: str = "") -> None:
        super().__init__(said)
        self.field, self.status, self.code = field, status, code


@dataclass(frozen=True)
class Limits:
    """`context`: tokens a sequence may have; `name`: of the model, as clients say it."""

    name: str
    context: int


@dataclass(frozen=True)
class Request:
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


def read_chat(body: Any, tokenizer: ChatTokenizer, limits: Limits) -> Request:
    """Raises `RequestError` naming the field."""
    row = _object(body, CHAT_FIELDS, limits)
    listed = row.get("messages")
    if not isinstance(listed, list) or not listed:
        raise RequestError("messages: wanted a list of messages", "messages")
    messages = [_message(m, i, tokenizer) for i, m in enumerate(cast("list[Any]", listed))]
    tools = _tools(row.get("tools")) if row.get("tool_choice") != "none" else []
    try:
        ids = tokenizer.prompt(messages, tools)
    except PromptError as error:
        raise RequestError(str(error), "messages") from None
    wanted = row.get("logprobs")
    if not isinstance(wanted, bool | None):
        raise RequestError("logprobs: wanted true or false", "logprobs")
    if row.get("max_completion_tokens") is not None:
        row["max_tokens"] = row["max_completion_tokens"]
    return _request(row, ids, bool(wanted), bool(tools), limits)


def read_completion(body: Any, tokenizer: ChatTokenizer, limits: Limits) -> list[Request]:
    """One for each prompt. Raises `RequestError` naming the field."""
    row = _object(body, COMPLETION_FIELDS, limits)
    wanted = row.get("logprobs")
    if wanted not in (None, False, True, 0, 1):
        raise RequestError("logprobs: wanted at most 1 (the sampled token's own)", "logprobs")
    if row.get("max_tokens") is None:
        row["max_tokens"] = 16  # the protocol's default
    logprobs = wanted is not None and wanted is not False  # 0: the sampled token's own
    prompts = _prompts(row.get("prompt"), tokenizer)
    return [_request(row, ids, logprobs, False, limits) for ids in prompts]


def _object(body: Any, fields: frozenset[str], limits: Limits) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise RequestError("the body is no JSON object")
    row = dict(cast("dict[str, Any]", body))
    for name, value in row.items():
        if name in _OFF:
            if value not in _OFF[name]:
                raise RequestError(f"{name}: {value!r} is not supported; leave it out", name)
        elif name not in fields:
            raise RequestError(f"{name}: no such field here; leave it out", name)
    model = row.get("model", limits.name)
    if model not in (limits.name, "default"):
        said = f"model: {model!r} is not served here; ask for {limits.name!r}"
        raise RequestError(said, "model", 404, "model_not_found")
    return row


def _request(
    row: Mapping[str, Any], ids: list[int], logprobs: bool, reads_calls: bool, limits: Limits
) -> Request:
    room = limits.context - len(ids)
    most = _number(row, "max_tokens", room, 1, whole=True) if room > 0 else inf
    if most > room:
        asked = f" and {row['max_tokens']} for the answer" if row.get("max_tokens") else ""
        raise RequestError(
            f"this model's maximum context length is {limits.context} tokens; the prompt has "
            f"{len(ids)}{asked}",
            "messages",
            400,
            "context_length_exceeded",
        )
    top_k = _number({"top_k": row.get("top_k") or 0}, "top_k", 0, -1, whole=True)
    return Request(
        ids=ids,
        sampling=Sampling(
            max_new_tokens=int(most),
            temperature=float(_number(row, "temperature", 1.0, 0.0, 100.0)),
            top_p=float(_number(row, "top_p", 1.0, 0.0, 1.0, above=True)),
            top_k=max(0, int(top_k)),
        ),
        n=int(_number(row, "n", 1, 1, MOST_SAMPLES, whole=True)),
        seed=None if row.get("seed") is None else int(_number(row, "seed", 0, whole=True)),
        stops=_stops(row.get("stop")),
        logprobs=logprobs,
        stream=bool(row.get("stream")),
        usage_chunk=_row(row.get("stream_options")).get("include_usage") is True,
        token_ids=bool(row.get("return_token_ids")),
        reads_calls=reads_calls,
    )


def _number(
    row: Mapping[str, Any],
    name: str,
    unset: float,
    low: float = -inf,
    high: float = inf,
    *,
    whole: bool = False,
    above: bool = False,
) -> float:
    """The field's number, `unset` where it is null or missing; `above`: more than `low`."""
    value = row.get(name)
    if value is None:
        return unset
    good = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not good or not low <= value <= high or (above and value == low):
        least = f", more than {low:g}" if above else f", {low:g} or more"
        bounds = "" if low == -inf else least
        bounds += "" if high == inf else f" and at most {high:g}"
        raise RequestError(f"{name}: wanted a {'whole ' * whole}number{bounds}", name)
    return value


def _stops(value: Any) -> tuple[str, ...]:
    listed: Any = [value] if isinstance(value, str) else (value or [])
    if not isinstance(listed, list) or len(cast("list[Any]", listed)) > MOST_STOPS:
        raise RequestError(f"stop: wanted a text, or a list of up to {MOST_STOPS}", "stop")
    if not all(isinstance(text, str) and text for text in cast("list[Any]", listed)):
        raise RequestError("stop: wanted texts that are not empty", "stop")
    return tuple(cast("list[str]", listed))


def _prompts(value: Any, tokenizer: ChatTokenizer) -> list[list[int]]:
    """Texts, or token ids: of one prompt or of several."""
    several = cast("list[Any]", value) if isinstance(value, list) else [value]
    if isinstance(value, list) and several and all(_is_id(i) for i in several):
        several = [several]
    found: list[list[int]] = []
    for one in several:
        ids = cast("list[Any]", one) if isinstance(one, list) else []
        if isinstance(one, str):
            ids = tokenizer.encode(one)
        if not ids or not all(map(_is_id, ids)):
            said = "prompt: wanted a text or token ids, or a list of them, none empty"
            raise RequestError(said, "prompt")
        if max(ids) >= tokenizer.size:
            said = f"prompt: {max(ids)} is no token id; the vocabulary has {tokenizer.size}"
            raise RequestError(said, "prompt")
        found.append(ids)
    if not found:
        raise RequestError("prompt: the list is empty", "prompt")
    return found


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _message(value: Any, place: int, tokenizer: ChatTokenizer) -> dict[str, Any]:
    """Role and text as a chat template takes them, earlier calls as this model spells them."""

    def refused(said: str) -> RequestError:
        return RequestError(f"messages[{place}]{said}", "messages")

    if not isinstance(value, dict):
        raise refused(": wanted an object")
    row = _row(value)
    role = "system" if row.get("role") == "developer" else row.get("role")
    if role not in ("system", "user", "assistant", "tool"):
        raise refused(".role: wanted system, user, assistant or tool")
    content: Any = row.get("content")
    parts = cast("list[Any]", content) if isinstance(content, list) else [content]
    if isinstance(content, str | None):
        parts = [{"type": "text", "text": content or ""}]
    listed = [_row(part) for part in parts]
    if any(part.get("type") != "text" or not isinstance(part.get("text"), str) for part in listed):
        raise refused(".content: wanted a text; only text is read")
    text = "\n".join(part["text"] for part in listed)
    written: list[str] = []
    if calls := row.get("tool_calls"):
        if role != "assistant" or not isinstance(calls, list):
            raise refused(".tool_calls: wanted a list, in an assistant's")
        for call in cast("list[Any]", calls):
            function = _row(_row(call).get("function"))
            made = make_call(function.get("name"), function.get("arguments"))
            if made.error:
                raise refused(f".tool_calls: {made.error}")
            written.append(tokenizer.calls.write(made.name, made.arguments))
    elif role != "assistant" and row.get("content") is None:
        raise refused(".content: it is missing")
    said = [text, *written] if text or not written else written
    return {"role": role, "content": "\n".join(said)}


def _tools(value: Any) -> list[ToolSpec]:
    """The tools a request offers. Raises `RequestError` for what is no function."""
    if not isinstance(value, list | None):
        raise RequestError("tools: wanted a list", "tools")
    found: list[ToolSpec] = []
    for i, tool in enumerate(cast("list[Any]", value or [])):
        function = _row(_row(tool).get("function"))
        name, schema = function.get("name"), function.get("parameters")
        if _row(tool).get("type") != "function" or not isinstance(name, str) or not name:
            raise RequestError(f"tools[{i}]: wanted a function with a name", "tools")
        if not isinstance(schema, dict | None):
            raise RequestError(f"tools[{i}].parameters: wanted a JSON schema", "tools")
        found.append(ToolSpec(name, str(function.get("description") or ""), _row(schema)))
    return found


def _row(value: Any) -> dict[str, Any]:
    """The object, or an empty one where it is none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
