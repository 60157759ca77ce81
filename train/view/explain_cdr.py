"""Which step of a recipe a wrong refinement answer went wrong at.

Three sources, in this order: a change to the recipe that gives exactly this answer; the filter
whose decision the status contradicts; the characters that a step removes or makes and the answer
does not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Any

from assay.task import Answer, Task
from rewards.cdr.recipes import bound_recipe, recipe_of
from rewards.cdr.score import result_of
from rewards.gold import BoundStep, Execution, GoldError, run_bound
from rewards.gold.catalog import described
from rewards.parse import normalise, parse_strict
from train.view.explain import (
    ANSWER,
    GOLD,
    INPUT,
    NO_STEP,
    Char,
    Explanation,
    Finding,
    Step,
    Work,
    align,
    plain_spine,
    spine,
)

_MOST_PERMUTED = 4  # recipes up to this length are compared with all their orders
_EXPLAINED_CHARS = 20_000  # above, no search for a recipe that gives exactly this answer

_NO_FORM = (
    "No step can be named: the answer does not have the form asked for, one status tag and one "
    "text tag."
)


Change = tuple[frozenset[int], str]
"""A change to a recipe: the steps that it is about (none: those that the answer's differences are
put down to), and the change in words, "" for the recipe as it is."""


@dataclass(frozen=True)
class _Known:
    """A task's work, with what it takes to align answers with it."""

    work: Work
    spine: tuple[Char, ...]
    filters: tuple[tuple[int, str, str], ...] = ()  # (step, what it said, the text it saw)
    exact: Mapping[tuple[str, str], Change] | None = None


def explain(task: Task, answer: Answer) -> Explanation:
    """The task's recipe with its states, and where the answer leaves it. Never raises on what a
    model wrote; a recipe that cannot be executed is said in `Work.unknown`."""
    known = _known(json.dumps(task.gold, sort_keys=True))
    work = known.work
    said = parse_strict(result_of(task.gold, answer.text))
    if said.why != "ok":
        return Explanation(work, Finding(answer.text, "", (), (), _NO_FORM))
    segments = align(known.spine, work.input, work.gold, said.text)
    same_text = normalise(said.text) == normalise(work.gold)
    spaces = same_text and said.text != work.gold
    wrong, words = _judged(known, said.status, said.text, segments, same_text)
    return Explanation(
        work, Finding(said.text, said.status, segments, tuple(sorted(wrong)), words, spaces)
    )


@lru_cache(maxsize=256)
def _known(gold_json: str) -> _Known:
    gold: dict[str, Any] = json.loads(gold_json)
    source = str(gold.get("input_text") or "")
    label = str(gold.get("status") or gold.get("reference_status") or "")
    target = str(gold.get("text", gold.get("reference_text", "")))
    if not recipe_of(gold):
        return _unknown(source, target, label, "the task carries no recipe")
    try:
        steps = bound_recipe(gold)
        run = run_bound(source, steps)
    except (GoldError, ValueError, RecursionError) as error:
        return _unknown(source, target, label, f"the recipe cannot be executed here ({error})")
    if (run.status, run.text) != (label, target):
        return _unknown(source, target, label, "the recipe gives another text here than gold")
    mappers = [i for i, step in enumerate(steps) if step.operator.kind == "mapper"]
    stop = _stop(run, mappers)
    work = Work(source, target, label, tuple(_steps(steps, run)))
    exact = counterfactuals(gold) if len(source) <= _EXPLAINED_CHARS else None
    return _Known(
        work, spine(run.states, mappers, stop), tuple(_filters(steps, run, mappers)), exact
    )


def _unknown(source: str, target: str, label: str, why: str) -> _Known:
    return _Known(Work(source, target, label, (), why), plain_spine(source, target))


def _stop(run: Execution, mappers: Sequence[int]) -> int:
    """How many mappers ran before the text was rejected; all of them for KEEP."""
    last = run.trace[-1]["step_index"] if run.trace else -1
    return sum(i <= last for i in mappers) if run.status == "DROP" else len(mappers)


def _steps(steps: Sequence[BoundStep], run: Execution) -> Iterator[Step]:
    """The recipe as executed: what each step is, whether it changed the text, and the text then."""
    seen = {int(entry["step_index"]): entry for entry in run.trace}
    text, at = run.states[0], 0
    for index, step in enumerate(steps):
        before = text
        if step.operator.kind == "mapper":
            at += 1
            text = run.states[at]
        entry = seen.get(index)
        words = [described(step.operator)["summary"].rstrip(".")]
        if entry is None:
            words.append("not reached: the text was rejected before")
        elif step.operator.kind == "filter":
            words.append(_decision(step, entry))
        changes = entry is not None and (step.operator.kind == "filter" or text != before)
        yield Step(
            step.operator.name, step.operator.kind, "; ".join(filter(None, words)), changes, text
        )


def _decision(step: BoundStep, entry: Mapping[str, Any]) -> str:
    """`measured num_words 34, wanted at least 18: keeps`."""
    stats = ", ".join(f"{name} {_short(value)}" for name, value in entry["stats"].items())
    low = f"at least {_short(step.low)}" if step.low is not None else ""
    high = f"at most {_short(step.high)}" if step.high is not None and step.high < 1e18 else ""
    wanted = " and ".join(filter(None, (low, high)))
    head = f"measured {stats}" + (f", wanted {wanted}" if wanted else "")
    return f"{head}: {'keeps' if entry['keep'] else 'rejects'}"


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else str(value)


def _filters(
    steps: Sequence[BoundStep], run: Execution, mappers: Sequence[int]
) -> Iterator[tuple[int, str, str]]:
    for entry in run.trace:
        index = int(entry["step_index"])
        if steps[index].operator.kind == "filter":
            state = run.states[sum(i < index for i in mappers)]
            yield index, "KEEP" if entry["keep"] else "DROP", state


