# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Which questions become tasks: stable, unambiguous, not trivial, every step matters, and both ways
give the same; and no answer given without looking pays.

Constants are the tasks' own answers, what a lazy model would say, and lists of common elements.
Listings hold all values of a column that a question names, or of all its tables: they hold the
right ones too, so a lenient metric pays them. A question for which training would pay one is
refused.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, permutations, repeat
from pathlib import Path
from typing import Any, cast

from assay.task import Task
from data_gen.certificate import DIFFERS, UNPROVABLE, Refusal
from data_gen.proof.forms import Shelf
from data_gen.proof.marks import number, text
from data_gen.proof.original import NotProvable, Opened
from data_gen.queries import ops
from data_gen.queries.duckdb_sql import part_of
from data_gen.queries.duckdb_sql import values as sql_values
from data_gen.queries.lake_questions import NAMES_LEAST, enough
from data_gen.queries.ops import Op, sources_of
from data_gen.queries.pipeline import PipelineFailed, Question, runs, script_values, subtask_key
from rewards.krama.answer import score_response
from rewards.krama.judge import deterministic, says_much_more
from rollouts.event_loop import asyncio_run

LEAST_MARGIN = 1e-3  # relative distance to another answer (ties, rounding boundaries)
SHUFFLES = (1, 2)
_FITTED = 10  # rows that a line is fitted to, or a correlation computed of
_ALIKE = 0.5  # outcome of the middle figure, given for every group
_CAUSES = {
    "IndexError": "no row or group is left",
    "KeyError": "a value that the rows left do not have",
}
_BASELINES: tuple[Any, ...] = (0, 1, "", "Yes", [], None)


def reject(question: Question, values: Mapping[str, Any]) -> str:
    """Why values cannot be gold, "" when they can: missing, empty, huge, or a tie."""
    last = question.steps[-1]
    answer: Any = values.get("main-task")
    if values["margin"] < 0:
        return "a group of one row"
    if not values["margin"] >= LEAST_MARGIN:
        return "ambiguous"
    if why := _guessable(question, values):
        return why
    for value in values.values():
        if not _finite(value):
            return "not finite"
    if isinstance(answer, list):
        items = cast("list[Any]", answer)
        if not 2 <= len(items) <= 12 or len({str(i) for i in items}) < 2:
            return "trivial"
    elif isinstance(answer, str):
        if not 0 < len(answer.strip()) <= 80 or answer in question.text or answer == "nan":
            return "trivial"
    else:
        size = abs(float(cast("float", answer)))
        few = last.value.startswith("len(") and size < 2
        if few or size == 1 or not 1e-9 < size < 1e12:
            return "trivial"
    counts = [v for k, v in values.items() if k.startswith("subtask") and isinstance(v, int)]
    least = _FITTED if isinstance(last.op, ops.Fit | ops.Correlate) else 3
    if any(count < least for count in counts):
        return "too few rows"
    return "" if score(question, answer, answer) == 1.0 else "gold does not score 1"


