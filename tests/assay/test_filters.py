"""`--track` and `--licence`: one meaning, on every command that reads tasks or rows."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path

import pytest
from places import tables
from travelling import OWN, own_tasks

from assay.console import TaskFilter, add_filter, task_filter
from assay.family import use_families
from assay.task import Task, TaskError, read_tasks, write_jsonl
from rewards.adapters import said_gold

TABLES = tables("assay")

pytestmark = pytest.mark.usefixtures("no_family_of_another_test")


def licensed(task: Task, place: int) -> Task:
    """Three kinds of rows, in turn: CC0; MIT; MIT and CC-BY-4.0 together."""
    row = task.to_json()
    row["track"] = ("one", "two", "two-more")[place % 3]
    row["meta"] |= ({"licence": "CC0"}, {"licence": "MIT"}, {"licences": ["MIT", "CC-BY-4.0"]})[
        place % 3
    ]
    return Task.from_json(row)


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    use_families([OWN])
    path = tmp_path / "tasks.jsonl"
    made = (licensed(task, i) for i, task in enumerate(own_tasks(12)[:12]))
    assert write_jsonl(path, (task.to_json() for task in made)) == 12
    return path


def named(words: list[str]) -> TaskFilter:
    parser = ArgumentParser()
    add_filter(parser)
    return task_filter(parser.parse_args(words))


@pytest.mark.parametrize(("words", "taken"), TABLES["a_task_is_bound_by_every_licence_it_has"])
def test_a_task_is_bound_by_every_licence_it_has(
    tasks: Path, words: list[str], taken: list[bool]
) -> None:
    asked = named(words)
    rows = read_tasks(tasks)[:3]
    assert [asked.accepts(task) for task in rows] == taken
    assert [asked.accepts_row(task.to_json()) for task in rows] == taken


@pytest.mark.parametrize(
    ("licence", "taken"), TABLES["the_permissive_licences_are_those_of_the_open_subset"]
)
def test_the_permissive_licences_are_those_of_the_open_subset(licence: str, taken: bool) -> None:
    assert named(["--licence", "permissive"]).accepts_licences([licence]) == taken
    assert not named(["--licence", "permissive"]).accepts_licences([licence, "CC-BY-SA-4.0"])


WORDS = ["--licence", "MIT,CC-BY*", "--track", "two"]  # a third of the tasks


def by_execute(tasks: Path, out: Path) -> list[str]:
    from rewards.gold.execute import main

    about = {"input_text": "a b@example.org", "recipe": [{"operator": "clean_email_mapper"}]}
    write_jsonl(out.with_suffix(".in"), [task.to_json() | about for task in read_tasks(tasks)])
    assert main([str(out.with_suffix(".in")), str(out), *WORDS]) == 0
    return [row["id"] for row in map(json.loads, out.read_text().splitlines())]


def by_score(tasks: Path, out: Path) -> list[str]:
    from rewards.score import main

    rows = [{"id": t.id, "output": said_gold(t)} for t in read_tasks(tasks)]
    write_jsonl(out.with_suffix(".in"), rows)
    words = ["--tasks", str(tasks), "--family", OWN, "--out", str(out), "--workers", "1"]
    assert main([str(out.with_suffix(".in")), *words, *WORDS]) == 0
    return [row["id"] for row in map(json.loads, out.read_text().splitlines())]


def by_eval(tasks: Path, out: Path) -> list[str]:
    from train.cli.answers import evaluate

    words = ["--model", "gold", "--family", OWN, "--tasks", str(tasks), "--out", str(out)]
    assert evaluate([*words, *WORDS]) == 0
    found = json.loads((out / "results.json").read_text())
    assert found["meta"]["chosen"]["tracks"] == ["two"]
    return [row["task_id"] for row in found["rows"]]


def by_training(tasks: Path, out: Path) -> list[str]:
    from configs.schema import GrpoRunConfig, load_run
    from train.cli.training import given, parser_of
    from train.run.data import asked_for, training_tasks

    words = ["--tasks", str(tasks), "--family", OWN, *WORDS]
    said = given(parser_of("grpo", "", GrpoRunConfig), words)
    config = load_run(GrpoRunConfig, said.config, said.settings, said.family)
    return [task.id for task in training_tasks(config.data, asked=asked_for(config))]


Command = Callable[[Path, Path], list[str]]
COMMANDS: list[Command] = [by_score, by_eval, by_training, by_execute]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_the_same_tasks(tasks: Path, tmp_path: Path, command: Command) -> None:
    wanted = [task.id for task in read_tasks(tasks) if task.track == "two"]
    assert len(wanted) == 4
    assert sorted(command(tasks, tmp_path / "out")) == sorted(wanted)


def test_nothing_left_is_an_error_and_writes_nothing(tasks: Path, tmp_path: Path) -> None:
    from rewards.score import main as score

    rows, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_jsonl(rows, [{"id": read_tasks(tasks)[0].id, "output": "x"}])
    with pytest.raises(TaskError, match=r"no row is left by --track four"):
        score([str(rows), "--tasks", str(tasks), "--out", str(out), "--track", "four"])
    assert not out.exists()
    with pytest.raises(TaskError, match=r"T: no task is left by --track three"):
        TaskFilter(("three",)).select(read_tasks(tasks), "T")
