"""The laws every family keeps, as plain functions: `assay tasks` refuses what breaks them,
`assay audit` runs them for a user, and the tests over every built-in family.

Gold scores 1. The empty answer scores 0. A cheat reaches on average no more than it admits. The
same answer gets the same bits twice. What a model might write (chatter around gold, NaN, nulls,
huge and nested text) never scores above gold and never makes the scorer fail. Two splits share no
content.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import stdev
from typing import Any, cast

from assay import scorer_timeout as guard
from assay.family import (
    Cheat,
    Family,
    as_answer,
    cheat_answer,
    family_of,
    gold_answer,
    score_answer,
)
from assay.fingerprints import TableMarks
from assay.task import (
    GOLD_LEFT_OUT,
    RIGHT,
    Answer,
    Score,
    Task,
    TaskError,
    json_line,
    unscored,
)

ADMITS = Cheat(lambda task: "").admits  # of a cheat given as a plain function
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
    """The task's gold answer; run where the family proves it. Raises `TaskError` in one sentence
    where there is none."""
    try:
        with _in_time(family):
            made = gold_answer(family, task)
        if made is None and family.proof is None:
            raise TaskError(
                f"task {task.id}: gold is None and family {family.name} has no proof; return the "
                "answer that scores 1, or give proof=FUNCTION that runs it"
            )
        if made is None and family.proof is not None:
            made = as_answer(family.proof(task))
    except TaskError:
        raise
    except guard.Overtime:
        raise TaskError(
            f"task {task.id}: gold of family {family.name} did not end within {guard.SECONDS:g} s"
        ) from None
    except (Exception, SystemExit) as error:
        raise TaskError(
            f"task {task.id}: gold of family {family.name} raised {type(error).__name__}: {error}"
        ) from None
    if not isinstance(made, Answer):
        raise TaskError(
            f"task {task.id}: gold of family {family.name} returned {type(made).__name__}; "
            "return an Answer or text"
        )
    return made


def _in_time(family: Family) -> contextlib.AbstractContextManager[None]:
    """Functions of a family from outside run under the deadline of its scorer."""
    return guard.deadline(guard.SECONDS) if family.origin else contextlib.nullcontext()


def scored(task: Task, answer: Answer, weights: Weights | None = None) -> Score:
    """`score_answer`, where a scorer that raises gives no outcome and the reason."""
    try:
        return score_answer(task, answer, weights)
    except Exception as error:
        return unscored(f"scorer of {task.family} raised {type(error).__name__}: {error}"[:500])


def gold_law(task: Task, score: Score) -> Iterator[Broken]:
    """Gold scores 1."""
    if score.outcome is None:
        yield Broken("gold", f"task {task.id}", f"gold has no outcome ({score.why})")
    elif score.outcome < RIGHT:
        why = f"gold scores {score.outcome:g}, not 1 ({score.why})"
        yield Broken("gold", f"task {task.id}", why)


def empty_law(task: Task, score: Score) -> Iterator[Broken]:
    """An empty answer scores 0 and earns nothing."""
    if score.outcome is None:
        yield Broken("empty", f"task {task.id}", f"an empty answer has no outcome ({score.why})")
    elif score.outcome > 0:
        why = f"an empty answer scores {score.outcome:g}; it must score 0"
        yield Broken("empty", f"task {task.id}", why)
    elif (score.reward or 0.0) > 0:
        why = f"an empty answer earns a reward of {score.reward:g}; it must earn 0"
        yield Broken("empty", f"task {task.id}", why)


def thought_law(
    task: Task, answer: Answer, gold: Score, weights: Weights | None = None
) -> Iterator[Broken]:
    """A thought before gold changes nothing."""
    if not answer.text:
        return
    thought = replace(answer, text=f"<think>\nFirst {answer.text}\n</think>\n\n{answer.text}")
    score = scored(task, thought, weights)
    if (score.outcome, score.reward) != (gold.outcome, gold.reward):
        why = f"gold after a thought scores {score.outcome}, gold {gold.outcome} ({score.why})"
        yield Broken("thought", f"task {task.id}", why)


def same_bits_law(task: Task, name: str, one: Score, two: Score) -> Iterator[Broken]:
    """The same answer gets the same score, to the bit."""
    first, second = (json_line(score.to_json()).decode().strip() for score in (one, two))
    if first != second:
        yield Broken("same bits", f"task {task.id}", f"{name} scores {first}, then {second}")


def attack_law(task: Task, name: str, score: Score, gold: Score) -> Iterator[Broken]:
    """What a model might write scores no more than gold, and never makes the scorer fail."""
    if score.outcome is None:
        yield Broken("attack", f"task {task.id}", f"{name} has no outcome ({score.why})")
        return
    for what, value, most in (
        ("scores", score.outcome, gold.outcome),
        ("earns a reward of", score.reward, gold.reward),
    ):
        if value is not None and most is not None and value > most + _ROUNDING:
            why = f"{name} {what} {value:g}, more than gold ({most:g})"
            yield Broken("attack", f"task {task.id}", why)


def cheat_law(
    family: Family, name: str, outcomes: Sequence[float], errors: float = 0.0
) -> Iterator[Broken]:
    """A cheat's mean outcome is no more than it admits to. `errors`: standard errors that it must
    be above that, where `outcomes` are a sample of the tasks."""
    if not outcomes:
        return
    mean, most = sum(outcomes) / len(outcomes), admits(family, name)
    spread = stdev(outcomes) / len(outcomes) ** 0.5 if len(outcomes) > 1 else 0.0
    if mean > most + errors * spread + _ROUNDING:
        why = f"scores {mean:.3f} on average over {len(outcomes)} tasks; it admits to {most:g}"
        yield Broken("cheat", f"cheat {name}", why)


def admits(family: Family, name: str) -> float:
    """The highest mean outcome that a cheat admits to."""
    cheat = family.cheats[name]
    return cheat.admits if isinstance(cheat, Cheat) else ADMITS


@dataclass(frozen=True)
class Examined:
    """What one task's gold, empty answer, cheats and attacks score, and the laws that broke."""

    scores: dict[str, Score]
    broken: list[Broken]


