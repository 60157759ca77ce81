"""What is wrong with an answer, character by character and step by step, for people to read.

A task's work is its input, its gold and the steps between them. An answer is aligned with both, and
every difference is put down to the step that should have made, or not made, a change there. Nothing
here is a score.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, groupby
from typing import Any

from assay.family import Family, family_named, gold_answer, without_thoughts
from assay.task import Answer, Task

Code = tuple[str, int, int, int, int]  # tag, from and to in the old text, from and to in the new
INPUT, GOLD, ANSWER = 1, 2, 4  # bits of a segment: which of the three texts hold its characters
NO_STEP = -1
_WORD = re.compile(r"\w+|\s|[^\w\s]")
_ISLAND = 2  # equal characters between two longer differences that are read as one difference


@dataclass(frozen=True)
class Step:
    """One step of a task's work. `detail`: parameters or what it measured, in words. `changes`:
    gold's run of it changed the text, or it decides the status. `after`: the text behind it."""

    name: str
    kind: str
    detail: str = ""
    changes: bool = True
    after: str | None = None


@dataclass(frozen=True)
class Work:
    """What a task asks for. `label` is gold's class (a status), `unknown` says why there are no
    steps, in one sentence, and is "" where they are known."""

    input: str
    gold: str
    label: str = ""
    steps: tuple[Step, ...] = ()
    unknown: str = ""


@dataclass(frozen=True)
class Finding:
    """How an answer differs from gold. `segments` are (bits, length, step) in the order of the
    texts; `wrong` are the indices of the steps that went wrong, in the recipe's order; `said` says
    it in words; `spaces_only`: the texts differ in nothing that counts."""

    text: str
    label: str
    segments: tuple[tuple[int, int, int], ...]
    wrong: tuple[int, ...] = ()
    said: str = ""
    spaces_only: bool = False


@dataclass(frozen=True)
class Explanation:
    """What `Family.explain` returns: the task's side and the answer's side."""

    work: Work
    finding: Finding


Char = tuple[int, int, int]
"""A character on the way from input to gold: its bits (kept: both), the step that removed it (of
the input alone) or made it (of gold alone), and a step behind the stop that would have removed it
where it is kept."""


def spine(states: Sequence[str], steps: Sequence[int], stop: int) -> tuple[Char, ...]:
    """The characters from `states[0]` to `states[stop]`; `steps[k]` is the number of the step
    between state k and state k + 1, also for the states behind the stop."""
    removed, gold = _traced(states[: stop + 1], steps[:stop])
    later, _ = _traced(states[stop:], steps[stop:])
    found: list[Char] = []
    at = 0
    for (place, made), behind in zip(gold, later, strict=True):
        if place < 0:
            found.append((GOLD, made, behind))
            continue
        found += [(INPUT, gone, NO_STEP) for gone in removed[at:place]]
        found.append((INPUT | GOLD, NO_STEP, behind))
        at = place + 1
    return (*found, *((INPUT, gone, NO_STEP) for gone in removed[at:]))


