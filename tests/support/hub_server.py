"""A stand-in of the hub: data sets as folders, over the part of its HTTP that the client uses to
list a revision and to download files. `environment(url, home)` points a child process at it."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlparse

SHA = "0123456789abcdef0123456789abcdef01234567"  # of the one revision, `main` or `v1`


@contextmanager
def hub_server(data_sets: Mapping[str, Path]) -> Generator[tuple[str, list[str]]]:
    """(URL, the paths of the files that were fetched) of a hub with these data sets by name."""
    fetched: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def log_message(self, format: str, *args: object) -> None:
            del format, args

        def _answer(self, body: bool) -> None:
            parts = [unquote(p) for p in urlparse(self.path).path.strip("/").split("/")]
            if parts[:2] == ["api", "datasets"]:
                self._listing("/".join(parts[2:4]), parts[4:])
            else:
                self._file("/".join(parts[1:3]), parts[4], "/".join(parts[5:]), body)

        def _listing(self, name: str, rest: list[str]) -> None:
            home = data_sets.get(name)
            if home is None:
                return self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            if rest[1:] and rest[1] not in ("main", "v1", SHA):
                return self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            files = sorted(p for p in home.rglob("*") if p.is_file())
            names = [p.relative_to(home).as_posix() for p in files]
            if rest and rest[0] == "tree":
                listed = [
                    {"type": "file", "path": n, "size": p.stat().st_size, "oid": _digest(p)}
                    for n, p in zip(names, files, strict=True)
                ]
                return self._send(200, json.dumps(listed).encode())
            info = {"id": name, "sha": SHA, "siblings": [{"rfilename": n} for n in names]}
            return self._send(200, json.dumps(info).encode())

        def _file(self, name: str, revision: str, path: str, body: bool) -> None:
            file = data_sets[name] / path
            if revision != SHA or not file.is_file():
                return self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            if body:
                fetched.append(path)
            data = file.read_bytes()
            marks = {"ETag": f'"{_digest(file)}"', "X-Repo-Commit": SHA}
            return self._send(200, data, marks, body)

        def _send(
            self,
            status: int,
            data: bytes,
            marks: Mapping[str, str] | None = None,
            body: bool = True,
        ) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Content-Type", "application/json")
            for mark, value in (marks or {}).items():
                self.send_header(mark, value)
            self.end_headers()
            if body and self.command != "HEAD":
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", fetched
    finally:
        server.shutdown()
        server.server_close()


def _digest(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()


def environment(url: str, home: Path) -> dict[str, str]:
    """Of a child process whose hub is `url` and whose cache is below `home`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    return {**kept, "HF_ENDPOINT": url, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}
