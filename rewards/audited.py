"""The whole audit of one family over tasks, and the short one that training runs first.

`assay audit` prints what `audit_family` finds. `audit_sample` looks at a few tasks of every family
and says in one sentence why they should not be trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewards import guard
from rewards.families import family_named, score_answer
from rewards.family import Family, floor_of
from rewards.farming import Earned, Farmed, farm, sample
from rewards.laws import Broken, Examined, cheat_laws, examine
from rewards.respelled import Respelled, respelled
from rewards.seeds import derive_seed
from rewards.task import Answer, Task
from rewards.twins import Twinned, twinned

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
    budget: int,
    attacked: int,
    step: Step = lambda: None,
    huge: bool = True,
) -> Audited:
    """Laws of every task, attacks on `attacked` of them (0: all), policies without the work,
    searches with `budget` scorer calls, twins, respellings, and one answer of 100 MB."""
    examined, broken = laws_of(family, tasks, seed, attacked, step)
    if any(b.law in ("scorer", "gold") for b in broken):  # a scorer that fails does so throughout
        return Audited(examined, Farmed(), Twinned(0, (), ()), {}, broken)
    if huge:
        broken += huge_law(tasks[0])
    farmed = farm(family, tasks, seed, budget, step)
    twins = twinned(family, tasks, seed, step)
    spelled = respelled(family, sample(tasks, RESPELLED, seed, "respelled"))
    broken += [*farmed.broken, *twins.broken]
    return Audited(examined, farmed, twins, spelled, broken)


def laws_of(
    family: Family, tasks: Sequence[Task], seed: int, attacked: int, step: Step = lambda: None
) -> tuple[list[Examined], list[Broken]]:
    """Every task of one family examined, `attacked` of them (0: all) by attacks too."""
    ranked = sorted(range(len(tasks)), key=lambda i: derive_seed(seed, "audit", tasks[i].id))
    chosen = set(ranked[: attacked or None])
    examined: list[Examined] = []
    failed = 0
    for place, task in enumerate(tasks):
        one = examine(task, attacked=place in chosen)
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
    return examined, [*broken, *cheat_laws(family, examined)]


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


# --- before training ----------------------------------------------------------------------------

SAMPLE = 24  # tasks of each family


@dataclass(frozen=True)
class SampleReport:
    """What a short audit found: `refusal` is one sentence that says why not to train, or ""."""

    tasks: int
    refusal: str
    broken: tuple[Broken, ...] = ()
    best: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.refusal


def audit_sample(tasks: Sequence[Task], seed: int, budget: int = 200) -> SampleReport:
    """Audit a sample of the tasks of every family, with `budget` scorer calls for searches.

    The same tasks, seed and budget give the same report. `best`: what the most profitable policy
    without the work earns, by family. Raises `TaskError` for a family that is not known.
    """
    broken: list[Broken] = []
    best: dict[str, dict[str, Any]] = {}
    count = 0
    for name in sorted({task.family for task in tasks}):
        family = family_named(name)
        drawn = sample([t for t in tasks if t.family == name], SAMPLE, seed, "sample")
        count += len(drawn)
        found = audit_family(family, drawn, seed, budget, SAMPLE // 4, huge=False)
        broken += found.broken
        if found.farmed.earned:
            best[name] = most_paid(family, found.farmed.earned)
    return SampleReport(count, refusal_of(broken, count), tuple(broken), best)


def refusal_of(broken: Sequence[Broken], tasks: int) -> str:
    """One sentence on the first broken law, floors first; "" without one."""
    if not broken:
        return ""
    order = {"floor": 0, "cheat": 0, "gold": 1}
    first = min(broken, key=lambda b: order.get(b.law, 2))
    more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
    paid = first.law in ("floor", "cheat")
    why = (
        "a model would learn that instead of the work" if paid else "no reward of it can be trusted"
    )
    return (
        f"the audit of {tasks} tasks before training found: {first}{more}; {why}: mend the reward "
        "or the tasks, see `assay audit` and docs/audit.md"
    )


def most_paid(family: Family, earned: Sequence[Earned]) -> dict[str, Any]:
    """The policy without the work with the highest mean reward."""
    one = max(earned, key=lambda e: (e.mean(1), e.mean(0)))
    return row_of(family, one)


def row_of(family: Family, one: Earned) -> dict[str, Any]:
    """One policy as a row of a report."""
    floor = floor_of(family, one.kind)
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
