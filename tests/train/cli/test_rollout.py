"""`assay rollout` and `assay eval` on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import assay  # noqa: E402
from rewards.task import Task, write_jsonl  # noqa: E402
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
        [*words, "--n", "3", "--max-new-tokens", "6", "--threads", "1", "--slots", "6", *more]
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
    assert sample(tasks, tiny_folder, out, "--temperature", "0.5") == 2
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
    assert sample(tasks, tiny_folder, out, "--dtype", other, "--device", "cpu") == 0
    settings = json.loads((tmp_path / "r.jsonl.settings.json").read_text())
    assert settings["settings"]["dtype"] == other
    whole = out.read_bytes()
    assert sample(tasks, tiny_folder, out) == 0  # auto: what the file was begun with
    assert out.read_bytes() == whole
    mine = "float32" if other == "bfloat16" else "bfloat16"
    assert sample(tasks, tiny_folder, out, "--dtype", mine) == 2
    assert "another dtype" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert sample(tasks, tiny_folder, tmp_path / "g.jsonl", "--device", "cuda") == 2
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
    words = ["eval", "--model", str(tiny_folder), "--tracks", str(tasks), "--out", str(out)]
    more = ["--max-new-tokens", "5", "--n", "2", "--temperature", "1"]
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
    words = ["eval", "--model", str(tiny_folder), "--tracks", str(path), "--out", str(out)]
    assert assay.main([*words, "--max-new-tokens", "5"]) == 0
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
    from rollouts.python_executor import NAME

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
    command = ["--max-new-tokens", "400", "--turns", "2"]
    assert sample(table, tiny_folder, out, *command) == 0
    rows = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert [(r["failure"], r["turns"], r["outcome"]) for r in rows] == [(None, 2, 0.0)] * 3
    assert rows[0]["errors"] == {"bad_files": 2, "unknown_tool": 2}
    assert sample(table, tiny_folder, out, *command) == 0  # resumed: nothing to do
