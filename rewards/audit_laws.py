"""The laws every family keeps, as plain functions: `assay tasks` refuses what breaks them,
`assay audit` runs them for a user, and the tests over every built-in family.

Gold scores 1. The empty answer scores 0. A cheat reaches on average no more than it admits. The
same answer gets the same bits twice. What a model might write (chatter around gold, NaN, nulls,
huge and nested text) never scores above gold and never makes the scorer fail. Two splits share no
content.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean, stdev
from typing import Any, cast

from assay.family import (
    Cheat,
    Family,
    Floor,
    as_answer,
    called,
    cheat_answer,
    family_of,
    gold_answer,
    score_answer,
)
from assay.fingerprints import TableMarks, contents, normal
from assay.task import (
    RIGHT,
    Answer,
    Score,
    Task,
    TaskError,
    json_line,
    unscored,
)

_ROUNDING = 1e-9
Weights = Mapping[str, Any]


@dataclass(frozen=True)
class Broken:
    """One law that does not hold: which, for which task or cheat, and why, in one sentence."""

    law: str
    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


def gold_of(family: Family, task: Task) -> Answer:
    """Return the task's gold answer; run where the family proves it. Raises `TaskError` in one
    sentence where there is none."""
    with called(family, task, "gold"):
        made: Any = gold_answer(family, task)
    if made is None and family.proof is None:
        raise TaskError(
            f"task {task.id}: gold is None and family {family.name} has no proof; return the "
            "answer that scores 1, or give proof=FUNCTION that runs it"
        )
    if made is None and family.proof is not None:
        with called(family, task, "gold", timed=False):
            made = as_answer(family.proof(task))
    if not isinstance(made, Answer):
        raise TaskError(
            f"task {task.id}: gold of family {family.name} returned {type(made).__name__}; "
            "return an Answer or text"
        )
    return made


def scored(task: Task, answer: Answer, weights: Weights | None = None) -> Score:
    """Score an answer by `score_answer`; a scorer that raises gives no outcome and the reason."""
    try:
        return score_answer(task, answer, weights)
    except Exception as error:
        return unscored(f"scorer of {task.family} raised {type(error).__name__}: {error}"[:500])


def gold_law(task: Task, score: Score) -> Iterator[Broken]:
    """Yield what breaks the law that gold scores 1."""
    if score.outcome is None:
        yield Broken("gold", f"task {task.id}", f"gold has no outcome ({score.why})")
    elif score.outcome < RIGHT:
        why = f"gold scores {score.outcome:g}, not 1 ({score.why})"
        yield Broken("gold", f"task {task.id}", why)


def empty_law(task: Task, score: Score) -> Iterator[Broken]:
    """Yield what breaks the law that an empty answer scores 0 and earns nothing."""
    why = ""
    if score.outcome is None:
        why = f"has no outcome ({score.why})"
    elif score.outcome > 0:
        why = f"scores {score.outcome:g}; it must score 0"
    elif (score.reward or 0.0) > 0:
        why = f"earns a reward of {score.reward:g}; it must earn 0"
    if why:
        yield Broken("empty", f"task {task.id}", f"an empty answer {why}")


def cheat_laws(
    family: Family, examined: Sequence[Examined], errors: float = 0.0
) -> Iterator[Broken]:
    """Yield the cheats of a family whose mean outcome is above what they admit to. `errors`:
    standard errors that it must be above that, where the tasks examined are a sample."""
    for name, cheat in family.cheats.items():
        scores = [e.scores[f"cheat {name}"] for e in examined if f"cheat {name}" in e.scores]
        outcomes = [s.outcome for s in scores if s.outcome is not None]
        most = cheat.admits if isinstance(cheat, Cheat) else Cheat.admits
        spread = stdev(outcomes) / len(outcomes) ** 0.5 if len(outcomes) > 1 else 0.0
        if outcomes and fmean(outcomes) > most + errors * spread + _ROUNDING:
            why = (
                f"scores {fmean(outcomes):.3f} on average over {len(outcomes)} tasks; it admits to "
                f"{most:g}"
            )
            yield Broken("cheat", f"cheat {name}", why)


@dataclass
class Examined:
    """What one task's gold, empty answer, cheats and attacks score, and the laws that broke."""

    scores: dict[str, Score] = field(default_factory=dict[str, Score])
    broken: list[Broken] = field(default_factory=list[Broken])


