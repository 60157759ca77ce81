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
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("torch")
pytest.importorskip("aiohttp")

import torch
from chat_server import serving
from own_kind import build

import assay
from assay.task import Task, TaskError, write_jsonl
from data_gen.selection import main as select
from rollouts.engines.torch.load import choose_device, choose_dtype
from train.cli.answers import bounds, serve

OWN = Path(__file__).parents[2] / "support" / "own_kind.py"
BOTH = pytest.mark.parametrize("command", ["rollout", "eval"])
SMALL = ("sampling.n=1", "sampling.max_new_tokens=4", "engine.threads=1", "engine.dtype=float32")
Row = dict[str, Any]
Said = pytest.CaptureFixture[str]


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    gold = {"input_text": "a b", "status": "KEEP", "text": "a"}
    prompt = [{"role": "user", "content": "drop b: a b"}]
    made = [Task(f"t{i}", "refinement", "toy", "heldout", prompt, gold) for i in range(5)]
    write_jsonl(path, [task.to_json() for task in made])
    return path


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
    assert all(r["messages"][-1] == {"role": "assistant", "content": r["text"]} for r in rows)
    out.write_bytes(whole[: len(whole) * 3 // 5])  # a kill in the middle of a line
    assert sample(tasks, tiny_folder, out) == 0  # dtype auto: what the file was begun with
    assert out.read_bytes() == whole
    mine = "float32" if other == "bfloat16" else "bfloat16"
    for word, said in (
        (f"engine.dtype={mine}", "another dtype"),
        ("sampling.temperature=0.5", "another temperature"),
    ):
        assert sample(tasks, tiny_folder, out, word) == 2
        assert said in capsys.readouterr().err
    assert sample(tasks, tiny_folder, tmp_path / "c.jsonl", "sampling.max_new_tokens=1") == 0
    assert "of 15 answers" in capsys.readouterr().err  # were cut
    if not torch.cuda.is_available():
        assert sample(tasks, tiny_folder, tmp_path / "g.jsonl", "engine.device=cuda") == 2
        assert "torch sees no GPU" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
def test_rollouts_use_the_gpu_that_is_there(tasks: Path, tiny_folder: Path, tmp_path: Path) -> None:
    torch.cuda.reset_peak_memory_stats()
    assert sample(tasks, tiny_folder, tmp_path / "r.jsonl") == 0
    assert torch.cuda.max_memory_allocated() > 0


def test_a_greedy_model_is_asked_once(tasks: Path, tiny_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    assert go("rollout", tasks, tiny_folder, out, *SMALL[1:], "sampling.temperature=0") == 0
    assert len(rows_of(out)) == 5


def test_lone_surrogates_of_a_model_are_written_and_resumed(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call's arguments, tool and file names that UTF-8 cannot hold."""
    from rollouts.engines.scripted import ScriptedEngine
    from rollouts.python_tool import NAME

    table, out = tmp_path / "tasks.jsonl", tmp_path / "r.jsonl"
    gold = {"answer": 1, "answer_type": "numeric_exact"}
    asked = [{"role": "user", "content": "go"}]
    task = Task("t", "answer", "toy", "train", asked, gold, tools=(NAME,))
    write_jsonl(table, [task.to_json()])
    call = (
        f'{{"name": "{NAME}", "arguments": {{"code": "1", "files_to_load": ["\\udc80"], '
        '"files_to_save": ["\\ud83d"]}}'
    )
    other = '{"name": "\\ud83d", "arguments": {"\\ud83d": "\\ud83d"}}'
    said = "".join(f"<tool_call>\n{c}\n</tool_call>" for c in (call, other))

    def engine(folders: object, tokenizer: Any, *_: object) -> ScriptedEngine:
        return ScriptedEngine(lambda turn: said, tokenizer)

    monkeypatch.setattr("train.model.folder.load_local", engine)
    words = ["sampling.max_new_tokens=400", "tools.turns=2"]
    assert sample(table, tiny_folder, out, *words) == 0
    rows = rows_of(out)
    assert [(r["failure"], r["turns"], r["outcome"]) for r in rows] == [(None, 2, 0.0)] * 3
    assert rows[0]["errors"] == {"bad_files": 2, "unknown_tool": 2}
    assert sample(table, tiny_folder, out, *words) == 0  # resumed: nothing to do


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
    assert len(after) == 5 and [row for row in after if row in before] == before
    file = model / "model.safetensors"
    data = file.read_bytes()
    assert len(data) > 1 << 18
    half = len(data) // 2  # neither its size nor its ends
    file.write_bytes(data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :])
    capsys.readouterr()
    assert go(command, tasks, model, out, *SMALL) == 2
    assert "other weights" in capsys.readouterr().err
    file.write_bytes(data)
    tasks.write_text(tasks.read_text().replace("drop b: a b", "drop b: a bb"))
    assert go(command, tasks, model, out, *SMALL) == 2
    assert "t0 had another prompt" in capsys.readouterr().err
    assert rows_of(out) == after


@BOTH
def test_settings_of_the_template_are_part_of_what_is_asked(
    tasks: Path, tiny_folder: Path, tmp_path: Path, capsys: Said, command: str
) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_folder, model)
    template = model / "chat_template.jinja"
    config = json.loads((model / "tokenizer_config.json").read_text())
    held = config.pop("chat_template", None)
    text = template.read_text() if template.is_file() else held
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    template.write_text("{%- if think %}<think>{% endif %}" + text)

    def length(name: str, *more: str) -> int:
        assert go(command, tasks, model, tmp_path / name, *SMALL, "--limit", "1", *more) == 0
        (row,) = rows_of(tmp_path / name)
        return row.get("tokens_in") or len(row["ids"]) - row["tokens"]

    given = "model.chat_template_kwargs={think: true}"
    plain = length("plain")
    assert length("more", given) == plain + len("<think>")
    assert length("word", "model.chat_template_kwargs.think=true") == plain + len("<think>")
    capsys.readouterr()
    assert go(command, tasks, model, tmp_path / "plain", *SMALL, "--limit", "1", given) == 2
    assert "other chat_template_kwargs" in capsys.readouterr().err


# --- an endpoint ---------------------------------------------------------------------------------


@BOTH
def test_a_limit_of_cost_keeps_what_was_answered_and_goes_on(
    tasks: Path, tmp_path: Path, capsys: Said, command: str
) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    message = {"content": "<status>KEEP</status><clean_text>a</clean_text>"}
    reply = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
    out = tmp_path / "out"
    with serving(lambda body: reply) as (url, seen):

        def limited(*words: str) -> tuple[int, int]:
            code = go(command, tasks, url, out, "sampling.n=1", *words)
            return code, len(seen)

        assert limited("server.max_cost=1") == (2, 0)
        assert "price=[IN, OUT]" in capsys.readouterr().err
        price = "server.price=[1000,2000]"  # two cents an answer
        assert limited(price, "server.max_cost=0.05") == (3, 2)
        said = capsys.readouterr()
        assert "5 answers: about" in said.out and "to write at most; $" in said.out
        assert "max_cost 0.05 is reached" in said.err and "3 answers were not" in said.err
        assert len(rows_of(out)) == 2
        assert limited(price, "server.max_cost=0.05") == (3, 2)  # all starts together
        assert limited(price, "server.max_total_tokens=70") == (3, 4)
        assert limited(price, "server.max_cost=5") == (0, 5)
        assert len(rows_of(out)) == 5


@BOTH
def test_both_commands_send_what_a_request_is_given(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("MY_KEY", "secret")
    words = ["server.key_env=MY_KEY", "server.request.reasoning_effort=low", "sampling.n=1"]
    words += ["model.chat_template_kwargs.enable_thinking=false", "--limit", "1"]
    with serving(lambda body: "a") as (url, seen):
        assert go(command, tasks, url, tmp_path / "o", *words) == 0
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


def reply(body: Row) -> Any:
    """Calls the tool once, then says a number."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return last["content"]
    word = last["content"].split()[-1]
    call = {"id": "c", "function": {"name": "count", "arguments": json.dumps({"text": word})}}
    message = {"content": None, "tool_calls": [call] if body.get("tools") else []}
    return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"n": 3}}


def test_an_endpoint_plays_episodes_with_own_tools_and_resumes(
    tmp_path: Path, own: Path, capsys: Said
) -> None:
    made, out = tasks_of(tmp_path), tmp_path / "r.jsonl"
    with serving(reply) as (url, seen):
        words = ("server.model=m", "--family", own, "sampling.n=2", "--env", f"{own}:count")
        assert go("rollout", made, url, out, *words) == 0
        rows = rows_of(out)
        assert [r["outcome"] for r in rows] == [1.0] * 6
        assert rows[5]["tool_calls"][0]["answer"] == "3" and rows[5]["usage"] == {"n": 3}
        asked = len(seen)
        out.write_bytes(b"".join(out.read_bytes().splitlines(True)[:3]))
        assert go("rollout", made, url, out, *words) == 0
        assert len(seen) == asked + 6  # three samples, two messages
        kept = ("task_id", "sample", "text")
        assert [[r[k] for k in kept] for r in rows_of(out)] == [[r[k] for k in kept] for r in rows]
    acting, never = tasks_of(tmp_path, family="acting", tools=("count",)), tmp_path / "never.jsonl"
    with serving(lambda body: reply({**body, "messages": [{"role": "user", "content": "a"}]})) as (
        url,
        _,
    ):
        words = ("server.model=m", "--family", f"{own}:ACTING", "sampling.n=1", "tools.turns=3")
        assert go("rollout", acting, url, never, *words) == 0
    assert {(r["stop"], r["turns"]) for r in rows_of(never)} == {("turns", 3)}
    assert "3 of 3 answers (100%) stopped at the turn limit" in capsys.readouterr().err


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


def test_gold_has_ids_to_learn_from_files_and_two_seeds(
    tmp_path: Path, own: Path, tiny_folder: Path
) -> None:
    words = ("--solver", "gold", "--family", own)
    made, out = tasks_of(tmp_path), tmp_path / "r.jsonl"
    assert solve(made, out, *words, "--model", tiny_folder) == 0
    rows = rows_of(out)
    assert all(len(r["ids"]) == len(r["loss_mask"]) > 2 for r in rows)
    assert sum(rows[0]["loss_mask"]) == 2  # "1" and the end
    files = [tmp_path / f"r{seed}.jsonl" for seed in (0, 1)]
    assert [solve(made, file, *words, "--seed", n) for n, file in enumerate(files)] == [0, 0]
    kept = tmp_path / "set.parquet"
    assert select(["--rollouts", *map(str, files), "--strategy", "av", "--out", str(kept)]) == 0
    manifest = json.loads((tmp_path / "set.parquet.manifest.json").read_text())
    assert manifest["kept"]["rows"] == 6 and manifest["kept"]["tasks"] == 3
    acting, out = tasks_of(tmp_path, family="acting"), tmp_path / "f.jsonl"
    assert solve(acting, out, *words[:2], "--family", f"{own}:ACTING") == 0
    rows = rows_of(out)
    assert [(r["outcome"], r["failure"]) for r in rows] == [(1.0, None)] * 3
    assert rows[0]["files"] == {"last.txt": 1}


def test_what_a_solver_cannot_do_is_one_sentence(tmp_path: Path, own: Path, capsys: Said) -> None:
    made, out = tasks_of(tmp_path), tmp_path / "r.jsonl"
    mine = ("--family", own)
    for words, why in (
        ((), "give --model DIR_OR_URL, or --solver gold"),
        (("--solver", "gold"), "no family 'letters'"),
        (("--solver", "cheat:two", *mine), "has no cheat 'two'; it has one"),
        (("--solver", "reference", *mine), "is for families table, answer, not for"),
        (("--solver", "refrence", *mine), "wanted gold, empty, cheat:NAME, own, or one of"),
        (("--model", "http://x/v1", "server.model=", *mine), "server.model=NAME"),
        (("--solver", "gold", *mine, "--env", "x.py:T"), "x.py: no such file"),
        (("--solver", "gold", *mine, "sampling.n=-1"), "sampling.n=-1"),
    ):
        assert solve(made, out, *words) == 2
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith("assay rollout: ") and why in said
    broken = tasks_of(tmp_path, family="broken")
    assert solve(broken, out, "--solver", "gold", "--family", f"{own}:BROKEN") == 2
    assert "gold of family broken raised ZeroDivisionError" in capsys.readouterr().err


# --- assay serve ---------------------------------------------------------------------------------


def test_it_answers_until_it_is_terminated(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, pieces, serves = io.StringIO(), queue.Queue[str](), threading.Event()

    def ask() -> Any:
        try:
            text = next(piece for piece in iter(pieces.get, None) if "http://" in piece)
            url = next(word for word in text.split() if word.startswith("http://"))
            body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
            kind = {"Content-Type": "application/json"}
            asked = Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), kind)
            with urlopen(asked, timeout=60) as reply:
                return json.loads(reply.read())
        finally:
            if serves.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(told, "write", pieces.put)  # read by the other thread
    monkeypatch.setattr(sys, "stderr", told)
    words = ["serve", "--model", str(tiny_folder), "--port", "0", "--name", "t", "engine.threads=1"]
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask)
        serves.set()
        status = assay.main(words)
        serves.clear()
        pieces.put("http:// is no longer served")
        said = answer.result()
    assert (status, said["model"]) == (0, "t")
    assert said["usage"]["completion_tokens"] in (1, 2, 3)


def test_a_sequence_is_as_long_as_the_model_reads(tiny_folder: Path) -> None:
    assert bounds(tiny_folder, 0, 16) == (2048, 16)
    assert bounds(tiny_folder, 100, 16) == (100, 16)
    assert bounds(tiny_folder, 9999, 16)[0] == 2048


def test_a_model_that_says_no_length_needs_one(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="--max-length"):
        bounds(tmp_path, 0, 16)
    assert bounds(tmp_path, 64, 16) == (64, 16)


def test_an_empty_key_is_no_key(tiny_folder: Path) -> None:
    with pytest.raises(TaskError, match="NO_SUCH_KEY"):
        serve(["--model", str(tiny_folder), "--key-env", "NO_SUCH_KEY"])
