"""What answers that look at nothing earn: no such answer pays.

Constants are the tasks' own answers, what a lazy model would say, and lists of common elements.
Listings hold all values of a column that a question names, or of all its tables: they hold the
right ones too, so a lenient metric pays them. A question for which training would pay one is
refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from assay.task import Task
from data_gen.queries.pipeline import Question
from rewards.krama.answer import score_response
from rewards.krama.judge import deterministic, says_much_more

MOST = 0.05  # mean reward of a constant over the tasks of a type
FEW = 30  # tasks of a type from which on it is held to
_LEAST = MOST * FEW  # what a constant may earn in all, however few the tasks
_LAZY: tuple[Any, ...] = (0, 1, -1, 0.5, 100, "unknown", "yes", "other", "[]", "0")
_ELEMENTS = (1, 2, 3, 4, 5, 10, 60)  # sizes of lists of the most frequent elements
_GRID = [sign * 1.2**n for n in range(-40, 100) for sign in (1, -1)]  # near any number


def score(question: Question, target: Any, answer: Any) -> float:
    """The outcome of `answer` against `target`, by the question's type."""
    kind = question.steps[-1].answer_type
    found = score_response(kind, target, {"answer": answer}, "table3", deterministic).outcome
    return found or 0.0


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


def best_listing(kind: str, target: Any, lists: Sequence[list[Any]]) -> tuple[float, float]:
    """(outcome, reward) of the listing that earns most, as a list or as one text."""
    found = [(0.0, 0.0)]
    for listed in lists:
        for answer in (listed, ", ".join(map(str, listed)), " ".join(map(str, listed))):
            outcome, reward = earns(kind, target, answer)
            if kind == "string_approximate" and reward and says_much_more(str(answer), str(target)):
                reward = 0.0  # gold says `names_only`
            found.append((outcome, reward))
    return max(f[0] for f in found), max(f[1] for f in found)


def listings_earn(found: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, dict[str, Any]]:
    """Of each answer type: tasks, and what their best listings earn on average and at most."""
    return {
        kind: {
            "tasks": len(pairs),
            "outcome": round(sum(p[0] for p in pairs) / len(pairs), 4),
            "reward": round(sum(p[1] for p in pairs) / len(pairs), 4),
            "highest reward": round(max(p[1] for p in pairs), 4),
        }
        for kind, pairs in sorted(found.items())
        if pairs
    }


def pays(pair: tuple[float, float]) -> bool:
    """Whether training would pay for a listing."""
    return pair[1] > MOST
