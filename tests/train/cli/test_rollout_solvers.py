"""`assay rollout` without a model, with own families, own tools, and at an endpoint."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_server import serving
from own_kind import build

import assay
from assay.task import write_jsonl
from data_gen.selection.cli import main as select

OWN = Path(__file__).parents[2] / "support" / "own_kind.py"


@pytest.fixture
def own(tmp_path: Path, no_family_of_another_test: None) -> Path:
    """The family's file, outside the checkout, in a process that knows it not yet."""
    return Path(shutil.copy(OWN, tmp_path / "own_kind.py"))


def tasks_of(folder: Path, **changes: Any) -> Path:
    path = folder / "tasks.jsonl"
    write_jsonl(path, [replace(t, **changes).to_json() for t in build(0)["train"]])
    return path


def run(tasks: Path, out: Path, *more: object) -> tuple[int, list[dict[str, Any]]]:
    words = ["rollout", "--tasks", tasks, "--out", out, *more]
    code = assay.main([str(w) for w in words])
    lines = out.read_bytes().splitlines() if out.is_file() else []
    return code, [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("solver", "outcomes"),
    [("gold", [1, 1, 1]), ("empty", [0, 0, 0]), ("cheat:one", [1, 0, 0])],
)
def test_answers_of_an_own_family_need_no_model(
    tmp_path: Path, own: Path, solver: str, outcomes: list[int]
) -> None:
    tasks, out = tasks_of(tmp_path), tmp_path / "r.jsonl"
    code, rows = run(tasks, out, "--solver", solver, "--family", own)
    assert code == 0 and [r["outcome"] for r in rows] == outcomes
    assert all((r["sample"], r["ids"], r["run_seed"]) == (0, [], 0) for r in rows)
    assert rows[0]["messages"][0]["content"] == "count a"
    before = out.read_bytes()
    assert run(tasks, out, "--solver", solver, "--family", own)[0] == 0
    assert out.read_bytes() == before


def test_gold_with_a_tokenizer_has_ids_to_learn_from(
    tmp_path: Path, own: Path, tiny_folder: Path
) -> None:
    pytest.importorskip("transformers")
    words = ("--solver", "gold", "--family", own, "--model", tiny_folder)
    code, rows = run(tasks_of(tmp_path), tmp_path / "r.jsonl", *words)
    assert code == 0 and all(len(r["ids"]) == len(r["loss_mask"]) > 2 for r in rows)
    assert sum(rows[0]["loss_mask"]) == 2  # "1" and the end


def test_gold_of_files_is_scored_as_it_is(tmp_path: Path, own: Path) -> None:
    tasks = tasks_of(tmp_path, family="acting")
    words = ("--family", f"{own}:ACTING")
    code, rows = run(tasks, tmp_path / "r.jsonl", "--solver", "gold", *words)
    assert code == 0 and [r["outcome"] for r in rows] == [1.0] * 3
    assert rows[0]["files"] == {"last.txt": 1} and rows[0]["failure"] is None


def test_what_a_solver_cannot_do_is_one_sentence(
    tmp_path: Path, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks, out = tasks_of(tmp_path), tmp_path / "r.jsonl"
    for words, why in (
        ((), "give --model DIR_OR_URL, or --solver gold"),
        (("--solver", "gold"), "no family 'letters'"),
        (("--solver", "cheat:two", "--family", own), "has no cheat 'two'; it has one"),
        (("--solver", "reference", "--family", own), "is for families table, answer, not for"),
        (
            ("--solver", "refrence", "--family", own),
            "wanted gold, empty, cheat:NAME, own, or one of",
        ),
        (("--model", "http://x/v1", "server.model=", "--family", own), "server.model=NAME"),
        (("--solver", "gold", "--family", own, "--env", "x.py:T"), "x.py: no such file"),
        (("--solver", "gold", "--family", own, "sampling.n=-1"), "sampling.n=-1 is too small"),
    ):
        assert run(tasks, out, *words)[0] == 2
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith("assay rollout: ") and why in said
    broken = tasks_of(tmp_path, family="broken")
    words = ("--solver", "gold", "--family", f"{own}:BROKEN")
    assert run(broken, tmp_path / "b.jsonl", *words)[0] == 2
    assert "gold of family broken raised ZeroDivisionError" in capsys.readouterr().err


def reply(body: dict[str, Any]) -> Any:
    """Calls the tool once, then says a number."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return last["content"]
    word = last["content"].split()[-1]
    call = {"id": "c", "function": {"name": "count", "arguments": json.dumps({"text": word})}}
    message = {"content": None, "tool_calls": [call] if body.get("tools") else []}
    return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"n": 3}}


def test_an_endpoint_plays_episodes_with_own_tools_and_resumes(
    tmp_path: Path, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("aiohttp")
    tasks, out = tasks_of(tmp_path), tmp_path / "r.jsonl"
    with serving(reply) as (url, seen):
        words = ("--model", url, "server.model=m", "--family", own, "sampling.n=2")
        words = (*words, "--env", f"{own}:count")
        code, rows = run(tasks, out, *words)
        assert code == 0 and [r["outcome"] for r in rows] == [1.0] * 6
        assert [(r["task_id"], r["sample"]) for r in rows[:3]] == [
            ("own0", 0),
            ("own0", 1),
            ("own1", 0),
        ]
        assert rows[5]["tool_calls"][0]["answer"] == "3" and rows[5]["usage"] == {"n": 3}
        asked = len(seen)
        out.write_bytes(b"".join(out.read_bytes().splitlines(True)[:3]))
        again = run(tasks, out, *words)[1]
        assert len(seen) == asked + 6  # three samples, two messages
        assert [(r["task_id"], r["sample"], r["text"]) for r in again] == [
            (r["task_id"], r["sample"], r["text"]) for r in rows
        ]
        assert {m["model"] for m in seen} == {"m"}


def test_rollouts_without_an_outcome_are_counted_and_sampled_again(
    tmp_path: Path, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("aiohttp")
    tasks, out, broken = tasks_of(tmp_path), tmp_path / "r.jsonl", [True]

    def sometimes(body: dict[str, Any]) -> Any:
        return 400 if broken[0] and "aa" in str(body["messages"]) else "1"

    with serving(sometimes) as (url, _):
        words = ("--model", url, "server.model=m", "--family", own, "sampling.n=1")
        code, rows = run(tasks, out, *words)
        assert code == 3 and [r["outcome"] for r in rows] == [1.0, None, None]
        assert "2 of 3 answers have no outcome" in capsys.readouterr().err
        assert "HTTP 400" in rows[1]["failure"] and "failure" not in rows[0]
        broken[0] = False
        code, rows = run(tasks, out, *words)
        assert code == 0 and [r["outcome"] for r in rows] == [1.0, 0.0, 0.0]


def test_runs_of_two_seeds_make_one_training_set(tmp_path: Path, own: Path) -> None:
    pytest.importorskip("pyarrow")
    tasks = tasks_of(tmp_path)
    for seed in (0, 1):
        words = ("--solver", "gold", "--family", own, "--seed", seed)
        assert run(tasks, tmp_path / f"r{seed}.jsonl", *words)[0] == 0
    files = [str(tmp_path / f"r{seed}.jsonl") for seed in (0, 1)]
    out = tmp_path / "set.parquet"
    words = ["--rollouts", *files, "--strategy", "av", "--out", str(out)]
    assert select(words) == 0
    manifest = json.loads((tmp_path / "set.parquet.manifest.json").read_text())
    assert manifest["kept"]["rows"] == 6 and manifest["kept"]["tasks"] == 3