def _guessable(question: Question, values: Mapping[str, Any]) -> str:
    """Why an answer can be had without the numbers: too few groups to choose from, or figures so
    alike that one of them, repeated, is nearly right."""
    last, answer = question.steps[-1], values["main-task"]
    groups = next(
        (values[subtask_key(n, -1)] for n, s in enumerate(question.steps) if s.kind == "group"), 0
    )
    if isinstance(last.op, ops.Best | ops.Nth) and groups < NAMES_LEAST:
        return "too few groups"
    if isinstance(last.op, ops.Top) and not enough(groups, last.op.k):
        return "too few groups"
    if isinstance(last.op, ops.Above) and not 2 <= int(answer) <= groups - 2:
        return "too few groups"
    if isinstance(last.op, ops.Each):
        middle = sorted(answer)[len(answer) // 2]
        if score(question, answer, [middle] * len(answer)) > _ALIKE:
            return "figures too alike"
    return ""


def _finite(value: Any) -> bool:
    if isinstance(value, list):
        return all(_finite(v) for v in cast("list[Any]", value))
    return not isinstance(value, float) or math.isfinite(value)


def score(question: Question, target: Any, answer: Any) -> float:
    """The outcome of `answer` against `target`, by the question's type."""
    kind = question.steps[-1].answer_type
    found = score_response(kind, target, {"answer": answer}, "table3", deterministic).outcome
    return found or 0.0


Checked = tuple[dict[str, Any] | None, str]  # (values of every step, "") or (None, why)


def validate(questions: Sequence[tuple[Question, Path]]) -> list[Checked]:
    """What became of each question, side by side in the sandbox."""

    async def all_() -> list[Checked]:
        return await asyncio.gather(*(_validate(q, folder) for q, folder in questions))

    return asyncio_run(all_())


async def _validate(question: Question, folder: Path) -> Checked:
    """(values of every step, "") or (None, why). Runs the pipeline about six times, in one call.

    The run, a second run and runs on shuffled rows must agree in every step; leaving out an
    optional step (filter, join) must change the answer; no constant answer may score 1.
    """
    optional = [number for number, step in enumerate(question.steps) if step.optional]
    seeds: tuple[int | None, ...] = (None, None, *SHUFFLES)
    wanted = [*((seed, -1) for seed in seeds), *((None, number) for number in optional)]
    values, *others = await runs(question, folder, wanted)
    if isinstance(values, PipelineFailed):
        cause = str(values).partition(":")[0]
        return None, _CAUSES.get(cause, f"pipeline failed ({cause})")
    if why := reject(question, values):
        return None, why
    for seed, again in zip(seeds[1:], others[: len(seeds) - 1], strict=True):
        if isinstance(again, PipelineFailed):
            return None, "unstable"
        if seed is None and again != values:
            return None, "not repeatable"
        if not _agree(question, values, again):
            return None, "unstable"
    for other in others[len(seeds) - 1 :]:
        if not _matters(question, other, values["main-task"]):
            return None, "a step changes nothing"
    if any(score(question, values["main-task"], base) > 0.95 for base in _BASELINES):
        return None, "trivial"
    if question.script and not _prints(question, values, await script_values(question, folder)):
        return None, "the short script differs"
    return {k: v for k, v in values.items() if k != "margin"}, ""


def _agree(question: Question, values: Mapping[str, Any], again: Mapping[str, Any]) -> bool:
    """Every step's value the same; order of rows must not show, not even in the last digits."""
    last = len(question.steps) - 1
    for place, step in enumerate(question.steps):
        key = subtask_key(place, last)
        got = score_response(step.answer_type, values[key], {"answer": again[key]}).outcome
        exact = step.answer_type.endswith("exact") or isinstance(values[key], str)
        if got is None or got < (1.0 if exact else 1 - 1e-6):
            return False
        if isinstance(values[key], list) and not same(IN_ORDER, values[key], again[key], 1e-6):
            return False
    return True


def _prints(
    question: Question, values: Mapping[str, Any], lines: list[str] | PipelineFailed
) -> bool:
    """Whether a script printed the value of every step, in their order."""
    if isinstance(lines, PipelineFailed) or len(lines) != len(question.steps):
        return False
    last = len(question.steps) - 1
    return all(
        score_response(s.answer_type, values[subtask_key(n, last)], {"answer": line}).outcome == 1.0
        for n, (s, line) in enumerate(zip(question.steps, lines, strict=True))
    )


def _matters(question: Question, left_out: Mapping[str, Any] | PipelineFailed, answer: Any) -> bool:
    if isinstance(left_out, PipelineFailed):
        return True  # a later step needs it
    other = left_out["main-task"]
    if isinstance(answer, float) and isinstance(other, float | int):
        return not math.isclose(answer, other, rel_tol=0.01)
    return score(question, answer, other) < 0.999


# --- what answers without the work earn

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


_LISTED = 1000  # values of one list
_PAIRED = 6  # columns of text of which two are listed together, as a pair is asked for


def everything(steps: tuple[Op, ...], shelf: Shelf) -> list[list[Any]]:
    """Lists of everything that a question could be about: the distinct values of each column it
    names (as numbers where they are), of each part of a split one, of two columns of text, all of
    them together, and the names of the columns of its tables."""
    lists: list[list[Any]] = []
    for source in sources_of(steps):
        held = shelf.table(source.path, source.part)
        for column in source.columns:
            for read in (text, number):
                try:
                    lists.append(_distinct(shelf, held, column, read(held, column)))
                except NotProvable:
                    continue  # a column that no question asks so about
        for op in steps:
            if isinstance(op, ops.Split) and op.column in held.ids:
                cell = part_of(text(held, op.column), op.cut)
                lists.append(_distinct(shelf, held, op.column, cell))
        lists.append(list(held.ids))
    texts = [one for one in lists if any(isinstance(c, str) for c in one)]
    pairs = [[*one, *other] for one, other in permutations(texts[:_PAIRED], 2)]
    together = list(dict.fromkeys(chain.from_iterable(lists)))
    return [one for one in [*lists, *pairs, together[:_LISTED]] if one]


def _distinct(shelf: Shelf, table: Opened, column: str, cell: str) -> list[Any]:
    """The distinct values of what SQL makes of the cells of a column, in order. A table of a shelf
    never changes, so that each is asked for once."""
    texts = f"SELECT DISTINCT {table.column(column)} FROM {table.table}"
    query = f"SELECT DISTINCT c FROM (SELECT {cell} AS c FROM ({texts})) ORDER BY c LIMIT {_LISTED}"
    if query not in shelf.listed:
        shelf.listed[query] = [c for (c,) in shelf.con.execute(query).fetchall() if c is not None]
    return shelf.listed[query]


def best_listing(kind: str, target: Any, lists: Sequence[list[Any]]) -> tuple[float, float]:
    """(outcome, reward) of the listing that earns most, as a list or as one text."""
    found = [(0.0, 0.0)]
    for listed in lists:
        for answer in (listed, ", ".join(map(str, listed)), " ".join(map(str, listed))):
            outcome, reward = earns(kind, target, answer)
            if kind == "string_approximate" and says_much_more(str(answer), str(target)):
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


# --- whether both ways agree

_TOLERANCE = 1e-7  # relative; two ways of adding up differ in the last digits


def refusal(question: Question, given: Mapping[str, Any], shelf: Shelf) -> Refusal | None:
    """None when both ways agree on every step; else why the question is refused."""
    steps = question.ops
    if steps is None:
        return Refusal(UNPROVABLE, "a step without a typed form")
    try:
        found = sql_values(steps, shelf)
    except NotProvable as error:
        return Refusal(UNPROVABLE, str(error))
    last = len(steps) - 1
    for place, (op, second) in enumerate(zip(steps, found, strict=True)):
        first = given[subtask_key(place, last)]
        if not same(op, first, second):
            kind = question.steps[place].kind
            said = f"step {place + 1} ({kind}) is {first!r}, by SQL {second!r}"
            return Refusal(DIFFERS, said)
    return None


IN_ORDER = ops.Each()  # a step whose list has an order


def same(op: Op, first: Any, second: Any, tolerance: float = _TOLERANCE) -> bool:
    """Whether two ways gave one value. The order of a list matters where the step has one."""
    if not isinstance(first, list) or not isinstance(second, list):
        return not isinstance(first, list | tuple) and _alike(first, second, tolerance)
    one, two = cast("list[Any]", first), cast("list[Any]", second)
    if not isinstance(op, ops.Each | ops.Fit):
        one, two = sorted(one, key=str), sorted(two, key=str)
    return len(one) == len(two) and all(map(_alike, one, two, repeat(tolerance)))


def _alike(one: Any, two: Any, tolerance: float) -> bool:
    if isinstance(one, list) or isinstance(two, list):
        return False
    if isinstance(one, str) or isinstance(two, str):
        return one == two
    return math.isclose(float(one), float(two), rel_tol=tolerance, abs_tol=1e-12)
