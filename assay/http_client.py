"""One POST to a model behind HTTP, and what a chat answer says: the way every caller asks.

A request that fails for the endpoint's reasons is tried again (`Patience`), then raises
`EndpointError`. An answer may come whole or as a stream of events (server-sent events, which are
put together into the whole one). What the endpoint broke off, filtered or never finished is no
answer of the model (`read_chat`). The proxies that the environment names are used for other
machines, never for this one.
"""

from __future__ import annotations

import asyncio
import email.utils
import ipaddress
import json
import os
import random
import re
import socket
import threading
import time
import urllib.request
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast
from urllib.parse import urlsplit

from assay.errors import TaskError, install_extra

Row = dict[str, Any]
T = TypeVar("T")
# whether a request is tried again, and how patiently
Again = Literal["no", "error", "busy"]

_FIRST = 300  # characters of what an endpoint said that a message quotes


class EndpointError(OSError):
    """The endpoint could not be had, refused, or gave no answer; the message says what it said.

    `status` and `body` are of HTTP, `again` says whether trying once more may help, `after` how
    many seconds it asked to wait. `notes` go into the record of an episode: `no_answer` names why
    an endpoint that is there keeps this one answer back, a filter say.
    """

    def __init__(
        self,
        said: str,
        status: int = 0,
        body: str = "",
        again: Again = "no",
        after: float = 0.0,
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(said)
        self.status, self.body, self.after = status, body, after
        self.again: Again = again
        self.notes = dict(notes or {})

    def within(self, said: str) -> EndpointError:
        """The same failure, said in more words."""
        return EndpointError(said, self.status, self.body, self.again, self.after, self.notes)


@dataclass(frozen=True)
class Patience:
    """How long one request is tried: `attempts` for errors and lost connections; while the endpoint
    says that it is busy, until `seconds` have been waited in all. Pauses grow from `pause_s` to
    `longest_s`, drawn apart so that many callers do not come back together; a `Retry-After` is
    kept."""

    attempts: int = 5
    seconds: float = 600.0
    pause_s: float = 1.0
    longest_s: float = 60.0

    def pause(self, tries: int, retry_after: float) -> float:
        """Seconds before the next try, after `tries` of them."""
        grown = min(self.pause_s * 2.0 ** min(tries - 1, 30), self.longest_s)
        return max(retry_after, grown * random.uniform(0.5, 1.5))


@asynccontextmanager
async def open_session(key: str, timeout_s: float) -> AsyncGenerator[Any]:
    """A session of aiohttp. `key`: sent as a bearer token where there is one; `timeout_s`: of one
    try. How many requests go side by side is for the caller to bound."""
    try:
        import aiohttp
    except ImportError:
        raise TaskError(f"asking an endpoint needs aiohttp: {install_extra('client')}") from None
    async with aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {key}"} if key else {},
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        connector=aiohttp.TCPConnector(limit=0),
    ) as session:
        yield session


async def post_json(
    session: Any, url: str, body: Mapping[str, Any], patience: Patience, read: Callable[[Row], T]
) -> T:
    """What `read` finds in the JSON answer of `POST url`; an `EndpointError` of `read` is one of
    the request. Raises `EndpointError`."""
    waited, errors, tries = 0.0, 0, 0
    while True:
        tries += 1
        try:
            return read(await request_json(session, url, body))
        except EndpointError as error:
            failed = error
        errors += failed.again != "busy"
        pause = patience.pause(tries, failed.after)
        waited += pause
        if failed.again == "no" or errors >= patience.attempts or waited > patience.seconds:
            raise failed.within(f"{url}: {failed}" + (f" ({tries} tries)" if tries > 1 else ""))
        await asyncio.sleep(pause)


