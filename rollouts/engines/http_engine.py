"""Models behind HTTP as engines: words of a chat endpoint, or token ids of servers.

Requests, retries and the reading of answers are of assay/http_client.py. A request that fails for
the endpoint's reasons raises `EndpointError`, an `OSError`: the episode is then an infrastructure
failure, not a wrong answer. A conversation that the model cannot read any more ends as `length`.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from assay.http_client import (
    EndpointError,
    Message,
    Patience,
    open_session,
    post_json,
    read_chat,
    request_json,
)
from assay.task import derive_seed
from configs import KEY_ENV
from rollouts.conversation import ChatReply, ContextFull
from rollouts.tool_calls import ToolCall, call_format, make_call
from rollouts.trajectory import Completion, Sampling, Stop

__all__ = ["EndpointError", "OpenAIEngine", "ServerEngine"]


# --- the servers' dialects ----------------------------------------------------------------------

# The dialects of the servers: how each is asked for token ids, and what its answer says.
#
# vLLM and `assay serve` take ids at `/v1/completions` and give them back with `return_token_ids`.
# SGLang takes them at `/generate`. Both report one log-probability a sampled token. vLLM reports it
# under the model's raw distribution, SGLang under the one at the sampling temperature, our server
# under the latter.
#
# A server adds what its model's generation_config.json says to whatever a request leaves open (vLLM
# and SGLang: top_k, min_p, penalties), so every way to sample is said, off where it is not wanted.

Row = Mapping[str, Any]
UNKNOWN = math.nan  # a log-probability that the server does not tell
# ways to sample that a server's defaults may hold, beside temperature and top_p
NOTHING_ADDED = ("top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
_OFF: Mapping[str, float] = dict(zip(NOTHING_ADDED, (-1, 0.0, 1.0, 0.0, 0.0), strict=True))


def _no_answer(said: str, again: bool = False) -> EndpointError:
    """An answer of a server that is none; `again`: asking again may help."""
    return EndpointError(f"no answer of token ids: {said}", again="error" if again else "no")


@dataclass(frozen=True)
class Dialect:
    """One server's language. `path` follows the server's address; `ask` makes a request's body,
    `read` a completion of an answer's; the JSON at `version` has the server's version under that
    name; `off` is what a request says of the ways to sample that are not wanted; a chat answer's
    choice has the member `shown_by`."""

    path: str
    ask: Callable[[str, Sequence[int], Sampling, int, Sequence[int]], dict[str, Any]]
    read: Callable[[Row, Sampling], Completion]
    version: str = "/version"
    off: Mapping[str, float] = field(default_factory=dict[str, float])
    shown_by: str = ""


def _openai_ask(
    model: str, ids: Sequence[int], sampling: Sampling, seed: int, stops: Sequence[int]
) -> dict[str, Any]:
    body = {
        "model": model,
        "prompt": list(ids),
        "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": seed % (1 << 31),
        "logprobs": 0,
        "return_token_ids": True,
    }
    return body | ({"top_k": sampling.top_k} if sampling.top_k else {})


def _vllm_ask(
    model: str, ids: Sequence[int], sampling: Sampling, seed: int, stops: Sequence[int]
) -> dict[str, Any]:
    body = _openai_ask(model, ids, sampling, seed, stops)
    return {**_OFF, **body} | {"stop_token_ids": list(stops), "skip_special_tokens": False}


def _vllm_read(row: Row, sampling: Sampling) -> Completion:
    """Its log-probabilities are of temperature 1; greedy answers have those, too."""
    found = _openai_read(row, sampling)
    if sampling.temperature in (0.0, 1.0):
        return found
    unknown = [UNKNOWN] * len(found.ids)
    return Completion(found.ids, unknown, unknown, found.stop)


def _openai_read(row: Row, sampling: Sampling) -> Completion:
    choice = _first(row.get("choices"), "choices")
    ids = _ids(choice.get("token_ids"), "token_ids")
    told: Any = _row(choice.get("logprobs")).get("token_logprobs")
    return completion(ids, _floats(told, len(ids)), choice.get("finish_reason"), sampling)


def _sglang_ask(
    model: str, ids: Sequence[int], sampling: Sampling, seed: int, stops: Sequence[int]
) -> dict[str, Any]:
    return {
        "input_ids": list(ids),
        "sampling_params": {
            **_OFF,
            "max_new_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "stop_token_ids": list(stops),
            "skip_special_tokens": False,
            "no_stop_trim": True,
            "sampling_seed": seed % (1 << 31),
        },
        "return_logprob": True,
    }


def _sglang_read(row: Row, sampling: Sampling) -> Completion:
    meta = _row(row.get("meta_info"))
    triples: Any = meta.get("output_token_logprobs")
    if not isinstance(triples, list):
        raise _no_answer("meta_info.output_token_logprobs is missing")
    pairs = cast("list[Sequence[Any]]", triples)
    ids = _ids([pair[1] for pair in pairs], "output_token_logprobs")
    reason = _row(meta.get("finish_reason")).get("type")
    return completion(ids, _floats([pair[0] for pair in pairs], len(ids)), reason, sampling)


def completion(
    ids: list[int], logprobs: list[float], reason: Any, sampling: Sampling
) -> Completion:
    """Raises `EndpointError` for an answer that the server broke off."""
    reasons: dict[Any, Stop] = {"stop": "eos", "length": "length"}
    if reason not in reasons:
        said = f"the answer ended with {reason!r}, neither stop nor length"
        raise _no_answer(said, again=reason in ("abort", "error"))
    whole = sampling.top_p >= 1.0 and not sampling.top_k
    cut = list(logprobs) if whole else [UNKNOWN] * len(ids)
    return Completion(ids, logprobs, cut, reasons[reason])


def _row(value: Any) -> Row:
    return cast("Row", value) if isinstance(value, dict) else {}


def _first(value: Any, name: str) -> Row:
    if not isinstance(value, list) or not value:
        raise _no_answer(f"{name} is missing")
    return _row(cast("list[Any]", value)[0])


def _ids(value: Any, name: str) -> list[int]:
    listed = cast("list[Any]", value) if isinstance(value, list) else [None]
    if not all(isinstance(i, int) for i in listed):
        raise _no_answer(f"{name} holds no token ids; this server cannot return them")
    return cast("list[int]", listed)


def _floats(value: Any, count: int) -> list[float]:
    listed = cast("list[Any]", value) if isinstance(value, list) else []
    if len(listed) != count or not all(isinstance(v, int | float) for v in listed):
        raise _no_answer(f"{len(listed)} log-probabilities of {count} tokens")
    return [float(v) for v in listed]


def longest_sequence(models: Row) -> int:
    """What a server says at `/v1/models` of the longest sequence that it reads."""
    return int(_first(models.get("data"), "data").get("max_model_len") or 0)


DIALECTS: Mapping[str, Dialect] = {
    "vllm": Dialect("/v1/completions", _vllm_ask, _vllm_read, off=_OFF, shown_by="stop_reason"),
    "sglang": Dialect(
        "/generate", _sglang_ask, _sglang_read, "/get_server_info", _OFF, "matched_stop"
    ),
    "assay": Dialect("/v1/completions", _openai_ask, _openai_read),
}


def with_fields(body: Row, extra: Row) -> dict[str, Any]:
    """A request with more fields of one's own, or without those that are None. SGLang's ways to
    sample stand in an object of their own."""
    inner = _row(body.get("sampling_params"))
    ours = {k: v for k, v in {**inner, **extra}.items() if k in inner and v is not None}
    made = {**body, **{k: v for k, v in extra.items() if k not in inner}}
    made |= {"sampling_params": ours} if inner else {}
    return {k: v for k, v in made.items() if v is not None}


def dialect_of(choice: Row) -> str:
    """Which server a choice of a chat answer shows: the name of its dialect, or ""."""
    shown = (name for name, one in DIALECTS.items() if one.shown_by and one.shown_by in choice)
    return next(shown, "")


# --- endpoints -----------------------------------------------------------------------------------

# how endpoints say that a conversation is longer than their model can read
_FULL = re.compile(
    r"context.?length|context.?window|context.?size|maximum model length|max_model_len"
    r"|prompt is too long|input.{0,40}(too long|exceeds)|reduce the length"
    r"|too large for model with|max_new_tokens. must be|maximum number of tokens",
    re.IGNORECASE,
)
# how they say that they answer in streams alone
_STREAM_ONLY = re.compile(
    r"(only|must|require\w*|enable|set)\b.{0,60}\bstream|non-?stream|stream.{0,40}\b(only|required)",
    re.IGNORECASE,
)
_LIMITS = ("max_tokens", "max_completion_tokens")
_REFUSED = (200, 400, 413, 422)  # some put the refusal into an answer of 200
# what changes nothing at an endpoint that adds nothing of its own: left out where it is refused
_MAY_GO = (*NOTHING_ADDED, "seed", "stream_options")
_USUAL = ("role", "content", "tool_calls", "function_call", "name")
_OF_CALLS = ("id", "type", "function", "index")


class _Client:
    """What asks over HTTP, in a session that is open while it is used as a context."""

    def __init__(self, key_env: str, timeout_s: float, patience: Patience) -> None:
        self._key, self._timeout_s = os.environ.get(key_env, ""), timeout_s
        self._patience = patience
        self._session: Any = None
        self._stack = AsyncExitStack()

    async def _open(self) -> None:
        session = open_session(self._key, self._timeout_s)
        self._session = await self._stack.enter_async_context(session)

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


class OpenAIEngine(_Client):
    """`POST {url}/chat/completions`. Use as `async with OpenAIEngine(url, model) as engine`.

    `url` ends where `/chat/completions` begins (usually in `/v1`). `in_flight` bounds requests
    side by side, `attempts` the tries of one, `timeout_s` one try, `patience_s` the waiting for an
    endpoint that says it is busy, or that fails. The key is read from the
    environment variable `key_env`, never from settings. `calls` names how calls are spelled in
    the text when the endpoint does not read them itself. `extra` is put into every request last:
    whatever else an endpoint takes, and None for what it refuses (`{"temperature": None}`).

    Every way to sample that the endpoint takes is said, so that it adds no default of its own:
    OpenAI's to all; to vLLM and SGLang, which show in their answers, also theirs, and an answer
    that was drawn before is asked for again. What it refuses of this is left out; `about` tells.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key_env: str = KEY_ENV,
        in_flight: int = 16,
        attempts: int = 5,
        timeout_s: float = 600.0,
        pause_s: float = 1.0,
        patience_s: float = 600.0,
        calls: str = "hermes",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"endpoint {url!r}: give a URL that starts with http:// or https://")
        super().__init__(key_env, timeout_s, Patience(attempts, patience_s, pause_s))
        self.url, self.model = url.rstrip("/"), model
        self._slots = asyncio.Semaphore(in_flight)
        self._calls = call_format(calls)
        self._extra = dict(extra or {})
        self._dialect = ""
        self._without: frozenset[str] = frozenset()

    async def __aenter__(self) -> OpenAIEngine:
        await self._open()
        return self

    def about(self) -> dict[str, str]:
        """What answers, and which ways to sample are left to it: not said, or refused."""
        said = self._body([], (), Sampling(), 0)
        left = [name for name in NOTHING_ADDED if name not in said]
        found = {"engine": self._dialect or "endpoint"}
        return found | ({"left_to_the_endpoint": ", ".join(left)} if left else {})

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        seed: int,
    ) -> ChatReply:
        """One message. With `max_new_tokens=0` the endpoint's own bound holds."""
        async with self._slots:
            body = self._body(messages, tools, sampling, seed)
            found = await self._ask(body)
            if not self._dialect and (kind := dialect_of(found.choice)):
                self._dialect = kind
            whole = self._body(messages, tools, sampling, seed)
            if self._dialect and whole.keys() - body.keys():
                found = await self._ask(whole)
        return self._reply(found)

    def _body(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        seed: int,
    ) -> dict[str, Any]:
        """A request. `top_k` goes along only when set, or where it is known to be read."""
        off: Mapping[str, float] = DIALECTS[self._dialect].off if self._dialect else {}
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(messages),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "presence_penalty": 0,
            "frequency_penalty": 0,
            **off,
            "seed": seed % (1 << 31),
        }
        if sampling.max_new_tokens:
            body["max_tokens"] = sampling.max_new_tokens
        if sampling.top_k:
            body["top_k"] = sampling.top_k
        if tools:
            body["tools"] = list(tools)
        if self._extra.get("stream"):
            body["stream_options"] = {"include_usage": True}
        body = {k: v for k, v in (body | self._extra).items() if v is not None}
        return _without(body, self._without)

    async def _ask(self, asked: Row) -> Message:
        """Raises `EndpointError`, and `ContextFull` for a conversation that is too long. What an
        endpoint refuses by name and can do without is left out, from then on too when that helps;
        one that only leaves less room than `max_tokens` gets the room that is left."""
        url, without = f"{self.url}/chat/completions", self._without
        body: dict[str, Any] = dict(asked)
        while True:
            read = partial(read_chat, most=max(int(body.get(name) or 0) for name in _LIMITS))
            try:
                found = await post_json(self._session, url, body, self._patience, read)
            except EndpointError as error:
                if error.status not in _REFUSED:
                    raise
                if _FULL.search(error.body):
                    if not body.keys() & {*_LIMITS}:
                        raise ContextFull from None
                    body = {k: v for k, v in body.items() if k not in _LIMITS}
                    continue
                more = _refused(body, error.body, self._extra) - without
                if not more:
                    raise
                without |= more
                body = _without(body, without)
            else:
                self._without |= without
                return found

    def _reply(self, found: Message) -> ChatReply:
        legacy: Any = found.raw.get("function_call")
        raw: list[Any] = found.calls or ([{"function": legacy}] if legacy else [])
        calls = [_native(call) for call in raw] or self._calls.read(found.text)
        return ChatReply(
            found.text,
            calls,
            "length" if found.cut else "eos",
            found.usage,
            found.reasoning,
            found.raw,
        )


