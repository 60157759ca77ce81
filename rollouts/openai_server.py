"""`assay serve`: the OpenAI protocol over an engine.

What a request's body asks for, the answer in the protocol's words, whole or as the chunks of a
stream, and the server around both. What cannot be done is refused, never ignored.
"""

from __future__ import annotations

import asyncio
import codecs
import hmac
import json
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import count
from math import inf
from typing import Any, NamedTuple, cast

from aiohttp import web

from assay.task import derive_seed
from rollouts.engines.engine import EmbeddedEngine
from rollouts.prompts import ChatTokenizer, PromptError
from rollouts.tool_calls import ToolCall, ToolSpec, make_call
from rollouts.trajectory import Completion, Sampling

Row = dict[str, Any]


class RequestError(ValueError):
    """A request that cannot be answered. `status` is HTTP's, `field` the one at fault."""

    def __init__(self, said: str, field: str = "", status: int = 400, code: str = "") -> None:
        super().__init__(said)
        self.field, self.status, self.code = field, status, code


class Limits(NamedTuple):
    """`name` of the model, as clients say it; `context`: tokens a sequence may have."""

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


# --- fields of a body: what a value must be, and that in words; null is the same as none

Field = tuple[Callable[[Any], bool], str]


def _number(wanted: str, low: float = -inf, high: float = inf, kind: Any = int) -> Field:
    def good(value: Any) -> bool:
        return isinstance(value, kind) and not isinstance(value, bool) and low <= value <= high

    return good, wanted


def _only(*values: Any) -> Field:
    said = " or ".join(json.dumps(value) for value in values)
    return lambda value: value in values, f"{said}: nothing else is supported"


def _are_stops(value: Any) -> bool:
    listed = cast("list[Any]", value if isinstance(value, list) else [value])
    return len(listed) <= 4 and all(isinstance(text, str) and text for text in listed)


_ANY: Field = (lambda value: True, "")
_LIST: Field = (lambda value: isinstance(value, list), "a list")
_WHOLE = _number("a whole number, 1 or more", 1)
_BOTH: Mapping[str, Field] = {
    # they change nothing here
    **dict.fromkeys(("user", "metadata", "store"), _ANY),
    **dict.fromkeys(("model", "stream", "stream_options", "return_token_ids"), _ANY),
    "n": _number("a whole number from 1 to 128", 1, 128),
    "seed": _number("a whole number"),
    "max_tokens": _WHOLE,
    "temperature": _number("a number from 0 to 100", 0, 100, int | float),
    "top_p": _number("a number above 0 and at most 1", 5e-324, 1, int | float),
    "top_k": _number("a whole number, -1 or more", -1),
    "stop": (_are_stops, "a text that is not empty, or a list of up to 4"),
    "frequency_penalty": _only(0),
    "presence_penalty": _only(0),
    "logit_bias": _only({}),
}
_CHAT: Mapping[str, Field] = {
    **_BOTH,
    "parallel_tool_calls": _ANY,
    "messages": _LIST,
    "tools": _LIST,
    "tool_choice": _only("auto", "none"),
    "max_completion_tokens": _WHOLE,
    "logprobs": _only(False, True),
    "top_logprobs": _only(0),
    "response_format": _only({"type": "text"}),
}
_COMPLETION: Mapping[str, Field] = {
    **_BOTH,
    "prompt": _ANY,
    "logprobs": _only(0, 1),  # of the sampled token alone
    "echo": _only(False),
    "best_of": _only(1),
    "suffix": _only(""),
}


def _fields(body: Any, known: Mapping[str, Field], limits: Limits) -> Row:
    """The fields that say something. Raises `RequestError`."""
    if not isinstance(body, dict):
        raise RequestError("the body is no JSON object")
    row = {k: v for k, v in cast("Row", body).items() if v is not None}
    for name, value in row.items():
        if name not in known:
            raise RequestError(f"{name}: no such field here; leave it out", name)
        good, wanted = known[name]
        if not good(value):
            raise RequestError(f"{name}: wanted {wanted}", name)
    model = row.get("model", limits.name)
    if model not in (limits.name, "default"):
        said = f"model: {model!r} is not served here; ask for {limits.name!r}"
        raise RequestError(said, "model", 404, "model_not_found")
    return row


