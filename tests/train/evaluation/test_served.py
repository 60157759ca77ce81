"""`assay eval` through a server gives the answers that the embedded engine gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from front import command as front

pytest.importorskip("torch")
pytest.importorskip("aiohttp")

from assay.task import Task, write_jsonl

main = front("eval")


def test_answers_through_a_server_are_those_of_the_engine(
    tiny_folder: Path, tmp_path: Path
) -> None:
    gold = {"input_text": "a  b", "status": "KEEP", "text": "a b", "recipe": []}
    chats = ([{"role": "user", "content": f"tidy {i}"}] for i in range(3))
    tasks = [
        Task(f"t{i}", "refinement", "x", "heldout", chat, gold=gold) for i, chat in enumerate(chats)
    ]
    write_jsonl(tmp_path / "tasks.jsonl", [task.to_json() for task in tasks])
    words = ["--tasks", str(tmp_path / "tasks.jsonl"), "--model", str(tiny_folder)]
    words += ["--no-baselines", "sampling.max_new_tokens=8"]

    def answers(out: Path, *more: str) -> list[tuple[str, str]]:
        assert main([*words, "--out", str(out), *more]) == 0
        rows = map(json.loads, (out / "rows.jsonl").read_text().splitlines())
        return sorted((row["task_id"], row["output"]) for row in rows)

    served = answers(
        tmp_path / "served",
        "server.kind=assay",
        "server.args=engine.dtype=float32 engine.threads=1",
    )
    assert served == answers(tmp_path / "here", "engine.dtype=float32", "engine.threads=1")
    (about,) = json.loads((tmp_path / "served" / "results.json").read_text())["meta"]["answered_by"]
    assert about["engine"] == "assay"
    assert list((tmp_path / "served" / "servers").glob("server-0.log"))
