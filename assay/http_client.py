"""One POST to a model behind HTTP, and what a chat answer says: the way every caller asks.

A request that fails for the endpoint's reasons is tried again (`Patience`), then raises
`EndpointError`. An answer may come whole or as a stream of events. What the endpoint broke off,
filtered or never finished is no answer of the model (`read_chat`). The proxies that the environment
names are used for other machines, never for this one.
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
import sys
import threading
import time
import urllib.request
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast
from urllib.parse import urlsplit

from assay.errors import install_extra
from assay.http_stream import EventStream
from assay.task import TaskError

Row = Mapping[str, Any]
T = TypeVar("T")
# whether a request is tried again, and how patiently; "slow": it took too long
Again = Literal["no", "error", "busy", "slow"]

BUSY = (429, 529)  # the endpoint asks for patience, as does any answer with Retry-After
_AGAIN = (408, 409, 425)  # as does whatever a gateway breaks, 5xx
_NEVER = (501, 505)
_FIRST = 300  # characters of what an endpoint said that a message quotes
GIVE_UP = 8  # failures in a row after which an endpoint counts as gone


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


@dataclass(frozen=True)
class Patience:
    """How long one request is tried: `attempts` for errors and lost connections; while the endpoint
    says that it is busy, until `seconds` have been waited in all. Pauses grow from `pause_s` to
    `longest_s`, drawn apart so that many callers do not come back together; a `Retry-After` is
    kept. `slow`: whether a try that took too long is an error like others."""

    attempts: int = 5
    seconds: float = 600.0
    pause_s: float = 1.0
    longest_s: float = 60.0
    slow: bool = True

    def pause(self, tries: int, retry_after: float) -> float:
        """Seconds before the next try, after `tries` of them."""
        grown = min(self.pause_s * 2.0 ** min(tries - 1, 30), self.longest_s)
        return max(retry_after, grown * random.uniform(0.5, 1.5))


class CircuitBreaker:
    """Counts failures in a row; `most` of them end the run with one sentence. For many threads."""

    def __init__(self, who: str, most: int = GIVE_UP, command: str = "") -> None:
        """`command`: says the first failure at once, under this name."""
        self._who, self._most, self._command = who, most, command
        self._row, self._last, self._lock = 0, "", threading.Lock()

    def see(self, failure: str | None, answered: bool = False) -> None:
        """After each request: None when it was answered. `answered`: the endpoint is there, though
        what it said is no answer. Raises `TaskError` when the endpoint counts as gone."""
        with self._lock:
            first = failure is not None and not self._last
            self._last = failure or self._last
            self._row = 0 if failure is None or answered else self._row + 1
        if first and self._command:
            print(
                f"{self._command}: {failure}; it counts nowhere, and {self._most} failures in a "
                "row end the run",
                file=sys.stderr,
                flush=True,
            )
        self.check()

    def check(self) -> None:
        """Raises `TaskError` when the endpoint counts as gone."""
        if self._row >= self._most:
            raise TaskError(
                f"{self._who}: {self._row} requests in a row failed, the last with {self._last}; "
                "what was answered is kept, the same command goes on"
            )


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
    session: Any, url: str, body: Row, patience: Patience, read: Callable[[Row], T]
) -> T:
    """What `read` finds in the JSON answer of `POST url`; an `EndpointError` of `read` is one of
    the request. Raises `EndpointError`."""
    waited, errors, tries = 0.0, 0, 0
    while True:
        tries += 1
        try:
            return read(await _once(session, url, body))
        except EndpointError as error:
            failed = error
        errors += failed.again != "busy"
        pause = patience.pause(tries, failed.after)
        waited += pause
        over = errors >= patience.attempts or waited > patience.seconds
        if failed.again == "no" or over or (failed.again == "slow" and not patience.slow):
            tried = f" ({tries} tries)" if tries > 1 else ""
            raise EndpointError(
                f"{url}: {failed}{tried}", failed.status, failed.body, notes=failed.notes
            )
        await asyncio.sleep(pause)


def post_now(
    url: str, body: Row, key: str, timeout_s: float, patience: Patience, read: Callable[[Row], T]
) -> T:
    """`post_json` for code that waits, in a thread of its own: the caller may be inside of a
    running event loop."""
    found: Future[T] = Future()

    async def ask() -> T:
        async with open_session(key, timeout_s) as session:
            return await post_json(session, url, body, patience, read)

    def work() -> None:
        try:
            found.set_result(asyncio.run(ask()))
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return found.result()


async def get_json(session: Any, url: str) -> Row:
    """The JSON object at an address, asked for once. Raises `EndpointError`."""
    return await _once(session, url, None)


async def _once(session: Any, url: str, body: Row | None) -> Row:
    import aiohttp

    proxy = proxy_of(url)
    method = "GET" if body is None else "POST"
    try:
        async with session.request(method, url, json=body, proxy=proxy) as answer:
            status, kind = answer.status, answer.headers.get("Content-Type", "")
            if 200 <= status < 300 and "text/event-stream" in kind:
                return await _streamed(answer)
            data: bytes = await answer.read()
            return _whole(status, data, retry_after(answer.headers.get("Retry-After")))
    except aiohttp.InvalidURL as error:
        raise EndpointError(f"{type(error).__name__}: {error}") from None
    except (aiohttp.ClientError, TimeoutError) as error:
        through = f" (through the proxy {urlsplit(proxy).hostname})" if proxy else ""
        again: Again = "slow" if isinstance(error, TimeoutError) else "error"
        raise EndpointError(f"{type(error).__name__}: {error}{through}", again=again) from None


async def _streamed(answer: Any) -> Row:
    stream = EventStream()
    async for data in answer.content.iter_any():
        stream.feed(data)
        if stream.ended:
            break
    return _assembled(stream)


def _assembled(stream: EventStream) -> Row:
    """Raises `EndpointError` for a stream that broke, or that says it failed."""
    stream.close()
    if stream.error is not None:
        found = endpoint_error(stream.error)
        if found.again == "no" and not _known(stream.error):
            found.again = "error"  # it broke in the middle
        raise EndpointError(
            f"the stream failed: {found}", found.status, found.body, found.again, notes=found.notes
        )
    if stream.broken:
        raise EndpointError(stream.broken, again="error")
    return stream.row()


def _whole(status: int, data: bytes, after: float) -> Row:
    """A whole answer's JSON object. Raises `EndpointError` for anything else."""
    text = data.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    try:
        value: Any = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = None
    row = cast("dict[str, Any]", value) if isinstance(value, dict) else None
    if not 200 <= status < 300:
        said = endpoint_error(_error_in(row), status) if row and _error_in(row) else None
        words = str(said) if said else _short(text)
        again = _of_status(status, after)
        if again != "no" and said and _QUOTA.search(words):
            again = "no"
        notes = said.notes if said else {}
        raise EndpointError(f"HTTP {status}: {words}", status, text, again, after, notes)
    if row is not None:
        if error := _error_in(row):
            raise endpoint_error(error, status, text, after)
        return row
    if text.startswith(("data:", "event:", ":")):
        stream = EventStream()
        stream.feed(data)
        return _assembled(stream)
    # a page of a gateway or a wrong address stays what it is; a broken answer may not
    page = text.startswith("<")
    said = f"HTTP {status}, but no JSON object: {_short(text)}"
    raise EndpointError(said, status, text, "no" if page else "error")