def read_chat(body: Any, tokenizer: ChatTokenizer, limits: Limits) -> list[Request]:
    """The one that a chat is. Raises `RequestError` naming the field."""
    row = _fields(body, _CHAT, limits)
    if not row.get("messages"):
        raise RequestError("messages: wanted a list of messages", "messages")
    messages = [_message(m, i, tokenizer) for i, m in enumerate(row["messages"])]
    listed = row.get("tools") if row.get("tool_choice") != "none" else None
    tools = [_tool(tool, i) for i, tool in enumerate(listed or [])]
    try:
        ids = tokenizer.prompt(messages, tools)
    except PromptError as error:
        raise RequestError(str(error), "messages") from None
    most = row.get("max_completion_tokens", row.get("max_tokens"))
    return [_request(row, ids, most, bool(row.get("logprobs")), bool(tools), limits)]


def read_completion(body: Any, tokenizer: ChatTokenizer, limits: Limits) -> list[Request]:
    """One for each prompt. Raises `RequestError` naming the field."""
    row = _fields(body, _COMPLETION, limits)
    most = row.get("max_tokens", 16)  # the protocol's default
    logprobs = row.get("logprobs", False) is not False  # 0: the sampled token's own
    prompts = _prompts(row.get("prompt"), tokenizer)
    return [_request(row, ids, most, logprobs, False, limits) for ids in prompts]


def _request(
    row: Row, ids: list[int], most: int | None, logprobs: bool, reads_calls: bool, limits: Limits
) -> Request:
    room = limits.context - len(ids)
    if room < (most or 1):
        asked = f" and {most} for the answer" if most else ""
        said = f"this model's maximum context length is {limits.context} tokens; the prompt has "
        raise RequestError(f"{said}{len(ids)}{asked}", "messages", code="context_length_exceeded")
    stop, top_k = row.get("stop", []), max(0, row.get("top_k", 0))
    law = float(row.get("temperature", 1.0)), top_k, float(row.get("top_p", 1.0))
    return Request(
        ids=ids,
        sampling=Sampling(most or room, *law),
        n=row.get("n", 1),
        seed=row.get("seed"),
        stops=(stop,) if isinstance(stop, str) else tuple(stop),
        logprobs=logprobs,
        stream=bool(row.get("stream")),
        usage_chunk=_row(row.get("stream_options")).get("include_usage") is True,
        token_ids=bool(row.get("return_token_ids")),
        reads_calls=reads_calls,
    )


def _prompts(value: Any, tokenizer: ChatTokenizer) -> list[list[int]]:
    """Texts, or token ids: of one prompt or of several."""
    several = cast("list[Any]", value) if isinstance(value, list) else [value]
    if all(isinstance(i, int) for i in several):
        several = [several]
    found = [tokenizer.encode(one) if isinstance(one, str) else one for one in several]
    for ids in found:
        numbers = cast("list[Any]", ids) if isinstance(ids, list) else []
        if not numbers or not all(type(i) is int and i >= 0 for i in numbers):
            said = "prompt: wanted a text or token ids, or a list of them, none empty"
            raise RequestError(said, "prompt")
        if max(numbers) >= tokenizer.size:
            said = f"prompt: {max(numbers)} is no token id; the vocabulary has {tokenizer.size}"
            raise RequestError(said, "prompt")
    return found


def _message(value: Any, place: int, tokenizer: ChatTokenizer) -> Row:
    """Role and text as a chat template takes them, earlier calls as this model spells them."""

    def refused(said: str) -> RequestError:
        return RequestError(f"messages[{place}]{said}", "messages")

    row = _row(value)
    role = "system" if row.get("role") == "developer" else row.get("role")
    if role not in ("system", "user", "assistant", "tool"):
        raise refused(".role: wanted system, user, assistant or tool")
    content: Any = row.get("content")
    whole: list[Any] = [{"type": "text", "text": content or ""}]
    parts = [_row(p) for p in (cast("list[Any]", content) if isinstance(content, list) else whole)]
    if not all(p.get("type") == "text" and isinstance(p.get("text"), str) for p in parts):
        raise refused(".content: wanted a text; only text is read")
    said = ["\n".join(part["text"] for part in parts)]
    calls: Any = row.get("tool_calls") or []
    if calls and (role != "assistant" or not isinstance(calls, list)):
        raise refused(".tool_calls: wanted a list, in an assistant's")
    if role != "assistant" and content is None:
        raise refused(".content: it is missing")
    for call in cast("list[Any]", calls):
        function = _row(_row(call).get("function"))
        made = make_call(function.get("name"), function.get("arguments"))
        if made.error:
            raise refused(f".tool_calls: {made.error}")
        said.append(tokenizer.calls.write(made.name, made.arguments))
    return {"role": role, "content": "\n".join(said[not said[0] and len(said) > 1 :])}


