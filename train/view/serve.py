"""The page from a server on this machine, which follows runs that go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from assay.task import TaskError
from train.view.book import Run, bind
from train.view.page import Chunks, index_text, packed, shell

HOST = "127.0.0.1"
_PAUSE = 1.0  # seconds between two looks at the files


class Followed:
    """The newest book of some runs. Requests come in several threads."""

    def __init__(self, runs: Sequence[Run], title: str) -> None:
        """Reads the runs. Raises `TaskError`."""
        self._runs, self._title = runs, title
        self._lock = threading.Lock()
        self._looked = 0.0
        self.version = 0
        self.look()

    def look(self) -> None:
        """Read what was appended. Raises `TaskError` for a file that cannot be read."""
        with self._lock:
            if self.version and time.monotonic() - self._looked < _PAUSE:
                return
            changed = [run.refresh() for run in self._runs]
            self._looked = time.monotonic()
            if not any(changed) and self.version:
                return
            book = bind(self._runs, self._title, live=True)
            self.chunks = Chunks(book)
            self.version += 1
            self.index = index_text(book, self.chunks, version=self.version)

    def page(self) -> str:
        return "".join(shell(self._title, self.index, iter(()), "server"))

    def chunk(self, version: int, kind: str, number: int) -> str | None:
        """A chunk of the newest book; None for another book's, or one that there is not."""
        with self._lock:
            chunks = self.chunks.of.get(kind, ())
            there = version == self.version and number < len(chunks)
            return packed(chunks[number]) if there else None


class Server(ThreadingHTTPServer):
    """Serves one `Followed` on 127.0.0.1. Port 0: any free one."""

    daemon_threads = True

    def __init__(self, followed: Followed, port: int = 0) -> None:
        self.followed = followed
        super().__init__((HOST, port), Handler)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    """`/`, `/index.json?version=N` (204: nothing newer) and `/chunk/VERSION/KIND/NUMBER`."""

    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:  # the library's name
        host = self.headers.get("Host", "").rpartition(":")[0]
        if host not in (HOST, "localhost"):  # a name that somebody else has pointed at us
            self._send(HTTPStatus.FORBIDDEN, "text/plain", "give the address that was printed\n")
            return
        address = urlsplit(self.path)
        parts = address.path.strip("/").split("/")
        if parts == [""]:
            self._send(HTTPStatus.OK, "text/html", self.server.followed.page())
        elif parts == ["index.json"]:
            self._index(parse_qs(address.query).get("version", [""])[0])
        elif parts[0] == "chunk" and len(parts) == 4:
            self._chunk(parts)
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "there is no such page\n")

    def _index(self, known: str) -> None:
        followed = self.server.followed
        try:
            followed.look()
        except (TaskError, OSError) as error:
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", str(error))
            return
        if known == str(followed.version):
            self._send(HTTPStatus.NO_CONTENT, "text/plain", "")
        else:
            self._send(HTTPStatus.OK, "application/json", followed.index)

    def _chunk(self, parts: Sequence[str]) -> None:
        _, version, kind, number = parts
        numbers = version.isdecimal() and number.isdecimal()
        data = self.server.followed.chunk(int(version), kind, int(number)) if numbers else None
        if data is None:
            self._send(HTTPStatus.CONFLICT, "text/plain", "the run has gone on; look again\n")
        else:
            self._send(HTTPStatus.OK, "text/plain", data)

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: the page asks every other second."""