def _short(text: str) -> str:
    return " ".join(text[: 4 * _FIRST].split())[:_FIRST]


# --- what failed, in the endpoint's words --------------------------------------------------------

# no patience helps; "exceeded your quota" alone may also be a limit of a minute
_QUOTA = re.compile(r"insufficient.?(quota|funds|credit|balance)", re.IGNORECASE)
_FILTER = re.compile(r"content_?(filter|policy)", re.IGNORECASE)
_BUSY = re.compile(r"overloaded|rate.?limit|too.?many.?requests|at capacity|is busy", re.IGNORECASE)
_PASSING = re.compile(
    r"server.?error|internal|unavailable|time.?out|api_error|bad.?gateway|try again", re.IGNORECASE
)


def _error_in(row: Row) -> Any:
    """The error that an answer holds instead of a message; None without one."""
    if row.get("object") == "error":
        return row
    return row.get("error") or None


def endpoint_error(
    error: Any, status: int = 0, body: str = "", after: float = 0.0
) -> EndpointError:
    """An endpoint's error object as ours, with its words; tried again where its code or its type
    says that the failure passes."""
    row = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    message: Any = row.get("message") or row.get("detail") or row.get("msg") or cast("Any", error)
    said = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
    meta: Any = row.get("metadata")
    raw: Any = cast("dict[str, Any]", meta).get("raw") if isinstance(meta, dict) else None
    names = [str(row[k]) for k in ("code", "type") if row.get(k) not in (None, "")]
    words = _short(f"{said}: {raw}" if raw else said)
    if more := [n for n in names if n not in words]:
        words += f" ({', '.join(more)})"
    again: Again = "busy" if after else _of_names(names, words)
    named = next((int(n) for n in names if n.isdigit() and 400 <= int(n) < 600), status)
    filtered = next((n for n in names if _FILTER.search(n)), "")
    notes = {"no_answer": filtered} if filtered else {}
    return EndpointError(words, named, body or words, again, after, notes)