def _tool(value: Any, place: int) -> ToolSpec:
    """A tool that a request offers. Raises `RequestError` for what is no function."""
    row = _row(value)
    function = _row(row.get("function"))
    name, schema = function.get("name"), function.get("parameters")
    if row.get("type") != "function" or not isinstance(name, str) or not name:
        raise RequestError(f"tools[{place}]: wanted a function with a name", "tools")
    if not isinstance(schema, dict | None):
        raise RequestError(f"tools[{place}].parameters: wanted a JSON schema", "tools")
    return ToolSpec(name, str(function.get("description") or ""), _row(schema))


def _row(value: Any) -> Row:
    """The object, or an empty one where it is none."""
    return cast("Row", value) if isinstance(value, dict) else {}


# --- answers


def reply(
    head: Row,
    asked: Sequence[Request],
    groups: Sequence[Sequence[Completion]],
    tokenizer: ChatTokenizer,
) -> Row:
    """The whole reply. `head`: its id, model, time, and the kind of its object."""
    chat, choices, written = head["object"] == "chat.completion", list[Row](), 0
    pairs = ((one, drawn) for one, group in zip(asked, groups, strict=True) for drawn in group)
    for place, (one, completion) in enumerate(pairs):
        text, calls, reason, drawn = _in_words(completion, one, tokenizer)
        written += len(drawn.ids)
        choice: Row = {"index": place, "finish_reason": reason, "logprobs": None}
        if chat:
            choice["message"] = _assistant(text, calls, f"{head['id']}-{place}")
        else:
            choice["text"] = text
        if one.logprobs:
            logprobs = _chat_logprobs if chat else _text_logprobs
            choice["logprobs"] = logprobs(drawn, tokenizer)
        if one.token_ids:
            choice |= {"token_ids": drawn.ids, "prompt_token_ids": one.ids}
        choices.append(choice)
    read = sum(len(one.ids) for one in asked)
    used = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return head | {"choices": choices, "usage": used}


def _in_words(
    completion: Completion, asked: Request, tokenizer: ChatTokenizer
) -> tuple[str, list[ToolCall], str, Completion]:
    """(text, calls, stop or length or tool_calls, the tokens that spell them): cut where the first
    stop text begins. A call that cannot be read is left in the text: the client is to see it."""
    text = tokenizer.text(completion.ids)
    reason = "length" if completion.stop == "length" else "stop"
    ends = [place for stop in asked.stops if (place := text.find(stop)) >= 0]
    if ends:
        text, reason = text[: min(ends)], "stop"
        ids, logprobs = completion.ids, completion.logprobs
        count = bisect_left(
            range(len(ids)), True, key=lambda k: tokenizer.text(ids[:k]).startswith(text)
        )
        completion = replace(completion, ids=ids[:count], logprobs=logprobs[:count])
    calls = tokenizer.calls.read(text) if asked.reads_calls else []
    if not calls or any(call.error for call in calls):
        return text, [], reason, completion
    return text.partition("<tool_call>")[0].rstrip(), calls, "tool_calls", completion


def _assistant(text: str, calls: Sequence[ToolCall], name: str) -> Row:
    if not calls:
        return {"role": "assistant", "content": text}
    listed: list[Row] = []
    for i, call in enumerate(calls):
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        function = {"name": call.name, "arguments": arguments}
        listed.append({"id": f"call-{name}-{i}", "type": "function", "function": function})
    return {"role": "assistant", "content": text or None, "tool_calls": listed}


