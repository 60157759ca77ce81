"""The server follows a run that goes on, and answers nobody else."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_run import line, make_run, refinement
from view_pages import index_of, unpacked

from assay.task import json_line
from train.view import serve
from train.view.book import open_runs
from train.view.serve import Followed, Server


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(serve, "_PAUSE", 0.0)
    make_run(tmp_path / "run", steps=1)
    made = Server(Followed(open_runs([tmp_path / "run"]), "live"))
    thread = threading.Thread(target=made.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def get(server: Server, path: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=20)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_the_page_the_index_and_the_chunks(server: Server) -> None:
    status, page = get(server, "/")
    index = index_of(page)
    assert (status, index["version"], index["live"]) == (200, 1, True)
    assert "connect-src 'self'" in page
    assert get(server, "/index.json?version=1")[0] == 204
    status, text = get(server, "/chunk/1/body/0")
    assert status == 200 and len(unpacked(text)) == 16
    assert get(server, "/chunk/1/body/9")[0] == 409
    assert get(server, "/chunk/x/body/0")[0] == 409
    assert get(server, "/etc/passwd")[0] == 404


def test_what_is_appended_is_seen_and_old_chunks_are_refused(
    server: Server, tmp_path: Path
) -> None:
    rows = [line(refinement(0), j, "x") for j in range(2)]
    path = tmp_path / "run" / "rollouts" / "step_000002.jsonl"
    path.write_bytes(json_line(rows[0]) + json_line(rows[1])[:30])
    status, text = get(server, "/index.json?version=1")
    assert status == 200 and len(json.loads(text)["rows"]["task"]) == 17
    assert get(server, "/chunk/1/body/0")[0] == 409
    path.write_bytes(json_line(rows[0]) + json_line(rows[1]))
    assert len(json.loads(get(server, "/index.json?version=2")[1])["rows"]["task"]) == 18


def test_a_line_that_cannot_be_read_is_said_until_it_is_mended(
    server: Server, tmp_path: Path
) -> None:
    path = tmp_path / "run" / "rollouts" / "step_000002.jsonl"
    path.write_bytes(b"nonsense\n")
    for _ in range(2):
        status, said = get(server, "/index.json?version=1")
        assert status == 500 and said.endswith(
            "step_000002.jsonl line 1: not valid JSON (Expecting value)"
        )
    path.write_bytes(json_line(line(refinement(0), 0, "x")))
    assert get(server, "/index.json?version=1")[0] == 200


def test_another_name_for_this_machine_is_refused(server: Server) -> None:
    """A page of somebody else's whose name was pointed at 127.0.0.1 must not read rollouts."""
    assert get(server, "/", host="evil.example:80")[0] == 403
    assert get(server, "/", host=f"localhost:{server.server_address[1]}")[0] == 200