def _of_names(names: list[str], words: str) -> Again:
    if _QUOTA.search(words):
        return "no"
    for name in names:
        if name.isdigit() and _of_status(int(name), 0.0) != "no":
            return _of_status(int(name), 0.0)
    if _BUSY.search(words):
        return "busy"
    return "error" if any(_PASSING.search(name) for name in names) else "no"


def _known(error: Any) -> bool:
    """Whether an error says what it is."""
    row = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    return bool(row.get("code") or row.get("type"))


def _of_status(status: int, after: float) -> Again:
    if status in BUSY or (after and (status >= 500 or status in _AGAIN)):
        return "busy"
    passes = status in _AGAIN or (500 <= status < 600 and status not in _NEVER)
    return "error" if passes else "no"


def retry_after(value: str | None) -> float:
    """Seconds that a `Retry-After` header asks for, as a number or as a date; 0 without one."""
    if not value:
        return 0.0
    try:
        return max(0.0, min(float(value), 1e6))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0


# --- proxies -------------------------------------------------------------------------------------


def is_this_machine(host: str) -> bool:
    """Whether a host's name or address is this machine."""
    name = host.casefold().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    own = socket.gethostname().casefold()
    if name in (own, own.partition(".")[0]):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def proxy_of(url: str) -> str | None:
    """The proxy that `http_proxy`, `https_proxy` or `all_proxy` names for an address; None for this
    machine and for what `no_proxy` lists (names, their ends, `*`, networks such as 10.0.0.0/8).
    Raises `EndpointError` for a proxy that is not of HTTP."""
    parts = urlsplit(url)
    host, named = parts.hostname or "", urllib.request.getproxies_environment()
    found = named.get(parts.scheme) or named.get("all")
    if not found or is_this_machine(host) or _spared(parts.netloc.rpartition("@")[2], host, named):
        return None
    if "://" not in found:
        found = f"http://{found}"
    if not found.startswith(("http://", "https://")):
        scheme = found.partition("://")[0]
        raise EndpointError(f"the proxy for {host} is of {scheme}; give one of http or https")
    return found


def _spared(netloc: str, host: str, named: dict[str, str]) -> bool:
    if urllib.request.proxy_bypass(netloc):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for one in re.split(r"[\s,]+", named.get("no", "")):
        try:
            if "/" in one and address in ipaddress.ip_network(one, strict=False):
                return True
        except ValueError:
            continue
    return False