def examine(task: Task, weights: Weights | None = None, attacked: bool = True) -> Examined:
    """Every law that one task can break by itself.

    Scores stand under `gold`, `empty`, `cheat NAME` and `attack NAME`. Raises `TaskError` for a
    family that is not known.
    """
    family = family_of(task)
    where = f"task {task.id}"
    try:
        answer = gold_of(family, task)
    except TaskError as error:
        return Examined({}, [Broken("gold", where, str(error).removeprefix(f"{where}: "))])
    gold = scored(task, answer, weights)
    scores, broken = {"gold": gold}, [*gold_law(task, gold)]
    if gold.outcome is None:  # a scorer that fails on gold would fail on everything
        return Examined(scores, broken)
    scores["empty"] = scored(task, Answer(), weights)
    broken += [
        *same_bits_law(task, "gold", gold, scored(task, answer, weights)),
        *empty_law(task, scores["empty"]),
        *thought_law(task, answer, gold, weights),
    ]
    for name, cheat in _cheats(family, task, broken):
        scores[name] = score = scored(task, cheat, weights)
        broken += same_bits_law(task, name, score, scored(task, cheat, weights))
        if score.outcome is None:
            broken.append(Broken("cheat", where, f"{name} has no outcome ({score.why})"))
    if attacked and not broken:
        for name, attack in attacks(answer).items():
            scores[f"attack {name}"] = score = scored(task, attack, weights)
            broken += attack_law(task, f"attack {name}", score, gold)
            if score.outcome is None:
                break  # a scorer that runs into its deadline does so again and again
    return Examined(scores, broken)


def _cheats(family: Family, task: Task, broken: list[Broken]) -> Iterator[tuple[str, Answer]]:
    for name in family.cheats:
        try:
            with _in_time(family):
                answer = cheat_answer(family, name, task)
        except (Exception, SystemExit, guard.Overtime) as error:
            why = f"cheat {name} raised {type(error).__name__}: {error}"
            broken.append(Broken("cheat", f"task {task.id}", why))
            continue
        yield f"cheat {name}", answer


