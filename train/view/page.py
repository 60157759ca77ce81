"""The page as files: one that carries everything, or a folder whose chunks are loaded when needed.

Data is never markup: the index is JSON with `<` escaped, chunks are base64. The same book gives the
same bytes.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from html import escape
from importlib import resources
from itertools import accumulate
from pathlib import Path
from typing import Any

from assay.files import atomic_write_set, write_text
from train.view.book import Book

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
