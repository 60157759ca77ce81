"""An agent that knows a lake task's gold pipeline: for sets to learn from, and for tests."""

from __future__ import annotations

import json
from typing import Any

from assay.task import Task, TaskError
from rollouts.tool_calls import CallFormat


def reference_reply(task: Task, turn: int, calls: CallFormat) -> str:
    """What it says in a turn: as DS-Guru plan and pipeline, as the free agent a run, then the
    answer with the values found, as `lake_script` the script. Raises `TaskError` for gold without
    a pipeline."""
    code: Any = task.gold.get("pipeline")
    if not code:
        raise TaskError(
            f"task {task.id}: its gold holds no pipeline; only tasks of `assay tasks lake` do"
        )
    if "lake_agent" in task.tools:
        if turn == 0:
            return calls.write("run", {"code": str(code)})
        found = {f"subtask-{s['id']}": s["answer"] for s in task.gold["subtasks"][:-1]}
        return calls.write("final_answer", {"answer": task.gold["answer"], "found": found})
    if "lake_script" in task.tools:
        return f"```python\n{str(code).rstrip()}\n```"
    plan = [
        {
            "id": "main-task",
            "query": str(task.prompt[-1]["content"]),
            "data_sources": list(task.meta.get("gold_files", [])),
        }
    ]
    shown = json.dumps(plan, ensure_ascii=False)
    return f"```json\n{shown}\n```\n```python\n{str(code).rstrip()}\n```"
