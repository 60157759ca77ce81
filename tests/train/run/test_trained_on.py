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

from assay import main
from assay.family import use_families
from assay.fingerprints import asked_mark, marks_of, row_marks
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
    gold = {"input_text": text or f"Text number {number}.", "status": "KEEP", "text": "t"}
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


OWN_CONTENT = """
from assay import Family, Score
FAMILY = Family(
    "shelf",
    lambda task, answer: Score.of(answer.text == task.gold["boxes"]),
    lambda task: task.gold["boxes"],
    content=lambda task: [task.meta["stock"]],
)
"""


def test_own_content_says_which_tasks_with_the_same_words_are_one(tmp_path: Path) -> None:
    (tmp_path / "shelf.py").write_text(OWN_CONTENT)
    use_families([str(tmp_path / "shelf.py")])
    asked = [{"role": "user", "content": "How many boxes of figs?"}]

    def task(name: str, stock: str) -> Task:
        return Task(name, "shelf", "", "", asked, {"boxes": "1"}, meta={"stock": stock})

    known = record(task("a", "figs 1, plums 2"))
    assert known.saw(task("a", "figs 1, plums 2")) and known.saw(task("b", "Figs 1,  plums 2"))
    assert not known.saw(task("a", "figs 3, plums 2"))


def test_with_files_the_same_words_are_not_the_same_task() -> None:
    one = replace(text_task(1), family="table", gold={"truth_csv": "a"}, files={"x": "/gone"})
    other = replace(one, id="t2", gold={"truth_csv": "b"})
    known = record(one)
    assert known.saw(one) and not known.saw(other)


def test_stages_add_up_and_the_file_reads_back(tmp_path: Path) -> None:
    first = record(text_task(1))
    write_trained(tmp_path, first)
    again = read_trained(tmp_path)
    assert again is not None and again.stages == first.stages
    assert np.array_equal(again.marks, first.marks)
    second = trained_before(tmp_path).after("rl", "rl.jsonl", marks_from([text_task(2)], Path()))
    assert second.stages == (
        Stage("base", 0, "base"),
        Stage("sft", 1, "train.jsonl"),
        Stage("rl", 1, "rl.jsonl"),
    )
    assert str(second) == "base base, then sft on 1 rows, then rl on 1 rows"
    assert second.saw(text_task(1)) and second.saw(text_task(2))
    size = (tmp_path / NAME).stat().st_size
    assert size < 400 and not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("damage", ["cut", "head", "format"])
def test_a_damaged_record_is_said(tmp_path: Path, damage: str) -> None:
    write_trained(tmp_path, record(text_task(1), text_task(2)))
    data = (tmp_path / NAME).read_bytes()
    made = {
        "cut": data[:-8],
        "head": b"{" + data,
        "format": data.replace(b'"format": 1', b'"format": 9'),
    }
    (tmp_path / NAME).write_bytes(made[damage])
    with pytest.raises(TaskError, match=NAME):
        read_trained(tmp_path)


def test_rows_of_rollouts_bring_their_marks_and_chats_have_their_words() -> None:
    task = text_task(1)
    assert row_marks({"marks": [3, 4], "messages": task.prompt}) == [3, 4]
    chat = [*task.prompt, {"role": "assistant", "content": "x"}]
    assert row_marks({"messages": chat}) == [asked_mark(task.prompt)]
    assert asked_mark(chat) in marks_of(task).flat()
    assert row_marks({"ids": [1]}) == []


def test_a_record_is_not_too_short_where_rewards_decide_what_is_asked() -> None:
    tasks = [Task(f"t{i}", "toy", "x", "train", [], {}) for i in range(60)]
    few = GrpoConfig(prompts_per_step=8, mini_batch=8, steps=1)
    assert len(drawn(tasks, few, 0)) == 8
    assert len(drawn(tasks, replace(few, dynamic_sampling=1), 0)) == 60


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


def table_of_numbers(seed: int) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "firm": [f"Company {n % 15}" for n in range(300)],
            "value": draw.lognormal(7, 1, 300).round(1),
            "capital": draw.lognormal(5, 1.5, 300).round(2),
        }
    )


def relabelled(frame: pd.DataFrame) -> pd.DataFrame:
    """Other names, other order, thousands for units, and nine rows in ten."""
    made = frame.sample(frac=0.9, random_state=1).rename(columns={"value": "v", "capital": "k"})
    return made.assign(firm=range(len(made)), v=made["v"] / 1000)[["k", "firm", "v"]]


def table_task(folder: Path, name: str, frame: pd.DataFrame) -> Task:
    frame.to_csv(folder / f"{name}.csv", index=False)
    asked = [{"role": "user", "content": "Predict."}]
    files = {"data.csv": str(folder / f"{name}.csv")}
    return Task(name, "table", "class", "train", asked, {"truth_csv": ""}, files=files)


def test_a_relabelled_copy_of_a_training_table_is_known(tmp_path: Path) -> None:
    trained = [table_task(tmp_path, f"t{seed}", table_of_numbers(seed)) for seed in range(8)]
    write_trained(tmp_path, record(*trained, text_task(1)))
    known = read_trained(tmp_path)
    assert known is not None and known.saw(text_task(1)) and not known.saw(text_task(2))
    for seed in range(8):
        assert known.saw(table_task(tmp_path, "copy", relabelled(table_of_numbers(seed))))
    for seed in range(8, 16):
        assert not known.saw(table_task(tmp_path, "stranger", table_of_numbers(seed)))
    again = known.after("rl", "rl.jsonl", marks_from(trained[:3], Path()))
    assert np.array_equal(again.tables.sketches, known.tables.sketches), "each table once"


def test_tables_go_through_rows_adapters_and_older_records(tmp_path: Path) -> None:
    base, lora = tmp_path / "base", tmp_path / "lora"
    tasks = [table_task(tmp_path, f"t{seed}", table_of_numbers(seed)) for seed in (1, 2)]
    copies = [
        table_task(tmp_path, f"c{seed}", relabelled(table_of_numbers(seed))) for seed in (1, 2)
    ]
    for folder, task in zip((base, lora), tasks, strict=True):
        folder.mkdir()
        rows = [row_marks({"marks": json.loads(json.dumps(marks_of(task).flat()))})]
        write_trained(folder, Trained((), np.empty(0, np.int64)).after("sft", "x", rows))
    said = {"base_model_name_or_path": str(base)}
    (lora / "adapter_config.json").write_text(json.dumps(said))
    both = read_trained(lora)
    assert both is not None and all(both.saw(task) for task in (*tasks, *copies))
    # a record of the first format has marks alone
    line, _, data = (base / NAME).read_bytes().partition(b"\n")
    head = json.loads(line)
    assert head["format"] == 2 and head["sketches"] > 0
    old = {name: value for name, value in head.items() if name != "sketches"} | {"format": 1}
    (base / NAME).write_bytes(json.dumps(old).encode() + b"\n" + data[: 8 * head["marks"]])
    first = read_trained(base)
    assert first is not None and first.saw(tasks[0]) and not first.saw(copies[0])
    damaged = data[: 8 * head["marks"]] + data[8 * head["marks"] + 8 :] + bytes(8)
    (base / NAME).write_bytes(line + b"\n" + damaged)
    with pytest.raises(TaskError, match="out of order"):
        read_trained(base)


# --- what a model was trained on is left out of its evaluation -----------------------------------


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
