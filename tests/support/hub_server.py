"""A stand-in of the hub: data sets as folders, over the part of its HTTP that the client uses to
list a revision and to download files. `environment(url, home)` points a child process at it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlparse

from chat_server import Quiet, listening

SHA = "0123456789abcdef0123456789abcdef01234567"  # of the one revision, `main` or `v1`


@contextmanager
def hub_server(data_sets: Mapping[str, Path]) -> Generator[tuple[str, list[str]]]:
    """(URL, the paths of the files that were fetched) of a hub with these data sets by name."""
    fetched: list[str] = []

    class Handler(Quiet):
        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def _answer(self, body: bool) -> None:
            parts = [unquote(p) for p in urlparse(self.path).path.strip("/").split("/")]
            if parts[:2] == ["api", "datasets"]:
                return self._listing("/".join(parts[2:4]), parts[4:])
            file = data_sets["/".join(parts[1:3])] / "/".join(parts[5:])
            if parts[4] != SHA or not file.is_file():
                return self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            if body:
                fetched.append("/".join(parts[5:]))
            self._send(200, file.read_bytes(), {"ETag": f'"{_digest(file)}"', "X-Repo-Commit": SHA})

        def _listing(self, name: str, rest: list[str]) -> None:
            if (home := data_sets.get(name)) is None:
                return self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            if rest[1:] and rest[1] not in ("main", "v1", SHA):
                return self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            files = {p.relative_to(home).as_posix(): p for p in sorted(home.rglob("*"))}
            files = {n: p for n, p in files.items() if p.is_file()}
            found: object = {"id": name, "sha": SHA, "siblings": [{"rfilename": n} for n in files]}
            if rest and rest[0] == "tree":
                sizes = {n: {"size": p.stat().st_size, "oid": _digest(p)} for n, p in files.items()}
                found = [{"type": "file", "path": n, **more} for n, more in sizes.items()]
            self._send(200, json.dumps(found).encode(), {})

        def _send(self, status: int, data: bytes, marks: Mapping[str, str]) -> None:
            self.send_response(status)
            more = {"Content-Length": str(len(data)), "Content-Type": "application/json"}
            for mark, value in (more | dict(marks)).items():
                self.send_header(mark, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    with listening(Handler) as url:
        yield url, fetched


def _digest(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()


def environment(url: str, home: Path) -> dict[str, str]:
    """Of a child process whose hub is `url` and whose cache is below `home`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    return {**kept, "HF_ENDPOINT": url, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}
