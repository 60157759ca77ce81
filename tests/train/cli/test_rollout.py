"""`assay rollout` and `assay eval` on a tiny model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from assay_command import run  # noqa: E402
from chat_server import serving  # noqa: E402
from places import ROOT  # noqa: E402

import assay  # noqa: E402
from assay.task import Task, write_jsonl  # noqa: E402
from rollouts.engines.torch.device import choose_device, choose_dtype  # noqa: E402


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    gold = {"input_text": "a b", "status": "KEEP", "text": "a"}
    prompt = [{"role": "user", "content": "drop b: a b"}]
    meta = {"has_filter": False}
    rows = [
        Task(f"t{i}", "refinement", "toy", "heldout", prompt, gold, meta=meta).to_json()
        for i in range(5)
    ]
    write_jsonl(path, rows)
    return path


def sample(tasks: Path, model: Path, out: Path, *more: str) -> int:
    words = ["rollout", "--tasks", str(tasks), "--model", str(model), "--out", str(out)]
    return assay.main(
        [
            *words,
            "sampling.n=3",
            "sampling.max_new_tokens=6",
            "engine.threads=1",
            "engine.slots=6",
            *more,
        ]
    )


def test_rollouts_resume_without_losing_or_repeating(
    tasks: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r.jsonl"
    assert sample(tasks, tiny_folder, out) == 0
    whole = out.read_bytes()
    rows = [json.loads(line) for line in whole.splitlines()]
    assert [(r["task_id"], r["sample"]) for r in rows] == [
        (f"t{i}", j) for i in range(5) for j in range(3)
    ]
    assert all(len(r["ids"]) == len(r["loss_mask"]) == len(r["logprobs"]) for r in rows)
    assert all(r["messages"][-1] == {"role": "assistant", "content": r["text"]} for r in rows)
    out.write_bytes(whole[: len(whole) * 3 // 5])  # a kill in the middle of a line
    assert sample(tasks, tiny_folder, out) == 0
    assert out.read_bytes() == whole


def test_other_settings_do_not_mix_into_a_file(
    tasks: Path, tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r.jsonl"
    assert sample(tasks, tiny_folder, out) == 0
    assert sample(tasks, tiny_folder, out, "sampling.temperature=0.5") == 2
    assert "another temperature" in capsys.readouterr().err


def test_bad_inputs_get_one_sentence(
    tasks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sample(tasks, tmp_path, tmp_path / "r.jsonl") == 2
    said = capsys.readouterr().err
    assert said.startswith("assay rollout: ") and said.count("\n") == 1
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": "x"}\n')
    assert sample(bad, tmp_path, tmp_path / "r.jsonl") == 2
    assert f"{bad} line 1: field 'family' is missing" in capsys.readouterr().err


def test_the_device_and_dtype_of_rollouts_can_be_chosen(
    tasks: Path, tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r.jsonl"
    other = "bfloat16" if choose_dtype("auto", choose_device("auto")) == "float32" else "float32"
    assert sample(tasks, tiny_folder, out, f"engine.dtype={other}", "engine.device=cpu") == 0
    settings = json.loads((tmp_path / "r.jsonl.settings.json").read_text())
    assert settings["settings"]["dtype"] == other
    whole = out.read_bytes()
    assert sample(tasks, tiny_folder, out) == 0  # auto: what the file was begun with
    assert out.read_bytes() == whole
    mine = "float32" if other == "bfloat16" else "bfloat16"
    assert sample(tasks, tiny_folder, out, f"engine.dtype={mine}") == 2
    assert "another dtype" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert sample(tasks, tiny_folder, tmp_path / "g.jsonl", "engine.device=cuda") == 2
        assert "torch sees no GPU" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
def test_rollouts_use_the_gpu_that_is_there(tasks: Path, tiny_folder: Path, tmp_path: Path) -> None:
    torch.cuda.reset_peak_memory_stats()
    assert sample(tasks, tiny_folder, tmp_path / "r.jsonl") == 0
    assert torch.cuda.max_memory_allocated() > 0


def test_eval_writes_results_and_a_report(
    tasks: Path, tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "e"
    words = ["eval", "--model", str(tiny_folder), "--tasks", str(tasks), "--out", str(out)]
    more = [
        "sampling.max_new_tokens=5",
        "sampling.n=2",
        "sampling.temperature=1",
        "sampling.top_p=0.9",
    ]
    assert assay.main([*words, *more]) == 0
    data = json.loads((out / "results.json").read_text())
    gold = data["baselines"]["gold"]["overall"]
    assert (gold["mean_outcome"], gold["n"]) == (1.0, 5)
    assert [r["sample"] for r in data["rows"]] == [0, 1] * 5
    assert set(data["tables"]["overall"]["pass@k"]) == {"1", "2"}
    assert (out / "report.html").is_file() and "cheat:drop" in capsys.readouterr().out


def test_eval_of_tasks_without_a_status_writes_results_and_a_report(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = [{"role": "user", "content": "how many: a b"}]
    answer = {"answer": "2", "answer_type": "numeric_exact"}
    moderation = {
        "reference_json": {"prompt_label": "safe"},
        "reference_text": '{"prompt_label": "safe"}',
        "scoring_profile": "structured_json",
        "instance_id": "s",
        "track_family": "semantic_extension",
        "source_track": "semantic_safety_atomic",
    }
    path = tmp_path / "own.jsonl"
    write_jsonl(
        path,
        [
            Task("a", "answer", "own", "train", prompt, answer).to_json(),
            Task("s", "structured", "own", "train", prompt, moderation).to_json(),
        ],
    )
    out = tmp_path / "e"
    words = ["eval", "--model", str(tiny_folder), "--tasks", str(path), "--out", str(out)]
    assert assay.main([*words, "sampling.max_new_tokens=5"]) == 0
    said = capsys.readouterr().out
    assert "outcome" in said and "KEEP" not in said and "held-out" not in said
    data = json.loads((out / "results.json").read_text())
    assert data["meta"]["name"] == tiny_folder.name
    assert [r["task_id"] for r in data["rows"]] == ["a", "s"]
    page = (out / "report.html").read_text()
    assert "<th>outcome [95 %]</th>" in page and "KEEP" not in page and "held-out" not in page
    assert assay.main(["report", str(out)]) == 0


def test_lone_surrogates_of_a_model_are_written_and_resumed(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call's arguments, tool and file names that UTF-8 cannot hold."""
    from rollouts.engines.scripted import ScriptedEngine
    from rollouts.python_tool import NAME

    table = tmp_path / "tasks.jsonl"
    prompt = [{"role": "user", "content": "go"}]
    write_jsonl(
        table,
        [
            Task(
                "t",
                "answer",
                "toy",
                "train",
                prompt,
                {"answer": 1, "answer_type": "numeric_exact"},
                tools=(NAME,),
            ).to_json()
        ],
    )
    call = (
        f'{{"name": "{NAME}", "arguments": {{"code": "1", "files_to_load": ["\\udc80"], '
        '"files_to_save": ["\\ud83d"]}}'
    )
    other = '{"name": "\\ud83d", "arguments": {"\\ud83d": "\\ud83d"}}'
    said = "".join(f"<tool_call>\n{c}\n</tool_call>" for c in (call, other))

    def engine(folders: object, tokenizer: Any, *_: object) -> ScriptedEngine:
        return ScriptedEngine(lambda turn: said, tokenizer)

    monkeypatch.setattr("train.evaluation.local.load_local", engine)
    out = tmp_path / "r.jsonl"
    command = ["sampling.max_new_tokens=400", "tools.turns=2"]
    assert sample(table, tiny_folder, out, *command) == 0
    rows = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert [(r["failure"], r["turns"], r["outcome"]) for r in rows] == [(None, 2, 0.0)] * 3
    assert rows[0]["errors"] == {"bad_files": 2, "unknown_tool": 2}
    assert sample(table, tiny_folder, out, *command) == 0  # resumed: nothing to do


