"""A chat endpoint in a process of its own that answers, or breaks in the way it is told to."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from typing import Any

from benchmarks.faults import launch
from benchmarks.faults.commands import said

WAYS = ("429", "500", "garbage", "half", "hangs up", "no JSON", "401", "never")


class _Quiet(ThreadingHTTPServer):
    """A client that is killed is what is asked for here; its connection needs no traceback."""

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@dataclass
class Endpoint:
    """`url` ends in /v1. `way` is how it breaks ("" not at all) from request `after` on; it goes
    on so for `times` requests."""

    url: str
    _state: Any

    def breaks(self, way: str, after: int = 2, times: int = 10**6) -> None:
        self._state[:] = [WAYS.index(way) + 1 if way else 0, after, times, 0]


def serve() -> Endpoint:
    """Start one. It ends with this process."""
    context = get_context("fork")
    state = context.Array("l", [0, 0, 0, 0])
    here, there = context.Pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _serve(state, there)
    launch.KEPT.add(pid)
    return Endpoint(f"http://127.0.0.1:{here.recv()}/v1", state)


def _serve(state: Any, told: Any) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with state.get_lock():
                way, after, times, _ = state[:]
                state[3] += 1
                now = state[3]
            broken = way and after < now <= after + times
            self._break(WAYS[way - 1]) if broken else self._answer(200, _reply(body))

        def _break(self, way: str) -> None:
            if way == "never":
                time.sleep(3600)
            elif way.isdigit():
                self._answer(int(way), b'{"error": {"message": "no"}}')
            elif way == "garbage":
                self._answer(200, bytes(range(256)))
            elif way == "no JSON":
                self._answer(200, b'{"choices": [{"mess": null}]}')
            elif way == "half":
                self._answer(200, _reply({"messages": [{"content": "<1>"}]})[:40], 400)
            self.close_connection = True

        def _answer(self, status: int, data: bytes, length: int = 0) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(length or len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = _Quiet(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    told.send(server.server_port)
    server.serve_forever()
    os._exit(0)


def _reply(body: Any) -> bytes:
    number = re.search(r"<(\d+)>", body["messages"][-1]["content"])
    text = said(int(number[1]) if number else 0)
    return json.dumps(
        {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
    ).encode()
