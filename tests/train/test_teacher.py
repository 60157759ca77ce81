"""A teacher behind an endpoint calls tools; a student that learned from what was kept calls them.

`pytest -s -m slow tests/train/test_teacher.py` prints the commands and what they said.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pq = pytest.importorskip("pyarrow.parquet")

from assay_command import assay, rows  # noqa: E402
from chat_server import serving  # noqa: E402
from qwen3 import write_qwen3  # noqa: E402
from tiny_model import small_llama, write_tiny_tokenizer  # noqa: E402

from rollouts.tool_calls import call_format  # noqa: E402

pytestmark = pytest.mark.slow

FAMILY = '''
from assay.family import Family, Score, Task
from rollouts.tools import Context, tool

PRICES = {"fig": "31", "plum": "84"}


@tool
def price(ctx: Context, item: str) -> str:
    """Price."""
    return ctx.task.meta["price"]


@tool
def order(ctx: Context, count: int, place: str) -> str:
    """Order."""
    return "ordered"


def build(seed: int) -> dict[str, list[Task]]:
    tools = ("price", "order")
    asked = {item: [{"role": "user", "content": f"{item}?"}] for item in PRICES}
    return {"train": [Task(item, "market", "", "train", asked[item], {"price": PRICES[item]}, tools,
                           meta={"price": PRICES[item]}) for item in PRICES]}


def score(task, answer):
    return Score.of(answer.text.strip() == task.gold["price"])


FAMILY = Family("market", score, lambda t: t.gold["price"], build=build, environment=[price, order])
'''


def teacher(body: dict[str, Any]) -> dict[str, Any]:
    """Asks for the price with a call of its own, content null; then says what it was told."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        message, reason = {"role": "assistant", "content": last["content"].strip('"')}, "stop"
    else:
        item = last["content"].rstrip("?")
        function = {"name": "price", "arguments": json.dumps({"item": item})}
        call = {"id": "call_1", "type": "function", "function": function}
        message, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    return {"choices": [{"message": message, "finish_reason": reason}], "usage": usage}


def tiny_llama(folder: Path) -> Path:
    """A template that knows neither tools nor calls."""
    folder.mkdir()
    small_llama(write_tiny_tokenizer(folder)).save_pretrained(folder)
    return folder


def tiny_qwen3(folder: Path) -> Path:
    """A template that writes tools and calls itself."""
    return write_qwen3(folder)


@pytest.mark.parametrize("write", [tiny_llama, tiny_qwen3])
def test_the_student_makes_the_teacher_s_calls(write: Any, tmp_path: Path) -> None:
    (tmp_path / "market.py").write_text(FAMILY)
    write(tmp_path / "student")
    family, one = ("--family", "market.py"), ("engine.threads=1", "engine.dtype=float32")

    def step(*words: str) -> None:
        print(f"$ assay {' '.join(words)}\n{assay(tmp_path, *words)}")

    step("tasks", "market", *family, "--out", "T")
    data = ("--tasks", "T/train.jsonl")
    with serving(teacher) as (url, _):
        asked = ("--model", url, "server.model=teacher", "sampling.n=2", "tools.turns=3")
        step("rollout", *data, *family, *asked, "--out", "r.jsonl")
    step("select", "--rollouts", "r.jsonl", "--strategy", "fv", "--out", "kept.parquet")
    settings = ("sft.epochs=150", "sft.batch_size=2", "sft.lr=0.01", "validation=null", *one)
    step("sft", "--tasks", "kept.parquet", "--model", "student", "--out", "sft", *settings)
    how = ("--include-trained", "--no-baselines", "engine.dtype=float32", "engine.threads=1")
    step("eval", "--model", "sft/model", *data, *family, "--out", "e", *how)
    found = rows(tmp_path / "e" / "rows.jsonl")
    assert [row["outcome"] for row in found] == [1.0, 1.0]
    for row in found:
        first, *_ = (m["content"] for m in row["messages"] if m["role"] == "assistant")
        made = [(c.name, c.arguments) for c in call_format("hermes").read(first)]
        assert made == [("price", {"item": row["task_id"]})] and row["tool_calls"] == 1