def _judged(
    known: _Known,
    status: str,
    text: str,
    segments: Sequence[tuple[int, int, int]],
    same_text: bool,
) -> tuple[set[int], str]:
    """(steps that went wrong, why in words)."""
    work = known.work
    right_status = status == work.label
    if right_status and same_text:
        return set(), "Status and text are those of gold."
    if work.unknown:
        return set(), f"No step can be named: {work.unknown}."
    blamed, words = _blamed(known, text, segments) if not same_text else (set[int](), [])
    if not right_status:
        found, said = _of_status(known, status, text)
        blamed |= found
        words = [said, *words]
    steps, change = (known.exact or {}).get((status, normalise(text)), (frozenset[int](), ""))
    if change:
        said = f"This is exactly what the recipe gives when {change}."
        return set(steps & blamed or steps or blamed), " ".join([said, *words])
    return blamed, " ".join(words)


def _of_status(known: _Known, status: str, text: str) -> tuple[set[int], str]:
    steps = known.work.steps
    rejecting = [i for i, said, _ in known.filters if said == "DROP"]
    if status == "KEEP" and rejecting:
        i = rejecting[0]
        return {i}, f"Step {i + 1} ({steps[i].name}) rejects the text, and the answer says KEEP."
    passed = [(i, state) for i, said, state in known.filters if said == "KEEP"]
    if not passed:
        return set(), f"The recipe has no filter that could reject, and the answer says {status}."
    # where the answer stopped: at the filter whose text it hands in; the first one in a tie
    near = min(passed, key=lambda one: abs(len(one[1]) - len(text)) + (one[1] != text))[0]
    return {near}, (
        f"Step {near + 1} ({steps[near].name}) keeps the text, and the answer says {status}."
    )


# what differs, in the order in which it is said
_SAID = (
    "{step} removes {many} still there.",
    "The answer lacks {many} that no step removes.",
    "It has {many} of neither the input nor gold.",
    "{step} was not reached, and the answer carries it out.",
    "{step} writes {many} missing here.",
)
# (bits, whether a step is known) → which of these
_KINDS = {
    (INPUT | ANSWER, True): 0,
    (GOLD, False): 1,
    (INPUT | GOLD, False): 1,
    (INPUT | ANSWER, False): 2,
    (ANSWER, False): 2,
    (INPUT | GOLD, True): 3,
    (GOLD, True): 4,
}


def _blamed(
    known: _Known, text: str, segments: Sequence[tuple[int, int, int]]
) -> tuple[set[int], list[str]]:
    """Steps with characters that the answer has wrong, and what they are in words. Blanks count
    only where nothing else is wrong."""
    work = known.work
    texts, at = {ANSWER: text, GOLD: work.gold, INPUT: work.input}, Counter[int]()
    every, visible = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for bits, length, step in segments:
        mine = next(bit for bit in texts if bits & bit)
        chars = texts[mine][at[mine] : at[mine] + length]
        at.update({bit: length for bit in texts if bits & bit})
        kind = _KINDS.get((bits, step != NO_STEP))
        if kind is not None:
            every[kind, step] += length
            visible[kind, step] += sum(not c.isspace() for c in chars)
    counts = sorted((+visible or every).items())
    words = [
        _SAID[kind].format(
            step=f"Step {step + 1} ({work.steps[step].name})",
            many=f"{number} character{'s' * (number != 1)}",
        )
        for (kind, step), number in counts
    ]
    return {step for (_, step), _ in counts if step != NO_STEP}, words


def counterfactuals(gold: Mapping[str, Any]) -> dict[tuple[str, str], Change]:
    """(status, normalised text) → the simplest change to the recipe that gives it. Raises what the
    gold executors raise for a recipe that cannot be executed."""
    source, steps = str(gold["input_text"]), bound_recipe(gold)
    names, run = [step.operator.name for step in steps], run_bound(source, steps)
    found: dict[tuple[str, str], Change] = {}

    def note(status: str, text: str, words: str, about: Collection[int] = ()) -> None:
        found.setdefault((status, normalise(text)), (frozenset(about), words))

    def note_run(order: Sequence[int], words: str, name: str = "") -> None:
        done = run_bound(source, [steps[i] for i in order])
        note(done.status, done.text, words, [i for i, own in enumerate(names) if own == name])

    note(run.status, run.text, "")
    filters = [i for i, step in enumerate(steps) if step.operator.kind == "filter"]
    if filters:
        seen = {int(entry["step_index"]): entry for entry in run.trace}
        rejecting = [i for i in filters if i in seen and not seen[i]["keep"]]
        for status in ("KEEP", run.status):
            note(status, run.full_run_text, "the filter is ignored", rejecting)
    note(run.status, source, "nothing is changed")
    every = range(len(steps))
    for i in every:
        note_run([*every[:i], *every[i + 1 :]], f"{names[i]} is left out", names[i])
    for i in every:
        note_run([*every[: i + 1], *every[i:]], f"{names[i]} is run twice", names[i])
    orders = permutations(every) if len(steps) <= _MOST_PERMUTED else _swaps(len(steps))
    for order in orders:
        if list(order) != sorted(order):
            detail = " ".join(names[i] for i in order)
            note_run(order, f"the steps are run in another order ({detail})")
    for k, state in enumerate(run.states[1:-1], 1):
        stops = f"it stops after its first {'mapper' if k == 1 else f'{k} mappers'}"
        note("KEEP", state, stops)
        note("DROP", state, f"{stops} and says DROP")
    return found


def _swaps(count: int) -> Iterator[tuple[int, ...]]:
    for i in range(count - 1):
        yield (*range(i), i + 1, i, *range(i + 2, count))