# What an endpoint is asked without: a field of a request or a member of earlier answers, by its
# name after this mark, or one of these
_FIELD, _MEMBER = "field ", "member "
_ONE_PIECE, _OLD_LIMIT, _NO_JSON = "answers in one piece", _LIMITS[0], "arguments that are no JSON"


def _without(body: Row, without: frozenset[str]) -> dict[str, Any]:
    made = {k: v for k, v in body.items() if _FIELD + k not in without}
    if _ONE_PIECE in without:
        made |= {"stream": True, "stream_options": {"include_usage": True}}
    if _OLD_LIMIT in without and "max_tokens" in made:
        made["max_completion_tokens"] = made.pop("max_tokens")
    messages: list[Row] = []
    for message in made["messages"]:
        if message.get("role") == "assistant":
            message = {k: v for k, v in message.items() if _MEMBER + k not in without}
            if "tool_calls" in message:
                message["tool_calls"] = [
                    {k: v for k, v in call.items() if _MEMBER + k not in without}
                    for call in _calls(message)
                ]
            message = _mended(message) if _NO_JSON in without else message
        messages.append(message)
    return made | {"messages": messages}


def _refused(body: Row, said: str, own: Row) -> frozenset[str]:
    """What to leave out as well, after an endpoint refused the request and said why; nothing when
    nothing of it can go. `own`: fields that the user gave."""
    if not body.get("stream") and _STREAM_ONLY.search(said):
        return frozenset({_ONE_PIECE})
    if "max_tokens" in body and "max_tokens" not in own and _LIMITS[1] in said:
        return frozenset({_OLD_LIMIT})
    words = said.casefold().replace("_", "")
    fields = {k for k in _MAY_GO if k in body and k not in own and _named(k, words)}
    if body.get("top_k", 0) > 0:  # asked for: the endpoint must take it, or the user leave it out
        fields.discard("top_k")
    if fields:
        return frozenset(_FIELD + k for k in fields)
    answers = [m for m in body["messages"] if m.get("role") == "assistant"]
    members = {k for m in answers for k in m if k not in _USUAL}
    members |= {k for m in answers for call in _calls(m) for k in call if k not in _OF_CALLS}
    if named := {_MEMBER + k for k in members if _named(k, words)}:
        return frozenset(named)
    return frozenset({_NO_JSON} if any(_mended(m) != m for m in answers) else ())


