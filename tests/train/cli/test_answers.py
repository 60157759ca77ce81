"""`assay rollout`, `assay eval` and `assay serve`: a tiny model, no model, own families and tools,
an endpoint."""

from __future__ import annotations

import io
import json
import os
import queue
import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("torch")
pytest.importorskip("aiohttp")

from chat_server import serving
from own_kind import build
from places import ROOT
from sft_runs import toy_tasks

import assay
from assay.task import TaskError, write_jsonl
from rollouts.engines.torch.load import choose_device, choose_dtype
from train.cli.answers import bounds

OWN = ROOT / "tests" / "support" / "own_kind.py"
BOTH = pytest.mark.parametrize("command", ["rollout", "eval"])
SMALL = ("sampling.n=1", "sampling.max_new_tokens=4", "engine.threads=1", "engine.dtype=float32")
Row = dict[str, Any]
Said = pytest.CaptureFixture[str]


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    return toy_tasks(tmp_path / "tasks.jsonl", 5)


def go(command: str, tasks: Path, model: object, out: Path, *more: object) -> int:
    words = [command, "--tasks", tasks, "--model", model, "--out", out, *more]
    return assay.main([str(word) for word in words])


def rows_of(out: Path) -> list[Row]:
    path = out / "rows.jsonl" if out.is_dir() else out
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def sample(tasks: Path, model: Path, out: Path, *more: str) -> int:
    small = ("sampling.n=3", "sampling.max_new_tokens=6", "engine.threads=1", "engine.slots=6")
    return go("rollout", tasks, model, out, *small, *more)


# --- a model's folder ----------------------------------------------------------------------------