async def request_json(session: Any, url: str, body: Mapping[str, Any] | None = None) -> Row:
    """The JSON object at an address, asked for once: `POST` of a body, `GET` without one. Raises
    `EndpointError`."""
    import aiohttp

    proxy = _proxy_of(url)
    method = "GET" if body is None else "POST"
    try:
        async with session.request(method, url, json=body, proxy=proxy) as answer:
            data = bytearray()
            async for piece in answer.content.iter_any():
                data += piece
                if _DONE.search(data, max(0, len(data) - len(piece) - 20)):  # nothing follows
                    break
            stream = "text/event-stream" in answer.headers.get("Content-Type", "")
            after = _retry_after(answer.headers.get("Retry-After"))
            return _object(answer.status, bytes(data), stream, after)
    except aiohttp.InvalidURL as error:
        raise EndpointError(f"{type(error).__name__}: {error}") from None
    except (aiohttp.ClientError, TimeoutError) as error:
        through = f" (through the proxy {urlsplit(proxy).hostname})" if proxy else ""
        said = f"{type(error).__name__}: {error}{through}"
        raise EndpointError(said, again="error") from None


def _object(status: int, data: bytes, stream: bool, after: float) -> Row:
    """An answer's JSON object. Raises `EndpointError` for anything else."""
    text = data.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    good = 200 <= status < 300
    if good and (stream or text.startswith(("data:", "event:", ":"))):
        return read_stream(text)
    try:
        value: Any = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = None
    row = _row(value)
    error: Any = row if row.get("object") == "error" else row.get("error")
    if good and isinstance(value, dict) and not error:
        return row
    if good and error:
        raise _failure(error, status, text, after)
    if good:  # a page of a gateway or a wrong address stays what it is; a broken answer may not
        again: Again = "no" if text.startswith("<") else "error"
        said = f"HTTP {status}, but no JSON object: {_short(text)}"
        raise EndpointError(said, status, text, again)
    found = _failure(error or _short(text), status, text, after)
    raise found.within(f"HTTP {status}: {found}")


def _row(value: Any) -> Row:
    return cast("Row", value) if isinstance(value, dict) else {}


def _short(text: str) -> str:
    return " ".join(text[: 4 * _FIRST].split())[:_FIRST]


# --- what failed, in the endpoint's words

_BUSY = (429, 529)  # the endpoint asks for patience, as does any answer with Retry-After
_PASSES = (408, 409, 425)  # as does whatever a gateway breaks, 5xx
_STAYS = (501, 505)
# no patience helps; "exceeded your quota" alone may also be a limit of a minute
_QUOTA = re.compile(r"insufficient.?(quota|funds|credit|balance)", re.IGNORECASE)
_FILTER = re.compile(r"content_?(filter|policy)", re.IGNORECASE)
_BUSY_WORDS = re.compile(
    r"overloaded|rate.?limit|too.?many.?requests|at capacity|is busy", re.IGNORECASE
)
_PASSING = re.compile(
    r"server.?error|internal|unavailable|time.?out|api_error|bad.?gateway|try again", re.IGNORECASE
)


def _failure(error: Any, status: int = 0, body: str = "", after: float = 0.0) -> EndpointError:
    """An endpoint's error object as ours, with its words; tried again where the status, the code or
    the type says that the failure passes."""
    row = _row(error)
    message: Any = row.get("message") or row.get("detail") or row.get("msg") or error
    said = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
    raw = _row(row.get("metadata")).get("raw")
    names = [str(row[k]) for k in ("code", "type") if row.get(k) not in (None, "")]
    words = _short(f"{said}: {raw}" if raw else said)
    if more := [n for n in names if n not in words]:
        words += f" ({', '.join(more)})"
    if status < 400:
        status = next((int(n) for n in names if n.isdigit() and 400 <= int(n) < 600), status)
    again: Again = "no"
    if _QUOTA.search(words):
        after = 0.0
    elif status in _BUSY or (after and (status >= 500 or status in _PASSES)):
        again = "busy"
    elif status in _PASSES or (status >= 500 and status not in _STAYS):
        again = "error"
    elif status < 400 and _BUSY_WORDS.search(words):
        again = "busy"
    elif status < 400 and any(map(_PASSING.search, names)):
        again = "error"
    filtered = next(filter(_FILTER.search, names), "")
    notes = {"no_answer": filtered} if filtered else {}
    return EndpointError(words, status, body or words, again, after, notes)


