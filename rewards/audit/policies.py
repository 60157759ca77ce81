"""What answers without the work earn over the tasks of one family, and the floors they must keep.

A policy never sees the gold of the task it answers. It answers from the prompt's own words, by
constants, or by the gold of other tasks, handed in through the family's `Audit.forms`, so that the
same idea is tried in every answer format that the family knows.

Constants are chosen on one half of the tasks and counted on the other: a policy must pay where it
was not made. A mean breaks its floor when it is above it by more than two standard errors, so a
single task never breaks one. What is earned beyond the outcome is bounded answer by answer.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from assay.family import Family, Form, as_answer, slices_of
from assay.seeds import derive_seed
from assay.task import Answer, Score, Task, TaskError
from rewards.audit_laws import Audited, Broken, Earned, earned_by, gold_of

LEAST = 4  # tasks of a kind before a mean can break a floor
SAMPLED, FEW = 24, 12  # tasks of a kind that policies answer; the same where one costs a table
CANDIDATES = 12  # golds tried as constants, of each half
BY_GROUP = "best constant by "


MOST_WORDS = 200  # of a prompt that a policy may list
_WORD = re.compile(r"[^\W\d_][\w'-]*")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")
_QUOTED = re.compile(r"'([^'\n]{1,80})'|\"([^\"\n]{1,80})\"|`([^`\n]{1,80})`")


@dataclass(frozen=True)
class Shown:
    """What a prompt shows, in the pieces that a policy may use."""

    whole: str
    after: str  # below the last line that ends in a colon, else below the first line
    last: str  # the last line
    colon: str  # behind the first colon
    words: tuple[str, ...]
    numbers: tuple[str, ...]
    quoted: tuple[str, ...]


@lru_cache(maxsize=512)
def _read(text: str) -> Shown:
    lines = text.split("\n")
    ends = [i for i, line in enumerate(lines[:-1]) if line.rstrip().endswith(":")]
    after = "\n".join(lines[(ends[-1] if ends else 0) + 1 :])
    words = tuple(dict.fromkeys(_WORD.findall(text)))[:MOST_WORDS]
    numbers = tuple(dict.fromkeys(_NUMBER.findall(text)))[:MOST_WORDS]
    quoted = tuple(dict.fromkeys(a or b or c for a, b, c in _QUOTED.findall(text)))[:MOST_WORDS]
    colon = text.partition(":")[2].strip()
    return Shown(text, after, lines[-1], colon, words, numbers, quoted)


def shown(task: Task) -> Shown:
    """Cut the task's last user message into the pieces that policies use."""
    said = [str(m.get("content") or "") for m in task.prompt if m.get("role") == "user"]
    return _read(said[-1] if said else "")


Piece = Callable[[Shown], str]


def _listed(values: Sequence[str]) -> str:
    return json.dumps(list(values), ensure_ascii=False)


# What a policy may write, by name: each says nothing that the prompt does not say.
PIECES: Mapping[str, Piece] = {
    "the prompt": lambda s: s.whole,
    "the text below": lambda s: s.after,
    "the last line": lambda s: s.last,
    "behind the colon": lambda s: s.colon,
    "first number": lambda s: s.numbers[0] if s.numbers else "0",
    "last number": lambda s: s.numbers[-1] if s.numbers else "0",
    "first quoted": lambda s: s.quoted[0] if s.quoted else "",
    "last quoted": lambda s: s.quoted[-1] if s.quoted else "",
    "a list of all numbers": lambda s: "[" + ", ".join(s.numbers) + "]",
    "a list of all words": lambda s: _listed(s.words),
    "a list of all quoted": lambda s: _listed(s.quoted),
    "all words, or": lambda s: " or ".join(s.words),
    "all quoted, or": lambda s: " or ".join(s.quoted),
}
CONSTANTS = (
    *("", "0", "1", "-1", "100", "yes", "no", "true", "unknown", "none", "[]", "{}", "null"),
    *("NaN", "1e308"),
)
HEDGES: Mapping[str, str] = {
    "hedge: yes or no": "yes or no",
    "hedge: 0 to 100": "[" + ", ".join(str(i) for i in range(101)) + "]",
    "hedge: 0 or 1 or 2": "0 or 1 or 2 or 3",
    "500 null keys": json.dumps({f"key{i}": None for i in range(500)}),
    "tags": "<answer></answer><status>KEEP</status><clean_text></clean_text>" * 20,
    "filler": "the " * 500,
}


def fixed_policies(forms: Mapping[str, Form]) -> Iterator[tuple[str, Callable[[Task], Answer]]]:
    """Yield (name, answer to a task) of every piece, constant and hedge in every form of a
    family."""
    texts: dict[str, Piece] = {**PIECES}
    texts |= {f"constant {c!r}": lambda s, c=c: c for c in CONSTANTS}
    texts |= {name: lambda s, text=text: text for name, text in HEDGES.items()}
    for form, hand_in in forms.items():
        for name, text in texts.items():
            yield (
                name if len(forms) == 1 else f"{name} [{form}]",
                lambda task, hand_in=hand_in, text=text: as_answer(
                    hand_in(task, text(shown(task)))
                ),
            )


def sample(tasks: Sequence[Task], most: int, seed: int, what: str) -> list[Task]:
    """Draw at most `most` tasks (0: all) by their ids; in their order."""
    ranked = sorted(range(len(tasks)), key=lambda i: derive_seed(seed, what, tasks[i].id))
    return [tasks[i] for i in sorted(ranked[: most or None])]


