"""A streamed chat answer (server-sent events) put together into the whole one it stands for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, cast

Row = dict[str, Any]
_LINE_END = re.compile(rb"\r?\n|\r(?=[^\n])")
# texts that come whole: an endpoint may say them with every piece
_WHOLE = frozenset({"role", "type", "id", "name", "format"})


class EventStream:
    """Feed it the bytes, cut anywhere; then `close`, and ask for the `row`.

    `ended`: the endpoint said that this is all. `error`: what it said instead of going on.
    `broken`: why there is no answer: the stream stopped before its end, or is no JSON.
    """

    def __init__(self) -> None:
        self._tail, self._data, self._event = b"", "", ""
        self._whole: Row = {}
        self._choice: Row = {}
        self._message: Row = {}
        self.ended, self.broken = False, ""
        self.error: Any = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes; what comes after the end is left alone."""
        lines = _LINE_END.split(self._tail + data)
        self._tail = lines.pop()
        for line in lines:
            self._line(line)

    def close(self) -> None:
        """No more bytes come."""
        tail, self._tail = self._tail, b""
        for line in (tail.removesuffix(b"\r"), b""):
            self._line(line)
        if self.error is None and not self.ended and not self._choice.get("finish_reason"):
            self.broken = self.broken or "the stream broke off before its end"

    def row(self) -> Row:
        """The answer as it would have come whole."""
        message = dict(self._message)
        if isinstance(message.get("tool_calls"), list):
            calls: list[Row] = message["tool_calls"]
            message["tool_calls"] = [{k: v for k, v in c.items() if k != "index"} for c in calls]
        choices = [self._choice | {"message": message}] if self._choice or message else []
        return self._whole | {"choices": choices}

    def _line(self, line: bytes) -> None:
        if self.ended or self.broken or self.error is not None:
            return
        text = line.decode("utf-8", "replace").removeprefix("\ufeff")
        if not text:
            if self._data:
                self.broken = f"the stream holds no JSON: {self._data[:80]!r}"
            self._data = self._event = ""
        elif text.startswith("event:"):
            self._event = text[6:].strip()
        elif text.startswith("data:"):
            self._take(text[5:].removeprefix(" "))
        elif text.startswith("{"):  # an error that a gateway wrote into the stream
            self._take(text)

    def _take(self, text: str) -> None:
        if not self._data and text.strip() == "[DONE]":
            self.ended = True
            return
        self._data = f"{self._data}\n{text}" if self._data else text
        try:
            value: Any = json.loads(self._data)
        except (ValueError, RecursionError):
            return  # the rest is in the next line
        self._data = ""
        if not isinstance(value, dict):
            return
        row = cast("Row", value)
        if row.get("error") or self._event == "error" or row.get("object") == "error":
            self.error = row.get("error") or row
            return
        self._whole |= {k: v for k, v in row.items() if k != "choices" and v is not None}
        listed: Any = row.get("choices")
        for choice in cast("list[Any]", listed) if isinstance(listed, list) else []:
            if isinstance(choice, dict) and not cast("Row", choice).get("index"):
                self._add(cast("Row", choice))

    def _add(self, choice: Row) -> None:
        if choice.get("error"):
            self.error = choice["error"]
            return
        delta: Any = choice.get("delta")
        if not isinstance(delta, dict):
            # one that says the whole message at its end has said its pieces before
            delta = choice.get("message") if not self._message else None
        if isinstance(delta, dict):
            merge(self._message, cast("Row", delta))
        for key, value in choice.items():
            if key == "logprobs" and isinstance(value, dict):
                merge(self._choice.setdefault(key, {}), cast("Row", value))
            elif key not in ("delta", "message"):
                self._choice[key] = self._choice.get(key) if value is None else value


def merge(into: Row, delta: Mapping[str, Any]) -> None:
    """Add one piece of a message to what came before: texts and lists grow, objects grow inside,
    the pieces of a call find their call."""
    for key, value in delta.items():
        old = into.get(key)
        if value is None:
            into.setdefault(key, None)
        elif key == "tool_calls" and isinstance(value, list):
            calls = cast("list[Row]", old) if isinstance(old, list) else []
            into[key] = calls
            for call in cast("list[Any]", value):
                if isinstance(call, dict):
                    _merge_call(calls, cast("Row", call))
        elif old is None or old == "":
            into[key] = deepcopy(value)
        elif key in _WHOLE and isinstance(old, str) and isinstance(value, str):
            into[key] = old if value in (old, "") or key != "name" else old + value
        else:
            into[key] = _grown(old, value)


def _grown(old: Any, new: Any) -> Any:
    if isinstance(old, str) and isinstance(new, str):
        return old + new
    if isinstance(old, dict) and isinstance(new, dict):
        merge(cast("Row", old), cast("Row", new))
        return cast("Row", old)
    if isinstance(old, list) or isinstance(new, list):
        return _joined(_listed(old), _listed(new))
    return new


def _listed(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    return [{"type": "text", "text": value}] if value not in (None, "") else []


def _joined(old: list[Any], new: list[Any]) -> list[Any]:
    """Both lists; a part that goes on with an earlier one is put to it: that of the same `index`,
    or without one the last, if it is of the same type."""
    for item in new:
        place = _place(old, item)
        if place is None:
            old.append(deepcopy(item))
        else:
            merge(old[place], item)
    return old


def _place(old: list[Any], item: Any) -> int | None:
    if not isinstance(item, dict):
        return None
    new = cast("Row", item)
    if "index" in new:
        for at, each in enumerate(old):
            other: Row = cast("Row", each) if isinstance(each, dict) else {}
            if (other.get("index"), other.get("type")) == (new["index"], new.get("type")):
                return at
        return None
    last: Row = cast("Row", old[-1]) if old and isinstance(old[-1], dict) else {}
    same = "type" in new and new.keys() == last.keys() and new["type"] == last["type"]
    return len(old) - 1 if same and new["type"] in ("text", "thinking", "refusal") else None


def _merge_call(calls: list[Row], piece: Row) -> None:
    """By its id where a piece has one, else by its index, else to the last call. An index that
    comes again with another id is another call: some endpoints say 0 for all."""
    name, index = piece.get("id") or "", piece.get("index")
    if name:
        found = [c for c in calls if c.get("id") == name]
        found = found or [c for c in calls if not c.get("id") and c.get("index") == index]
    else:
        found = [c for c in calls if index is None or c.get("index") == index]
    if not found:
        calls.append(deepcopy(piece))
        return
    merge(found[-1], {k: v for k, v in piece.items() if k != "index"})
