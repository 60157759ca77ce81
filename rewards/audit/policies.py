"""What answers without the work earn over the tasks of one family, and the floors they must keep.

Constants are chosen on one half of the tasks and counted on the other: a policy must pay where it
was not made. A mean breaks its floor when it is above it by more than two standard errors, so a
single task never breaks one. What is earned beyond the outcome is bounded answer by answer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from assay.family import Family, Floor, floor_of
from assay.seeds import derive_seed
from assay.task import Answer, Score, Task, TaskError
from rewards.audit.blind_policies import Policy, fixed_policies
from rewards.audit.laws import Broken, Weights, gold_of, scored

LEAST = 4  # tasks of a kind before a mean can break a floor
SAMPLED, FEW = 24, 12  # tasks of a kind that policies answer; the same where one costs a table
CANDIDATES = 12  # golds tried as constants, of each half
BY_GROUP = "best constant by "


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

    def surely(self, of: int) -> float:
        """The mean less two standard errors: what it earns beyond chance."""
        n = len(self.pairs)
        if n < 2:
            return 0.0
        mean = self.mean(of)
        spread = sum((p[of] - mean) ** 2 for p in self.pairs) / (n - 1)
        return mean - 2 * math.sqrt(spread / n)

    def above(self, floor: Floor) -> float:
        """Share of tasks on which it earns more than the floor."""
        over = sum(o > floor.outcome or r > floor.reward for o, r in self.pairs)
        return over / len(self.pairs) if self.pairs else 0.0


@dataclass
class Farmed:
    """Everything that `farm` found of one family."""

    earned: list[Earned] = field(default_factory=list[Earned])
    broken: list[Broken] = field(default_factory=list[Broken])
    calls: int = 0


def sample(tasks: Sequence[Task], most: int, seed: int, what: str) -> list[Task]:
    """At most `most` tasks (0: all), drawn by their ids, in their order."""
    ranked = sorted(range(len(tasks)), key=lambda i: derive_seed(seed, what, tasks[i].id))
    return [tasks[i] for i in sorted(ranked[: most or None])]


def farm(
    family: Family,
    tasks: Sequence[Task],
    seed: int,
    step: Callable[[], object] = lambda: None,
    weights: Weights | None = None,
) -> Farmed:
    """Let every policy without the work answer a sample of `tasks`. `weights`: reward settings by
    family name.

    A scorer that fails on a policy's answer is a broken law, and ends the audit of its kind.
    """
    found = Farmed()
    kinds: defaultdict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        kinds[family.kind(task)].append(task)

    def score(task: Task, answer: Answer) -> Score:
        found.calls += 1
        if family.trusted is not None:
            return family.trusted(task, answer, (weights or {}).get(family.name, family.weights()))
        return scored(task, answer, weights)

    for kind, mine in sorted(kinds.items()):
        most = SAMPLED if family.trusted is None else FEW
        drawn = sample(mine, most, seed, "policies")
        for one in _policies(family, kind, drawn, score):
            found.earned.append(one)
            step()
            if one.unscored:
                why = f"the scorer has no outcome for {one.unscored} answers of this policy"
                found.broken.append(Broken("policy", f"{one.policy} ({kind})", why))
                break
    found.broken += floor_laws(family, found.earned)
    return found


def _policies(
    family: Family,
    kind: str,
    tasks: Sequence[Task],
    score: Callable[[Task, Answer], Score],
) -> Iterator[Earned]:
    for policy in fixed_policies(family):
        yield _earned(policy, kind, tasks, score)
    yield from golds_of_others(family, kind, tasks, score)


def _earned(
    policy: Policy,
    kind: str,
    tasks: Sequence[Task],
    score: Callable[[Task, Answer], Score],
) -> Earned:
    return _counted(policy.name, kind, (score(task, policy.answer(task)) for task in tasks))


def _counted(name: str, kind: str, scores: Iterable[Score]) -> Earned:
    listed = list(scores)
    pairs = [(s.outcome, s.reward or 0.0) for s in listed if s.outcome is not None]
    return Earned(name, kind, tuple(pairs), len(listed) - len(pairs))


def golds_of_others(
    family: Family,
    kind: str,
    tasks: Sequence[Task],
    score: Callable[[Task, Answer], Score],
) -> Iterator[Earned]:
    """The gold of the next task; the best constant among golds; the same a group.

    Constants are golds of one half, chosen there by reward, and counted on the other half.
    """
    golds = _golds(family, tasks)
    known = [task for task in tasks if task.id in golds]
    if len(known) < 2:
        return
    others = [*known[1:], known[0]]
    yield _counted(
        "gold of another task",
        kind,
        (score(task, golds[other.id]) for task, other in zip(known, others, strict=True)),
    )
    halves = known[::2], known[1::2]
    table: dict[tuple[str, str], Score] = {}
    for half in halves:
        for candidate in _distinct(half, golds)[:CANDIDATES]:
            for task in known:
                if task.id != candidate.id:
                    table[candidate.id, task.id] = score(task, golds[candidate.id])
    yield _chosen("best constant", kind, halves, table, lambda task: "")
    names = {name for task in known for name in family.slices(task)}
    for name in sorted(names):
        groups = {family.slices(task).get(name, "") for task in known}
        if 1 < len(groups) < len(known):
            group = _slice(family, name)
            yield _chosen(f"{BY_GROUP}{name}", kind, halves, table, group)


def _slice(family: Family, name: str) -> Callable[[Task], str]:
    return lambda task: family.slices(task).get(name, "")


def _golds(family: Family, tasks: Sequence[Task]) -> dict[str, Answer]:
    golds: dict[str, Answer] = {}
    for task in tasks:
        try:
            golds[task.id] = gold_of(family, task)
        except TaskError:  # told by the law of gold
            continue
    return golds


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
    group: Callable[[Task], str],
) -> Earned:
    """What the best candidate of each group of one half earns on that group's other half."""
    scores: list[Score] = []
    for mine, other in (halves, halves[::-1]):
        drawn = [c for c in dict.fromkeys(c for c, _ in table) if c in {t.id for t in mine}]
        for value in dict.fromkeys(group(task) for task in other):
            here = [t for t in mine if group(t) == value]
            if not drawn or not here:
                continue
            best = max(drawn, key=lambda c, here=here: _sum(table, c, here))
            scores += [table[best, t.id] for t in other if group(t) == value]
    return _counted(name, kind, scores)


def _sum(
    table: Mapping[tuple[str, str], Score], candidate: str, tasks: Sequence[Task]
) -> tuple[float, float]:
    own = [table[candidate, t.id] for t in tasks if (candidate, t.id) in table]
    return sum(s.reward or 0.0 for s in own), sum(s.outcome or 0.0 for s in own)


def floor_laws(family: Family, earned: Sequence[Earned]) -> Iterator[Broken]:
    """No policy without the work earns more than the floor of its kind, and no answer of one earns
    more beyond its outcome than the floor says."""
    for one in earned:
        floor, where = floor_of(family, one.kind), f"{one.policy} ({one.kind})"
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