def chunks(whole: Row, usage_too: bool) -> Iterator[bytes]:
    """The server-sent events of a whole reply: each sample's text in one chunk."""
    chat = whole["object"] == "chat.completion"
    head: Row = {name: whole[name] for name in ("id", "created", "model")}
    head["object"] = "chat.completion.chunk" if chat else "text_completion"
    head |= {"usage": None} if usage_too else {}
    for choice in whole["choices"]:
        place: Row = {"index": choice["index"], "finish_reason": None}
        first = {k: choice[k] for k in ("logprobs", "token_ids") if choice.get(k) is not None}
        said, nothing = choice.get("text"), ""
        if chat:
            nothing, said = Row(), choice["message"] | {}
            said["content"] = said["content"] or ""
            if calls := said.get("tool_calls"):
                said["tool_calls"] = [{"index": i} | c for i, c in enumerate(calls)]
        part = "delta" if chat else "text"
        last = place | {part: nothing, "finish_reason": choice["finish_reason"]}
        yield _event(head | {"choices": [place | first | {part: said}]})
        yield _event(head | {"choices": [last]})
    if usage_too:
        yield _event(head | {"choices": list[Row](), "usage": whole["usage"]})
    yield b"data: [DONE]\n\n"


def _event(row: Row) -> bytes:
    return f"data: {json.dumps(row, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


def _chat_logprobs(completion: Completion, tokenizer: ChatTokenizer) -> Row:
    pairs = zip(tokenizer.pieces(completion.ids), completion.logprobs, strict=True)
    content = [
        {"token": _spelled(piece), "logprob": law, "bytes": list(piece), "top_logprobs": []}
        for piece, law in pairs
    ]
    return {"content": content, "refusal": None}


def _text_logprobs(completion: Completion, tokenizer: ChatTokenizer) -> Row:
    """A token's offset is the number of whole characters before it."""
    pieces = tokenizer.pieces(completion.ids)
    offsets, at = list[int](), 0
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in pieces:
        offsets.append(at)
        at += len(decoder.decode(piece))
    return {
        "tokens": [_spelled(piece) for piece in pieces],
        "token_logprobs": completion.logprobs,
        "top_logprobs": None,
        "text_offset": offsets,
    }


