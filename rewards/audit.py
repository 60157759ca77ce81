"""The whole audit of one family over tasks, and the short one that training runs first.

`assay audit` prints what `audit_family` finds. `audit_sample` looks at a few tasks of every family
and says in one sentence why they should not be trained on, under the reward settings of the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from assay import scorer_timeout as guard
from assay.family import Family, family_named
from assay.task import Answer, Task, unscored
from rewards.audit.policies import BY_GROUP, farm, sample
from rewards.audit.variants import find_twins, respelled
from rewards.audit_laws import Audited, Broken, Earned, Weights, cheat_laws, examine, scored

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
        with guard.deadline(guard.SECONDS):
            score = scored(task, Answer(text, False, dict.fromkeys(HUGE_FILES, data)))
    except guard.Overtime:
        score = unscored(f"not scored within {guard.SECONDS:g} s")
    if score.outcome == 0:
        return []
    found = f"has no outcome ({score.why})" if score.outcome is None else f"scores {score.outcome}"
    return [Broken("huge", f"task {task.id}", f"an answer of 100 MB {found}")]


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
        quick = family.audited.trusted is None
        mine = [task for task in tasks if task.family == name]
        drawn = sample(mine, SAMPLE if quick else FEW, seed, "sample")
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
