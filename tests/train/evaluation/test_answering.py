"""Models that think before they answer: their outcomes are those of the same answers without the
thoughts, wherever the thoughts stand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chat_server import Raw, serving
from mixed_tasks import mixed, said, write_mixed
from thought_forms import FORMS, filled
from tiny_model import CHAT_TEMPLATE
from tool_model import ANSWERS, write_model
from tool_model import tasks as tool_tasks

import assay
from assay.task import read_tasks

pytest.importorskip("aiohttp")

HIDDEN = "Maybe <status>DROP</status><clean_text>x</clean_text> or <answer>9</answer>?"
Body = dict[str, Any]


def in_the_text(text: str) -> Body:
    return {"content": f"<think>\n{HIDDEN}\n</think>\n\n{text}"}


def as_granite(text: str) -> Body:
    return {"content": filled(FORMS["Granite 3.3"], text)}


def in_a_field(name: str) -> Callable[[str], Body]:
    return lambda text: {"content": text, name: HIDDEN}


WAYS: dict[str, Callable[[str], Body]] = {
    "in the text": in_the_text,
    "in the text, opened by the template": lambda text: {"content": f"{HIDDEN}</think>\n\n{text}"},
    "as Granite 3.3, with its response": as_granite,
    "reasoning_content": in_a_field("reasoning_content"),
    "reasoning": in_a_field("reasoning"),
    "streamed": in_the_text,
}


def streamed(message: Body) -> Raw:
    """The message in pieces of seven characters: marks are cut in two."""
    text = message["content"]
    parts = [{"content": text[at : at + 7]} for at in range(0, len(text), 7)]
    rows = [{"choices": [{"index": 0, "delta": part}]} for part in parts]
    rows.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    lines = [f"data: {json.dumps(row)}\n\n".encode() for row in rows]
    return Raw([*lines, b"data: [DONE]\n\n"])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Tasks of all kinds, and the file of the own family among them."""
    return write_mixed(tmp_path_factory.mktemp("world"))


def evaluated(
    world: tuple[Path, Path], out: Path, way: Callable[[str], Body], *words: str
) -> dict[str, list[Any]]:
    """task → (outcome, reward, why, thought) of an endpoint that answers this way."""
    by_prompt = {task.prompt[-1]["content"]: said(task) for task in mixed()}

    def reply(body: Body) -> Any:
        message = way(by_prompt[body["messages"][-1]["content"]])
        if body.get("stream"):
            return streamed(message)
        return {"choices": [{"message": message, "finish_reason": "stop"}]}

    with serving(reply) as (url, _):
        named = ["--tasks", str(world[0]), "--family", str(world[1]), "--model", url]
        named += ["server.model=m", "--out", str(out), "--no-baselines", *words]
        assert assay.main(["eval", *named]) == 0
    rows = json.loads((out / "results.json").read_text("utf-8"))["rows"]
    kept = ("outcome", "reward", "why", "thought")
    return {row["task_id"]: [row.get(name) for name in kept] for row in rows}


@pytest.fixture(scope="module")
def plain(world: tuple[Path, Path]) -> dict[str, list[Any]]:
    """The same answers without a thought."""
    return evaluated(world, world[0].parent / "plain", lambda text: {"content": text})


@pytest.mark.parametrize("way", WAYS)
def test_an_endpoint_that_thinks_scores_as_one_that_does_not(
    world: tuple[Path, Path], plain: dict[str, list[Any]], tmp_path: Path, way: str
) -> None:
    words = ["server.request.stream=true"] if way == "streamed" else []
    found = evaluated(world, tmp_path / "out", WAYS[way], *words)
    assert {n: r[:3] for n, r in found.items()} == {n: r[:3] for n, r in plain.items()}
    assert 0 < sum(r[0] for r in plain.values()) < len(plain)
    assert all(r[3] for r in found.values()) and not any(r[3] for r in plain.values())


def test_answers_that_end_inside_their_thought_are_told_of(
    world: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = evaluated(world, tmp_path / "out", lambda text: {"content": f"<think>{text}"})
    assert {(row[0], row[2]) for row in found.values()} == {(0.0, "thought_did_not_end")}
    assert "ended inside their thought and earn nothing" in capsys.readouterr().err


THOUGHT = "<think>\nhm <status>DROP</status>\n</think>\n\n"


@pytest.mark.parametrize("tools", [False, True])
def test_a_folder_model_that_thinks_scores_alike(tmp_path: Path, tools: bool) -> None:
    """Without tools a message; with them a call, the tool's answer, and a message."""
    tasks = tool_tasks(1 if tools else 4, tmp_path / "t.jsonl", tools)
    found: dict[str, list[Any]] = {}
    for name, thought in (("plain", ""), ("thinks", THOUGHT)):
        model = write_model(tmp_path / name, CHAT_TEMPLATE, 60, thought, ANSWERS[:1])
        out = tmp_path / f"{name}.jsonl"
        words = ["--tasks", str(tasks), "--model", str(model), "--out", str(out), "sampling.n=1"]
        assert assay.main(["rollout", *words, "sampling.temperature=0"]) == 0
        found[name] = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    for plain, thinks in zip(found["plain"], found["thinks"], strict=True):
        assert (plain["outcome"], plain["reward"]) == (thinks["outcome"], thinks["reward"])
        assert thinks["text"].startswith("<think>") and thinks["thought"].startswith("hm")
        assert "thought" not in plain
        if tools:
            asked = [[call["arguments"] for call in row["tool_calls"]] for row in (plain, thinks)]
            assert asked[0] == asked[1] != []
    assert {row["outcome"] for row in found["plain"]} == {1.0}
    scored = tmp_path / "scores.jsonl"
    words = ["--tasks", str(tasks), str(tmp_path / "thinks.jsonl"), "--out", str(scored)]
    assert assay.main(["score", *words]) == 0
    again = [json.loads(line)["outcome"] for line in scored.read_text("utf-8").splitlines()]
    assert again == [row["outcome"] for row in found["thinks"]]
    assert len(read_tasks(tasks)) == len(again)
