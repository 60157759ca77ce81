"""The whole audit of one family over tasks, and the short one that training runs first.

`assay audit` prints what `audit_family` finds. `audit_sample` looks at a few tasks of every family
and says in one sentence why they should not be trained on, under the reward settings of the run.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any

from assay.family import (
    SECONDS,
    Family,
    Form,
    Overtime,
    as_answer,
    called,
    deadline,
    family_named,
    slices_of,
)
from assay.task import RIGHT, Answer, Score, Task, TaskError, derive_seed, unscored
from rewards.audit_laws import (
    Audited,
    Broken,
    Earned,
    Respelled,
    Weights,
    cheat_laws,
    earned_by,
    examine,
    gold_law,
    gold_of,
    scored,
)

# ---- policies without the work
# What answers without the work earn over the tasks of one family, and the floors they must keep.
#
# A policy never sees the gold of the task it answers. It answers from the prompt's own words, by
# constants, or by the gold of other tasks, handed in through the family's `Audit.forms`, so that
# the same idea is tried in every answer format that the family knows.
#
# Constants are chosen on one half of the tasks and counted on the other: a policy must pay where it
# was not made. A mean breaks its floor when it is above it by more than two standard errors, so a
# single task never breaks one. What is earned beyond the outcome is bounded answer by answer.


LEAST = 4  # tasks of a kind before a mean can break a floor
SAMPLED, FEW = 24, 12  # tasks of a kind or family that are drawn; the same where one costs a table
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


# ---- respellings and twins
# Gold in other clothes: respellings of a task's gold, and twins of the task.
#
# A respelling changes spaces, the form of a number, quotes, the order of keys and the like. Where
# the benchmark's own reading takes one, training must not reject its content. A twin is the same
# problem with other names and numbers, its gold computed again: whoever works solves both, whoever
# remembers the plain task's answer fails on the twin.


TWINNED = 20  # tasks of a family that twins are made of


def respelled(family: Family, tasks: Sequence[Task]) -> dict[str, list[Respelled]]:
    """Score every respelling of gold that the family gives, by kind; empty where it gives none."""
    audit = family.audited
    if audit.spellings is None:
        return {}
    found: defaultdict[tuple[str, str], list[tuple[bool, bool]]] = defaultdict(list)
    for task in tasks:
        for name, said in audit.spellings(task).items():
            answer = as_answer(said)
            own = audit.benchmark(task, answer) if audit.benchmark is not None else None
            pair = (scored(task, answer).outcome or 0.0) >= RIGHT, (own or 0.0) >= RIGHT
            found[audit.kind(task), name].append(pair)
    rows: defaultdict[str, list[Respelled]] = defaultdict(list)
    for (kind, name), pairs in found.items():
        training, own = (sum(column) for column in zip(*pairs, strict=True))
        own = own if audit.benchmark is not None else None
        rows[kind].append(Respelled(name, len(pairs), training, own))
    return rows


def respelled_lines(found: Mapping[str, Sequence[Respelled]]) -> list[str]:
    """Write one line a kind: how many respellings score 1, and which do not, and who rejects
    them."""
    said: list[str] = []
    for kind, rows in sorted(found.items()):
        failed: list[str] = []
        for row in (r for r in rows if r.training < r.tasks):
            whose = "training only" if row.benchmark is not None else "rejected"
            if row.benchmark is not None and row.training <= row.benchmark < row.tasks:
                whose = "the benchmark's own reading too"
            failed.append(f"{row.name} ({whose})")
        line = f"  gold respelled, {kind}: {len(rows) - len(failed)} of {len(rows)} score 1"
        said.append(line + (f"; not: {', '.join(failed)}" if failed else ""))
    return said


def _twins_of(found: Audited, tasks: Sequence[Task]) -> Iterator[tuple[Task, Task]]:
    """(task, twin): tasks of the file that name another as `meta.plain`, then those that
    `Audit.twin` makes of a sample. Raises `TaskError` where that function raises."""
    known = {task.id: task for task in tasks}
    for task in tasks:
        if (plain := known.get(str(task.meta.get("plain")))) is not None:
            yield plain, task
    if (twin := found.family.audited.twin) is None:
        return
    for task in sample(tasks, TWINNED, found.seed, "twins"):
        if "plain" not in task.meta:
            with called(found.family, task, "twin"):
                made = twin(task, found.seed)
            if made is not None:
                yield task, made


def find_twins(found: Audited, tasks: Sequence[Task]) -> None:
    """Check that gold of every twin scores 1, and that gold of the plain task earns no more on
    it than its kind's floor."""
    family, again = found.family, defaultdict[str, list[Score]](list)
    try:
        for plain, twin in _twins_of(found, tasks):
            found.twins += 1
            remembered = gold_of(family, plain)
            score = scored(twin, gold_of(family, twin), found.weights)
            found.broken += [Broken("twin", b.where, b.why) for b in gold_law(twin, score)]
            again[family.audited.kind(plain)].append(scored(twin, remembered, found.weights))
            found.step()
    except TaskError as error:
        found.broken.append(Broken("twin", f"family {family.name}", str(error)))
    earned = [earned_by("gold of the plain task", kind, scores) for kind, scores in again.items()]
    found.recalled = [one for one in earned if one.pairs]
    for one in found.recalled:
        most = family.audited.floor(one.kind).outcome
        if len(one.pairs) >= LEAST and one.surely(0) > most + 1e-9:
            why = f"remembered gold scores {one.mean(0):.3f} on {len(one.pairs)} twins; the floor"
            where = f"{one.policy} ({one.kind})"
            found.broken.append(Broken("twin", where, f"{why} is {most:g}"))