def _retry_after(value: str | None) -> float:
    """Seconds that a `Retry-After` header asks for, as a number or as a date; 0 without one."""
    with suppress(ValueError):
        return max(0.0, min(float(value or 0), 1e6))
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, email.utils.parsedate_to_datetime(str(value)).timestamp() - time.time())
    return 0.0


# --- proxies


def _proxy_of(url: str) -> str | None:
    """The proxy that `http_proxy`, `https_proxy` or `all_proxy` names for an address; None for this
    machine and for what `no_proxy` lists (names, their ends, `*`, networks such as 10.0.0.0/8).
    Raises `EndpointError` for a proxy that is not of HTTP."""
    parts, named = urlsplit(url), urllib.request.getproxies_environment()
    host = (parts.hostname or "").rstrip(".")
    found = named.get(parts.scheme) or named.get("all")
    own = socket.gethostname().casefold()
    if not found or host in (own, own.partition(".")[0]) or f".{host}".endswith(".localhost"):
        return None
    if urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    with suppress(ValueError):  # a name
        address = ipaddress.ip_address(host)
        if address.is_loopback or address.is_unspecified:
            return None
        for network in re.split(r"[\s,]+", named.get("no", "")):
            with suppress(ValueError):
                if "/" in network and address in ipaddress.ip_network(network, strict=False):
                    return None
    scheme = found.partition("://")[0] if "://" in found else "http"
    if scheme not in ("http", "https"):
        raise EndpointError(f"the proxy for {host} is of {scheme}; give one of http or https")
    return found if "://" in found else f"http://{found}"


# --- a streamed answer

_DONE = re.compile(rb"(?m)^data: ?\[DONE\]")
# fields that are whole in each piece of a stream: repeats are not joined
_WHOLE = frozenset({"role", "type", "id", "format"})


def read_stream(text: str) -> Row:
    """The answer that server-sent events make, as it would have come whole. Raises `EndpointError`
    for a stream that broke, or that says it failed."""
    whole: Row = {}
    choice: Row = {}
    message: Row = {}
    ended, held, event = False, "", ""
    for line in [*re.split(r"\r\n|\r|\n", text), ""]:
        if not line and held:
            raise EndpointError(f"the stream holds no JSON: {held[:80]!r}", again="error")
        event = line[6:].strip() if line.startswith("event:") else event if line else ""
        if not line.startswith(("data:", "{")):  # "{": an error that a gateway wrote
            continue
        data = line.removeprefix("data:")
        ended = not held and data.strip() == "[DONE]"
        if ended:
            break
        held = f"{held}\n{data}" if held else data
        try:
            row = _row(json.loads(held))
        except (ValueError, RecursionError):
            continue  # the rest is in the next line
        held = ""
        choices: Any = row.pop("choices", None)
        listed = cast("list[Any]", choices) if isinstance(choices, list) else []
        first = next((one for one in map(_row, listed) if not one.get("index")), {})
        failed = event == "error" or row.get("object") == "error"
        if error := row.get("error") or (row if failed else first.get("error")):
            raise _broken(error)
        whole |= {k: v for k, v in row.items() if v is not None}
        # one that says the whole message at its end has said its pieces before
        delta = first.pop("delta", None) or (not message and first.get("message"))
        message = _grown(message, _row(delta))
        first.pop("message", None)
        laws = _grown(choice.get("logprobs"), first.pop("logprobs", None))
        choice |= {k: v for k, v in first.items() if v is not None or k not in choice}
        choice |= {"logprobs": laws} if laws else {}
    if not ended and not choice.get("finish_reason"):
        raise EndpointError("the stream broke off before its end", again="error")
    for call in _parts(message.get("tool_calls")):
        _row(call).pop("index", None)
    return whole | {"choices": [choice | {"message": message}] if choice or message else []}


def _broken(error: Any) -> EndpointError:
    found = _failure(error)
    if found.again == "no" and not (_row(error).get("code") or _row(error).get("type")):
        found.again = "error"  # it broke in the middle
    return found.within(f"the stream failed: {found}")


