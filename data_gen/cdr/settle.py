"""What a described result is: the text that every order of the steps its words allow leads to.

A description says which mappers have nothing left to do, and of some pairs which of the two comes
first. It is settled on a text when all orders that it allows give one result. Orders are told
apart state by state: whatever two orders have done alike is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rewards.gold import OPERATORS, Step

Apply = Callable[[str, str], str]  # a mapper and a text: the text it makes of it
Judge = Callable[[Step, str], bool]  # a filter and a text: whether it is kept
Pairs = frozenset[tuple[str, str]]  # mappers of which the first is done before the second

MOST = 5  # mappers whose orders are compared with one another: 2^5 states of a text


@dataclass(frozen=True)
class Judged:
    """A filter with its bound, and the manner of its words."""

    operator: str
    bound: str
    value: float
    manner: int = 0

    @property
    def step(self) -> Step:
        return Step(self.operator, {self.bound: self.value})


@dataclass(frozen=True)
class Outcome:
    """A result in words: `states` are mappers with the manner of their words, in no order.

    Of a pair (a, b) in `once`, what b sees to is what is there once a is done; of one in `ahead`,
    what a sees to is what is there before b is done: both say that a comes first. `judged` is the
    filter, on the text that the mappers of `before` alone have made.
    """

    states: frozenset[tuple[str, int]]
    once: Pairs = frozenset()
    ahead: Pairs = frozenset()
    judged: Judged | None = None
    before: frozenset[str] = frozenset()

    @property
    def mappers(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.states)


def settled(outcome: Outcome, text: str, apply: Apply, judge: Judge) -> tuple[str, str] | None:
    """(status, text) that the words lead to; None where orders that they allow do not agree."""
    mappers, pairs = outcome.mappers, outcome.once | outcome.ahead
    if outcome.judged is not None:
        found = _made(outcome.before, pairs, text, apply)
        if found is None or not judge(outcome.judged.step, found):
            return None if found is None else ("DROP", found)
        text, mappers = found, mappers - outcome.before
    found = _made(mappers, pairs, text, apply)
    return None if found is None else ("KEEP", found)


def _made(names: Iterable[str], pairs: Pairs, text: str, apply: Apply) -> str | None:
    found, conflict = _walk(sorted(names), pairs, text, apply)
    return None if conflict else found


def in_words(outcome: Outcome, steps: Sequence[Step], manners: Sequence[int]) -> Outcome:
    """The outcome with the words of every step in its manner."""
    of = {step.operator: manner for step, manner in zip(steps, manners, strict=True)}
    judged = outcome.judged
    if judged is not None:
        judged = replace(judged, manner=of[judged.operator])
    states = frozenset((name, of[name]) for name in outcome.mappers)
    return replace(outcome, states=states, judged=judged)


def claims(
    outcome: Outcome, text: str, steps: Sequence[Step], apply: Apply
) -> Iterator[tuple[str, str]]:
    """(mapper, text) of everything that is said of the result and of a rejected text, but for what
    is meant ahead of another step. The steps are those of the recipe, in its order."""
    done: list[str] = []
    ends: list[tuple[list[str], str]] = []
    for step in steps:
        if step.operator in outcome.mappers:
            text = apply(step.operator, text)
            done.append(step.operator)
        else:
            ends.append(([*done], text))
    ahead = {first for first, _ in outcome.ahead}
    for names, made in [*ends, (done, text)]:
        yield from ((name, made) for name in names if name not in ahead)


def described(text: str, steps: Sequence[Step], apply: Apply) -> Outcome | str:
    """The recipe as a description of its result on a text, with as much of its order as the
    result depends on; else why no description of it is true, in one word with underscores.

    A mapper's state is true when it finds nothing in the result. Where a later step brings back
    what it took out, the words have to say that it is meant before that step.
    """
    names = [step.operator for step in steps]
    if len(set(names)) < len(names):
        return "a_step_twice"
    kinds = [OPERATORS[name].kind for name in names]
    place = kinds.index("filter") if "filter" in kinds else len(names)
    before, after = names[:place], names[place + 1 :]
    once: set[tuple[str, str]] = set()
    made = text
    for phase in (before, after):
        pairs, made = _orders(phase, made, apply)
        once |= pairs
    mappers = before + after
    states = [text]
    for name in mappers:
        states.append(apply(name, states[-1]))
    ends = {len(mappers), len(before)} if place < len(names) else {len(mappers)}
    ahead: set[tuple[str, str]] = set()
    for i, name in enumerate(mappers):
        if all(apply(name, states[end]) == states[end] for end in ends if end > i):
            continue
        back = next(
            (j for j in range(i + 1, len(states)) if apply(name, states[j]) != states[j]), 0
        )
        if back <= i + 1:
            return "not_true_of_its_own_result"
        ahead.add((name, mappers[back - 1]))
    judged = None
    if place < len(names):
        ((bound, value),) = steps[place].params.items()
        judged = Judged(names[place], bound, value)
    return Outcome(
        frozenset((name, 0) for name in mappers),
        frozenset(once - ahead),
        frozenset(ahead),
        judged,
        frozenset(before) if judged else frozenset(),
    )


def _orders(names: Sequence[str], text: str, apply: Apply) -> tuple[set[tuple[str, str]], str]:
    """The pairs of a run of mappers whose order has to be said, and the text it makes: of up to
    `MOST` mappers those that matter, between one such block and the next all."""
    blocks = -(-len(names) // MOST)
    cuts = [len(names) * i // blocks for i in range(blocks + 1)] if blocks else []
    said: set[tuple[str, str]] = set()
    last: Sequence[str] = ()
    for start, stop in pairwise(cuts):
        block = names[start:stop]
        pairs: set[tuple[str, str]] = set()
        while True:
            found, conflict = _walk(block, frozenset(pairs), text, apply)
            if conflict is None:
                break
            pairs.add(conflict)
        said |= _reduced(pairs) | {(one, other) for one in last for other in block}
        text, last = found, block
    return said, text


def _reduced(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The pairs without those that others imply."""
    return {
        (a, c) for a, c in pairs if not any((a, b) in pairs and (b, c) in pairs for _, b in pairs)
    }


def _walk(
    names: Sequence[str], pairs: Pairs, text: str, apply: Apply
) -> tuple[str, tuple[str, str] | None]:
    """The text that all orders of the mappers lead to that keep to the pairs; or two mappers, the
    first named first, whose order matters on a way there."""
    count = len(names)
    needs = [sum(1 << i for i in range(count) if (names[i], name) in pairs) for name in names]
    layer = {0: text}
    for _ in names:
        made: dict[int, str] = {}
        by: dict[int, int] = {}
        for done, state in layer.items():
            for i in range(count):
                if done >> i & 1 or needs[i] & ~done:
                    continue
                now, result = done | 1 << i, apply(names[i], state)
                if now not in made:
                    made[now], by[now] = result, i
                elif made[now] != result:
                    first, second = sorted((i, by[now]))
                    return "", (names[first], names[second])
        layer = made
    return layer.get((1 << count) - 1, ""), None if (1 << count) - 1 in layer else ("", "")