FAILURES = 5  # tasks whose scorer failed, after which a family's audit stops
HUGE_BYTES = 100 * 1024 * 1024
HUGE_FILES = ("answer.json", "prediction.csv")
RESPELLED = 12  # tasks whose gold is respelled


def audit_family(
    family: Family,
    tasks: Sequence[Task],
    seed: int,
    attacked: int,
    step: Callable[[], object] = lambda: None,
) -> Audited:
    """Audit a family: laws of every task, attacks on `attacked` of them (0: all), policies
    without the work, twins, respellings, and one answer of 100 MB."""
    found = Audited(family, seed, step=step)
    if _look(found, tasks, attacked):
        found.spelled = respelled(family, sample(tasks, RESPELLED, seed, "respelled"))
        found.broken += huge_law(tasks[0])
    return found


def _look(found: Audited, tasks: Sequence[Task], attacked: int, errors: float = 0.0) -> bool:
    """Every task examined, `attacked` of them (0: all) by attacks too; policies without the work;
    twins. False where the scorer or gold fails, and so the rest was left out. `errors`: standard
    errors that a cheat must be above what it admits to."""
    chosen = {task.id for task in sample(tasks, attacked, found.seed, "audit")}
    failed = 0
    for task in tasks:
        one = examine(task, found.weights, attacked=task.id in chosen)
        found.examined.append(one)
        found.step()
        failed += any(score.outcome is None for score in one.scores.values()) or not one.scores
        if failed >= FAILURES:
            break
    if (left := len(tasks) - len(found.examined)) > 0:
        why = f"its scorer failed on {failed} tasks; {left} were not examined"
        found.broken.append(Broken("scorer", f"family {found.family.name}", why))
    found.broken += [b for one in found.examined for b in one.broken]
    found.broken += cheat_laws(found.family, found.examined, errors)
    if any(b.law in ("scorer", "gold") for b in found.broken):  # it does so throughout
        return False
    farm(found, tasks)
    find_twins(found, tasks)
    return True