def examine(task: Task, weights: Weights | None = None, attacked: bool = True) -> Examined:
    """Every law that one task can break by itself: gold scores 1, after a thought too; an empty
    answer 0; the same answer gets the same bits twice; attacks score no more than gold, and have an
    outcome.

    Scores stand under `gold`, `empty`, `cheat NAME` and `attack NAME`. Raises `TaskError` for a
    family that is not known.
    """
    family, where = family_of(task), f"task {task.id}"
    found = Examined()
    scores = found.scores

    def say(law: str, why: str) -> None:
        found.broken.append(Broken(law, where, why))

    def score_twice(name: str, answer: Answer) -> Score:
        scores[name] = score = scored(task, answer, weights)
        if score.outcome is not None or name != "gold":
            again = scored(task, answer, weights)
            one, two = (json_line(s.to_json()).decode().strip() for s in (score, again))
            if one != two:
                say("same bits", f"{name} scores {one}, then {two}")
        return score

    try:
        answer = gold_of(family, task)
    except TaskError as error:
        say("gold", str(error).removeprefix(f"{where}: "))
        return found
    gold = score_twice("gold", answer)
    found.broken[:0] = gold_law(task, gold)
    if gold.outcome is None:  # a scorer that fails on gold would fail on everything
        return found
    scores["empty"] = scored(task, Answer(), weights)
    found.broken += empty_law(task, scores["empty"])
    if answer.text:
        text = f"<think>\nFirst {answer.text}\n</think>\n\n{answer.text}"
        score = scored(task, replace(answer, text=text), weights)
        if (score.outcome, score.reward) != (gold.outcome, gold.reward):
            said = f"gold after a thought scores {score.outcome}, gold {gold.outcome}"
            say("thought", f"{said} ({score.why})")
    for name in family.cheats:
        try:
            with called(family, task, f"cheat {name}"):
                cheat = cheat_answer(family, name, task)
        except TaskError as error:
            say("cheat", str(error).removeprefix(f"{where}: "))
            continue
        if (score := score_twice(f"cheat {name}", cheat)).outcome is None:
            say("cheat", f"cheat {name} has no outcome ({score.why})")
    for name, attack in attacks(answer).items() if attacked and not found.broken else ():
        scores[f"attack {name}"] = score = scored(task, attack, weights)
        if score.outcome is None:
            say("attack", f"attack {name} has no outcome ({score.why})")
            break  # a scorer that runs into its deadline does so again and again
        for what, value, most in (
            ("scores", score.outcome, gold.outcome),
            ("earns a reward of", score.reward, gold.reward),
        ):
            if value is not None and most is not None and value > most + _ROUNDING:
                say("attack", f"attack {name} {what} {value:g}, more than gold ({most:g})")
    return found


@dataclass(frozen=True)
class Shared:
    """What two splits have in common, in counts of contents, with pairs of task ids."""

    exact: int
    normalised: int  # exactly but for case and space; of tables also copies
    examples: tuple[tuple[str, str], ...]

    def __bool__(self) -> bool:
        return bool(self.exact or self.normalised)


def shared_content(splits: Mapping[str, Sequence[Task]]) -> dict[str, Shared]:
    """Count what each two splits share by `Family.content`, under "one and other". Raises
    `TaskError` where a content raises."""
    # split → digest of a content, or a table → the first task that has it
    exact: dict[str, dict[bytes, str]] = {name: {} for name in splits}
    normalised: dict[str, dict[bytes, str]] = {name: {} for name in splits}
    tables: dict[str, dict[TableMarks, str]] = {name: {} for name in splits}
    for name, task in ((name, task) for name, tasks in splits.items() for task in tasks):
        for content in filter(None, contents(task)):
            if isinstance(content, TableMarks):
                tables[name].setdefault(content, task.id)
            for said, held in ((str(content), exact), (normal(str(content)), normalised)):
                if said:
                    digest = hashlib.sha256(said.encode("utf-8", "surrogatepass")).digest()
                    held[name].setdefault(digest, task.id)
    found: dict[str, Shared] = {}
    for one, other in combinations(splits, 2):
        same = exact[one].keys() & exact[other].keys()
        alike = sorted(normalised[one].keys() & normalised[other].keys())
        pairs = [(normalised[one][key], normalised[other][key]) for key in alike]
        pairs += (copies := _copies(tables[one], tables[other]))
        count = len(alike) + len(copies)
        found[f"{one} and {other}"] = Shared(len(same), count, tuple(sorted(pairs)[:5]))
    return found


