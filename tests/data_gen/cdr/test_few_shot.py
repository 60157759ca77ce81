"""Builds in the mode few_shot: prompts behind training tasks of the same track, whatever does the
work; and the same for `assay eval` and the semantic extension."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from front import command
from small_corpus import write_corpus

from assay.task import Task, read_tasks
from rollouts.cdr.prompts import KIND
from rollouts.cdr.shots import alike
from rollouts.words.templates import ours

pytest.importorskip("duckdb", reason="needs the extra `build`")
main = command("tasks")
SMALL = (
    "instances.min_keep=2",
    "instances.min_drop=2",
    "instances.min_groups=2",
    "instances.per_variant=4",
    "instances.per_operator=4",
    "compose.per_domain=2",
    "compose.min_support=4",
    "instruct.mode=few_shot",
)
SPLITS = ("train", "validation", "heldout")
INPUT = re.compile(r"<input>\n(.*?)\n</input>", re.DOTALL)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "docs", 30)


def build(corpus: Path, out: Path, *more: str) -> Path:
    assert main(["cdr", "--corpus", str(corpus), "--out", str(out), *SMALL, *more]) == 0
    return out


@pytest.fixture(scope="module")
def built(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(corpus, tmp_path_factory.mktemp("built"), "--workers", "1")


def tasks_of(folder: Path) -> dict[str, list[Task]]:
    return {split: read_tasks(folder / f"{split}.jsonl") for split in SPLITS}


def shown(task: Task) -> str:
    before, mark, _ = task.prompt[-1]["content"].partition("Now the task itself.")
    assert mark
    return before


def test_examples_are_training_tasks_of_the_track_and_no_copies(built: Path) -> None:
    tasks = tasks_of(built)
    train = {task.id: task for task in tasks["train"]}
    drawn = 0
    for task in (task for mine in tasks.values() for task in mine):
        for name in task.meta.get("examples", []):
            example = train[name]
            assert example.track == task.track
            assert example.meta["document"] != task.meta["document"]
            assert not alike(example.gold["input_text"], task.gold["input_text"])
            assert example.gold["input_text"] in shown(task)
            assert example.meta["requirement"] in shown(task)
            assert f"<clean_text>{example.gold['text']}</clean_text>" in shown(task)
            drawn += 1
        inputs = INPUT.findall(task.prompt[-1]["content"])
        assert inputs[-1] == task.gold["input_text"]
        own = INPUT.findall(ours(KIND)["examples"])
        assert (inputs[:-1] == own) == ("examples" not in task.meta)
    counted = json.loads((built / "manifest.json").read_text())["few_shot"]
    all_of = sum(map(len, tasks.values()))
    assert drawn and counted["shots"] == 2
    assert sum(counted["fixed"].values()) == sum(
        "examples" not in t.meta for mine in tasks.values() for t in mine
    )
    assert sum(counted["fixed"].values()) < all_of / 2


def test_tasks_whose_track_keeps_and_drops_see_both(built: Path) -> None:
    both = [t for t in tasks_of(built)["heldout"] if t.track == "order_f" and "examples" in t.meta]
    pairs = [re.findall(r"<status>(\w+)</status>", shown(task)) for task in both]
    assert pairs and all(sorted(pair) == ["DROP", "KEEP"] for pair in pairs if len(pair) == 2)


def test_workers_and_seeds(corpus: Path, built: Path, tmp_path: Path) -> None:
    again = build(corpus, tmp_path / "again", "--workers", "2", "--part", "11")
    for name in (*(f"{split}.jsonl" for split in SPLITS), "manifest.json"):
        assert (again / name).read_bytes() == (built / name).read_bytes()


def test_settings_bound_how_many_and_how_long(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("instruct.shots=3", "instruct.shot_chars=150", "--workers", "1")
    tasks = tasks_of(build(corpus, tmp_path / "three", *words))
    train = {task.id: task for task in tasks["train"]}
    names = [name for mine in tasks.values() for t in mine for name in t.meta.get("examples", [])]
    assert max(len(t.meta.get("examples", [])) for t in tasks["heldout"]) == 3
    longest = max(len(train[n].gold["input_text"] + train[n].gold["text"]) for n in names)
    assert longest <= 150
    bare = build(corpus, tmp_path / "bare", "instruct.shot_chars=1", "--workers", "1")
    assert all("examples" not in task.meta for task in tasks_of(bare)["train"])
    assert "two fixed examples in" in capsys.readouterr().out


def test_an_evaluation_draws_from_the_training_tasks_beside_the_tracks(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    run = command("eval")
    train = {task.id: task for task in tasks_of(built)["train"]}

    def prompts(out: str, *more: str) -> list[tuple[str, list[str]]]:
        words = ["--model", "gold", "--no-baselines", "cdr.mode=few_shot", "cdr.k=1"]
        assert run([*words, "--out", str(tmp_path / out), *more]) == 0
        lines = (tmp_path / out / "rows.jsonl").read_text("utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        return [(r["track"], INPUT.findall(r["messages"][1]["content"])[:-1]) for r in rows]

    fixed = INPUT.findall(ours(KIND)["examples"])
    asked = prompts("own", "--tasks", f"cdr:{built}", "--limit", "30")
    assert any(inputs != fixed for _, inputs in asked)
    for track, inputs in asked:
        known = {t.gold["input_text"] for t in train.values() if t.track == track}
        assert inputs == fixed or set(inputs) <= known
    one = prompts("one", "--tasks", f"cdr:{built}", "--limit", "9", "cdr.shots=1")
    assert all(len(inputs) == 1 or inputs == fixed for _, inputs in one)

    alone = tmp_path / "published" / "tracks"
    alone.mkdir(parents=True)
    lines = (built / "tracks" / "atomic_m.jsonl").read_bytes().splitlines(keepends=True)
    (alone / "atomic_m.jsonl").write_bytes(b"".join(lines[:3]))
    capsys.readouterr()
    assert all(inputs == fixed for _, inputs in prompts("alone", "--tasks", f"cdr:{alone.parent}"))
    assert "3 prompts of atomic_m show two fixed examples" in capsys.readouterr().out
    given = (f"cdr.examples={built / 'train.jsonl'}", "cdr.shot_chars=400")
    other = prompts("given", "--tasks", f"cdr:{alone.parent}", *given)
    assert all(inputs != fixed for _, inputs in other)
    missing = ["--model", "gold", "cdr.mode=few_shot", "--tasks", f"cdr:{alone.parent}"]
    assert run([*missing, "cdr.examples=nowhere.jsonl", "--out", str(tmp_path / "x")]) == 2
    assert "cdr.examples=nowhere.jsonl: no such file" in capsys.readouterr().err