def huge_law(task: Task) -> list[Broken]:
    """Score an answer of 100 MB, as text and as every file; return what is broken unless it is
    scored in time and earns nothing."""
    text = "the " * (HUGE_BYTES // 4)
    data = text.encode()
    try:
        with deadline():
            score = scored(task, Answer(text, False, dict.fromkeys(HUGE_FILES, data)))
    except Overtime:
        score = unscored(f"not scored within {SECONDS:g} s")
    if score.outcome == 0:
        return []
    found = f"has no outcome ({score.why})" if score.outcome is None else f"scores {score.outcome}"
    return [Broken("huge", f"task {task.id}", f"an answer of 100 MB {found}")]


# --- before training ---------------------------------------------------------------------------

ATTACKED, ONE = 6, 1  # of those, tasks that are attacked
ERRORS = 2.0  # standard errors: a sample may be above a mean by chance
MOST_SECONDS = 20.0  # of a family: a scorer that takes long is looked at less


@dataclass(frozen=True)
class SampleReport:
    """What a short audit found: `refusal` is one sentence that says why not to train, or "".

    `broken` are pairs of a family's name and a law, `tasks` counts those looked at by family, and
    `cut` names families whose scorer was too slow for all of it.
    """

    tasks: dict[str, int]
    refusal: str
    broken: tuple[tuple[str, Broken], ...] = ()
    best: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    cut: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.refusal


class _Enough(Exception):
    """The seconds of a family are used up."""


def audit_sample(
    tasks: Sequence[Task],
    seed: int,
    weights: Weights | None = None,
    seconds: float = MOST_SECONDS,
) -> SampleReport:
    """Audit a sample of the tasks of every family, under the reward settings `weights`.

    The same tasks, seed and settings give the same report, unless a family takes longer
    than `seconds`: then it is named in `cut`. `best`: what the most profitable policy without the
    work earns, by family. Raises `TaskError` for a family that is not known.
    """
    broken: list[tuple[str, Broken]] = []
    best: dict[str, dict[str, Any]] = {}
    counts: dict[str, int] = {}
    cut: list[str] = []
    for name in sorted({task.family for task in tasks}):
        family = family_named(name)
        quick = family.audited.trusted is None
        mine = [task for task in tasks if task.family == name]
        drawn = sample(mine, SAMPLED if quick else FEW, seed, "sample")
        counts[name] = len(drawn)
        found = Audited(family, seed, weights, _within(seconds))
        try:
            _look(found, drawn, ATTACKED if quick else ONE, ERRORS)
        except _Enough:
            cut.append(name)
        broken += [(name, law) for law in found.broken]
        # a group may be told by gold: what its constant earns is no policy's
        earned = [e for e in found.earned if not e.policy.startswith(BY_GROUP)]
        if earned:
            best[name] = row_of(family, max(earned, key=lambda e: (e.mean(1), e.mean(0))))
    refusal = refusal_of(broken, sum(counts.values()))
    return SampleReport(counts, refusal, tuple(broken), best, tuple(cut))


def _within(seconds: float) -> Callable[[], None]:
    """A step that raises `_Enough` once so many seconds have passed."""
    end = time.monotonic() + seconds

    def step() -> None:
        if time.monotonic() > end:
            raise _Enough

    return step


def refusal_of(broken: Sequence[tuple[str, Broken]], tasks: int) -> str:
    """Say the first broken law in one sentence, floors first; "" without one."""
    if not broken:
        return ""
    order = {"floor": 0, "cheat": 0, "gold": 1}
    name, first = min(broken, key=lambda pair: order.get(pair[1].law, 2))
    more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
    why = "no reward of it can be trusted"
    if first.law in ("floor", "cheat"):
        why = "a model would learn that instead of the work"
    return (
        f"the audit of {tasks} tasks before training found: family {name} breaks the law "
        f"{first.law!r}: {first}{more}; {why}: mend the reward or the tasks, see `assay audit` and "
        "docs/checks.md"
    )


def row_of(family: Family, one: Earned) -> dict[str, Any]:
    """Write one policy as a row of a report."""
    floor = family.audited.floor(one.kind)
    return {
        "policy": one.policy,
        "kind": one.kind,
        "tasks": len(one.pairs),
        "outcome": one.mean(0),
        "most_outcome": one.most(0),
        "reward": one.mean(1),
        "most_reward": one.most(1),
        "above_floor": one.above(floor),
        "floor": asdict(floor),
    }
