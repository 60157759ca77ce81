"""A model's record of what it was trained on: through stages, adapters and selections; an
evaluation leaves it out."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import numpy as np
import pandas as pd
from front import command

from assay import family as families
from assay import main
from assay.family import Family, Score
from assay.fingerprints import marks_of, row_marks
from assay.task import Task, TaskError, read_tasks, write_jsonl
from configs.schema import GrpoConfig
from rollouts.prompts import ChatTokenizer
from train.model.order import drawn, fitting
from train.run.trained_on import (
    NAME,
    Stage,
    Trained,
    marks_from,
    read_trained,
    trained_before,
    write_trained,
)


def text_task(number: int, text: str = "") -> Task:
    text = text or f"Text number {number}."
    cleaned = text.replace(f"x{number}@a.org", "")
    gold = {"input_text": text, "status": "KEEP", "text": cleaned}
    asked = [{"role": "user", "content": f"Clean {number}."}]
    return Task(f"t{number}", "refinement", "x", "train", asked, gold)


def record(*tasks: Task) -> Trained:
    return trained_before(Path("base")).after("sft", "a/train.jsonl", marks_from(tasks, Path()))


def test_a_task_is_known_by_its_content_and_by_its_words() -> None:
    known = record(text_task(1), text_task(2))
    assert known.saw(text_task(1)) and not known.saw(text_task(3))
    other_words = replace(text_task(9, "text  NUMBER 1."), id="new")
    assert known.saw(other_words), "the same input but for case and space"
    same_words = replace(text_task(2, "Another text."), id="new", split="heldout")
    assert known.saw(same_words)
    assert not known.saw(replace(text_task(7), id="t1")), "an id alone says nothing"
    one = replace(text_task(1), family="table", gold={"truth_csv": "a"}, files={"x": "/gone"})
    other = replace(one, id="t2", gold={"truth_csv": "b"})
    assert record(one).saw(one) and not record(one).saw(other), "words alone do not, with files"


def test_own_content_says_which_tasks_with_the_same_words_are_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf = Family("shelf", lambda *_: Score.of(True), str, content=lambda t: [t.meta["stock"]])
    monkeypatch.setitem(families._added, "shelf", families.from_place(shelf, "own.py:FAMILY"))
    figs, more, others = (
        replace(text_task(1), family="shelf", meta={"stock": stock})
        for stock in ("figs 1, plums 2", "Figs 1,  plums 2", "figs 3, plums 2")
    )
    known = record(figs)
    assert known.saw(figs) and known.saw(more) and not known.saw(others)


def test_rl_was_trained_on_what_fits_and_is_asked(tiny_folder: Path) -> None:
    """Prompts that are left out change which tasks the steps ask."""
    tasks = [text_task(i) for i in range(12)]
    tasks[3:6] = [replace(t, prompt=[{"role": "user", "content": "y" * 900}]) for t in tasks[3:6]]
    tokenizer = ChatTokenizer(tiny_folder)
    rl = GrpoConfig(steps=2, prompts_per_step=4, mini_batch=4, max_length=400, max_new_tokens=8)
    asked = drawn(fitting(tasks, tokenizer, rl), rl, 0)
    found = trained_before(Path("base")).after("rl", "rl.jsonl", marks_from(asked, Path()))
    assert len(asked) == 8 and [task for task in tasks if found.saw(task)] == asked
    assert found.stages[-1] == Stage("rl", 8, "rl.jsonl")
    assert {t.id for t in drawn(tasks, rl, 0)} != {t.id for t in asked}
    with pytest.raises(TaskError, match=r"raise rl\.max_length"):
        fitting(tasks[3:6], tokenizer, rl)
    # rewards decide what is asked for
    assert len(drawn(tasks, replace(rl, dynamic_sampling=1), 0)) == len(tasks)


def table(folder: Path, seed: int, copy: bool = False) -> Task:
    """A task over a table of numbers, or over a copy of it: other names, other order, thousands for
    units, and nine rows in ten."""
    draw, name = np.random.default_rng(seed), f"t{seed}{'-copy' * copy}"
    values, capital = draw.lognormal(7, 1, 300).round(1), draw.lognormal(5, 1.5, 300).round(2)
    firms = [f"Company {n % 15}" for n in range(300)]
    frame = pd.DataFrame({"firm": firms, "value": values, "capital": capital})
    if copy:
        frame = frame.sample(frac=0.9, random_state=1)
        frame = frame.assign(firm=range(len(frame)), value=frame["value"] / 1000)
        frame = frame.rename(columns={"value": "v", "capital": "k"})[["k", "firm", "v"]]
    frame.to_csv(folder / f"{name}.csv", index=False)
    files = {"data.csv": str(folder / f"{name}.csv")}
    return replace(text_task(0), id=name, family="table", gold={"truth_csv": ""}, files=files)


def test_a_relabelled_copy_of_a_training_table_is_known(tmp_path: Path) -> None:
    trained = [table(tmp_path, seed) for seed in range(8)]
    write_trained(tmp_path, record(*trained, text_task(1)))
    known = read_trained(tmp_path)
    assert known is not None and known.saw(text_task(1)) and not known.saw(text_task(2))
    assert all(known.saw(table(tmp_path, seed, copy=True)) for seed in range(8))
    assert not any(known.saw(table(tmp_path, seed)) for seed in range(8, 16))
    again = known.after("rl", "rl.jsonl", marks_from(trained[:3], Path()))
    assert np.array_equal(again.tables.sketches, known.tables.sketches), "each table once"
    whole = (tmp_path / NAME).read_bytes()
    for damaged in (whole[:-8], b"{" + whole):
        (tmp_path / NAME).write_bytes(damaged)
        with pytest.raises(TaskError, match=NAME):
            read_trained(tmp_path)


def test_tables_go_through_rows_adapters_and_older_records(tmp_path: Path) -> None:
    base, lora = tmp_path / "base", tmp_path / "lora"
    tasks = [table(tmp_path, seed) for seed in (1, 2)]
    copies = [table(tmp_path, seed, copy=True) for seed in (1, 2)]
    for folder, task in zip((base, lora), tasks, strict=True):
        folder.mkdir()
        rows = [row_marks({"marks": json.loads(json.dumps(marks_of(task).flat()))})]
        write_trained(folder, Trained((), np.empty(0, np.int64)).after("sft", "x", rows))
    (lora / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base)}))
    both = read_trained(lora)
    assert both is not None and all(both.saw(task) for task in (*tasks, *copies))
    # a record of the first format has marks alone
    line, _, data = (base / NAME).read_bytes().partition(b"\n")
    head = json.loads(line)
    old = {"stages": head["stages"], "marks": head["marks"], "format": 1}
    (base / NAME).write_bytes(json.dumps(old).encode() + b"\n" + data[: 8 * head["marks"]])
    first = read_trained(base)
    assert first is not None and first.saw(tasks[0]) and not first.saw(copies[0])


# --- what a model was trained on is left out of its evaluation -----------------------------------


SMALL = "engine.dtype=float32 engine.threads=1 engine.device=cpu"
RL = "rl.steps=1 rl.prompts_per_step=2 rl.mini_batch=2 rl.rollouts_per_prompt=2"
LORA = "model.lora_rank=2" if importlib.util.find_spec("peft") else ""
evaluate = command("eval")


def tasks(name: str, count: int) -> list[Task]:
    made: list[Task] = []
    for i in range(count):
        text = f"{name} text {i} has a mail x{i}@a.org in it."
        asked = [{"role": "user", "content": f"Remove mails. {text}"}]
        made.append(replace(text_task(i, text), id=f"{name}-{i}", split=name, prompt=asked))
    return made


@pytest.fixture(scope="module")
def place(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SFT, then RL on other tasks, then SFT with adapters on rollouts that `assay select` kept."""
    folder = tmp_path_factory.mktemp("chain")
    for name, count in (("sft", 6), ("rl", 5), ("chosen", 4), ("heldout", 5)):
        write_jsonl(folder / f"{name}.jsonl", (t.to_json() for t in tasks(name, count)))
    steps = f"""
sft --tasks {folder}/sft.jsonl --model {tiny_folder} --out {folder}/one {SMALL}
grpo --tasks {folder}/rl.jsonl --model {folder}/one/model --out {folder}/two {RL} {SMALL}
rollout --tasks {folder}/chosen.jsonl --solver gold --out {folder}/rolled.jsonl sampling.n=1
select --rollouts {folder}/rolled.jsonl --strategy av --out {folder}/kept.parquet
sft --tasks {folder}/kept.parquet --model {folder}/two/model --out {folder}/three {LORA} {SMALL}
"""
    for step in steps.strip().splitlines():
        assert main(step.split()) == 0, step
    return folder


