"""A real HTTP server that speaks the chat-completions protocol, for tests of what asks one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Body = dict[str, Any]


@dataclass(frozen=True)
class Raw:
    """An answer as bytes, written piece by piece until the connection ends."""

    pieces: Sequence[bytes]
    kind: str = "text/event-stream"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def listening(handler: type[Quiet]) -> Iterator[str]:
    """The URL of a server whose requests are answered by `handler`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def serving(reply: Callable[[Body], str | int | Body | Raw]) -> Iterator[tuple[str, list[Body]]]:
    """(URL up to /v1, requests seen). `reply` gives the message, the whole response, an HTTP status
    to fail with, or an answer in bytes."""
    seen: list[Body] = []

    class Handler(Quiet):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append(body | {"key": self.headers.get("Authorization"), "path": self.path})
            said = reply(body)
            if isinstance(said, Raw):
                self.send_response(said.status)
                about = {"Content-Type": said.kind, "Connection": "close", **said.headers}
                for name, value in about.items():
                    self.send_header(name, value)
                self.end_headers()
                for piece in said.pieces:
                    self.wfile.write(piece)
                    self.wfile.flush()
                self.close_connection = True
                return
            whole = {"choices": [{"message": {"content": said}, "finish_reason": "stop"}]}
            failed = {"error": {"message": "no"}} if isinstance(said, int) else whole
            text = json.dumps(said if isinstance(said, dict) else failed).encode()
            self.send_response(said if isinstance(said, int) else 200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    with listening(Handler) as url:
        yield f"{url}/v1", seen
