"""`--track` and `--licence`: one meaning, on every command that reads tasks or rows."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from places import tables
from travelling import OWN, own_tasks

from assay.console import TaskFilter, add_filter, licences_in, task_filter
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


def test_rows_say_their_licences_in_several_ways() -> None:
    assert licences_in({"licences": ["b", "a", "b"], "licence": "c"}) == ("a", "b")
    assert licences_in({"licence": "c"}) == ("c",)
    assert licences_in({}) == licences_in({"licence": None, "licences": []}) == ("unknown",)
    assert TaskFilter((), ("unknown",)).accepts_row({"meta": {}})


def test_what_there_is_is_said_where_nothing_is_left(tasks: Path) -> None:
    with pytest.raises(TaskError) as caught:
        TaskFilter(("three",), ("GPL",)).select(read_tasks(tasks), "T")
    assert str(caught.value) == (
        "T: no task is left by --track three --licence GPL; there are tracks 'one' (4), 'two' (4), "
        "'two-more' (4) and licences 'CC0' (4), 'MIT' (4), 'CC-BY-4.0, MIT' (4)"
    )


WORDS = ["--licence", "MIT,CC-BY*", "--track", "two"]  # a third of the tasks


def by_rollout(tasks: Path, out: Path) -> list[str]:
    from train.cli.answers import rollout

    words = ["--solver", "gold", "--family", OWN, "--tasks", str(tasks), "--out", str(out)]
    assert rollout([*words, *WORDS]) == 0
    return [row["task_id"] for row in map(json.loads, out.read_text().splitlines())]


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
    assert found["meta"]["chosen"] == {
        "tracks": ["two"],
        "licences": ["MIT,CC-BY*", "MIT", "CC-BY*"],
    }
    return [row["task_id"] for row in found["rows"]]


def by_training(tasks: Path, out: Path) -> list[str]:
    from configs.schema import GrpoRunConfig, load_run
    from train.cli.training import given, parser_of
    from train.examples import training_rows
    from train.run.data import asked_for, training_tasks

    del out
    parser = parser_of("grpo", "", GrpoRunConfig)
    said = given(parser, ["--tasks", str(tasks), "--family", OWN, *WORDS])
    config = load_run(GrpoRunConfig, said.config, said.settings, said.family)
    assert config.licences == ("MIT,CC-BY*", "MIT", "CC-BY*") and config.tracks == ("two",)
    rows = [row["id"] for _, row in training_rows(config.data, asked_for(config))]
    assert rows == [t.id for t in training_tasks(config.data, asked=asked_for(config))]
    return rows


Command = Callable[[Path, Path], list[str]]
COMMANDS: list[Command] = [
    *(by_rollout, by_score, by_eval, by_training),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_the_same_tasks(tasks: Path, tmp_path: Path, command: Command) -> None:
    wanted = [task.id for task in read_tasks(tasks) if task.track == "two"]
    assert len(wanted) == 4
    assert sorted(command(tasks, tmp_path / "out")) == sorted(wanted)


def recipes(tmp_path: Path) -> Path:
    """Rows of `assay execute`, and one line that is none."""
    step = {"operator": "clean_email_mapper", "params": {}}
    path = tmp_path / "rows.jsonl"
    about: list[dict[str, Any]] = [
        {"licence": "CC0", "track": "one"},
        {"meta": {"licences": ["MIT"]}, "track": "two"},
        {"track": "two"},
    ]
    rows = [
        {"id": str(i), "input_text": "a b@example.org", "recipe": [step], **more}
        for i, more in enumerate(about)
    ]
    write_jsonl(path, rows)
    return path


def test_nothing_left_is_an_error_and_writes_nothing(tasks: Path, tmp_path: Path) -> None:
    from rewards.gold.execute import main as execute
    from rewards.score import main as score
    from train.examples import training_rows

    out = tmp_path / "out.jsonl"
    with pytest.raises(TaskError, match=r"no row is left by --licence GPL"):
        execute([str(recipes(tmp_path)), str(out), "--licence", "GPL"])
    rows = tmp_path / "in.jsonl"
    write_jsonl(rows, [{"id": read_tasks(tasks)[0].id, "output": "x"}])
    with pytest.raises(TaskError, match=r"no row is left by --track four"):
        score([str(rows), "--tasks", str(tasks), "--out", str(out), "--track", "four"])
    with pytest.raises(TaskError, match=r"no row is left by --track four"):
        training_rows(str(tasks), TaskFilter(("four",)))
    assert not out.exists()
