"""Requests that describe the wanted result instead of the steps to it, and their reader.

The paper's figure of instruction styles (Fig. 12) sets styles that enumerate operations against
those that are about the outcome. These are the outcome's words: what the result holds no more, what
is true of it, of which text a part is meant where the order matters, and when and on which text it
is judged. The reader knows these clauses; it accounts for every character and gives back what is
said, whose result `data_gen.cdr.settle` works out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from random import Random
from typing import Any, TypeVar

from assay.files import yaml_beside
from assay.task import TaskError
from data_gen.cdr import phrases
from data_gen.cdr.language import NUMBER, pick, read_number, say_number
from data_gen.cdr.settle import Judged, Outcome

T = TypeVar("T")
_MEANT = "I mean those there "
_KEPT = ("It is accepted only if", "; else it is rejected as it then stands.")
_DROPPED = ("It is rejected, as it then stands, if", ".")
_AND = (", the ", " and the ")
_FIRST, _LAST = "before any change", "once all this holds"
_BETWEEN = " and all else is untouched"
_REST = "once all holds but before "


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
    """(what is said, style). Raises `OutcomeError` unless clauses account for the whole text."""
    reader = _Reader(text)
    for style, kinds in _words()["OPENINGS"].items():
        if reader.take(kinds["mapped"]) is not None:
            return reader.described(), style
        if reader.take(kinds["judged"]) is not None:
            return reader.sentences(frozenset()), style
    raise reader.error()


@cache
def _words() -> dict[str, Any]:
    return yaml_beside(__file__, "outcomes.yaml")


@cache
def _states() -> dict[str, list[list[str]]]:
    """Of every mapper, by manner, what can be said of the result: nouns of what is not in it, or
    whole predicates."""
    found: dict[str, list[list[str]]] = dict(_words()["STATES"])
    for name, nouns in phrases.NOUNS.items():
        if name in found:
            continue
        longer = phrases.TO_THE_LETTER.get(name, ())
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
    return phrases.CONDITIONS_TO_THE_LETTER if manner else phrases.CONDITIONS


@cache
def _state_of() -> dict[str, tuple[str, int]]:
    """The mapper and manner of each predicate, and of each noun."""
    return {
        said: (name, manner)
        for name, manners in _states().items()
        for manner, forms in enumerate(manners)
        for said in forms
    }


@cache
def _named() -> dict[str, str]:
    """The mapper of a name that sentences about order use."""
    return {noun: name for name, (noun, _) in _words()["REFERENCES"].items()}


@cache
def _judging() -> dict[int, list[tuple[re.Pattern[str], str, str, int]]]:
    """By side, the pattern of every condition with its filter, bound and manner."""
    found: dict[int, list[tuple[re.Pattern[str], str, str, int]]] = {0: [], 1: []}
    for manner in (1, 0):  # a longer condition may begin as a short one does
        for (name, bound), sides in _conditions(manner).items():
            for side, conditions in enumerate(sides):
                for condition in conditions:
                    left, right = map(re.escape, condition.split("{n}"))
                    pattern = re.compile(f"{left}({NUMBER}){right}")
                    found[side].append((pattern, name, bound, manner))
    return found


@lru_cache(maxsize=64)
def _longest_first(options: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(options, key=lambda one: (-len(one), one)))


class _Reader:
    """Goes through a text clause by clause."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def error(self) -> OutcomeError:
        left = self._text[self._at :]
        return OutcomeError(f"not a description of this grammar from {left[:60]!r} on")

    def take(self, options: Iterable[str]) -> str | None:
        """The longest of the options that comes next; None where none does."""
        for one in _longest_first(tuple(options)):
            if self._text.startswith(one, self._at):
                self._at += len(one)
                return one
        return None

    def must(self, *options: str) -> str:
        found = self.take(options)
        if found is None:
            raise self.error()
        return found

    def described(self) -> Outcome:
        """Predicates, then sentences."""
        nouns = [said for said, (name, _) in _state_of().items() if _is_absent(name)]
        others = [said for said, (name, _) in _state_of().items() if not _is_absent(name)]
        found: list[tuple[str, int]] = []
        while True:
            if self.take(_words()["ABSENT"]) is not None:
                found.append(_state_of()[self.must(*nouns)])
                while self.take([", and no ", ", no "]) is not None:
                    found.append(_state_of()[self.must(*nouns)])
            else:
                found.append(_state_of()[self.must(*others)])
            if self.take(_words()["TAILS"]) is not None:
                break
            self.must(", ")
        if len({name for name, _ in found}) < len(found):
            raise OutcomeError("the same thing is said twice")
        return self.sentences(frozenset(found))

    def sentences(self, states: frozenset[tuple[str, int]]) -> Outcome:
        """What follows the description, up to the end of the text."""
        names = frozenset(name for name, _ in states)
        pairs: dict[str, set[tuple[str, str]]] = {"once": set(), "before": set()}
        judged: Judged | None = None
        before: frozenset[str] = frozenset()
        while self._at < len(self._text):
            self.must(" ")
            if judged is None and self.take(["By "]) is not None:
                meant = self._names()
                self.must(f" {_MEANT}")
                word = self.must("once", "before")
                self.must(" ")
                done = self._done()
                self.must(".")
                pairs[word] |= {(name, other) for name in meant for other in done}
            elif judged is None:
                judged, before = self._judged(names)
            else:
                raise self.error()
        once = frozenset((first, second) for second, first in pairs["once"])
        ahead = frozenset(pairs["before"])
        spoken = {name for pair in once | ahead for name in pair} | before
        if not spoken <= names or not (names or judged):
            raise OutcomeError("it speaks of what it does not ask for")
        return Outcome(states, once, ahead, judged, before)

    def _judged(self, names: frozenset[str]) -> tuple[Judged, frozenset[str]]:
        start = self.must(_KEPT[0], _DROPPED[0])
        side = int(start == _KEPT[0])
        before: frozenset[str] = frozenset()
        if names:
            self.must(", ")
            if self.take([_LAST]) is not None:
                before = names
            elif self.take([_REST]) is not None:
                before = names - self._done()
            elif self.take([_FIRST]) is None:
                self.must("once ")
                before = frozenset(self._done())
                self.must(_BETWEEN)
            self.must(",")
        self.must(" ")
        for pattern, name, bound, manner in _judging()[side]:
            found = pattern.match(self._text, self._at)
            end = (_DROPPED, _KEPT)[side][1]
            if found and self._text.startswith(end, found.end()):
                self._at = found.end() + len(end)
                value = read_number(bound, found[1])
                return Judged(name, bound, value, manner), before
        raise self.error()

    def _names(self) -> list[str]:
        """Names of mappers' objects: "the links, the tags and the macros"."""
        self.must("the ")
        return [_named()[self.must(*_named())], *self._others()]

    def _others(self) -> list[str]:
        """Further names of a list; a condition may begin with "the" too."""
        found: list[str] = []
        while True:
            start = self._at
            name = self.take(_AND) and self.take(_named())
            if name is None:
                self._at = start
                return found
            found.append(_named()[name])

    def _done(self) -> set[str]:
        """What is done: lists of names, each with what is then so of them."""
        found: set[str] = set()
        own = self._names()
        while own:
            done = {_words()["REFERENCES"][name][1] for name in own}
            if len(done) > 1:
                raise self.error()
            self.must(f" {done.pop()}")
            found.update(own)
            own = self._others()
        return found
