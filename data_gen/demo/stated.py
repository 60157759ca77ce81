"""Tasks whose answers write the state after every step before the result (`states=true`)."""

from __future__ import annotations

from dataclasses import replace

from rewards.cdr.process import bound_recipe, recipe_of
from rewards.cdr.refinement import gold_answer
from rewards.cdr.written import MODE, TAG, written
from rewards.gold import run_bound
from rewards.task import Task, TaskError

LEAST = 128  # tokens of an answer
STATES_SYSTEM = (
    "Do the steps in order. After each write <state>text so far</state>, or where it may reject "
    "<check>count: KEEP</check>; stop at DROP. Then answer "
    "<status>KEEP</status><clean_text>result</clean_text>, or DROP and the text so far."
)


def with_states(task: Task, brief: bool = False) -> Task:
    """The task in the mode `states`: another system message (none is needed where it is `brief`),
    and gold with the entry of every executed step. Raises `TaskError` where a text holds a tag of
    the format."""
    steps = bound_recipe(task.gold)
    run = run_bound(str(task.gold["input_text"]), steps)
    if any(TAG.search(text) for text in run.states):
        raise TaskError(f"task {task.id}: its text holds a tag of the states' format; leave it out")
    prompt = task.prompt if brief else [{"role": "system", "content": STATES_SYSTEM}]
    prompt = prompt if brief else [*prompt, *task.prompt[1:]]
    gold = {**task.gold, "mode": MODE, "written": written(recipe_of(task.gold), steps, run)}
    # Two tokens for three characters: tags and numbers have few characters a token. A power of
    # two, so that an evaluation has few kinds of tasks.
    room = 1 << (max(LEAST, len(gold_answer(gold)) * 2 // 3) - 1).bit_length()
    meta = {**task.meta, "mode": MODE, "answer_tokens": room}
    return replace(task, prompt=prompt, gold=gold, meta=meta)
