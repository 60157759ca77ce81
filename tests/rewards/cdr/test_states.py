"""Tasks begun for the model: the state is the executors', the words say only what remains."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from assay.family import BUILT_IN, Family, score_answer, states_of
from assay.task import Task
from data_gen.cdr.instruct import STYLES, read_instruction, say
from data_gen.corpora import read_corpus
from data_gen.demo.build import build_demo_tasks, preset
from data_gen.demo.order import OrderSettings, build_order_tasks
from data_gen.demo.wording import filter_step, read_requirement
from rewards.audit.laws import gold_of
from rewards.cdr.recipes import recipe_of
from rewards.cdr.states import refinement_states
from rewards.gold import Step, execute
from rollouts.cdr.prompts import MODES, messages

REFINEMENT: Family = BUILT_IN["refinement"]


def check(task: Task, begun: Task) -> None:
    """Gold scores 1, the executors agree, and the text and words are those of what is left."""
    k = begun.meta["gold_steps"]
    assert begun.id == f"{task.id}+{k}" and begun.group is None
    assert recipe_of(begun.gold) == recipe_of(task.gold)[k:] != ()
    run = execute(begun.gold["input_text"], recipe_of(begun.gold))
    assert (run.status, run.text) == (task.gold["status"], task.gold["text"])
    assert (begun.gold["status"], begun.gold["text"]) == (run.status, run.text)
    score = score_answer(begun, gold_of(REFINEMENT, begun))
    assert (score.outcome, score.reward) == (1.0, 1.0)
    if "states" in task.gold:
        assert begun.gold["states"] == run.states
    said = begun.prompt[-1]["content"]
    assert begun.meta["requirement"] in said and begun.gold["input_text"] in said
    assert task.meta["requirement"] not in said


@pytest.fixture(scope="module")
def demo() -> list[Task]:
    few = {"train_sft": 8, "train_rl": 120, "heldout": 8, "mappers": (1.0, 2.0, 2.0)}
    return build_demo_tasks(read_corpus(None), preset("hard", **few), 0)[1]


def test_every_state_of_every_demo_task_has_the_same_gold(demo: list[Task]) -> None:
    found = 0
    for task in demo:
        steps = read_requirement(task.meta["requirement"])
        begun = refinement_states(task)
        assert [*states_of(task)] == begun == refinement_states(task)
        # up to the last step that runs; one that leaves nothing of the text is left out
        run = execute(task.gold["input_text"], steps)
        assert len(begun) == len(run.trace) - 1
        for one in begun:
            check(task, one)
            assert read_requirement(one.meta["requirement"]) == steps[one.meta["gold_steps"] :]
            found += 1
    styles = {t.meta["requirement"][:2] for t in demo if refinement_states(t)}
    assert found > 100 and "1." in styles and "Fi" in styles and len(styles) > 3
    assert {t.gold["status"] for t in demo if refinement_states(t)} == {"KEEP", "DROP"}


def test_order_tasks_begin_too() -> None:
    settings = OrderSettings(heldout=2, train_sft=2, train_rl=20)
    tasks = build_order_tasks(read_corpus(None), settings, 0)["train_rl"]
    begun = [(t, one) for t in tasks for one in refinement_states(t)]
    assert begun
    for task, one in begun:
        check(task, one)
        said = read_requirement(one.meta["requirement"])
        assert said == read_requirement(task.meta["requirement"])[1:]
    # a filter that rejects first: nothing can be done before it
    first = [t for t in tasks if t.gold["status"] == "DROP" and t.meta["order_slot"] == "pre"]
    assert first and not any(refinement_states(t) for t in first)


STEPS = [
    Step("clean_email_mapper", {}),
    filter_step("text_length_filter", "min", 20),
    Step("clean_links_mapper", {}),
    Step("clean_html_mapper", {}),
]
TEXT = "Write to a.b@c.org, see https://x.org/y or <b>this</b> page of ours."


def benchmark_task(style: int, mode: str, steps: list[Step], seed: int = 0) -> Task:
    said = say(steps, STYLES[style], Random(seed))
    run = execute(TEXT, steps)
    return Task(
        "c",
        "refinement",
        "main",
        "train",
        messages(said, TEXT, mode),
        {
            "status": run.status,
            "text": run.text,
            "recipe": [{"operator": s.operator, "params": dict(s.params)} for s in steps],
            "input_text": TEXT,
            "full_run_text": run.full_run_text,
            "mode": mode,
        },
        group="g",
        meta={"requirement": said, "style": STYLES[style].id, "has_filter": True},
    )


@pytest.mark.parametrize("style", range(len(STYLES)))
def test_every_style_of_the_benchmark_can_be_cut(style: int) -> None:
    for seed in range(12):
        task = benchmark_task(style, MODES[seed % len(MODES)], STEPS, seed)
        begun = refinement_states(task)
        assert [one.meta["gold_steps"] for one in begun] == [1, 2, 3]
        for one in begun:
            check(task, one)
            words, said_in = read_instruction(one.meta["requirement"])
            assert words == STEPS[one.meta["gold_steps"] :]
            if one.meta["gold_steps"] < 3:  # one clause may stand in several frames
                assert said_in == STYLES[style].id
            assert one.meta["has_filter"] == (one.meta["gold_steps"] < 2)


def test_a_rejecting_filter_is_never_passed() -> None:
    steps = [STEPS[0], filter_step("text_length_filter", "min", 900), *STEPS[2:]]
    begun = refinement_states(benchmark_task(0, "direct", steps))
    assert [one.meta["gold_steps"] for one in begun] == [1]
    assert begun[0].gold["status"] == "DROP"


def test_a_task_without_states_stays_whole() -> None:
    task = benchmark_task(0, "direct", STEPS)
    other = {**task.meta, "requirement": "Please tidy this up."}
    shown = [*task.prompt[:-1], {"role": "user", "content": f"{TEXT} {TEXT}"}]
    for odd in (
        replace(task, meta=other),
        replace(task, meta={}),
        replace(task, prompt=shown),
        replace(task, gold={**task.gold, "text": "something else"}),
        replace(task, gold={**task.gold, "recipe": [{"operator": "nothing_mapper"}]}),
        replace(task, gold={k: v for k, v in task.gold.items() if k != "recipe"}),
        benchmark_task(0, "direct", STEPS[:1]),
    ):
        assert refinement_states(odd) == []
    assert states_of(Task("t", "answer", "x", "train", [], {})) == ()