def _named(field: str, words: str) -> bool:
    """Whether a refusal names a field, spelled in either way."""
    return field.casefold().replace("_", "") in words


def _calls(message: Row) -> Iterator[dict[str, Any]]:
    calls: Any = message.get("tool_calls")
    for call in cast("list[Any]", calls) if isinstance(calls, list) else []:
        if isinstance(call, dict):
            yield cast("dict[str, Any]", call)


def _mended(message: Row) -> Row:
    """An answer whose calls can be read by a server that parses what it is sent: arguments that are
    no JSON stand in a JSON object, as one text."""
    if "tool_calls" not in message:
        return message
    calls = [dict(call) for call in _calls(message)]
    for call in calls:
        function: dict[str, Any] = dict(call.get("function") or {})
        said: Any = function.get("arguments")
        if make_call("f", said).error:
            function["arguments"] = json.dumps({"not_json": said})
        call["function"] = function
    return {**message, "tool_calls": calls}


def _native(call: Any) -> ToolCall:
    """A call as the endpoint read it; one without a name is a bad call."""
    row = cast("dict[str, Any]", call) if isinstance(call, dict) else {}
    function: Any = row.get("function")
    said = cast("dict[str, Any]", function) if isinstance(function, dict) else {}
    return make_call(said.get("name"), said.get("arguments"), str(row.get("id") or "call"))


