"""Pages of `assay view` and `assay report`, read without a browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from typing import Any


class Elements(HTMLParser):
    """Every start tag with its attributes, as a browser's parser meets them; all are closed in
    order."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def elements(page: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(page)
    assert parser.open == []
    return parser.found


def index_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="index">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def unpacked(text: str) -> list[Any]:
    return json.loads(gzip.decompress(base64.b64decode(text)))


def items_of(page: str, kind: str) -> list[Any]:
    """All bodies of a kind, in order."""
    chunks = re.findall(rf'<script type="text/plain" id="{kind}-\d+">(.*?)</script>', page)
    return [item for chunk in chunks for item in unpacked(chunk)]
