"""Tables from Kaggle, against a small server of its API on this machine."""

from __future__ import annotations

import io
import json
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas")

from data_gen.dare import kaggle
from data_gen.dare.sources import sources
from rewards.task import TaskError

HOUSES = {
    "ref": "ann/houses",
    "title": "Houses",
    "subtitle": "Prices",
    "usabilityRating": 1.0,
    "description": "size: floor area in square metres",
    "licenseName": "CC0: Public Domain",
    "lastUpdated": "2025-01-02T03:04:05Z",
}
CLOSED = HOUSES | {"ref": "bob/secret", "licenseName": "Unknown"}


def archive() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("../../outside.csv", "size,price\n1,2\n")
        packed.writestr("deep/houses.csv", "size,price\n1,2\n3,4\n")
        packed.writestr("deep/more/houses.csv", "a\n1\n")  # the same bare name again
        packed.writestr("run.py", "raise SystemExit")
        packed.writestr("large.csv", b"0" * 3_000_000)
    return out.getvalue()


class Site(BaseHTTPRequestHandler):
    """The API, its file store on another host, and what they saw."""

    seen: list[tuple[str, str | None]] = []  # noqa: RUF012
    busy = 1
    store = ""

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        Site.seen.append((self.path, self.headers["Authorization"]))
        if path == "/stored.zip":
            return self._say(200, archive())
        if self.headers["Authorization"] != "Basic YW5uOmtleQ==":  # ann:key
            return self._say(401, b"")
        if Site.busy:
            Site.busy -= 1
            return self._say(429, b"", **{"Retry-After": "0"})
        if path == "/datasets/list":
            rows = [CLOSED, HOUSES] if "page=1" in self.path else []
            return self._say(200, json.dumps(rows).encode())
        if path == "/datasets/view/ann/houses":
            return self._say(200, json.dumps(HOUSES).encode())
        if path == "/datasets/download/ann/houses":
            return self._say(302, b"", Location=f"{Site.store}/stored.zip")
        return self._say(404, b"")

    def _say(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    servers = [ThreadingHTTPServer((host, 0), Site) for host in ("127.0.0.1", "127.0.0.1")]
    for server in servers:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
    api, store = (f"http://127.0.0.1:{server.server_port}" for server in servers)
    Site.seen, Site.busy, Site.store = [], 1, store
    for name, value in {
        "ASSAY_KAGGLE_URL": api,
        "ASSAY_CACHE": str(tmp_path / "cache"),
        "KAGGLE_USERNAME": "ann",
        "KAGGLE_KEY": "key",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("KAGGLE_API_TOKEN", raising=False)
    monkeypatch.setattr(kaggle, "MAX_TABLE", 1_000_000)
    yield api
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("wanted", ["ann/houses", "house prices"])
def test_a_data_set_becomes_tables_with_its_licence(site: str, tmp_path: Path, wanted: str) -> None:
    found = list(sources([f"kaggle:{wanted}"]))
    assert [s.name for s in found] == ["ann_houses-houses", "ann_houses-outside"]
    first = found[0]
    assert (first.licence, first.usability, first.updated) == (
        "CC0: Public Domain",
        1.0,
        "2025-01-02T03:04:05Z",
    )
    assert first.load().to_dict("list") == {"size": [1, 3], "price": [2, 4]}
    assert first.columns == {"size": "floor area in square metres"}
    kept = {p.name for p in (tmp_path / "cache" / "kaggle" / "ann__houses").iterdir()}
    assert kept == {"houses.csv", "outside.csv"} and not (tmp_path / "outside.csv").exists()
    tokens = dict(Site.seen)
    assert tokens["/stored.zip"] is None  # the token does not follow to the file store
    asked = len(Site.seen)
    assert len(list(sources([f"kaggle:{wanted}"]))) == 2 and len(Site.seen) == asked  # cached


def test_what_kaggle_refuses_is_said(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TaskError, match="404, there is no such data set"):
        list(sources(["kaggle:ann/nothing"]))
    monkeypatch.setenv("KAGGLE_KEY", "old")
    with pytest.raises(TaskError, match="401, the token is refused"):
        list(sources(["kaggle:ann/houses"]))


def test_a_token_is_found_or_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY", "KAGGLE_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KAGGLE_CONFIG_DIR", str(tmp_path))
    with pytest.raises(TaskError, match="needs a token"):
        kaggle.token()
    (tmp_path / "kaggle.json").write_text('{"username": "ann", "key": "key"}')
    assert kaggle.token() == "Basic YW5uOmtleQ=="
    monkeypatch.setenv("KAGGLE_API_TOKEN", "abc")
    assert kaggle.token() == "Bearer abc"