def _grown(old: Any, new: Any, key: str = "") -> Any:
    """One piece of a message put to what came before: texts and lists grow, objects grow inside,
    the pieces of a call or of a part of the content find theirs."""
    if new is None:
        return old
    if isinstance(old, list) or isinstance(new, list):
        parts = _parts(old)
        for item in _parts(new):
            place = _place(parts, _row(item), key)
            if place is None:
                parts.append(item)
            else:
                parts[place] = _grown(parts[place], item)
        return parts
    if isinstance(old, dict) and isinstance(new, dict):
        before, more = cast("Row", old), cast("Row", new)
        return before | {k: _grown(before.get(k), v, k) for k, v in more.items()}
    if not old or not isinstance(old, str) or not isinstance(new, str):
        return new
    return old if key in _WHOLE or (key == "name" and new == old) else old + new


def _parts(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [*cast("list[Any]", value)]
    return [{"type": "text", "text": value}] if value not in (None, "") else []


def _place(parts: list[Any], new: Row, key: str) -> int | None:
    """Which of some parts a piece goes on with. A call: by its id where both have one, else by the
    index, else the last; an index that comes again with another id is another call, as some
    endpoints say 0 for all. Another part: by its index, else the last of all, if of its type."""
    for place in reversed(range(len(parts))):
        old = _row(parts[place])
        if key == "tool_calls" and new.get("id") and old.get("id"):
            found = new["id"] == old["id"]
        elif key == "tool_calls":
            found = new.get("index") in (None, old.get("index"))
        elif "index" in new:
            found = (new["index"], new.get("type")) == (old.get("index"), old.get("type"))
        else:
            said = new.get("type") in ("text", "thinking", "refusal")
            found = said and new.keys() == old.keys() and new["type"] == old["type"]
            return place if found else None
        if found:
            return place
    return None


# --- a chat answer

# how an answer ends: the model ended it, or a limit did; whatever else is said, nobody ended it
_ENDED = re.compile(
    "stop|tool_calls?|tool_use|function_call|end|end_turn|eos|eos_token|eos_found|stop_sequence|"
    "stop_token|completed?|finished"
)
_CUT = re.compile(
    "length|max_tokens|model_length|max_output_tokens|max_completion_tokens|max_new_tokens|"
    "max_length|token_limit|context_length|model_context_window_exceeded"
)
_TRIED_AGAIN = re.compile(
    "error|abort|aborted|cancell?ed|insufficient_system_resource|overloaded|internal_error|"
    "server_error|timeout|"
)


@dataclass(frozen=True)
class Message:
    """One chat answer. `text` is what the model said, `reasoning` what it thought; `calls` are the
    tool calls as they came; `cut`: a limit ended it; `raw` is the whole message, `choice` what was
    around it."""

    text: str
    reasoning: str = ""
    calls: list[Any] = field(default_factory=list[Any])
    cut: bool = False
    usage: Mapping[str, int] = field(default_factory=dict[str, int])
    raw: Row = field(default_factory=dict[str, Any])
    choice: Row = field(default_factory=dict[str, Any])


def read_chat(row: Row, most: int = 0) -> Message:
    """The answer to `POST …/chat/completions`. `most`: the tokens that it could have.

    An answer is what the model ended, or a limit cut. Where no reason is given, a message with
    words or calls counts as ended by the model, or as cut when it has `most` tokens; an empty one
    is none. Raises `EndpointError` for any other end, naming it, and for what is no message.
    """
    choices: Any = row.get("choices")
    choice = _row(cast("list[Any]", choices)[0]) if isinstance(choices, list) and choices else {}
    if choice.get("error"):
        raise _failure(choice["error"])
    if not isinstance(choice.get("message"), dict):
        shown = _short(json.dumps(row, ensure_ascii=False, default=str))
        raise EndpointError(f"the answer holds no message: {shown}")
    message = _row(choice["message"])
    text, reasoning = _content_and_reasoning(message)
    calls: Any = message.get("tool_calls")
    calls = cast("list[Any]", calls) if isinstance(calls, list) else []
    usage = _usage(_row(row.get("usage")))
    given: Any = choice.get("finish_reason")
    reason = str((_row(given).get("type") if isinstance(given, dict) else given) or "")
    reason = reason.strip().casefold()
    cut = bool(_CUT.fullmatch(reason))
    if not reason and (text or calls or message.get("function_call")):
        cut = bool(most) and usage.get("completion_tokens", 0) >= most
    elif not _ENDED.fullmatch(reason) and not cut:
        told = f"ended with {given!r}" if reason else "is empty and says not how it ended"
        passes = _TRIED_AGAIN.fullmatch(reason)
        raise EndpointError(
            f"no answer of the model: the message {told}",
            again="error" if passes else "no",
            notes={} if passes else {"no_answer": reason},
        )
    return Message(text, reasoning, calls, cut, usage, message, choice)


def _content_and_reasoning(message: Row) -> tuple[str, str]:
    """(what an assistant's message says, what the model thought before): content may be a text, a
    list of parts, or null beside a refusal. Raises `EndpointError` for other content."""
    content: Any = message.get("content")
    if not isinstance(content, str | list | dict | None):
        raise EndpointError(f"the answer holds no message: its content is {content!r}"[:_FIRST])
    told = [message.get(name) for name in ("reasoning_content", "reasoning")]
    # some endpoints say the same under both names
    thought = "".join(dict.fromkeys(one for one in told if isinstance(one, str)))
    said = {"text": "", "refusal": ""}
    for part in _parts([content] if isinstance(content, dict) else content):
        row = {"text": part} if isinstance(part, str) else _row(part)
        kind = str(row.get("type") or "text")
        if kind in ("thinking", "reasoning"):
            thought += _texts(row.get("thinking") or row.get("reasoning") or row.get("text"))
        elif kind in ("text", "output_text", "refusal"):
            kind = kind.removeprefix("output_")
            said[kind] += _texts(row.get(kind))
    refusal: Any = message.get("refusal")
    rest = refusal if isinstance(refusal, str) else ""
    return said["text"] or said["refusal"] or rest, thought


def _texts(value: Any) -> str:
    """A text, {"value": …} around one, or a list of such."""
    if isinstance(value, list):
        return "".join(map(_texts, cast("list[Any]", value)))
    if isinstance(value, dict):
        row = _row(value)
        return _texts(row.get("text") or row.get("value"))
    return value if isinstance(value, str) else ""


def _usage(row: Row) -> dict[str, int]:
    """Token counts, with those of cached prompts and of reasoning where the endpoint tells."""
    found = dict(row)
    for place, name in (
        ("prompt_tokens_details", "cached_tokens"),
        ("completion_tokens_details", "reasoning_tokens"),
    ):
        found |= {name: _row(row.get(place)).get(name)} if row.get(place) else {}
    return {k: v for k, v in found.items() if type(v) is int and (v or k in row)}


@dataclass(frozen=True)
class ChatEndpoint:
    """A chat endpoint for code that waits for each answer. `url` ends before `/chat/completions`;
    the key is in the environment variable `key_env`."""

    url: str
    model: str
    key_env: str
    timeout_s: float = 60.0
    patience: Patience = Patience(attempts=4, seconds=120.0, longest_s=20.0)

    def ask(self, messages: list[dict[str, str]], **options: Any) -> Message:
        """One answer at temperature 0. Raises `EndpointError`."""
        body = {"model": self.model, "messages": messages, "temperature": 0} | options
        url = self.url.rstrip("/") + "/chat/completions"
        found: Future[Message] = Future()

        async def ask() -> Message:
            key = os.environ.get(self.key_env, "")
            async with open_session(key, self.timeout_s) as session:
                return await post_json(session, url, body, self.patience, read_chat)

        def work() -> None:
            try:
                found.set_result(asyncio.run(ask()))
            except BaseException as error:
                found.set_exception(error)

        # in a thread of its own: the caller may be inside of a running event loop
        threading.Thread(target=work, daemon=True).start()
        return found.result()
