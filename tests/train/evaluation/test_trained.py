"""What a model was trained on is left out of its evaluation, unless it is asked for."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from front import command

pytest.importorskip("torch")

from assay import main
from assay.task import Task, read_tasks, write_jsonl
from train.run.trained_on import NAME, read_trained

SMALL = "engine.dtype=float32 engine.threads=1 engine.device=cpu"
RL = "rl.steps=1 rl.prompts_per_step=2 rl.mini_batch=2 rl.rollouts_per_prompt=2"
LORA = "model.lora_rank=2" if importlib.util.find_spec("peft") else ""
evaluate = command("eval")


def tasks(name: str, count: int) -> list[Task]:
    made: list[Task] = []
    for i in range(count):
        text = f"{name} text {i} has a mail x{i}@a.org in it."
        gold = {"input_text": text, "status": "KEEP", "text": text.replace(f"x{i}@a.org", "")}
        asked = [{"role": "user", "content": f"Remove mails. {text}"}]
        made.append(Task(f"{name}-{i}", "refinement", "x", name, asked, gold))
    return made


@pytest.fixture(scope="module")
def place(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SFT, then RL on other tasks, then SFT with adapters on rollouts that `assay select` kept."""
    folder = tmp_path_factory.mktemp("chain")
    for name, count in (("sft", 6), ("rl", 5), ("chosen", 4), ("heldout", 5)):
        write_jsonl(folder / f"{name}.jsonl", (t.to_json() for t in tasks(name, count)))
    steps = [
        f"sft --tasks {folder}/sft.jsonl --model {tiny_folder} --out {folder}/one {SMALL}",
        f"grpo --tasks {folder}/rl.jsonl --model {folder}/one/model --out {folder}/two "
        f"{RL} {SMALL}",
        f"rollout --tasks {folder}/chosen.jsonl --solver gold --model {tiny_folder} sampling.n=1 "
        f"--out {folder}/rolled.jsonl",
        f"select --rollouts {folder}/rolled.jsonl --strategy av --out {folder}/kept.parquet",
        f"sft --tasks {folder}/kept.parquet --model {folder}/two/model --out {folder}/three "
        f"{LORA} {SMALL}",
    ]
    for step in steps:
        assert main(step.split()) == 0, step
    return folder


def ask(place: Path, out: Path, model: str, *more: str) -> tuple[int, dict[str, Any]]:
    words = [
        "--model",
        model,
        "--out",
        str(out),
        "sampling.max_new_tokens=2",
        "--no-baselines",
        *more,
    ]
    code = evaluate([*words, "engine.threads=1", "engine.device=cpu", "engine.dtype=float32"])
    path = out / "results.json"
    return code, json.loads(path.read_text()) if path.is_file() else {}


def test_every_stage_and_every_way_is_in_the_record(place: Path) -> None:
    found = read_trained(place / "three" / "model")
    assert found is not None
    assert [(s.stage, s.tasks, s.data) for s in found.stages[1:]] == [
        ("sft", 6, "sft.jsonl"),
        ("rl", 2, "rl.jsonl"),  # two prompts in one step
        ("sft", 4, "kept.parquet"),
    ]
    saw = {
        n: sum(map(found.saw, read_tasks(place / f"{n}.jsonl")))
        for n in ("sft", "rl", "chosen", "heldout")
    }
    assert saw == {"sft": 6, "rl": 2, "chosen": 4, "heldout": 0}


def test_trained_rows_are_left_out_and_counted(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(place / "three" / "model")
    files = ["--tasks", str(place / "heldout.jsonl"), str(place / "chosen.jsonl")]
    code, found = ask(place, tmp_path / "o", model, *files)
    assert code == 0 and [r["task_id"] for r in found["rows"]] == [f"heldout-{i}" for i in range(5)]
    seen = found["meta"]["trained_on"]
    assert (seen["record"], seen["rows"], seen["left_out"]) == (True, 4, 4)
    said = capsys.readouterr().out
    assert "4 of 9 rows were trained on (base " in said and "--include-trained" in said
    page = (tmp_path / "o" / "report.html").read_text()
    assert "4 of 9 rows were trained on" in page and "chosen.jsonl (4 of split chosen)" in page

    _, found = ask(place, tmp_path / "some", model, *files, "--limit", "3")
    assert {row["task_id"].partition("-")[0] for row in found["rows"]} == {"heldout"}
    code, found = ask(place, tmp_path / "all", model, *files, "--include-trained")
    assert code == 0 and len(found["rows"]) == 9
    assert [bool(r.get("trained_on")) for r in found["rows"]] == [False] * 5 + [True] * 4
    assert found["meta"]["trained_on"]["included"] and not found["meta"]["heldout"]


def test_training_files_are_refused_and_models_without_a_record_said(
    place: Path, tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = ["--tasks", str(place / "sft.jsonl")]
    code, found = ask(place, tmp_path / "o", str(place / "one" / "model"), *file)
    assert code == 2 and not found
    assert "all 6 rows of --tasks were trained on" in capsys.readouterr().err
    code, found = ask(place, tmp_path / "o", str(tiny_folder), *file)
    assert code == 0 and len(found["rows"]) == 6
    assert f"{tiny_folder} has no {NAME}" in capsys.readouterr().out
    assert found["meta"]["trained_on"]["record"] is False
    _, found = ask(place, tmp_path / "gold", "gold", *file)
    assert found["meta"]["trained_on"]["said"] == "" and len(found["rows"]) == 6