def other_weights(folder: Path, changed: Path) -> None:
    """The middle of one large file changes: neither its size nor its ends."""
    shutil.copytree(folder, changed)
    file = changed / "model.safetensors"
    data = bytearray(file.read_bytes())
    assert len(data) > 1 << 18
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


@pytest.mark.parametrize("command", ["rollout", "eval"])
def test_other_weights_and_other_tasks_do_not_go_on(
    tasks: Path,
    tiny_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    changed, out = tmp_path / "other", tmp_path / "out"
    other_weights(tiny_folder, changed)
    model = tmp_path / "model"
    shutil.copytree(tiny_folder, model)
    words = [command, "--tasks", str(tasks), "--model", str(model), "--out", str(out), "--limit"]
    more = ["sampling.n=1", "sampling.max_new_tokens=4", "engine.threads=1", "engine.dtype=float32"]
    assert assay.main([*words, "2", *more]) == 0
    rows = out if command == "rollout" else out / "rows.jsonl"
    before = rows.read_bytes()
    assert assay.main([*words, "0", *more]) == 0  # more tasks go on, and leave what is there
    assert len(rows.read_bytes().splitlines()) == 5
    assert set(before.splitlines()) < set(rows.read_bytes().splitlines())
    before = rows.read_bytes()
    shutil.rmtree(model)
    shutil.copytree(changed, model)
    capsys.readouterr()
    assert assay.main([*words, "0", *more]) == 2
    assert "was sampled with other weights; put it back" in capsys.readouterr().err
    shutil.rmtree(model)
    shutil.copytree(tiny_folder, model)
    tasks.write_text(tasks.read_text().replace("drop b: a b", "drop b: a bb"))
    assert assay.main([*words, "0", *more]) == 2
    assert "holds answers to other tasks: t0 had another prompt" in capsys.readouterr().err
    assert rows.read_bytes() == before


def test_rooms_are_the_same_in_both_commands_and_gold_fits(
    tasks: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    gold = {"input_text": "é" * 300, "status": "KEEP", "text": "é" * 300}  # 600 bytes and tags
    prompt = [{"role": "user", "content": "copy"}]
    write_jsonl(tasks, [Task("t", "refinement", "toy", "heldout", prompt, gold).to_json()])
    common = ["--tasks", str(tasks), "--model", str(tiny_folder), "engine.threads=1"]
    assert assay.main(["rollout", *common, "sampling.n=1", "--out", str(tmp_path / "r.jsonl")]) == 0
    assert assay.main(["eval", *common, "--no-baselines", "--out", str(tmp_path / "e")]) == 0
    (sampled,) = map(json.loads, (tmp_path / "r.jsonl").read_text().splitlines())
    (asked,) = map(json.loads, (tmp_path / "e" / "rows.jsonl").read_text().splitlines())
    for stop, tokens in (
        (sampled["stop"], sampled["tokens"]),
        (asked["stop"], asked["tokens_out"]),
    ):
        assert stop != "length" or tokens == 1024


def test_what_was_cut_is_said(
    tasks: Path, tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sample(tasks, tiny_folder, tmp_path / "r.jsonl", "sampling.max_new_tokens=1") == 0
    said = capsys.readouterr().err
    assert "of 15 answers" in said and "cut by the token limit" in said


def test_a_model_that_never_says_that_it_is_done_is_said(tmp_path: Path) -> None:
    ask = [{"role": "user", "content": "count aa"}]
    task = Task("t", "acting", "count", "train", ask, {"count": 2}, ("count",))
    write_jsonl(tmp_path / "t.jsonl", [task.to_json()])
    function = {"name": "count", "arguments": json.dumps({"text": "aa"})}
    call = {"id": "c", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    family = f"{ROOT / 'tests' / 'support' / 'own_kind.py'}:ACTING"
    words = (
        "rollout",
        "--tasks",
        "t.jsonl",
        "--out",
        "r.jsonl",
        "--family",
        family,
        "sampling.n=2",
    )

    def reply(body: dict[str, Any]) -> dict[str, Any]:
        return {"choices": [{"message": message, "finish_reason": "tool_calls"}]}

    with serving(reply) as (url, _):
        asked = ("--model", url, "server.model=m", "tools.turns=3")
        done = run(tmp_path, *words, *asked)
    assert "2 of 2 episodes stopped at the turn limit" in done.stderr
    row = json.loads((tmp_path / "r.jsonl").read_text().splitlines()[0])
    assert row["stop"] == "turns" and row["turns"] == 3


def test_greedy_answers_are_not_asked_twice(
    tasks: Path, tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--tasks", str(tasks), "--model", str(tiny_folder), "sampling.temperature=0"]
    for command in ("eval", "rollout"):
        assert assay.main([command, *words, "--out", str(tmp_path / "o"), "sampling.n=2"]) == 2
        assert "sampling.n=2: at temperature 0 all answers" in capsys.readouterr().err
    small = ["sampling.max_new_tokens=2", "engine.threads=1", "--out", str(tmp_path / "r.jsonl")]
    assert assay.main(["rollout", *words, *small]) == 0  # one answer where all would be alike
    assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 5


def test_settings_of_the_template_are_part_of_what_is_asked(
    tasks: Path, tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_folder, model)
    template = model / "chat_template.jinja"
    text = template.read_text() if template.is_file() else ""
    config = json.loads((model / "tokenizer_config.json").read_text())
    text = text or config["chat_template"]
    config.pop("chat_template", None)
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    template.write_text("{%- if think %}<think>{% endif %}" + text)

    def lengths(command: str, out: Path, *more: str) -> list[int]:
        small = [
            "sampling.max_new_tokens=2",
            "engine.threads=1",
            "engine.dtype=float32",
            "--limit",
            "1",
        ]
        words = [command, "--tasks", str(tasks), "--model", str(model), "--out", str(out)]
        assert assay.main([*words, "sampling.n=1", *small, *more]) == 0
        rows = out if command == "rollout" else out / "rows.jsonl"
        found = [json.loads(line) for line in rows.read_text().splitlines()]
        return [r.get("tokens_in") or len(r["ids"]) - r["tokens"] for r in found]

    given = "model.chat_template_kwargs={think: true}"
    for command in ("rollout", "eval"):
        plain = lengths(command, tmp_path / f"{command}-plain")
        more = lengths(command, tmp_path / f"{command}-more", given)
        assert more == [n + len("<think>") for n in plain]
        word = "model.chat_template_kwargs.think=true"
        assert lengths(command, tmp_path / f"{command}-word", word) == more
    words = [
        "rollout",
        "--tasks",
        str(tasks),
        "--model",
        str(model),
        "--limit",
        "1",
        "sampling.n=1",
    ]
    words += ["sampling.max_new_tokens=2", "engine.dtype=float32", "engine.threads=1"]
    capsys.readouterr()
    assert assay.main([*words, "--out", str(tmp_path / "rollout-plain"), given]) == 2
    assert "other chat_template_kwargs" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["rollout", "eval"])
def test_a_limit_of_cost_keeps_what_was_answered_and_goes_on(
    tasks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    pytest.importorskip("aiohttp")
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    message = {"content": "<status>KEEP</status><clean_text>a</clean_text>"}
    reply = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
    with serving(lambda body: reply) as (url, seen):
        out = tmp_path / "out"
        words = [command, "--tasks", str(tasks), "--model", url, "--out", str(out), "sampling.n=1"]
        assert assay.main([*words, "server.max_cost=1"]) == 2
        assert "price=[IN, OUT]" in capsys.readouterr().err
        words += ["server.price=[1000,2000]"]  # two cents an answer
        assert assay.main([*words, "server.max_cost=0.05"]) == 3
        said = capsys.readouterr()
        assert "5 answers: about" in said.out and "to write at most; $" in said.out
        assert (
            "server.max_cost 0.05 is reached" in said.err and "3 answers were not asked" in said.err
        )
        assert len(seen) == 2
        rows = out if command == "rollout" else out / "rows.jsonl"
        assert len(rows.read_text().splitlines()) == 2
        assert assay.main([*words, "server.max_cost=0.05"]) == 3
        assert len(seen) == 2  # all starts together
        assert assay.main([*words, "server.max_total_tokens=70"]) == 3
        assert len(seen) == 4
        assert assay.main([*words, "server.max_cost=5"]) == 0
        assert len(seen) == 5 and len(rows.read_text().splitlines()) == 5


def test_both_commands_send_what_a_request_is_given(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("aiohttp")
    monkeypatch.setenv("MY_KEY", "secret")
    for command in ("rollout", "eval"):
        with serving(lambda body: "a") as (url, seen):
            words = [command, "--tasks", str(tasks), "--model", url, "--out", tmp_path / command]
            words += ["server.key_env=MY_KEY", "server.request.reasoning_effort=low"]
            words += ["model.chat_template_kwargs.enable_thinking=false", "--limit", "1"]
            assert assay.main([*map(str, words), "sampling.n=1"]) == 0
            (body,) = seen
            assert body["key"] == "Bearer secret" and body["reasoning_effort"] == "low"
            assert body["chat_template_kwargs"] == {"enable_thinking": False}
            assert body["max_tokens"] == 4096
