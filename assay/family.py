"""A family: everything Assay has to know of one kind of task.

Whoever adds a kind of task writes one file with one `Family` in it, in this repository or outside
(`--family FILE.py`). Commands ask the family and know none by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, cast

from assay.table_marks import TableMarks
from assay.task import Answer, Score, Task, TaskError, unscored
from assay.thoughts import WRAPS, Parted, parted

__all__ = [
    "Answer",
    "Cheat",
    "Family",
    "Floor",
    "NoWeights",
    "Score",
    "Task",
    "TaskError",
    "unscored",
]


@dataclass(frozen=True)
class NoWeights:
    """The settings of a family that has none."""


@dataclass(frozen=True)
class Cheat:
    """An answer made without doing the work, and the highest mean outcome that it admits to.

    A cheat that reaches more than `admits` over a set of tasks fails the audit: then the tasks or
    the scorer can be farmed.
    """

    answer: Callable[[Task], Answer | str]
    admits: float = 0.5


@dataclass(frozen=True)
class Floor:
    """What answers made without the work may earn on average over tasks of one kind.

    `outcome` and `reward` bound the means of every generated policy (a constant, the prompt, the
    gold of another task). `beyond` bounds reward minus outcome of any single
    answer: what the reward pays for answers that the metric does not.
    """

    outcome: float = 0.5
    reward: float = 0.5
    beyond: float = 0.5


def _track(task: Task) -> Mapping[str, str]:
    return {"track": task.track}


def _kind(task: Task) -> str:
    return task.track


def _plain(task: Task, text: str) -> Answer:
    return Answer(text)


Form = Callable[[Task, str], "Answer | str"]
_PLAIN: Mapping[str, Form] = {"plain": _plain}


def _said_to_the_model(task: Task) -> Iterable[str]:
    return [str(m.get("content") or "") for m in task.prompt if m.get("role") == "user"]


@dataclass(frozen=True)
class Family:
    """What Assay has to know of a kind of task. Every entry is a plain function or a dict.

    A minimal family has a name, `score` and `gold`; with `build` it has tasks of its own.
    """

    name: str
    """What tasks write in their field `family`."""

    score: Callable[..., Score]
    """`score(task, answer)`, or `score(task, answer, weights)` where `weights` is given. Pure; it
    never raises on what a model wrote, and returns outcome None only when it failed itself."""

    gold: Callable[[Task], Answer | str | None]
    """The answer that scores 1, or None where it has to be run first (see `proof`)."""

    said: Callable[[Task], str] | None = None
    """Gold as a message that scores 1, where `gold` is files that an environment leaves but the
    task may be answered in words too. Tools without files hand tasks in by it."""

    form: str = ""
    """The form of such a message, in a sentence, where prompts do not say it."""

    places: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where prompts say that the task's files lie: name in `Task.files` → path in the folder that a
    solver works in. Without an entry a file lies there under its name."""

    weights: type = NoWeights
    """A frozen dataclass with defaults: the settings `reward.<name>.*` of a run."""

    cheats: Mapping[str, Callable[[Task], Answer | str] | Cheat] = field(
        default_factory=dict[str, Callable[[Task], "Answer | str"] | Cheat]
    )
    """Answers without a model: baselines of every table, attacks of `assay audit`."""

    kind: Callable[[Task], str] = _kind
    """What kind of answer a task asks for. The audit looks for the best constant of each kind."""

    floors: Mapping[str, Floor] = field(default_factory=dict[str, Floor])
    """What answers without the work may earn, by kind; "" for every other kind."""

    forms: Mapping[str, Form] = field(default_factory=lambda: _PLAIN)
    """Ways to hand in a text, `form(task, text)`: the answer formats that generated attacks use.
    They may look at what the task shows to a model, never at gold."""

    twin: Callable[[Task, int], Task | None] | None = None
    """`twin(task, seed)`: the same problem with other names and numbers and its gold computed
    again, or None where it cannot be made. Gold that is remembered fails on it."""

    states: Callable[[Task], Sequence[Task]] | None = None
    """`states(task)`: the same task begun for the model, after 1, 2, … of its steps were done
    exactly: what is left is asked, with the same gold. They say so in `meta.gold_steps`. Empty
    where there are none. Training may start from them (`rl.gold_state`)."""

    trusted: Callable[..., Score] | None = None
    """The same score as `score`, quicker, for answers that our own code wrote: searches use it."""

    spellings: Callable[[Task], Mapping[str, Answer | str]] | None = None
    """Harmless respellings of gold, by name; `assay audit` says which of them score 1."""

    benchmark: Callable[[Task, Answer], float | None] | None = None
    """The outcome in the benchmark's own reading, where training reads more strictly."""

    slices: Callable[[Task], Mapping[str, str]] = _track
    """What results are broken down by: {"track": …, "domain": …}."""

    content: Callable[[Task], Iterable[str | TableMarks]] = _said_to_the_model
    """Texts, questions or tables (`assay.table_marks`) that two splits must not share. The
    task's files have paths that can be opened; where they cannot, its other content has to do."""

    source: Callable[[Task], str] | None = None
    """The document, table or lake a task was drawn from. Intervals are clustered by it; without
    it by `meta.source` or `meta.document`, else each task stands for itself."""

    labels: Callable[[Task, Answer], tuple[str, str]] | None = None
    """(class of gold, class the answer names), where tasks fall into classes. Results then show
    the balanced outcome, in which every class counts alike, and which class is taken for which."""

    build: Callable[..., Mapping[str, Sequence[Task]]] | None = None
    """`build(seed, **settings)` → {"train": [Task, …], "heldout": […]}, for `assay tasks <name>`.
    Its keyword arguments with their defaults are the settings."""

    environment: Any = None
    """What tasks with tools act on: a list of `@tool` functions or a `rollouts` environment."""

    solver: Callable[[Task, list[str]], Any] | None = None
    """`solver(task, told)`: an agent that knows the way, for a first SFT (`assay rollout --solver
    own`). `told` is what tools answered so far; it returns the next call as `(name, arguments)`, a
    list of such calls, or the text of its last message."""

    proof: Callable[..., Answer] | None = None
    """Gold that has to be executed (a pipeline, a script)."""

    parts: tuple[str, ...] = ()
    """Names in `Score.parts` that are logged for every rollout; trainers want the same columns of
    every row."""

    row: Callable[[Mapping[str, Any], Mapping[str, Any], Any], Score] | None = None
    """`row(gold, row, weights)`: scores a row of `assay score` that brings its own gold, or fields
    of its own. None: `output` and `files` of the row are the answer."""

    tables: Callable[[Sequence[Mapping[str, Any]]], Iterable[Any]] | None = None
    """The benchmark's own result tables and official files, from generic rows."""

    explain: Callable[[Task, Answer], Any] | None = None
    """`explain(task, answer)`: a `train.view.explain.Explanation`, where an answer leaves gold and
    at which step of the work, for `assay view`. Without it answers are compared with the text of
    gold, and no step is named."""

    origin: str = ""
    """Where the family was loaded from (`FILE.py:NAME`, `pkg.module:NAME`); "" if built in."""

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise TaskError(f"Family name {self.name!r}: use letters, digits and _")
        for entry in ("score", "gold"):
            if not callable(getattr(self, entry)):
                raise TaskError(f"Family {self.name}: {entry} is no function; give one")
        weights: Any = self.weights  # whatever a family's file gave
        if not isinstance(weights, type) or not is_dataclass(weights):
            raise TaskError(f"Family {self.name}: weights is no dataclass; give one with defaults")

    @property
    def takes_weights(self) -> bool:
        """Whether `score` has a third parameter."""
        return self.weights is not NoWeights or _positional(self.score) > 2