def _copies(
    one: Mapping[TableMarks, str], other: Mapping[TableMarks, str]
) -> list[tuple[str, str]]:
    """Pairs of tasks whose tables are copies of each other and not the very same."""
    holders: defaultdict[int, list[TableMarks]] = defaultdict(list)
    for table in other:
        for mark in table.all():
            holders[mark].append(table)
    pairs: list[tuple[str, str]] = []
    for table, task in one.items():
        near = {t for mark in table.all() for t in holders.get(mark, ())}
        alike = [other[t] for t in near if str(t) != str(table) and table.like(t)]
        pairs += [(task, min(alike))] if alike else []
    return pairs


def split_law(splits: Mapping[str, Sequence[Task]]) -> Iterator[Broken]:
    """Yield the pairs of splits that share content, exactly or but for case and space."""
    for pair, shared in shared_content(splits).items():
        if shared:
            one, other = shared.examples[0]
            where = f"task {one}" if one == other else f"tasks {one} and {other}"
            why = (
                f"share {shared.normalised} contents ({shared.exact} of them exactly), as in "
                f"{where}; draw each from documents of its own, or say in Family.content what "
                "must differ"
            )
            yield Broken("split", pair, why)


@dataclass(frozen=True)
class Earned:
    """What one policy earns over tasks of one kind: (outcome, reward) of each."""

    policy: str
    kind: str
    pairs: tuple[tuple[float, float], ...]
    unscored: int = 0

    def mean(self, of: int) -> float:
        """Mean outcome (0) or reward (1)."""
        return sum(p[of] for p in self.pairs) / len(self.pairs) if self.pairs else 0.0

    def most(self, of: int) -> float:
        """Highest outcome (0) or reward (1) of one task."""
        return max((p[of] for p in self.pairs), default=0.0)

    def surely(self, of: int) -> float:
        """The mean less two standard errors: what it earns beyond chance."""
        n = len(self.pairs)
        if n < 2:
            return 0.0
        mean = self.mean(of)
        spread = sum((p[of] - mean) ** 2 for p in self.pairs) / (n - 1)
        return mean - 2 * (spread / n) ** 0.5

    def above(self, floor: Floor) -> float:
        """Share of tasks on which it earns more than the floor."""
        over = sum(o > floor.outcome or r > floor.reward for o, r in self.pairs)
        return over / len(self.pairs) if self.pairs else 0.0


def earned_by(policy: str, kind: str, scores: Iterable[Score]) -> Earned:
    """Collect what a policy's answers earn, those without an outcome counted apart."""
    listed = list(scores)
    pairs = [(s.outcome, s.reward or 0.0) for s in listed if s.outcome is not None]
    return Earned(policy, kind, tuple(pairs), len(listed) - len(pairs))


@dataclass(frozen=True)
class Respelled:
    """How many of `tasks` score 1 in the training reading, and in the benchmark's own (None: the
    family has no other)."""

    name: str
    tasks: int
    training: int
    benchmark: int | None


@dataclass
class Audited:
    """Everything that is known of one family after its audit, or as much as there was time for;
    and how it is audited: `weights` are reward settings by family name, `step` is called after
    each piece of work. `twins` counts them; `recalled` is what remembered gold earns on them."""

    family: Family
    seed: int = 0
    weights: Weights | None = None
    step: Callable[[], object] = lambda: None
    examined: list[Examined] = field(default_factory=list[Examined])
    earned: list[Earned] = field(default_factory=list[Earned])
    calls: int = 0
    twins: int = 0
    recalled: list[Earned] = field(default_factory=list[Earned])
    spelled: dict[str, list[Respelled]] = field(default_factory=dict[str, list[Respelled]])
    broken: list[Broken] = field(default_factory=list[Broken])

    def scored(self, task: Task, answer: Answer) -> Score:
        """What an answer that our own code wrote scores."""
        self.calls += 1
        trusted = self.family.audited.trusted
        if trusted is None:
            return scored(task, answer, self.weights)
        mine = (self.weights or {}).get(self.family.name, self.family.weights())
        return trusted(task, answer, mine)


def mean_scores(examined: Sequence[Examined]) -> dict[str, dict[str, float | int]]:
    """Sum up what every answer earns: its mean outcome and reward, its best outcome, and of how
    many tasks, by the names of `examine`."""
    found: defaultdict[str, list[Score]] = defaultdict(list)
    for one in examined:
        for name, score in one.scores.items():
            found[name].append(score)
    table: dict[str, dict[str, float | int]] = {}
    for name, scores in found.items():
        earned = earned_by(name, "", scores)
        table[name] = {
            "tasks": len(scores),
            "unscored": earned.unscored,
            "outcome": earned.mean(0),
            "most": earned.most(0),
            "reward": earned.mean(1),
        }
    return table


