"""What one answer earns over many tasks: the best constant of each type, found by search.

A set is worth training on only if no answer given without looking pays. Candidates are the tasks'
own answers, what a lazy model would say, and lists of everything.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from assay.task import Task
from rewards.krama.answer import score_response

MOST = 0.05  # mean reward of a constant over the tasks of a type
FEW = 30  # tasks of a type from which on it is held to
_LEAST = MOST * FEW  # what a constant may earn in all, however few the tasks
_LAZY: tuple[Any, ...] = (0, 1, -1, 0.5, 100, "unknown", "yes", "other", "[]", "0")
_ELEMENTS = (1, 2, 3, 4, 5, 10, 60)  # sizes of lists of the most frequent elements
_GRID = [sign * 1.2**n for n in range(-40, 100) for sign in (1, -1)]  # near any number


def earns(answer_type: str, target: Any, answer: Any) -> tuple[float, float]:
    """(outcome, reward) of an answer."""
    score = score_response(answer_type, target, {"answer": answer})
    return score.outcome or 0.0, score.reward or 0.0


@dataclass
class Watch:
    """The answers of one type so far, and what each of them would earn on all."""

    answer_type: str
    targets: list[Any] = field(default_factory=list[Any])
    totals: list[float] = field(default_factory=list[float])

    def admits(self, target: Any) -> bool:
        """Whether no constant pays after this answer; then it is counted."""
        most = max(_LEAST, MOST * (len(self.targets) + 1))
        kind = self.answer_type
        after = [
            total + earns(kind, target, known)[1]
            for known, total in zip(self.targets, self.totals, strict=True)
        ]
        own = 1.0 + sum(earns(kind, known, target)[1] for known in self.targets)
        if max([own, *after]) > most:
            return False
        wanted = [*self.targets, target]
        lists = [answer for answer in _common(wanted) if answer not in wanted]
        if any(sum(earns(kind, known, one)[1] for known in wanted) > most for one in lists):
            return False
        self.targets.append(target)
        self.totals = [*after, own]
        return True


def _common(targets: Sequence[Any]) -> list[list[Any]]:
    """Lists of the elements that stand in most of the targets."""
    lists = [cast("list[Any]", t) for t in targets if isinstance(t, list)]
    seen = Counter(json.dumps(e) for elements in lists for e in elements)
    common = [json.loads(text) for text, _ in sorted(seen.items(), key=lambda c: (-c[1], c[0]))]
    return [common[:size] for size in _ELEMENTS if common]


def candidates(targets: Sequence[Any]) -> list[Any]:
    """Answers worth trying on tasks with these targets, each once."""
    found: list[Any] = [*targets, *_LAZY, _GRID]
    found += _common(targets)
    return list({json.dumps(c): c for c in found}.values())


def best_constants(tasks: Iterable[Task]) -> dict[str, dict[str, Any]]:
    """Of each answer type: tasks, and the constants with the best mean outcome and reward."""
    by_type: dict[str, list[Any]] = {}
    for task in tasks:
        by_type.setdefault(str(task.gold["answer_type"]), []).append(task.gold["answer"])
    return {kind: _best(kind, targets) for kind, targets in sorted(by_type.items())}


def _best(kind: str, targets: Sequence[Any]) -> dict[str, Any]:
    best: dict[str, Any] = {"tasks": len(targets)}
    for answer in candidates(targets):
        pairs = [earns(kind, target, answer) for target in targets]
        for place, name in enumerate(("outcome", "reward")):
            mean = sum(p[place] for p in pairs) / len(pairs)
            if mean > best.get(name, {}).get("mean", -1.0):
                best[name] = {"mean": round(mean, 4), "answer": _short(answer)}
    return best


def _short(answer: Any) -> str:
    text = json.dumps(answer, ensure_ascii=False)
    return text if len(text) <= 80 else text[:78] + " …"


def paying(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A sentence for every type with enough tasks on which a constant pays."""
    return [
        f"the constant {row['reward']['answer']} earns {row['reward']['mean']:.3f} on "
        f"{row['tasks']} tasks of {kind}; it may earn {MOST:g}"
        for kind, row in found.items()
        if row["tasks"] >= FEW and row["reward"]["mean"] > MOST
    ]