def floor_of(family: Family, kind: str) -> Floor:
    """The floor of tasks of one kind."""
    return family.floors.get(kind) or family.floors.get("") or Floor()


def _positional(function: Callable[..., Any]) -> int:
    """How many positional arguments a function requires."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in plain and p.default is inspect.Parameter.empty for p in parameters)


def output_of(row: Mapping[str, Any]) -> str:
    """The field `output` of a row of `assay score`. Raises `TaskError` where it is no text."""
    output = row.get("output")
    if not isinstance(output, str):
        raise TaskError("field 'output' is missing or not a string; give the model's answer there")
    return output


def as_answer(said: Answer | str) -> Answer:
    """A gold or cheat function may return plain text."""
    return Answer(said) if isinstance(said, str) else said


def cheat_answer(family: Family, name: str, task: Task) -> Answer:
    """The answer of the cheat `name`. Raises `TaskError` for a name the family does not have."""
    if name not in family.cheats:
        known = ", ".join(family.cheats) or "none"
        raise TaskError(f"family {family.name} has no cheat {name!r}; it has {known}")
    cheat = family.cheats[name]
    made = cheat.answer(task) if isinstance(cheat, Cheat) else cheat(task)
    return as_answer(made)


def gold_answer(family: Family, task: Task) -> Answer | None:
    """The answer that scores 1, or None where it has to be run."""
    made = family.gold(task)
    return None if made is None else as_answer(made)


def without_thoughts(family: Family, task: Task, answer: Answer) -> Answer:
    """The answer without what a reasoning model thought before it (assay/thoughts.py)."""
    text = parted_answer(family, task, answer.text).answer
    return answer if text == answer.text else replace(answer, text=text)


THOUGHT = "thought_did_not_end"  # why an answer that was cut inside its thought earns nothing


def score_after_thoughts(
    family: Family, task: Task, answer: Answer, arguments: tuple[Any, ...]
) -> Score:
    """The scorer's word on what follows a thought. Where the thought did not end, and so nothing
    follows, the score says that (`THOUGHT`)."""
    found = parted_answer(family, task, answer.text)
    plain = answer if found.answer == answer.text else replace(answer, text=found.answer)
    score = family.score(task, plain, *arguments)
    if found.ended or answer.files or not isinstance(score, Score) or score.outcome != 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        return score
    return replace(score, why=THOUGHT)


def parted_answer(family: Family, task: Task, text: str) -> Parted:
    """What a model says to a task as thought and answer; what gold holds is no thought's mark."""

    def known() -> Answer | None:
        try:
            return gold_answer(family, task)
        except Exception:  # the scorer says what is wrong with gold
            return None

    def gold() -> str:
        made = known()
        return made.text if made is not None else ""

    def prompt() -> str:
        made = known()
        said = [str(message.get("content") or "") for message in task.prompt]
        if made is None:  # any tag around the answer may be the task's own
            said += [opening for opening, _ in WRAPS]
        elif not made.text:  # files, or the same in words: `<answer>` is how words hand it in
            said.append("<answer>")
        return "\n".join(said)

    return parted(text, gold, prompt)


def source_of(family: Family, task: Task) -> str:
    """What the task was drawn from, for clustered intervals."""
    if family.source is not None:
        return family.source(task)
    meta = cast("Mapping[str, Any]", task.meta)
    return str(meta.get("document") or meta.get("source") or task.group or task.id)