# ---- what a model might hand in that no scorer should pay for, made from gold

HUGE = 200_000  # characters
DEEP = 20_000  # brackets


def attacks(gold: Answer) -> dict[str, Answer]:
    """Make answers that no model should profit from, by name, from gold's text and files."""
    return {name: _changed(gold, change) for name, change in _ATTACKS.items()} | {
        "gold cut off": Answer(gold.text, True, gold.files)
    }


def _changed(gold: Answer, change: Callable[[str], str]) -> Answer:
    files = {
        name: change(data.decode("utf-8", "replace")).encode("utf-8", "surrogatepass")
        for name, data in gold.files.items()
    }
    return Answer(change(gold.text), gold.truncated, files)


def _leaves(put: str, more: int = 0) -> Callable[[str], str]:
    """A change of gold that is JSON: `put` in place of every value, and `more` keys beside its
    own. Of gold that is not JSON only those keys are left, or `put` itself."""

    def change(text: str) -> str:
        value: Any = None
        with suppress(ValueError, RecursionError):
            value = json.loads(text)
        made = _blank(value)
        if more:
            own = cast("dict[str, Any]", made) if isinstance(made, dict) else {}
            made = own | {f"key{i}": _PLACE for i in range(more)}
        return json.dumps(made).replace(json.dumps(_PLACE), put)

    return change


def _blank(value: Any) -> Any:
    """The value with a mark at every leaf."""
    if isinstance(value, dict):
        return {key: _blank(v) for key, v in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_blank(v) for v in cast("list[Any]", value)]
    return _PLACE


def _rows_twice(text: str) -> str:
    """A table's rows a second time, under one header."""
    head, *rows = text.splitlines() or [""]
    return "\n".join([head, *rows, *rows])


# Letters of other alphabets that look like Latin ones.
_ALIKE = str.maketrans(
    "aceopxyABCEHKMOPTXi",
    "\u0430\u0441\u0435\u043e\u0440\u0445\u0443"
    "\u0410\u0412\u0421\u0415\u041d\u041a\u041c\u041e\u0420\u0422\u0425\u0456",
)
_WIDE = {c: c + 0xFEE0 for c in range(0x21, 0x7F)}


_PLACE = "\x00value\x00"
_LISTS = "[" * DEEP + "]" * DEEP
_ATTACKS: dict[str, Callable[[str], str]] = {
    "chatter around gold": lambda text: f"Sure! Here is it:\n{text}\nI hope this helps.",
    "gold twice": lambda text: f"{text}\n{text}",
    "NaN": lambda text: "NaN",
    "infinity": lambda text: "[Infinity, -Infinity, 1e999]",
    "null": lambda text: "null",
    "null for every value": _leaves("null"),
    "500 null keys": _leaves("null", more=500),
    "NaN for every value": _leaves("NaN"),
    "1e999 for every value": _leaves("1e999"),
    "9999 digits for every value": _leaves("9" * 9999),
    "true for every value": _leaves("true"),
    "huge text for every value": _leaves(json.dumps("x" * (HUGE // 100))),
    "nested lists for every value": _leaves(_LISTS),
    "NUL bytes": lambda text: "\0" * 100,
    "lone surrogates": lambda text: "\ud800" * 10,
    "huge": lambda text: "x" * HUGE,
    "gold, then huge": lambda text: text + " x" * (HUGE // 2),
    "many tags": lambda text: "<answer>" * 1000 + text,
    "half of gold": lambda text: text[: len(text) // 2],
    "all but the end of gold": lambda text: text[:-1],
    "gold's rows twice": _rows_twice,
    "each row of gold twice": lambda text: "\n".join(
        line for line in text.splitlines() for _ in range(2)
    ),
    "gold in a list": lambda text: f"[{text}, {text}]",
    "gold as a JSON string": lambda text: json.dumps(text),
    "gold as an answer": lambda text: json.dumps({"answer": text, "reward": 1, "outcome": 1}),
    "gold in every tag": lambda text: "".join(
        f"<{t}>{text}</{t}>" for t in ("answer", "output", "result", "clean_text", "status")
    ),
    "gold or another": lambda text: f"{text} or {text[::-1]}",
    "gold in look-alike letters": lambda text: text.translate(_ALIKE),
    "gold in wide letters": lambda text: text.translate(_WIDE),
    "gold with zero-width spaces": "\u200b".join,
    "gold after thinking": lambda text: f"<think>{text}</think>",
    "nested lists": lambda text: _LISTS,
    "nested objects": lambda text: '{"a":' * DEEP + "1" + "}" * DEEP,
}
