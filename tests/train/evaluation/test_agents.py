"""`assay eval krama.agent=NAME`: agents of other projects, on lakes, tables, folders, endpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chat_server import Body, serving
from front import command
from krama_checkout import make_checkout
from lake_cache import own_cache as own_cache

from assay.task import Task, TaskError, write_jsonl
from rollouts.environments import EnvironmentFactory

pytest.importorskip("aiohttp")
evaluate = command("eval")
SAVE = """```python
import os
if os.path.exists("data.csv"):
    open("prediction.csv", "w").write(open("data.csv").read())
```
"""


def table(folder: Path) -> Path:
    """One table task, whose prediction is the file that it is given."""
    rows = "id,y\n" + "".join(f"{i},{i % 2}\n" for i in range(6))
    (folder / "data.csv").write_text(rows, encoding="utf-8")
    (folder / "truth.csv").write_text(rows, encoding="utf-8")
    gold = {"task_type": "class-IF", "truth_csv": rows, "targets": ["y"], "key_columns": ["id"]}
    asked = [{"role": "user", "content": "Copy data.csv to prediction.csv."}]
    files = {"data.csv": "data.csv"}
    task = Task(
        "t", "table", "class-IF", "heldout", asked, gold, tools=("python_executor",), files=files
    )
    write_jsonl(folder / "tasks.jsonl", [task.to_json()])
    return folder / "tasks.jsonl"


def rows_of(out: Path) -> list[dict[str, Any]]:
    return json.loads((out / "results.json").read_text("utf-8"))["rows"]


def test_an_endpoint_acts_as_the_agent_on_lakes_and_tables(tmp_path: Path) -> None:
    def reply(body: Body) -> Body:
        asked = str(body["messages"][-1]["content"])
        said = SAVE + "```python\nprint(41 + 1)\n```"
        if "Stage: execution" in asked:
            said = "<end_step>"
        elif "Stage: planning" in asked:
            said = "<think>not <next_step></think><fulfilled> <answer>1.5</answer>"
        message = {"role": "assistant", "content": said}
        usage = {"prompt_tokens": 100, "completion_tokens": 20}
        return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}

    place = make_checkout(tmp_path / "release")
    with serving(reply) as (url, asked):
        words = ["--model", url, "server.model=m", "krama.agent=datawise", "--no-baselines"]
        lake = ["--tasks", f"krama:{place}", "krama.settings=end-to-end", "krama.doubted=false"]
        assert evaluate([*lake, *words, "--out", str(tmp_path / "k")]) == 0
        tasks = ["--tasks", f"dare:{table(tmp_path)}"]
        assert evaluate([*tasks, *words, "--out", str(tmp_path / "d")]) == 0
    found = rows_of(tmp_path / "k")
    outcomes = {r["task_id"]: r["outcome"] for r in found}
    assert outcomes == {"environment-easy-1": 0.0, "legal-easy-3": 1.0}
    assert {(r["turns"], r["tokens_in"], r["tokens_out"]) for r in found} == {(3, 300, 60)}
    (row,) = rows_of(tmp_path / "d")
    assert (row["failure"], row["turns"], row["outcome"]) == (None, 3, 1.0)
    assert list(row["files"]) == ["prediction.csv"] and "file_texts" not in row
    kept = json.loads((tmp_path / "d" / "rows.jsonl").read_text().splitlines()[0])
    assert list(kept["file_texts"]) == ["prediction.csv"]
    assert len({str(b["messages"][0]) for b in asked}) == 1  # one system message, always first
    assert max(len(b["messages"]) for b in asked) == 2


def test_a_folders_model_acts_and_its_tokens_are_counted(tiny_folder: Path, tmp_path: Path) -> None:
    """A conversation that is written anew leaves no ids, but every message counts."""
    place, out = make_checkout(tmp_path / "release"), tmp_path / "o"
    words = ["--tasks", f"krama:{place}", "krama.settings=end-to-end", "krama.doubted=false"]
    words += ["--model", str(tiny_folder), "krama.agent=datawise", "sampling.max_new_tokens=8"]
    assert evaluate([*words, "tools.turns=3", "--no-baselines", "--out", str(out)]) == 0
    found = rows_of(out)
    assert {(r["outcome"], r["turns"], r["failure"]) for r in found} == {(0.0, 3, None)}
    for row in found:
        assert 3 <= row["tokens_out"] <= 24
        assert row["tokens_in"] > 600


def test_agents_that_do_not_fit_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path)
    words = ["--tasks", f"dare:{path}", "--model", "gold", "--out", str(tmp_path / "o")]
    assert evaluate([*words, "krama.agent=lake-agent"]) == 2
    assert "krama.agent=lake-agent: it works on lakes" in capsys.readouterr().err
    task = Task("t", "table", "class-IF", "train", [], {}, tools=("datawise",))
    EnvironmentFactory(tmp_path).check([task])
    with pytest.raises(TaskError, match="cannot be trained on"):
        EnvironmentFactory(tmp_path).check([task], ids=True)