def _traced(states: Sequence[str], steps: Sequence[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """(the step that removed each character of the first state, of each character of the last one
    its place in the first, or -1, and the step that made it)."""
    removed = [NO_STEP] * len(states[0])
    chars = [(i, NO_STEP) for i in range(len(states[0]))]
    for old, new, step in zip(states, states[1:], steps, strict=False):
        kept: list[tuple[int, int]] = []
        for tag, a, b, c, d in _opcodes(old, new):
            if tag == "equal":
                kept += chars[a:b]
                continue
            for place, _ in chars[a:b]:
                if place >= 0:
                    removed[place] = step
            kept += [(-1, step)] * (d - c)
        chars = kept
    return removed, chars


def plain_spine(source: str, gold: str) -> tuple[Char, ...]:
    """The characters where no step is known."""
    return spine([source, gold], [NO_STEP], 1)


@lru_cache(maxsize=512)
def _opcodes(old: str, new: str) -> tuple[Code, ...]:
    """Edits in characters, found word by word first: of all shortest edits between characters most
    tear words apart."""
    from rapidfuzz.distance import Levenshtein  # scorers that travel do without it

    out: list[Code] = []
    olds, news = _WORD.findall(old), _WORD.findall(new)
    at_old, at_new = [0, *accumulate(map(len, olds))], [0, *accumulate(map(len, news))]
    for op in Levenshtein.opcodes(olds, news):
        a, b = at_old[op.src_start], at_old[op.src_end]
        c, d = at_new[op.dest_start], at_new[op.dest_end]
        if op.tag != "replace":
            out.append((op.tag, a, b, c, d))
            continue
        inner = Levenshtein.opcodes(old[a:b], new[c:d])
        out += [
            (o.tag, a + o.src_start, a + o.src_end, c + o.dest_start, c + o.dest_end) for o in inner
        ]
    return tuple(out)


def align(
    chars: Sequence[Char], source: str, gold: str, answer: str
) -> tuple[tuple[int, int, int], ...]:
    """Segments (bits, length, step) of input, gold and answer; `chars`: the spine from input to
    gold. `step` names who removed or made the characters, or for gold's characters that the answer
    lacks who would have removed them. Characters that the answer has and gold has not are left over
    where they match removed ones of the same stretch, else invented."""
    of_gold = [*(i for i, (bits, _, _) in enumerate(chars) if bits & GOLD), len(chars)]
    end = ("equal", len(gold), len(gold), len(answer), len(answer))
    found: list[tuple[int, int]] = []  # bits and step, character by character
    at = place = 0  # in the spine, in the input
    extra = ""
    for tag, a, b, c, d in (*_readable(_opcodes(gold, answer)), end):
        if tag != "equal":
            extra += answer[c:d]
            continue
        stretch, at = chars[at : of_gold[a]], of_gold[a]
        length = sum(bits & INPUT for bits, _, _ in stretch)
        matched: dict[int, int] = {}
        for same, i, j, k, _ in _opcodes(source[place : place + length], extra) if extra else ():
            if same == "equal":
                matched |= zip(range(place + i, place + j), range(k, k + j - i), strict=True)
        used = 0
        for bits, step, later in stretch:
            here = matched.get(place) if bits == INPUT else None
            place += bits & INPUT
            if here is not None:
                found += [(ANSWER, NO_STEP)] * (here - used)
                bits, used = bits | ANSWER, here + 1
            found.append((bits, later if bits == INPUT | GOLD else step))
        found += [(ANSWER, NO_STEP)] * (len(extra) - used)
        extra = ""
        if b > a:
            same = chars[at : of_gold[b - 1] + 1]
            found += [(bits | ANSWER if bits & GOLD else bits, step) for bits, step, _ in same]
            at += len(same)
            place += sum(bits & INPUT for bits, _, _ in same)
    return tuple((bits, len([*run]), step) for (bits, step), run in groupby(found))


def _readable(codes: Sequence[Code]) -> list[Code]:
    """Without islands of a character or two inside a difference: nobody reads those."""

    def size(code: Code) -> int:
        return max(code[2] - code[1], code[4] - code[3])

    out: list[Code] = []
    for number, code in enumerate(codes):
        inside = 0 < number < len(codes) - 1
        island = code[0] == "equal" and inside and size(code) <= _ISLAND
        if island and min(size(codes[number - 1]), size(codes[number + 1])) > _ISLAND:
            code = ("replace", *code[1:])
        out.append(code)
    return out


# --- gold, and where an answer leaves it

_SHOWN_GOLD = 2_000_000  # characters of one gold file


def gold_of(task: Task) -> dict[str, Any]:
    """Gold as it can be shown: its text, its files, or why there is none."""
    try:
        made = gold_answer(family_named(task.family), task)
    except Exception as error:  # a family of somebody's own, or gold that says too little
        return {"why": f"gold cannot be written out ({type(error).__name__}: {error})"}
    if made is None:
        return {"why": "gold has to be executed; the page does not run it"}
    files = {n: d.decode("utf-8", "replace") for n, d in sorted(made.files.items())}
    long = [name for name, text in files.items() if len(text) > _SHOWN_GOLD]
    for name in long:
        files[name] = f"({len(files[name])} characters, not carried here)"
    return {"text": made.text, "files": files}


EXPLAINERS = {"refinement": "train.view.explain_cdr", "sql": "train.view.explain_sql"}
# what explains an answer of a family, step by step; they execute recipes and queries


def explainer_of(family: Family) -> Callable[[Task, Answer], Explanation] | None:
    """The function that explains answers of a family; None where nobody gave one."""
    name = EXPLAINERS.get(family.name)
    return importlib.import_module(name).explain if name else family.explain


def explained(task: Task | None, row: Mapping[str, Any], text: str) -> Explanation | None:
    """Where the answer leaves gold; None where there is no text to compare with."""
    if task is None:
        return _inline(row, text)
    try:
        family = family_named(task.family)
        if explain := explainer_of(family):
            return explain(task, without_thoughts(family, task, Answer(text)))
        made = gold_answer(family, task)
    except Exception:  # a family of somebody's own: the page shows the rest
        return None
    if made is None or not made.text:
        return None
    return _texts("", made.text, text, f"family {task.family} names no steps")


def _inline(row: Mapping[str, Any], text: str) -> Explanation | None:
    """From the gold that the row itself brings along."""
    gold, source = row.get("gold_text"), row.get("input_text")
    if not isinstance(gold, str):
        return None
    why = "the task is not at hand (give its file with --tasks)"
    source = source if isinstance(source, str) else ""
    label = str(row.get("label") or "")
    said, answer = str(row.get("said") or ""), text
    if "<clean_text>" in text:
        answer = text.partition("<clean_text>")[2].partition("</clean_text>")[0]
    found = _texts(source, gold, answer, why)
    work = Work(source, gold, label, (), why)
    return Explanation(work, Finding(answer, said, found.finding.segments, (), found.finding.said))


def _texts(source: str, gold: str, answer: str, why: str) -> Explanation:
    pieces = plain_spine(source, gold) if source else plain_spine("", gold)
    segments = align(pieces, source, gold, answer)
    said = "" if answer == gold else f"No step can be named: {why}."
    return Explanation(Work(source, gold, "", (), why), Finding(answer, "", segments, (), said))