def ask(out: Path, model: Path | str, *more: str | Path) -> tuple[int, dict[str, Any]]:
    """(status, results) of an evaluation."""
    words = ["--model", model, "--out", out, "--no-baselines", "sampling.max_new_tokens=2", *more]
    code = evaluate([*map(str, words), *SMALL.split()])
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
    for name, saw in (("sft", 6), ("rl", 2), ("chosen", 4), ("heldout", 0)):
        assert sum(map(found.saw, read_tasks(place / f"{name}.jsonl"))) == saw, name


def test_trained_rows_are_left_out_and_counted(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = place / "three" / "model"
    files = ["--tasks", place / "heldout.jsonl", place / "chosen.jsonl"]
    code, found = ask(tmp_path / "o", model, *files)
    assert code == 0 and [r["task_id"] for r in found["rows"]] == [f"heldout-{i}" for i in range(5)]
    seen = found["meta"]["trained_on"]
    assert (seen["record"], seen["rows"], seen["left_out"]) == (True, 4, 4)
    assert "4 of 9 rows were trained on (base " in capsys.readouterr().out
    assert "4 of 9 rows were trained on" in (tmp_path / "o" / "report.html").read_text()

    _, found = ask(tmp_path / "some", model, *files, "--limit", "3")
    assert {row["task_id"].partition("-")[0] for row in found["rows"]} == {"heldout"}
    code, found = ask(tmp_path / "all", model, *files, "--include-trained")
    assert [bool(r.get("trained_on")) for r in found["rows"]] == [False] * 5 + [True] * 4
    assert found["meta"]["trained_on"]["included"] and not found["meta"]["heldout"]


def test_training_files_are_refused_and_models_without_a_record_said(
    place: Path, tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = ["--tasks", place / "sft.jsonl"]
    code, found = ask(tmp_path / "o", place / "one" / "model", *file)
    assert code == 2 and not found
    assert "all 6 rows of --tasks were trained on" in capsys.readouterr().err
    code, found = ask(tmp_path / "o", tiny_folder, *file)
    assert code == 0 and len(found["rows"]) == 6
    assert f"{tiny_folder} has no {NAME}" in capsys.readouterr().out
    assert found["meta"]["trained_on"]["record"] is False
