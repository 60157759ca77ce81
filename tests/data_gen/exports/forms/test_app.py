"""The exported resource server of NeMo Gym: `verify` over HTTP, by the real base classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from travelling import FIGS, adapter, demo_tasks, exported, own_tasks, texts, tool_tasks

pytest.importorskip("nemo_gym", reason="nemo-gym is not installed; `make test-interop`")

from fastapi.testclient import TestClient
from nemo_gym.server_utils import ServerClient

from rewards.adapters import load, score_text


def server(folder: Path) -> Any:
    """The exported server, made as Gym's own tests make one."""
    from unittest.mock import MagicMock  # the client to other servers, which none is asked for

    module = adapter(folder, "app")
    config = module.AssayConfig(host="127.0.0.1", port=1, entrypoint="app.py", name="assay")
    return module.AssayServer(config=config, server_client=MagicMock(spec=ServerClient))


def request(row: dict[str, Any], text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed"}
    response = {
        "id": "r",
        "created_at": 0,
        "model": "m",
        "object": "response",
        "output": [{**message, "content": [part]}],
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "tools": [],
    }
    return {**row, "response": response}


@pytest.mark.parametrize("family", ["demo", "own"])
def test_verify_answers_with_the_reward_of_assay(tmp_path: Path, family: str) -> None:
    folder = exported("gym", tmp_path, demo_tasks(12) if family == "demo" else own_tasks(12))
    words = load(folder)
    rows = [json.loads(line) for line in (folder / "gym.jsonl").read_text().splitlines()]
    client = TestClient(server(folder).setup_webserver())
    for i, (w, row) in enumerate(zip(words, rows, strict=True)):
        for text in texts(w.task, words[i - 1].task):
            answer = client.post("/verify", json=request(row, text))
            assert answer.status_code == 200, answer.text
            ours = score_text(w.task, text)
            assert (answer.json()["reward"], answer.json()["outcome"]) == (
                ours.reward,
                ours.outcome,
            )


def test_tools_are_called_in_the_session_of_an_episode(tmp_path: Path) -> None:
    folder = exported("gym", tmp_path, tool_tasks(4))
    rows = [json.loads(line) for line in (folder / "gym.jsonl").read_text().splitlines()]
    app = server(folder).setup_webserver()
    for row in rows:
        assert [t["name"] for t in row["responses_create_params"]["tools"]] == ["tables", "query"]
        client = TestClient(app)  # its cookies are the session
        assert client.post("/query", json=FIGS).status_code == 404
        assert client.post("/seed_session", json=row).status_code == 200
        assert "there is no tool 'drop'" in client.post("/drop", json={}).text
        assert client.post("/query", json={}).text == "error: argument 'sql' is missing"
        found = client.post("/query", json=FIGS).text.strip("[]")
        answer = client.post("/verify", json=request(row, found))
        assert answer.status_code == 200, answer.text
        assert answer.json()["reward"] == 1.0
