"""The whole audit of one family over tasks, and the short one that training runs first.

`assay audit` prints what `audit_family` finds. `audit_sample` looks at a few tasks of every family
and says in one sentence why they should not be trained on, under the reward settings of the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay import scorer_timeout as guard
from assay.family import Family, family_named, score_answer
from assay.seeds import derive_seed
from assay.task import Answer, Task
from rewards.audit.laws import Broken, Examined, Weights, cheat_laws, examine
from rewards.audit.policies import BY_GROUP, Earned, Farmed, farm, sample
from rewards.audit.variants import Respelled, Twinned, respelled, twinned

FAILURES = 5  # tasks whose scorer failed, after which a family's audit stops
HUGE_BYTES = 100 * 1024 * 1024
RESPELLED = 12  # tasks whose gold is respelled
Step = Callable[[], object]


@dataclass(frozen=True)
class Audited:
    """Everything that is known of one family after its audit."""

    examined: list[Examined]
    farmed: Farmed
    twins: Twinned
    spelled: dict[str, list[Respelled]]
    broken: list[Broken]


def audit_family(
    family: Family,
    tasks: Sequence[Task],
    seed: int,
    attacked: int,
    step: Step = lambda: None,
) -> Audited:
    """Laws of every task, attacks on `attacked` of them (0: all), policies without the work,
    twins, respellings, and one answer of 100 MB."""
    examined, broken = laws_of(family, tasks, seed, attacked, step)
    if any(b.law in ("scorer", "gold") for b in broken):  # a scorer that fails does so throughout
        return Audited(examined, Farmed(), Twinned(0, (), ()), {}, broken)
    broken += huge_law(tasks[0])
    farmed = farm(family, tasks, seed, step)
    twins = twinned(family, tasks, seed, step)
    spelled = respelled(family, sample(tasks, RESPELLED, seed, "respelled"))
    broken += [*farmed.broken, *twins.broken]
    return Audited(examined, farmed, twins, spelled, broken)


def laws_of(
    family: Family,
    tasks: Sequence[Task],
    seed: int,
    attacked: int,
    step: Step = lambda: None,
    weights: Weights | None = None,
    errors: float = 0.0,
) -> tuple[list[Examined], list[Broken]]:
    """Every task of one family examined, `attacked` of them (0: all) by attacks too. `errors`:
    standard errors that a cheat must be above what it admits to."""
    ranked = sorted(range(len(tasks)), key=lambda i: derive_seed(seed, "audit", tasks[i].id))
    chosen = set(ranked[: attacked or None])
    examined: list[Examined] = []
    failed = 0
    for place, task in enumerate(tasks):
        one = examine(task, weights, attacked=place in chosen)
        examined.append(one)
        step()
        failed += any(score.outcome is None for score in one.scores.values()) or not one.scores
        if failed >= FAILURES:
            break
    broken: list[Broken] = []
    if len(examined) < len(tasks):
        why = f"its scorer failed on {failed} tasks; {len(tasks) - len(examined)} were not examined"
        broken.append(Broken("scorer", f"family {family.name}", why))
    broken += [b for one in examined for b in one.broken]
    return examined, [*broken, *cheat_laws(family, examined, errors)]


def huge_law(task: Task) -> list[Broken]:
    """An answer of 100 MB, as text and as every file, is scored in time and earns nothing."""
    text = "the " * (HUGE_BYTES // 4)
    data = text.encode()
    answer = Answer(text, False, {"answer.json": data, "prediction.csv": data})
    where = f"task {task.id}"
    try:
        with guard.deadline(guard.SECONDS):
            score = score_answer(task, answer)
    except guard.Overtime:
        why = f"an answer of 100 MB is not scored within {guard.SECONDS:g} s"
        return [Broken("huge", where, why)]
    except Exception as error:
        return [Broken("huge", where, f"an answer of 100 MB raises {type(error).__name__}")]
    if score.outcome is None:
        return [Broken("huge", where, f"an answer of 100 MB has no outcome ({score.why})")]
    if score.outcome > 0:
        return [Broken("huge", where, f"an answer of 100 MB scores {score.outcome:g}")]
    return []


# --- before training ---------------------------------------------------------------------------

SAMPLE, FEW = 24, 12  # tasks of each family; the same where one answer costs a table
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
        mine = [task for task in tasks if task.family == name]
        drawn = sample(mine, SAMPLE if family.audited.trusted is None else FEW, seed, "sample")
        counts[name] = len(drawn)
        found = Farmed()
        try:
            _look_at(found, family, drawn, seed, weights, _within(seconds))
        except _Enough:
            cut.append(name)
        broken += [(name, law) for law in found.broken]
        # a group may be told by gold: what its constant earns is no policy's
        if earned := [e for e in found.earned if not e.policy.startswith(BY_GROUP)]:
            best[name] = most_paid(family, earned)
    refusal = refusal_of(broken, sum(counts.values()))
    return SampleReport(counts, refusal, tuple(broken), best, tuple(cut))


def _within(seconds: float) -> Step:
    """A step that raises `_Enough` once so many seconds have passed."""
    end = time.monotonic() + seconds

    def step() -> None:
        if time.monotonic() > end:
            raise _Enough

    return step


def _look_at(
    found: Farmed,
    family: Family,
    tasks: Sequence[Task],
    seed: int,
    weights: Weights | None,
    step: Step,
) -> None:
    """Put into `found` the broken laws of a sample of one family's tasks, and what policies
    without the work earn."""
    attacked = ATTACKED if family.audited.trusted is None else ONE
    _, broken = laws_of(family, tasks, seed, attacked, step, weights, ERRORS)
    found.broken += broken
    if any(b.law in ("scorer", "gold") for b in broken):
        return
    farmed = farm(family, tasks, seed, step, weights)
    found.broken += farmed.broken
    found.earned += farmed.earned
    found.broken += twinned(family, tasks, seed, step, weights).broken


def refusal_of(broken: Sequence[tuple[str, Broken]], tasks: int) -> str:
    """One sentence on the first broken law, floors first; "" without one."""
    if not broken:
        return ""
    order = {"floor": 0, "cheat": 0, "gold": 1}
    name, first = min(broken, key=lambda pair: order.get(pair[1].law, 2))
    more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
    paid = first.law in ("floor", "cheat")
    why = (
        "a model would learn that instead of the work" if paid else "no reward of it can be trusted"
    )
    return (
        f"the audit of {tasks} tasks before training found: family {name} breaks the law "
        f"{first.law!r}: {first}{more}; {why}: mend the reward or the tasks, see `assay audit` and "
        "docs/audit.md"
    )


def most_paid(family: Family, earned: Sequence[Earned]) -> dict[str, Any]:
    """The policy without the work with the highest mean reward."""
    one = max(earned, key=lambda e: (e.mean(1), e.mean(0)))
    return row_of(family, one)


def row_of(family: Family, one: Earned) -> dict[str, Any]:
    """One policy as a row of a report."""
    floor = family.audited.floor(one.kind)
    return {
        "policy": one.policy,
        "kind": one.kind,
        "tasks": len(one.pairs),
        "outcome": one.mean(0),
        "most_outcome": max((o for o, _ in one.pairs), default=0.0),
        "reward": one.mean(1),
        "most_reward": max((r for _, r in one.pairs), default=0.0),
        "above_floor": one.above(floor),
        "floor": {"outcome": floor.outcome, "reward": floor.reward, "beyond": floor.beyond},
    }
