"""The page as files: one that carries everything, or a folder whose chunks are loaded when needed;
or from a server on this machine, which follows runs that go on.

Data is never markup: the index is JSON with `<` escaped, chunks are base64. The same book gives the
same bytes.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from assay.files import atomic_write_set, write_text
from assay.task import TaskError
from train.view.book import Book, Run, bind

CHUNK = 150_000  # characters of JSON in a chunk, or one item that is longer
MOST = 128  # items in a chunk
# in the order in which they build on one another
SCRIPTS = (
    "model",
    "address",
    "store",
    "dom",
    "chart",
    "list",
    "tokens",
    "diff",
    "talk",
    "detail",
    "compare",
    "filters",
    "app",
)


@lru_cache(maxsize=1)
def assets() -> tuple[str, str]:
    """(style, script) of the page."""
    folder = resources.files("train.view") / "assets"
    style = (folder / "view.css").read_text(encoding="utf-8")
    parts = [(folder / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    return style, '"use strict";\n(() => {\n' + "\n".join(parts) + "\n})();\n"


def chunked(items: Sequence[str]) -> list[list[str]]:
    """The items in chunks."""
    found: list[list[str]] = []
    size = 0
    for item in items:
        if not found or len(found[-1]) == MOST or size + len(item) > CHUNK:
            found.append([])
            size = 0
        found[-1].append(item)
        size += len(item)
    return found


def packed(items: Sequence[str]) -> str:
    """A JSON list of items that are JSON already, compressed, as base64."""
    raw = ("[" + ",".join(items) + "]").encode("ascii")
    return base64.b64encode(gzip.compress(raw, compresslevel=6, mtime=0)).decode("ascii")


class Chunks:
    """The three kinds of bodies in chunks; packed when they are asked for."""

    def __init__(self, book: Book) -> None:
        self.of = {
            "body": chunked([r.body for r in book.rollouts]),
            "token": chunked([r.tokens for r in book.rollouts]),
            "task": chunked(book.bodies),
        }
        # where each begins
        self.starts = {
            kind: [*accumulate(map(len, chunks[:-1]), initial=0)] if chunks else []
            for kind, chunks in self.of.items()
        }

    def all(self) -> Iterator[tuple[str, int, str]]:
        """Kind, number and data of each."""
        for kind, chunks in self.of.items():
            for number, items in enumerate(chunks):
                yield kind, number, packed(items)


def index_text(book: Book, chunks: Chunks, **more: Any) -> str:
    """The index as JSON that can stand inside a script element."""
    index = {**book.index, "starts": chunks.starts, **more}
    text = json.dumps(index, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def shell(title: str, index: str, chunks: Iterator[str], where: str) -> Iterator[str]:
    """The page in pieces. `where`: how chunks are had (`inline`, `files`, `server`)."""
    style, script = assets()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    files = " 'self' file:" if where == "files" else ""
    connect = "'self'" if where == "server" else "'none'"
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'{files}; style-src 'unsafe-inline'; "
        f"img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f'<body data-chunks="{where}"><noscript>This page needs JavaScript.</noscript>'
        f'<script type="application/json" id="index">{index}</script><script>{script}</script>'
    )
    yield from chunks
    yield "</body></html>\n"


def whole_page(book: Book) -> str:
    """One file that carries everything."""
    chunks = Chunks(book)
    inline = (
        f'<script type="text/plain" id="{kind}-{number}">{data}</script>\n'
        for kind, number, data in chunks.all()
    )
    title = str(book.index["title"])
    return "".join(shell(title, index_text(book, chunks), inline, "inline"))


def write_page(book: Book, out: Path) -> Path:
    """Write one file (a name that ends in .html), or a folder with `index.html` and its chunks;
    returns the page's path. Both appear when they are whole."""
    if out.suffix.lower() in (".html", ".htm"):
        write_text(out, whole_page(book))
        return out
    chunks = Chunks(book)
    stale = [f"chunks/{p.name}" for p in (out / "chunks").glob("*.js")]
    with atomic_write_set(out, stale) as folder:
        (folder / "chunks").mkdir()
        for kind, number, data in chunks.all():
            text = f'assayChunk("{kind}",{number},"{data}");\n'
            (folder / "chunks" / f"{kind}-{number}.js").write_text(text, encoding="ascii")
        title = str(book.index["title"])
        page = "".join(shell(title, index_text(book, chunks), iter(()), "files"))
        (folder / "index.html").write_text(page, encoding="utf-8")
    return out / "index.html"


# --- served while a run goes on

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