class ServerEngine(_Client):
    """An `Engine` over one or more servers of the same model: token ids in, token ids out. What a
    server drew is kept as it is, never decoded and encoded again.

    Use as `async with ServerEngine(["http://…"], "vllm", model, stop_ids) as engine`. Addresses end
    before `/v1`; a request goes to the server that has the fewest. `in_flight` bounds the requests
    at one server. `extra` is put into every request last, None leaves a field out; what is drawn
    under it has no known log-probabilities where it names a way to sample. `length` is the longest
    sequence they read, and `version` the server's (empty where it tells none), both asked of the
    first.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        kind: str,
        model: str,
        stop_ids: Sequence[int],
        *,
        key_env: str = KEY_ENV,
        in_flight: int = 64,
        timeout_s: float = 3600.0,
        patience: Patience | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(key_env, timeout_s, patience or Patience())
        self._words, self._model = DIALECTS[kind], model
        self._extra = dict(extra or {})
        self._law_known = not self._extra.keys() & {"temperature", "top_p", *NOTHING_ADDED}
        self._addresses = [url.rstrip("/").removesuffix("/v1") for url in addresses]
        self._stops = list(stop_ids)
        self._slots = {url: asyncio.Semaphore(in_flight) for url in self._addresses}
        self._busy = dict.fromkeys(self._addresses, 0)
        self.length, self.version = 0, ""

    async def __aenter__(self) -> ServerEngine:
        await self._open()
        url = self._addresses[0] + "/v1/models"
        try:
            self.length = longest_sequence(await request_json(self._session, url))
        except (EndpointError, TypeError, ValueError) as error:
            await self._stack.aclose()
            raise EndpointError(f"{url}: {error}") from None
        with suppress(EndpointError, LookupError):  # behind a proxy, say: nothing depends on it
            told = await request_json(self._session, self._addresses[0] + self._words.version)
            self.version = str(told["version"])
        return self

    async def complete(self, ids: Sequence[int], sampling: Sampling, seed: int) -> Completion:
        """One completion; with `length` known, no longer than the server's model reads."""
        if self.length:
            room = self.length - len(ids)
            if room < 1:
                return Completion([], [], [], "length")
            most = min(sampling.max_new_tokens or room, room)
            sampling = replace(sampling, max_new_tokens=most)
        body = self._words.ask(self._model, ids, sampling, seed, self._stops)
        body = with_fields(body, self._extra)
        url = min(self._addresses, key=lambda one: self._busy[one])
        self._busy[url] += 1
        try:
            async with self._slots[url]:
                return await post_json(
                    self._session,
                    url + self._words.path,
                    body,
                    self._patience,
                    lambda row: self._read(row, sampling),
                )
        finally:
            self._busy[url] -= 1

    def _read(self, row: Mapping[str, Any], sampling: Sampling) -> Completion:
        try:
            found = self._words.read(row, sampling)
        except (TypeError, LookupError) as error:
            raise _no_answer(str(error)) from None
        if self._law_known:
            return found
        unknown = [UNKNOWN] * len(found.ids)
        return Completion(found.ids, unknown, unknown, found.stop)

    async def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        """`n` completions a prompt; sample j of prompt i asks with a seed from (seeds[i], j)."""
        found = await asyncio.gather(
            *(
                self.complete(ids, sampling, derive_seed(seed, "sample", j))
                for ids, seed in zip(prompts, seeds, strict=True)
                for j in range(n)
            )
        )
        return [list(found[k * n : (k + 1) * n]) for k in range(len(prompts))]