def test_rollouts_resume_without_losing_or_repeating(
    tasks: Path, tiny_folder: Path, tmp_path: Path, capsys: Said
) -> None:
    out = tmp_path / "r.jsonl"
    other = "bfloat16" if choose_dtype("auto", choose_device("auto")) == "float32" else "float32"
    assert sample(tasks, tiny_folder, out, f"engine.dtype={other}", "engine.device=cpu") == 0
    whole, rows = out.read_bytes(), rows_of(out)
    assert [(r["task_id"], r["sample"]) for r in rows] == [
        (f"t{i}", j) for i in range(5) for j in range(3)
    ]
    assert all(len(r["ids"]) == len(r["loss_mask"]) == len(r["logprobs"]) for r in rows)
    out.write_bytes(whole[: len(whole) * 3 // 5])  # a kill in the middle of a line
    assert sample(tasks, tiny_folder, out) == 0  # dtype auto: what the file was begun with
    assert out.read_bytes() == whole
    assert sample(tasks, tiny_folder, out, "sampling.temperature=0.5") == 2
    assert "another temperature" in capsys.readouterr().err


def test_a_greedy_model_is_asked_once(tasks: Path, tiny_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    assert go("rollout", tasks, tiny_folder, out, *SMALL[1:], "sampling.temperature=0") == 0
    assert len(rows_of(out)) == 5


@BOTH
def test_other_weights_and_other_tasks_do_not_go_on(
    tasks: Path, tiny_folder: Path, tmp_path: Path, capsys: Said, command: str
) -> None:
    model, out = tmp_path / "model", tmp_path / "out"
    shutil.copytree(tiny_folder, model)
    assert go(command, tasks, model, out, *SMALL, "--limit", "2") == 0
    before = rows_of(out)
    assert go(command, tasks, model, out, *SMALL) == 0  # more tasks go on, and leave what is there
    after = rows_of(out)
    assert len(after) == 5 and all(row in after for row in before)
    file = model / "model.safetensors"
    data = file.read_bytes()
    half = len(data) // 2  # neither its size nor its ends
    file.write_bytes(data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :])
    assert go(command, tasks, model, out, *SMALL) == 2
    assert "other weights" in capsys.readouterr().err
    file.write_bytes(data)
    tasks.write_text(tasks.read_text().replace("0 ax", "0 bx"))
    assert go(command, tasks, model, out, *SMALL) == 2
    assert "t0 had another prompt" in capsys.readouterr().err
    assert rows_of(out) == after


def test_arguments_of_the_template_reach_the_model(
    tasks: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    file = Path(shutil.copytree(tiny_folder, tmp_path / "model")) / "chat_template.jinja"
    file.write_text("{%- if think %}<think>{% endif %}" + file.read_text())
    prompts: list[int] = []
    for more in ((), ("model.chat_template_kwargs.think=true",)):
        out = tmp_path / f"{len(prompts)}.jsonl"
        assert go("rollout", tasks, file.parent, out, *SMALL, "--limit", "1", *more) == 0
        (row,) = rows_of(out)
        prompts.append(len(row["ids"]) - row["tokens"])
    assert prompts[1] == prompts[0] + len("<think>")


# --- an endpoint ---------------------------------------------------------------------------------


@BOTH
def test_a_limit_of_cost_keeps_what_was_answered_and_goes_on(
    tasks: Path, tmp_path: Path, capsys: Said, command: str
) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    choice = {"message": {"content": "a"}, "finish_reason": "stop"}
    reply = {"choices": [choice], "usage": usage}
    out = tmp_path / "out"
    with serving(lambda body: reply) as (url, seen):

        def limited(*words: str) -> tuple[int, int]:
            code = go(command, tasks, url, out, "sampling.n=1", *words)
            return code, len(seen)

        assert limited("server.max_cost=1") == (2, 0)
        assert "price=[IN, OUT]" in capsys.readouterr().err
        price = "server.price=[1000,2000]"  # two cents an answer
        assert limited(price, "server.max_cost=0.05") == (3, 2)
        assert "3 answers were not" in capsys.readouterr().err
        assert len(rows_of(out)) == 2
        assert limited(price, "server.max_cost=0.05") == (3, 2)  # all starts together
        assert limited(price, "server.max_total_tokens=70") == (3, 4)
        assert limited(price, "server.max_cost=5") == (0, 5)
        assert len(rows_of(out)) == 5


@BOTH
def test_both_commands_send_what_a_request_is_given(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said, command: str
) -> None:
    monkeypatch.setenv("MY_KEY", "secret")
    words = ["server.key_env=MY_KEY", "server.request.reasoning_effort=low", "sampling.n=1"]
    told = "model.chat_template_kwargs.enable_thinking=false"
    with serving(lambda body: "a") as (url, seen):
        assert go(command, tasks, url, tmp_path / "o", *words, told, "--limit", "1") == 0
        assert go(command, tasks, url, tmp_path / "o", *words) == 2
    assert "other chat_template_kwargs" in capsys.readouterr().err
    (body,) = seen
    assert body["key"] == "Bearer secret" and body["reasoning_effort"] == "low"
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["max_tokens"] == 4096


@pytest.fixture
def own(tmp_path: Path, no_family_of_another_test: None) -> Path:
    """The family's file, outside the checkout, in a process that knows it not yet."""
    return Path(shutil.copy(OWN, tmp_path / "own_kind.py"))


def tasks_of(folder: Path, **changes: Any) -> Path:
    path = folder / "own.jsonl"
    write_jsonl(path, [replace(t, **changes).to_json() for t in build(0)["train"]])
    return path


def test_rollouts_without_an_outcome_are_counted_and_sampled_again(
    tmp_path: Path, own: Path, capsys: Said
) -> None:
    made, out, broken = tasks_of(tmp_path), tmp_path / "r.jsonl", [True]

    def sometimes(body: Row) -> Any:
        return 400 if broken[0] and "aa" in str(body["messages"]) else "1"

    with serving(sometimes) as (url, _):
        words = ("server.model=m", "--family", own, "sampling.n=1")
        assert go("rollout", made, url, out, *words) == 3
        rows = rows_of(out)
        assert [r["outcome"] for r in rows] == [1.0, None, None]
        assert "2 of 3 answers have no outcome" in capsys.readouterr().err
        assert "HTTP 400" in rows[1]["failure"] and "failure" not in rows[0]
        broken[0] = False
        assert go("rollout", made, url, out, *words) == 0
        assert [r["outcome"] for r in rows_of(out)] == [1.0, 0.0, 0.0]


# --- no model ------------------------------------------------------------------------------------


def solve(tasks: Path, out: Path, *more: object) -> int:
    return assay.main([str(w) for w in ("rollout", "--tasks", tasks, "--out", out, *more)])


@pytest.mark.parametrize(
    ("solver", "outcomes"), [("gold", [1, 1, 1]), ("empty", [0, 0, 0]), ("cheat:one", [1, 0, 0])]
)
def test_answers_of_an_own_family_need_no_model(
    tmp_path: Path, own: Path, solver: str, outcomes: list[int]
) -> None:
    words = (tasks_of(tmp_path), tmp_path / "r.jsonl", "--solver", solver, "--family", own)
    assert solve(*words) == 0
    rows = rows_of(words[1])
    assert [r["outcome"] for r in rows] == outcomes
    assert all((r["sample"], r["ids"], r["run_seed"]) == (0, [], 0) for r in rows)
    before = words[1].read_bytes()
    assert solve(*words) == 0 and words[1].read_bytes() == before


def test_gold_has_ids_to_learn_from(tmp_path: Path, own: Path, tiny_folder: Path) -> None:
    made, out = tasks_of(tmp_path), tmp_path / "r.jsonl"
    assert solve(made, out, "--solver", "gold", "--family", own, "--model", tiny_folder) == 0
    rows = rows_of(out)
    assert all(len(r["ids"]) == len(r["loss_mask"]) > 2 for r in rows)
    assert sum(rows[0]["loss_mask"]) == 2  # "1" and the end


def test_gold_of_a_family_with_tools_is_its_files(tmp_path: Path, own: Path) -> None:
    acting, out = tasks_of(tmp_path, family="acting"), tmp_path / "f.jsonl"
    assert solve(acting, out, "--solver", "gold", "--family", f"{own}:ACTING") == 0
    assert [(r["outcome"], r["files"]) for r in rows_of(out)] == [(1.0, {"last.txt": 1})] * 3


# --- assay serve ---------------------------------------------------------------------------------


def test_it_answers_until_it_is_terminated(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, pieces = io.StringIO(), queue.Queue[str]()
    monkeypatch.setattr(told, "write", pieces.put)  # read by the other thread
    monkeypatch.setattr(sys, "stderr", told)

    def ask() -> Any:
        said = iter(partial(pieces.get, timeout=120), None)
        url = next(word for text in said for word in text.split() if word.startswith("http://"))
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
        kind = {"Content-Type": "application/json"}
        asked = Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), kind)
        try:
            with urlopen(asked, timeout=60) as reply:
                return json.loads(reply.read())
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    words = ["serve", "--model", str(tiny_folder), "--port", "0", "--name", "t", "engine.threads=1"]
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask)
        assert assay.main(words) == 0
    said = answer.result()
    assert said["model"] == "t" and said["usage"]["completion_tokens"] in (1, 2, 3)


def test_a_sequence_is_as_long_as_the_model_reads(tiny_folder: Path, tmp_path: Path) -> None:
    for given, wanted in (0, 2048), (100, 100), (9999, 2048):
        assert bounds(tiny_folder, given, 16) == (wanted, 16)
    assert bounds(tmp_path, 64, 16) == (64, 16)
    with pytest.raises(TaskError, match="--max-length"):  # of a model that says no length
        bounds(tmp_path, 0, 16)