# --- a chat answer -------------------------------------------------------------------------------

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
    "server_error|timeout"
)
_REASONING = ("reasoning_content", "reasoning")


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
        raise endpoint_error(choice["error"])
    if not isinstance(choice.get("message"), dict):
        shown = _short(json.dumps(row, ensure_ascii=False, default=str))
        raise EndpointError(f"the answer holds no message: {shown}")
    message = _row(choice["message"])
    text, reasoning = content_and_reasoning(message)
    calls: Any = message.get("tool_calls")
    if not isinstance(calls, list):
        calls = []
    usage = _usage(row.get("usage"))
    given: Any = choice.get("finish_reason")
    if isinstance(given, dict):
        given = _row(given).get("type")
    reason = str(given or "").strip().casefold()
    cut = bool(_CUT.fullmatch(reason))
    if not reason and (text or calls or message.get("function_call")):
        cut = bool(most) and usage.get("completion_tokens", 0) >= most
    elif not _ENDED.fullmatch(reason) and not cut:
        told = f"ended with {given!r}" if reason else "is empty and says not how it ended"
        said = f"no answer of the model: the message {told}"
        if _TRIED_AGAIN.fullmatch(reason) or not reason:
            raise EndpointError(said, again="error")
        raise EndpointError(said, notes={"no_answer": reason})
    return Message(text, reasoning, cast("list[Any]", calls), cut, usage, message, choice)


def content_and_reasoning(message: Row) -> tuple[str, str]:
    """(what an assistant's message says, what the model thought before): content may be a text, a
    list of parts, or null beside a refusal. Raises `EndpointError` for other content."""
    content: Any = message.get("content")
    if isinstance(content, dict):
        content = [content]
    thoughts = [message[name] for name in _REASONING if isinstance(message.get(name), str)]
    thought = "".join(dict.fromkeys(thoughts))  # some endpoints say the same under both names
    if isinstance(content, str):
        return content or _refusal(message), thought
    if content is None:
        return _refusal(message), thought
    if not isinstance(content, list):
        raise EndpointError(f"the answer holds no message: its content is {content!r}"[:_FIRST])
    said: list[str] = []
    refused = ""
    for part in cast("list[Any]", content):
        row = {"type": "text", "text": part} if isinstance(part, str) else _row(part)
        kind = str(row.get("type") or "text")
        if kind in ("thinking", "reasoning"):
            thought += _texts(row.get("thinking") or row.get("reasoning") or row.get("text"))
        elif kind == "refusal":
            refused += _texts(row.get("refusal"))
        elif kind in ("text", "output_text"):
            said.append(_texts(row.get("text")))
    return "".join(said) or refused or _refusal(message), thought


def _texts(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):  # {"value": …} around a text
        row = _row(value)
        return _texts(row.get("text") or row.get("value"))
    if isinstance(value, list):
        return "".join(_texts(inner) for inner in cast("list[Any]", value))
    return ""


def _refusal(message: Row) -> str:
    refusal: Any = message.get("refusal")
    return refusal if isinstance(refusal, str) else ""


def _row(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _usage(counted: Any) -> dict[str, int]:
    """Token counts, with those of cached prompts and of reasoning where the endpoint tells."""
    row = _row(counted)
    found = {k: v for k, v in row.items() if isinstance(v, int) and not isinstance(v, bool)}
    for place, name in (
        ("prompt_tokens_details", "cached_tokens"),
        ("completion_tokens_details", "reasoning_tokens"),
    ):
        value: Any = _row(row.get(place)).get(name)
        if isinstance(value, int) and value:
            found[name] = value
    return found


@dataclass(frozen=True)
class ChatEndpoint:
    """A chat endpoint for code that waits for each answer. `url` ends before `/chat/completions`;
    the key is in the environment variable `key_env`."""

    url: str
    model: str
    key_env: str = "OPENAI_API_KEY"
    timeout_s: float = 60.0
    patience: Patience = Patience(attempts=4, seconds=120.0, longest_s=20.0)

    def ask(self, messages: list[dict[str, str]], **options: Any) -> Message:
        """One answer at temperature 0. Raises `EndpointError`."""
        body = {"model": self.model, "messages": messages, "temperature": 0} | options
        url = self.url.rstrip("/") + "/chat/completions"
        key = os.environ.get(self.key_env, "")
        return post_now(url, body, key, self.timeout_s, self.patience, read_chat)
