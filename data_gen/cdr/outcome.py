"""Requests that describe the wanted result instead of the steps to it: their words, their reader,
and the text that every order of the steps that the words allow leads to.

The paper's figure of instruction styles (Fig. 12) sets styles that enumerate operations against
those that are about the outcome. These are the outcome's words: what the result holds no more, what
is true of it, of which text a part is meant where the order matters, and when and on which text it
is judged. The reader knows these clauses; it accounts for every character and gives back what is
said.

A description says which mappers have nothing left to do, and of some pairs which of the two comes
first. It is settled on a text when all orders that it allows give one result. Orders are told
apart state by state: whatever two orders have done alike is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise, product
from random import Random
from typing import Any, TypeVar

import regex

from assay.files import yaml_beside
from assay.task import TaskError, derive_seed
from configs.cdr import InstructConfig
from data_gen.cdr.instruct import (
    CONDITIONS,
    CONDITIONS_TO_THE_LETTER,
    NOUNS,
    NUMBER,
    TO_THE_LETTER,
    InstructionError,
    PromptVariant,
    pick,
    read_number,
    say_number,
)
from data_gen.cdr.units import Asked
from rewards.gold import OPERATORS, Step

T = TypeVar("T")
_MEANT = "I mean those there "
_KEPT = ("It is accepted only if", "; else it is rejected as it then stands.")
_DROPPED = ("It is rejected, as it then stands, if", ".")
_FIRST, _LAST = "before any change", "once all this holds"
_BETWEEN = " and all else is untouched"
_REST = "once all holds but before "
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


# --- the words


class OutcomeError(TaskError):
    """A text that is no description of this grammar."""


def say_outcome(outcome: Outcome, style: str, rng: Random, forms: int = 0) -> str:
    """A request for the outcome in a style. Raises KeyError for a mapper without words."""
    words = _words()
    if not outcome.states:
        opening = pick(rng, words["OPENINGS"][style]["judged"])
        return f"{opening} {_say_judged(outcome, rng, forms)}"
    said = pick(rng, words["OPENINGS"][style]["mapped"])
    said += ", ".join(_say_states(outcome, rng, forms)) + pick(rng, words["TAILS"])
    sentences = [*_say_order(outcome)]
    if outcome.judged is not None:
        sentences.append(_say_judged(outcome, rng, forms))
    return " ".join([said, *sentences])


def read_outcome(text: str) -> tuple[Outcome, str]:
    """(what is said, style). Raises `OutcomeError` unless clauses account for the whole text, and
    what they say of order is told in just these words."""
    pattern, conditions = _grammar()
    found = pattern.fullmatch(text)
    if found is None:
        raise OutcomeError(f"not a description of this grammar: {text[:60]!r}")
    states = [_state_of()[said] for said in found.captures("state")]
    names = {name for name, _ in states}
    pairs: dict[str, set[tuple[str, str]]] = {"once": set(), "before": set()}
    told = (found.captures(part) for part in ("meant", "word", "done"))
    for meant, word, done in zip(*told, strict=True):
        pairs[word] |= set(product(_named_in(meant), _named_in(done)))
    judged, before, when = None, set[str](), found["when"] or ""
    if found["left"]:
        side = int(found["start"] == _KEPT[0])
        if (side, found["left"], found["right"]) not in conditions:
            raise OutcomeError(f"no condition of this grammar: {found['left']!r}")
        name, bound, manner = conditions[side, found["left"], found["right"]]
        judged = Judged(name, bound, read_number(bound, found["number"]), manner)
        before = names if when == _LAST else _named_in(when)
        before = names - before if when.startswith(_REST) else before
    once = frozenset((first, second) for second, first in pairs["once"])
    made = Outcome(frozenset(states), once, frozenset(pairs["before"]), judged, frozenset(before))
    spoken = {name for pair in made.once | made.ahead for name in pair} | before
    if len(names) < len(states) or not spoken <= names or not (names or judged):
        raise OutcomeError("it says a thing twice, or speaks of what it does not ask for")
    wanted = _say_when(made) if judged and names else ""
    if found.captures("order") != _say_order(made) or when != wanted:
        raise OutcomeError("its order is not told in these words")
    return made, next(style for style in _words()["OPENINGS"] if found[style])


Conditions = dict[tuple[int, str, str], tuple[str, str, int]]


@cache
def _grammar() -> tuple[regex.Pattern[str], Conditions]:
    """(the pattern of every description; filter, bound and manner of a condition by its side and
    the words around its number)."""
    conditions: Conditions = {}
    for manner in (1, 0):
        for (name, bound), sides in _conditions(manner).items():
            for side, said in enumerate(sides):
                for one in said:
                    left, right = one.split("{n}")
                    conditions[side, left, right] = name, bound, manner
    words = _words()
    openings = words["OPENINGS"].items()
    mapped, alone = (
        "|".join(f"(?P<{style}>{_any(said[kind])})" for style, said in openings)
        for kind in ("mapped", "judged")
    )
    absent = [said for said, (name, _) in _state_of().items() if _is_absent(name)]
    nouns, others = (f"(?P<state>{_any(own)})" for own in (absent, _state_of().keys() - absent))
    state = f"(?:{_any(words['ABSENT'])}{nouns}(?:, (?:and )?no {nouns})*|{others})"
    order = f"By (?P<meant>[^.]+) {_MEANT}(?P<word>once|before) (?P<done>[^.]+)[.]"
    lefts = _any({left for _, left, _ in conditions})
    rights = _any({right for _, _, right in conditions})
    judged = (
        f"(?P<start>{_any([_KEPT[0], _DROPPED[0]])})(?:, (?P<when>.+?),)? (?P<left>{lefts})"
        f"(?P<number>{NUMBER})(?P<right>{rights})(?:{_any([_KEPT[1], _DROPPED[1]])})"
    )
    described = f"(?:{mapped}){state}(?:, {state})*{_any(words['TAILS'])}"
    pattern = f"(?:{described}|(?:{alone}))(?: (?P<order>{order}))*(?: {judged})?"
    return regex.compile(pattern), conditions


def _any(options: Iterable[str]) -> str:
    return f"(?:{'|'.join(map(regex.escape, sorted(options, key=len, reverse=True)))})"


def _named_in(text: str) -> set[str]:
    """The mappers of the names that stand in what is said of order."""
    known = {noun: name for name, (noun, _) in _words()["REFERENCES"].items()}
    return {known[noun] for noun in regex.findall(rf"the ({_any(known)})(?!\w)", text)}


@cache
def _words() -> dict[str, Any]:
    return yaml_beside(__file__, "outcomes.yaml")


@cache
def _states() -> dict[str, list[list[str]]]:
    """Of every mapper, by manner, what can be said of the result: nouns of what is not in it, or
    whole predicates."""
    found: dict[str, list[list[str]]] = dict(_words()["STATES"])
    for name, nouns in NOUNS.items():
        if name in found:
            continue
        longer = TO_THE_LETTER.get(name, ())
        found[name] = [[*map(str, nouns)], *([*map(str, forms)] for forms in longer)]
    return found


def _is_absent(mapper: str) -> bool:
    """Whether the result is said to hold no nouns of a mapper."""
    return mapper not in _words()["STATES"]


def _shuffled(items: Iterable[T], rng: Random) -> list[T]:
    rest = list(items)
    return [rest.pop(int(rng.random() * len(rest))) for _ in range(len(rest))]


def _say_states(outcome: Outcome, rng: Random, forms: int) -> list[str]:
    """Predicates in an order that says nothing; what is not to be there shares one verb."""
    said = {
        name: pick(rng, _states()[name][manner][: forms or None])
        for name, manner in sorted(outcome.states)
    }
    nouns = _shuffled([name for name in said if _is_absent(name)], rng)
    predicates = [said[name] for name in said if not _is_absent(name)]
    if nouns:
        verb = pick(rng, _words()["ABSENT"])
        absent = [f"no {said[name]}" for name in nouns]
        predicates.append(verb + _listed(absent, ", and ").removeprefix("no "))
    return _shuffled(predicates, rng)


def _listed(items: Sequence[str], last: str = " and ") -> str:
    """One, two and three."""
    return last.join(filter(None, (", ".join(items[:-1]), items[-1])))


def _say_done(names: Iterable[str]) -> str:
    """What is so when some mappers are done: "the links and the tags are gone"."""
    by: dict[str, list[str]] = {}
    for name in sorted(names):
        noun, done = _words()["REFERENCES"][name]
        by.setdefault(done, []).append(f"the {noun}")
    return _listed([f"{_listed(nouns)} {done}" for done, nouns in by.items()])


def _say_order(outcome: Outcome) -> list[str]:
    """A sentence for mappers that the same ones go before, or that go before the same ones."""
    made: list[str] = []
    for word, pairs in (
        ("once", [(second, first) for first, second in outcome.once]),
        ("before", sorted(outcome.ahead)),
    ):
        others: dict[str, list[str]] = {}
        for name, other in sorted(pairs):
            others.setdefault(name, []).append(other)
        alike: dict[tuple[str, ...], list[str]] = {}
        for name, own in others.items():
            alike.setdefault(tuple(own), []).append(name)
        for own, names in alike.items():
            nouns = _listed([f"the {_words()['REFERENCES'][name][0]}" for name in names])
            made.append(f"By {nouns} {_MEANT}{word} {_say_done(own)}.")
    return made


def _say_judged(outcome: Outcome, rng: Random, forms: int) -> str:
    assert outcome.judged is not None
    judged = outcome.judged
    key, value = judged.bound, judged.value
    side = int(rng.random() * 2)
    condition = pick(rng, _conditions(judged.manner)[judged.operator, key][side][: forms or None])
    start, end = (_DROPPED, _KEPT)[side]
    when = ""
    if outcome.states:
        when = f", {_say_when(outcome)},"
    return f"{start}{when} {condition.format(n=say_number(key, value, rng))}{end}"


def _say_when(outcome: Outcome) -> str:
    if not outcome.before:
        return _FIRST
    if outcome.before == outcome.mappers:
        return _LAST
    after = outcome.mappers - outcome.before
    if len(after) < len(outcome.before):
        return f"{_REST}{_say_done(after)}"
    return f"once {_say_done(outcome.before)}{_BETWEEN}"


def _conditions(manner: int) -> Any:
    return CONDITIONS_TO_THE_LETTER if manner else CONDITIONS


@cache
def _state_of() -> dict[str, tuple[str, int]]:
    """The mapper and manner of each predicate, and of each noun."""
    return {
        said: (name, manner)
        for name, manners in _states().items()
        for manner, forms in enumerate(manners)
        for said in forms
    }


@lru_cache(maxsize=20_000)
def describing(
    asked: Asked, style: str, label: str, outcome: Outcome, config: InstructConfig
) -> PromptVariant:
    """The variant of a style of a recipe that describes its outcome. It is read back; raises
    `InstructionError` when it does not say just that."""
    rng = Random(derive_seed(config.seed, "outcome", asked[0], style))
    text = say_outcome(outcome, style, rng, config.forms)
    if read_outcome(text) != (outcome, style):
        raise InstructionError(f"{text!r} does not read back to its outcome")
    return PromptVariant(style, label, text, wording="outcome")