def _spelled(piece: bytes) -> str:
    """A token as text; a part of a character as the protocol writes it: `bytes:\\xf0\\x9f`."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


# ---- the server: routes, the key, errors as clients expect them, and the engine's queue

MOST_BYTES = 64 << 20  # of a request's body
BUSY_S = 5  # what a client is told to wait when the queue is full
# path: how ids of its answers begin, and the kind of their object
_ROUTES = {
    "/v1/chat/completions": ("chatcmpl", "chat.completion"),
    "/v1/completions": ("cmpl", "text_completion"),
}
GATHER_S = 0.005  # clients that ask side by side are a few milliseconds apart


class _Job(NamedTuple):
    asked: Request
    seed: int
    done: asyncio.Future[list[Completion]]


class Batches:
    """Requests that wait together are answered together.

    `rows` bounds the samples of one call of the engine, `waiting` the requests in the queue.
    Requests of equal sampling settings share a call; what a request draws depends on its own seed
    alone."""

    def __init__(self, engine: EmbeddedEngine, rows: int, waiting: int) -> None:
        self._engine, self._rows, self._most = engine, rows, waiting
        self.queue: list[_Job] = []
        self._free = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "engine")
        self.calls = 0  # of the engine, so far

    async def ask(self, asked: Request, seed: int) -> list[Completion]:
        """The completions of one prompt. Raises `RequestError` when the queue is full; whatever the
        engine raises comes here."""
        if len(self.queue) >= self._most:
            raise RequestError("too many requests wait; try again later", "", 429, "busy")
        job = _Job(asked, seed, asyncio.get_running_loop().create_future())
        self.queue.append(job)
        await asyncio.sleep(GATHER_S)
        while not job.done.done():
            async with self._free:
                if not job.done.done():
                    await self._answer(self._next())
        return job.done.result()

    def _next(self) -> list[_Job]:
        """The oldest request and those that can go with it."""
        first = self.queue[0].asked
        law = (first.sampling, first.n)
        alike = [j for j in self.queue if (j.asked.sampling, j.asked.n) == law]
        taken = alike[: max(1, self._rows // first.n)]
        self.queue = [job for job in self.queue if job not in taken]
        return taken

    async def _answer(self, jobs: Sequence[_Job]) -> None:
        first, self.calls = jobs[0].asked, self.calls + 1
        prompts, seeds = [job.asked.ids for job in jobs], [job.seed for job in jobs]
        try:
            asked = (self._engine.generate_now, prompts, first.sampling, first.n, seeds)
            found = await asyncio.get_running_loop().run_in_executor(self._thread, *asked)
            for job, group in zip(jobs, found, strict=True):
                job.done.set_result(group)
        except Exception as error:
            for job in jobs:
                job.done.set_exception(error)
        finally:
            for job in jobs:  # the server ends
                job.done.cancel()


class Service:
    """What the routes share. `key` empty: anybody may ask."""

    def __init__(
        self, batches: Batches, tokenizer: ChatTokenizer, limits: Limits, key: str, seed: int
    ) -> None:
        self._batches, self._tokenizer, self._limits = batches, tokenizer, limits
        self._key, self._seed, self._numbers = key, seed, count(1)

    def app(self) -> web.Application:
        """The application, to be run by aiohttp."""
        made = web.Application(middlewares=[self._guarded], client_max_size=MOST_BYTES)
        about = {"id": self._limits.name, "object": "model", "created": 0, "owned_by": "assay"}
        about["max_model_len"] = self._limits.context
        told: Mapping[str, Row] = {
            "/health": {"status": "ok"},
            "/version": {"version": metadata.version("assay")},
            "/v1/models": {"object": "list", "data": [about]},
        }

        async def tell(request: web.Request) -> web.Response:
            return web.json_response(told[request.path])

        made.add_routes([web.get(path, tell) for path in told])
        made.add_routes([web.post(path, self._answer) for path in _ROUTES])
        return made

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Any) -> web.Response:
        """Who may ask, and every failure in the protocol's words: the engine's own is a 500."""
        given = request.headers.get("Authorization", "").removeprefix("Bearer ").encode()
        asks_key = self._key and request.path != "/health"
        if asks_key and not hmac.compare_digest(given, self._key.encode()):
            return _failed(401, "wanted the server's key as a bearer token", "invalid_api_key")
        try:
            return await handler(request)
        except RequestError as error:
            return _failed(error.status, str(error), error.code, error.field)
        except web.HTTPException as error:
            return _failed(error.status, error.reason)
        except Exception as error:
            return _failed(500, f"{type(error).__name__}: {error}", "engine_failed")

    async def _answer(self, request: web.Request) -> web.Response:
        """A request without a seed draws by its number since the server started."""
        try:
            body: Any = json.loads(await request.read())
        except (ValueError, RecursionError):
            raise RequestError("the body is no JSON") from None
        name, kind = _ROUTES[request.path]
        read = read_chat if name == "chatcmpl" else read_completion
        asked, number = read(body, self._tokenizer, self._limits), next(self._numbers)
        waits: list[Any] = []
        for i, one in enumerate(asked):
            own = derive_seed(self._seed, "request", number, i) if one.seed is None else one.seed
            waits.append(self._batches.ask(one, own))
        groups = await asyncio.gather(*waits)
        head: Row = {"id": f"{name}-{number}", "object": kind, "created": int(time.time())}
        whole = reply(head | {"model": self._limits.name}, asked, groups, self._tokenizer)
        if not asked[0].stream:
            return web.json_response(whole)
        events = b"".join(chunks(whole, asked[0].usage_chunk))  # all is there before the first
        return web.Response(body=events, headers={"Content-Type": "text/event-stream"})


def _failed(status: int, said: str, code: str = "", field: str = "") -> web.Response:
    """A failure as the protocol's error object."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    row: Row = {"message": said, "type": kind, "param": field or None, "code": code or None}
    headers = {"Retry-After": str(BUSY_S)} if status == 429 else {}
    return web.json_response({"error": row}, status=status, headers=headers)
