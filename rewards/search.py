"""Searches that optimise against a scorer, from the empty answer, and never see gold.

`climb` answers one task and is told its score after every try: what it reaches without the outcome
is what the reward pays for nothing. `breed` looks for one policy for many tasks, made of the pieces
that prompts show: what it reaches on tasks it did not search on is what training could learn to
earn without the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from rewards.family import Family
from rewards.policies import CONSTANTS, PIECES, Policy, Shown, in_form, shown
from rewards.seeds import derive_seed
from rewards.task import Answer, Score, Task

Scorer = Callable[[Task, Answer], Score]
MOST_CHARS = 20_000
_JOINTS = ("", " ", "\n", ", ", " or ")
_FACTORS = (0.1, 0.5, 0.9, 1.1, 2.0, 10.0)


@dataclass(frozen=True)
class Climbed:
    """The best answer of one climb: its score, the most that any try earned beyond its outcome,
    and how many calls were made."""

    outcome: float
    reward: float
    beyond: float
    calls: int
    answer: str


@dataclass(frozen=True)
class _Try:
    form: str
    text: str


def climb(family: Family, task: Task, score: Scorer, calls: int, seed: int) -> Climbed:
    """Hill climbing on the reward of one task, from the empty answer, in `calls` scorer calls.

    A change is kept when it earns as much or more, so that plateaus are crossed; after 50 calls
    without a gain the search starts again from the empty answer.
    """
    rng = Random(derive_seed(seed, "climb", task.id))
    forms, piece = list(family.forms), shown(task)
    empty = _Try(forms[0], "")
    here, earned, stale = empty, -1.0, 0
    best = Climbed(0.0, 0.0, 0.0, 0, "")
    beyond = 0.0
    for call in range(calls):
        tried = empty if call == 0 else _changed(here, piece, forms, rng)
        found = score(task, in_form(family, tried.form, task, tried.text))
        outcome, reward = found.outcome or 0.0, found.reward or 0.0
        beyond = max(beyond, reward - outcome)
        if (reward, outcome) > (best.reward, best.outcome):
            best = Climbed(outcome, reward, 0.0, 0, f"[{tried.form}] {tried.text}")
        stale = 0 if reward > earned else stale + 1
        if reward >= earned:
            here, earned = tried, reward
        if stale > 50:
            here, earned, stale = empty, -1.0, 0
    return Climbed(best.outcome, best.reward, beyond, calls, best.answer)


def _changed(here: _Try, piece: Shown, forms: Sequence[str], rng: Random) -> _Try:
    """One random change of form or text."""
    if len(forms) > 1 and rng.random() < 0.2:
        return _Try(rng.choice(forms), here.text)
    change = rng.choice((_set, _add, _cut, _swap, _number, _again))
    return _Try(here.form, change(here.text, piece, rng)[:MOST_CHARS])


def _ingredient(piece: Shown, rng: Random) -> str:
    pools = (piece.words, piece.numbers, piece.quoted, CONSTANTS)
    pool = rng.choice([p for p in pools if p])
    return rng.choice(pool)


def _set(text: str, piece: Shown, rng: Random) -> str:
    if rng.random() < 0.5:
        return PIECES[rng.choice([*PIECES])](piece)
    return _ingredient(piece, rng)


def _add(text: str, piece: Shown, rng: Random) -> str:
    more = _ingredient(piece, rng)
    joint = rng.choice(_JOINTS)
    return f"{text}{joint}{more}" if rng.random() < 0.7 else f"{more}{joint}{text}"


def _cut(text: str, piece: Shown, rng: Random) -> str:
    if not text:
        return _ingredient(piece, rng)
    start = rng.randrange(len(text))
    return text[:start] + text[start + rng.randint(1, max(1, min(40, len(text) // 2))) :]


def _swap(text: str, piece: Shown, rng: Random) -> str:
    words = text.split(" ")
    words[rng.randrange(len(words))] = _ingredient(piece, rng)
    return " ".join(words)


def _again(text: str, piece: Shown, rng: Random) -> str:
    return text + rng.choice(_JOINTS) + text


def _number(text: str, piece: Shown, rng: Random) -> str:
    try:
        value = float(text)
    except ValueError:
        return rng.choice(piece.numbers) if piece.numbers else str(rng.randint(0, 100))
    made = value + rng.choice((-1, 1)) if rng.random() < 0.5 else value * rng.choice(_FACTORS)
    return f"{made:.10g}"


# --- one policy for many tasks ------------------------------------------------------------------

_WRITTEN: Mapping[str, Callable[[Shown], str]] = {
    **PIECES,
    **{f"{c!r}": (lambda shown, c=c: c) for c in CONSTANTS},
    "'the '": lambda shown: "the ",
    "'<answer>'": lambda shown: "<answer>",
    "'</answer>'": lambda shown: "</answer>",
}


@dataclass(frozen=True)
class Recipe:
    """A policy: pieces of the prompt in an order, how they are joined and handed in."""

    form: str
    parts: tuple[str, ...]
    joint: str

    def text(self, task: Task) -> str:
        """The text that it answers this task with."""
        piece = shown(task)
        return self.joint.join(_WRITTEN[part](piece) for part in self.parts)[:MOST_CHARS]

    def said(self) -> str:
        """The recipe in a few words."""
        parts = f" {self.joint!r} ".join(self.parts) or "nothing"
        return f"{parts} [{self.form}]"


def breed(
    family: Family, tasks: Sequence[Task], score: Scorer, calls: int, seed: int
) -> tuple[Policy, int]:
    """(the policy with the highest mean reward over `tasks`, scorer calls made).

    Evolution of one recipe, from nothing said: each of `calls // len(tasks)` steps changes it and
    keeps the change when the mean reward is no lower.
    """
    rng = Random(derive_seed(seed, "breed", *(task.id for task in tasks)))
    forms = list(family.forms)
    here = Recipe(forms[0], (), " ")
    best, earned, highest, made = here, -1.0, -1.0, 0
    for step in range(calls // max(1, len(tasks))):
        tried = here if step == 0 else _bred(here, forms, rng)
        mean = _mean(family, tried, tasks, score)
        made += len(tasks)
        if mean >= earned:
            here, earned = tried, mean
        if mean > highest:
            best, highest = tried, mean
    return Policy(best.said(), lambda task: in_form(family, best.form, task, best.text(task))), made


def _mean(family: Family, tried: Recipe, tasks: Sequence[Task], score: Scorer) -> float:
    total = 0.0
    for task in tasks:
        found = score(task, in_form(family, tried.form, task, tried.text(task)))
        total += found.reward or 0.0
    return total / len(tasks)


def _bred(here: Recipe, forms: Sequence[str], rng: Random) -> Recipe:
    parts = list(here.parts)
    move = rng.randrange(5)
    if move == 0 and len(forms) > 1:
        return Recipe(rng.choice(forms), here.parts, here.joint)
    if move == 1:
        return Recipe(here.form, here.parts, rng.choice(_JOINTS))
    if move == 2 and parts:
        parts.pop(rng.randrange(len(parts)))
    elif move == 3 and parts:
        parts[rng.randrange(len(parts))] = rng.choice([*_WRITTEN])
    elif len(parts) < 8:
        parts.insert(rng.randint(0, len(parts)), rng.choice([*_WRITTEN]))
    return Recipe(here.form, tuple(parts), here.joint)