def normal(text: str) -> str:
    """The text without what an eye overlooks: case, runs of space, and forms of characters."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


@dataclass(frozen=True)
class Shared:
    """What two splits have in common, in counts of contents, with pairs of task ids."""

    exact: int
    normalised: int  # exactly but for case and space; of tables also copies
    examples: tuple[tuple[str, str], ...]

    def __bool__(self) -> bool:
        return bool(self.exact or self.normalised)


def shared_content(splits: Mapping[str, Sequence[Task]]) -> dict[str, Shared]:
    """What each two splits share by `Family.content`, under "one and other"."""
    exact = {name: _contents(tasks, str) for name, tasks in splits.items()}
    normalised = {name: _contents(tasks, normal) for name, tasks in splits.items()}
    tables = {name: _tables(tasks) for name, tasks in splits.items()}
    found: dict[str, Shared] = {}
    for one, other in combinations(splits, 2):
        same = exact[one].keys() & exact[other].keys()
        alike = sorted(normalised[one].keys() & normalised[other].keys())
        pairs = [(normalised[one][key], normalised[other][key]) for key in alike]
        pairs += (copies := _copies(tables[one], tables[other]))
        count = len(alike) + len(copies)
        found[f"{one} and {other}"] = Shared(len(same), count, tuple(sorted(pairs)[:5]))
    return found


def _tables(tasks: Sequence[Task]) -> dict[TableMarks, str]:
    """Every table of some tasks → the first that has it."""
    found: dict[TableMarks, str] = {}
    for task in tasks:
        for content in contents(task):
            if isinstance(content, TableMarks) and content:
                found.setdefault(content, task.id)
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


def _contents(tasks: Sequence[Task], form: Callable[[str], str]) -> dict[bytes, str]:
    """Digest of every content that is not empty → the first task that has it."""
    found: dict[bytes, str] = {}
    for task in tasks:
        for content in contents(task):
            if said := form(str(content)) if content else "":
                digest = hashlib.sha256(said.encode("utf-8", "surrogatepass")).digest()
                found.setdefault(digest, task.id)
    return found


def contents(task: Task) -> list[str | TableMarks]:
    """`Family.content` of a task. Raises `TaskError` naming the task where it raises."""
    family = family_of(task)
    if task.meta.get(GOLD_LEFT_OUT):  # what is left is what a model reads
        return [str(m.get("content") or "") for m in task.prompt if m.get("role") == "user"]
    try:
        with _in_time(family):
            found = list(family.content(task))
        return [one if isinstance(one, TableMarks) else str(one) for one in found]
    except TaskError:
        raise
    except (Exception, SystemExit, guard.Overtime) as error:
        raise TaskError(
            f"task {task.id}: content of family {family.name} raised "
            f"{type(error).__name__}: {error}"
        ) from None


def split_law(splits: Mapping[str, Sequence[Task]]) -> Iterator[Broken]:
    """Two splits share no content, exactly or but for case and space."""
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


def mean_scores(examined: Sequence[Examined]) -> dict[str, dict[str, float | int]]:
    """What every answer earns: its mean outcome and reward, its best outcome, and of how many
    tasks, by the names of `examine`."""
    found: defaultdict[str, list[Score]] = defaultdict(list)
    for one in examined:
        for name, score in one.scores.items():
            found[name].append(score)
    table: dict[str, dict[str, float | int]] = {}
    for name, scores in found.items():
        outcomes = [s.outcome for s in scores if s.outcome is not None]
        rewards = [s.reward for s in scores if s.reward is not None]
        table[name] = {
            "tasks": len(scores),
            "unscored": len(scores) - len(outcomes),
            "outcome": sum(outcomes) / len(outcomes) if outcomes else 0.0,
            "most": max(outcomes, default=0.0),
            "reward": sum(rewards) / len(rewards) if rewards else 0.0,
        }
    return table


def cheat_laws(
    family: Family, examined: Sequence[Examined], errors: float = 0.0
) -> Iterator[Broken]:
    """The law of every cheat of a family, over the tasks examined; `errors` as in `cheat_law`."""
    for name in family.cheats:
        scores = [e.scores[f"cheat {name}"] for e in examined if f"cheat {name}" in e.scores]
        outcomes = [s.outcome for s in scores if s.outcome is not None]
        yield from cheat_law(family, name, outcomes, errors)


# ---- what a model might hand in that no scorer should pay for, made from gold

HUGE = 200_000  # characters
DEEP = 20_000  # brackets


def attacks(gold: Answer) -> dict[str, Answer]:
    """Answers that no model should profit from, by name, made from gold's text and files."""
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
        with contextlib.suppress(ValueError, RecursionError):
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


def _half(text: str) -> str:
    return text[: len(text) // 2]


def _lines_twice(text: str) -> str:
    """Every line but the first a second time: a table's rows under one header."""
    head, *rows = text.splitlines() or [""]
    return "\n".join([head, *rows, *rows])


def _each_line_twice(text: str) -> str:
    return "\n".join(line for line in text.splitlines() for _ in range(2))


# Letters of other alphabets that look like Latin ones.
_ALIKE = str.maketrans(
    "aceopxyABCEHKMOPTXi",
    "\u0430\u0441\u0435\u043e\u0440\u0445\u0443"
    "\u0410\u0412\u0421\u0415\u041d\u041a\u041c\u041e\u0420\u0422\u0425\u0456",
)
_WIDE = {c: c + 0xFEE0 for c in range(0x21, 0x7F)}


def _joined(text: str) -> str:
    return "\u200b".join(text)


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
    "half of gold": _half,
    "all but the end of gold": lambda text: text[:-1],
    "gold's rows twice": _lines_twice,
    "each row of gold twice": _each_line_twice,
    "gold in a list": lambda text: f"[{text}, {text}]",
    "gold as a JSON string": lambda text: json.dumps(text),
    "gold as an answer": lambda text: json.dumps({"answer": text, "reward": 1, "outcome": 1}),
    "gold in every tag": lambda text: "".join(
        f"<{t}>{text}</{t}>" for t in ("answer", "output", "result", "clean_text", "status")
    ),
    "gold or another": lambda text: f"{text} or {text[::-1]}",
    "gold in look-alike letters": lambda text: text.translate(_ALIKE),
    "gold in wide letters": lambda text: text.translate(_WIDE),
    "gold with zero-width spaces": _joined,
    "gold after thinking": lambda text: f"<think>{text}</think>",
    "nested lists": lambda text: _LISTS,
    "nested objects": lambda text: '{"a":' * DEEP + "1" + "}" * DEEP,
}
