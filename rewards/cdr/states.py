"""A refinement task's exact states: tasks begun after k of their steps, and the states as an answer
writes them (`rewards.cdr.written`).

The executors give the state; the words that say the first k steps are cut from the instruction, in
the two grammars that tasks are written in. A task whose words are read by neither has no states.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.task import Task
from rewards.cdr.language import read_clauses
from rewards.cdr.recipes import bound_recipe, recipe_of
from rewards.gold import BoundStep, Execution, GoldError, Step, run_bound
from rewards.parse import normalise

_NUMBERED = re.compile(r"(?:^|\. )(\d+)\. ")  # of a list in the demo's words


def refinement_states(task: Task) -> list[Task]:
    """The task after 1, 2, … of its steps, up to one that is left: each with its state as the
    input, words and recipe of the steps that remain, and the same gold.

    Never past a filter that rejects. Empty where the recipe cannot be executed to the task's gold,
    or where its words cannot be cut. Pure: the same task gives the same tasks.
    """
    gold, said = task.gold, str(task.meta.get("requirement") or "")
    recipe = list(recipe_of(gold))
    try:
        run = run_bound(str(gold["input_text"]), bound_recipe(gold))
    except (GoldError, KeyError, ValueError, TypeError, RecursionError):
        return []
    if (run.status, run.text) != (gold.get("status"), gold.get("text")) or not said:
        return []
    # what runs: all steps, or those up to the filter that rejects
    made = (begun(task, recipe, run, said, k) for k in range(1, len(run.trace)))
    return [one for one in made if one is not None]


def begun(task: Task, recipe: list[Step], run: Execution, said: str, k: int) -> Task | None:
    """The task after `k` steps; None where nothing is left of its text, or its words or prompt
    cannot be cut there."""
    done = sum(entry["kind"] == "mapper" for entry in run.trace[:k])
    state, rest = run.states[done], recipe[k:]
    words = remaining(said, recipe, k, "style" in task.meta)
    prompt = _shown(task, said, words, state) if words else None
    if prompt is None or not normalise(state):
        return None
    made: dict[str, Any] = {
        "input_text": state,
        "recipe": [{"operator": s.operator, "params": dict(s.params)} for s in rest],
    }
    if "states" in task.gold:
        made["states"] = run.states[done:]
    if "written" in task.gold:  # one entry for each executed step
        made["written"] = list(task.gold["written"])[k:]
    meta = {**task.meta, "requirement": words, "gold_steps": k}
    if "has_filter" in meta:
        meta["has_filter"] = any(s.operator.endswith("_filter") for s in rest)
    name = f"{task.id}+{k}"
    return replace(task, id=name, prompt=prompt, gold={**task.gold, **made}, group=None, meta=meta)


def _shown(task: Task, said: str, words: str, state: str) -> list[dict[str, str]] | None:
    """The prompt with other words and another text; None unless its last message has both once."""
    source, content = str(task.gold["input_text"]), task.prompt[-1]["content"]
    if not source or content.count(said) != 1 or content.count(source) != 1:
        return None
    at, text = content.index(said), content.index(source)
    if text < at + len(said):
        return None
    made = content[:at] + words + content[at + len(said) : text] + state
    last = {**task.prompt[-1], "content": made + content[text + len(source) :]}
    return [*task.prompt[:-1], last]


def remaining(said: str, recipe: Sequence[Step], k: int, styled: bool) -> str:
    """What is left of an instruction without its first `k` steps; "" where it cannot be cut.
    `styled`: in one of the benchmark's styles, else in the demo's words."""
    return _cut_styled(said, recipe, k) if styled else _cut_plain(said, len(recipe), k)


def _cut_styled(said: str, recipe: Sequence[Step], k: int) -> str:
    """Opening, the clauses that remain with what joins them, closing; numbers begin anew."""
    clauses = read_clauses(said)
    if [c.step for c in clauses] != [*recipe]:
        return ""
    text = said[: clauses[0].start] + said[clauses[k].start : clauses[k].end]
    for number in range(k + 1, len(clauses)):
        join = said[clauses[number - 1].end : clauses[number].start]
        text += re.sub(r"\d+", str(number - k + 1), join)
        text += said[clauses[number].start : clauses[number].end]
    text += said[clauses[-1].end :]
    text = text[0].upper() + text[1:]
    return text if [c.step for c in read_clauses(text)] == [*recipe[k:]] else ""


def _cut_plain(said: str, steps: int, k: int) -> str:
    """The same of a numbered list, a chain (`First …, then …`) or a brief note (`…; ….`)."""
    if not said.endswith("."):
        return ""
    body = said[:-1]
    if numbers := _NUMBERED.findall(body):
        clauses = _NUMBERED.split(body)[2::2]
        if numbers != [str(i + 1) for i in range(steps)] or len(clauses) != steps:
            return ""
        return " ".join(f"{i}. {clause}." for i, clause in enumerate(clauses[k:], 1))
    chain = body.startswith("First ")
    clauses = body.removeprefix("First ").split(", then ") if chain else body.split("; ")
    if len(clauses) != steps:
        return ""
    left = clauses[k:]
    if chain and len(left) > 1:
        return "First " + ", then ".join(left) + "."
    text = "; ".join(left) + "."
    return text[0].upper() + text[1:]


def written(recipe: Sequence[Step], steps: Sequence[BoundStep], run: Execution) -> list[str]:
    """The entries of a right answer: one for each step that was executed, in their tags."""
    entries: list[str] = []
    done = 0
    for entry, asked, step in zip(run.trace, recipe, steps, strict=False):
        if entry["kind"] == "mapper":
            done += 1
            entries.append(f"<state>{run.states[done]}</state>")
        else:
            entries.append(f"<check>{_said(entry, asked, step)}</check>")
    return entries


def _said(entry: Mapping[str, Any], asked: Step, step: BoundStep) -> str:
    """What a filter measured against the bounds that its step names, and its verdict."""
    verdict = str(entry["status"])
    value = entry["stats"].get(step.operator.stat_key)
    if step.verdict is not None or step.closed != (True, True, False) or not _is_number(value):
        return verdict
    low, high = (asked.params.get(name) for name in step.operator.bounds)
    if low and value < low:
        return f"{_plain(value)} < {_plain(low)}: {verdict}"
    if high is not None and value > high:
        return f"{_plain(value)} > {_plain(high)}: {verdict}"
    bounds = [f" >= {_plain(low)}"] if low else []
    bounds += [f" <= {_plain(high)}"] if high is not None else []
    return f"{_plain(value)}{','.join(bounds)}: {verdict}"


def _plain(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