def farm(found: Audited, tasks: Sequence[Task]) -> None:
    """Let every policy without the work answer a sample of `tasks`.

    A scorer that fails on a policy's answer is a broken law, and ends the audit of its kind.
    """
    audit = found.family.audited
    kinds: defaultdict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        kinds[audit.kind(task)].append(task)
    for kind, mine in sorted(kinds.items()):
        drawn = sample(mine, SAMPLED if audit.trusted is None else FEW, found.seed, "policies")
        fixed = (
            earned_by(name, kind, (found.scored(task, answer(task)) for task in drawn))
            for name, answer in fixed_policies(audit.forms)
        )
        for one in chain(fixed, golds_of_others(found, kind, drawn)):
            found.earned.append(one)
            found.step()
            if one.unscored:
                why = f"the scorer has no outcome for {one.unscored} answers of this policy"
                found.broken.append(Broken("policy", f"{one.policy} ({kind})", why))
                break
    found.broken += floor_laws(found.family, found.earned)


def golds_of_others(audited: Audited, kind: str, tasks: Sequence[Task]) -> Iterator[Earned]:
    """Yield what three policies earn: the gold of the next task; the best constant among golds; the
    same of each group.

    Constants are golds of one half, chosen there by reward, and counted on the other half.
    """
    family = audited.family
    golds: dict[str, Answer] = {}
    for task in tasks:
        with suppress(TaskError):  # told by the law of gold
            golds[task.id] = gold_of(family, task)
    known = [task for task in tasks if task.id in golds]
    if len(known) < 2:
        return
    others = zip(known, [*known[1:], known[0]], strict=True)
    scores = (audited.scored(task, golds[other.id]) for task, other in others)
    yield earned_by("gold of another task", kind, scores)
    halves = known[::2], known[1::2]
    table: dict[tuple[str, str], Score] = {}
    for half in halves:
        for candidate in _distinct(half, golds)[:CANDIDATES]:
            for task in known:
                if task.id != candidate.id:
                    table[candidate.id, task.id] = audited.scored(task, golds[candidate.id])
    yield _chosen("best constant", kind, halves, table, {})
    slices = {task.id: slices_of(family, task) for task in known}
    for name in sorted({name for found in slices.values() for name in found}):
        groups = {task: found.get(name, "") for task, found in slices.items()}
        if 1 < len(set(groups.values())) < len(known):
            yield _chosen(f"{BY_GROUP}{name}", kind, halves, table, groups)


def _distinct(tasks: Sequence[Task], golds: Mapping[str, Answer]) -> list[Task]:
    """Tasks of different golds, those whose gold is common first."""
    same: defaultdict[tuple[str, tuple[tuple[str, bytes], ...]], list[Task]] = defaultdict(list)
    for task in tasks:
        gold = golds[task.id]
        same[gold.text, tuple(sorted(gold.files.items()))].append(task)
    ranked = sorted(same.values(), key=lambda found: -len(found))
    return [found[0] for found in ranked]


def _chosen(
    name: str,
    kind: str,
    halves: tuple[Sequence[Task], Sequence[Task]],
    table: Mapping[tuple[str, str], Score],
    groups: Mapping[str, str],
) -> Earned:
    """What the best candidate of each group of one half earns on that group's other half."""

    def earns(candidate: str, tasks: Sequence[Task]) -> tuple[float, float]:
        own = [table[candidate, t.id] for t in tasks if (candidate, t.id) in table]
        return sum(s.reward or 0.0 for s in own), sum(s.outcome or 0.0 for s in own)

    scores: list[Score] = []
    for mine, other in (halves, halves[::-1]):
        drawn = [c for c in dict.fromkeys(c for c, _ in table) if c in {t.id for t in mine}]
        for value in dict.fromkeys(groups.get(task.id, "") for task in other):
            here = [t for t in mine if groups.get(t.id, "") == value]
            if drawn and here:
                best = max(drawn, key=lambda c, here=here: earns(c, here))
                scores += [table[best, t.id] for t in other if groups.get(t.id, "") == value]
    return earned_by(name, kind, scores)


def floor_laws(family: Family, earned: Sequence[Earned]) -> Iterator[Broken]:
    """Yield the policies that earn more than the floor of their kind, or one of whose answers
    earns more beyond its outcome than the floor says."""
    for one in earned:
        floor, where = family.audited.floor(one.kind), f"{one.policy} ({one.kind})"
        if one.policy.startswith(BY_GROUP):
            continue  # a group may be told by gold, such as its status: no policy could know it
        judged = len(one.pairs) >= LEAST  # a mean of fewer says little
        for of, what, most in ((0, "outcome", floor.outcome), (1, "reward", floor.reward)):
            if judged and one.surely(of) > most + 1e-9:
                why = (
                    f"a mean {what} of {one.mean(of):.3f} over {len(one.pairs)} tasks without the "
                    f"work; the floor is {most:g}"
                )
                yield Broken("floor", where, why)
        if (beyond := max((r - o for o, r in one.pairs), default=0.0)) > floor.beyond + 1e-9:
            why = (
                f"an answer earns {beyond:.3f} more reward than outcome; the floor says "
                f"{floor.beyond:g} at most"
            )
            yield Broken("floor", where, why)
