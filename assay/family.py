"""A family: everything Assay has to know of one kind of task.

Whoever adds a kind of task writes one file with one `Family` in it, in this repository or outside
(`--family FILE.py`). Commands ask the family and know none by name.
"""

from __future__ import annotations

import ctypes
import difflib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, is_dataclass, replace
from functools import lru_cache
from pathlib import Path
from pkgutil import resolve_name
from types import FrameType
from typing import Any, ClassVar, cast

from assay.task import GOLD_LEFT_OUT, Answer, Score, Task, TaskError, unscored
from assay.thoughts import WRAPS, Parted, parted


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


def _kind(task: Task) -> str:
    return task.track


def _plain(task: Task, text: str) -> Answer:
    return Answer(text)


Form = Callable[[Task, str], "Answer | str"]
_PLAIN: Mapping[str, Form] = {"plain": _plain}


@dataclass(frozen=True)
class Audit:
    """What `assay audit` may be told of a family beside its scorer, gold and cheats. Nothing here
    is needed, and nothing here changes a score."""

    kind: Callable[[Task], str] = _kind
    """What kind of answer a task asks for. The best constant is looked for in each kind."""

    floors: Mapping[str, Floor] = field(default_factory=dict[str, Floor])
    """What answers without the work may earn, by kind; "" for every other kind."""

    forms: Mapping[str, Form] = field(default_factory=lambda: _PLAIN)
    """Ways to hand in a text, `form(task, text)`: the answer formats that generated policies use.
    They may look at what the task shows to a model, never at gold."""

    twin: Callable[[Task, int], Task | None] | None = None
    """`twin(task, seed)`: the same problem with other names and numbers and its gold computed
    again, or None where it cannot be made. Gold that is remembered fails on it."""

    spellings: Callable[[Task], Mapping[str, Answer | str]] | None = None
    """Harmless respellings of gold, by name; the audit says which of them score 1."""

    benchmark: Callable[[Task, Answer], float | None] | None = None
    """The outcome in the benchmark's own reading, where training reads more strictly."""

    trusted: Callable[[Task, Answer, Any], Score] | None = None
    """The same score as `score`, quicker, for answers that our own code wrote."""

    def floor(self, kind: str) -> Floor:
        """The floor of tasks of one kind."""
        return self.floors.get(kind) or self.floors.get("") or Floor()


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
    """The answer that scores 1, or None where it has to be run first (see `proof`). Where it is
    files that an environment leaves, its text may say the same in words."""

    weights: type = NoWeights
    """A frozen dataclass with defaults: the settings `reward.<name>.*` of a run."""

    cheats: Mapping[str, Callable[[Task], Answer | str] | Cheat] = field(
        default_factory=dict[str, Callable[[Task], "Answer | str"] | Cheat]
    )
    """Answers without a model: baselines of every table, attacks of `assay audit`."""

    slices: Callable[[Task], Mapping[str, str]] = lambda task: {"track": task.track}
    """What results are broken down by: {"track": …, "domain": …}. "source" is the document, table
    or lake that the task was drawn from: no results are broken down by it, intervals are clustered
    by it. Without it they are by `meta.document`, `meta.source`, the group, else by the task."""

    content: Callable[[Task], Iterable[object]] = _said_to_the_model
    """Texts, questions or `TableMarks` (`assay.fingerprints`) that two splits must not share. The
    task's files have paths that can be opened; where they cannot, its other content has to do."""

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

    tables: Callable[[Sequence[Mapping[str, Any]]], Iterable[Any]] | None = None
    """The benchmark's own result tables and official files, from generic rows."""

    explain: Callable[[Task, Answer], Any] | None = None
    """`explain(task, answer)`: a `train.view.explain.Explanation`, where an answer leaves gold and
    at which step of the work, for `assay view`. Without it answers are compared with the text of
    gold, and no step is named."""

    audit: Audit | str = field(default_factory=Audit)
    """What the audit may be told. A text names it as `module:NAME`, loaded when it is asked for."""

    origin: ClassVar[str] = ""
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

    @property
    def audited(self) -> Audit:
        """What the audit is told, loaded."""
        if isinstance(self.audit, Audit):
            return self.audit
        return resolve_name(self.audit)


def from_place(family: Family, origin: str) -> Family:
    """The family with the place it was loaded from, by which it is called one from outside."""
    loaded = replace(family)
    object.__setattr__(loaded, "origin", origin)
    return loaded


def _positional(function: Callable[..., Any]) -> int:
    """How many positional arguments a function requires."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in plain and p.default is inspect.Parameter.empty for p in parameters)


def as_answer(said: Answer | str) -> Answer:
    """A gold or cheat function may return plain text."""
    return Answer(said) if isinstance(said, str) else said


def cheat_answer(family: Family, name: str, task: Task) -> Answer:
    """The answer of the cheat `name`. Raises `TaskError` for a name the family does not have."""
    if name not in family.cheats:
        known = ", ".join(family.cheats) or "none"
        raise TaskError(f"family {family.name} has no cheat {name!r}; it has {known}")
    cheat = family.cheats[name]
    return as_answer(cheat.answer(task) if isinstance(cheat, Cheat) else cheat(task))


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


SOURCE = "source"  # the slice that intervals are clustered by


def source_of(family: Family, task: Task) -> str:
    """What the task was drawn from, for clustered intervals."""
    if said := family.slices(task).get(SOURCE):
        return said
    meta = cast("Mapping[str, Any]", task.meta)
    return str(meta.get("document") or meta.get("source") or task.group or task.id)


def slices_of(family: Family, task: Task) -> dict[str, str]:
    """Return the groups that a task's result counts in, as {slice: value}: `Family.slices` without
    the source."""
    return {name: value for name, value in family.slices(task).items() if name != SOURCE}


# --- the one table from a task's family to what is known of it --------------------------------

# name of a built-in family: where it is, loaded when a task of it is met, and its weights, which a
# run's settings ask for without the rest
_PLACES: dict[str, tuple[str, str]] = {
    "refinement": ("rewards.cdr.family:REFINEMENT", "rewards.weights:RefinementReward"),
    "structured": ("rewards.cdr.family:STRUCTURED", "rewards.weights:StructuredReward"),
    "table": ("rewards.dare.family:TABLE", "rewards.weights:TableReward"),
    "answer": ("rewards.krama.family:ANSWER", "rewards.weights:AnswerReward"),
    "sql": ("rewards.sql.family:SQL", "rewards.weights:SqlReward"),
    "harbor": ("rewards.harbor:HARBOR", "assay.family:NoWeights"),
}


class _BuiltIn(Mapping[str, Family]):
    """The families of this package by name."""

    def __getitem__(self, name: str) -> Family:
        return resolve_name(_PLACES[name][0])

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


BUILT_IN = _BuiltIn()
VARIABLE = "ASSAY_FAMILIES"
GROUP = "assay.families"  # entry points of installed packages
_added: dict[str, Family] = {}


def use_families(specs: Iterable[str]) -> list[Family]:
    """Load families from `FILE.py[:NAME]` or `pkg.module:NAME` and add them to the table.

    `NAME` is `FAMILY` where it is not said. Child processes get them too. Raises `TaskError` in
    one sentence for a file that cannot be loaded and for the name of another family.
    """
    found = [load_family(spec) for spec in specs]
    for family in found:
        other = BUILT_IN.get(family.name) or _added.get(family.name)
        if other is not None and other.origin != family.origin:
            where = other.origin or "a built-in family"
            raise TaskError(
                f"{family.origin}: family {family.name!r} is the name of {where} already; "
                "give it another name"
            )
    _added.update({f.name: f for f in found})
    if found:
        os.environ[VARIABLE] = "\n".join(f.origin for f in _added.values())
    return found


def load_family(spec: str) -> Family:
    """The family that `FILE.py[:NAME]` or `pkg.module:NAME` names. Raises `TaskError`."""
    family, origin = load_object(spec, "FAMILY", "--family")
    if not isinstance(family, Family):
        got = "nothing" if family is None else type(family).__name__
        name = origin.rpartition(":")[2]
        raise TaskError(f"--family {spec}: {name} is {got}; wanted an assay.Family")
    return from_place(family, origin)


def load_object(spec: str, default: str, option: str) -> tuple[Any, str]:
    """(what `FILE.py[:NAME]` or `pkg.module[:NAME]` names, where it came from).

    `default` is the name where none is said; None is returned for a name that is not there.
    Raises `TaskError` naming `option` for a file that cannot be loaded.
    """
    place, _, name = spec.partition(":")
    name = name or default
    if place.endswith(".py"):
        return getattr(_of_file(Path(place), option), name, None), f"{Path(place).resolve()}:{name}"
    try:
        module = importlib.import_module(place)
    except Exception as error:  # whatever the user's module raises
        said = f"{option} {spec}: {_why(error)}; give FILE.py or pkg.module:NAME"
        raise TaskError(said) from None
    return getattr(module, name, None), f"{place}:{name}"


def _of_file(path: Path, option: str) -> Any:
    """The module of a file, made once per process, so that its classes have one identity."""
    path = path.resolve()
    name = f"assay_family_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise TaskError(f"{option} {path}: no such file")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses of the file look their module up while it runs
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # a file may call sys.exit
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        when = "" if isinstance(error, TaskError) else " while it was loaded"
        raise TaskError(f"{option} {path}: {_why(error)}{when}") from None
    return module


def _why(error: BaseException) -> str:
    if isinstance(error, TaskError):  # a sentence that names the place already
        return str(error)
    line = ""
    trace = error.__traceback__
    while trace is not None:
        line = f" (line {trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}{line}"


def all_families() -> dict[str, Family]:
    """Load and return every family by name: the built-in ones, then those of `use_families`."""
    return {**BUILT_IN, **_added}


def all_weights() -> dict[str, type]:
    """The class of `reward.<name>.*` of every family; built-in families are not loaded for it."""
    built_in = {name: resolve_name(weights) for name, (_, weights) in _PLACES.items()}
    return built_in | {name: family.weights for name, family in _added.items()}


def has_family(name: str) -> bool:
    """Whether there is a family of that name: built in, added, or of an installed package."""
    return (BUILT_IN.get(name) or _added.get(name) or _from_outside(name)) is not None


def family_named(name: str, where: str = "") -> Family:
    """The family of that name. Raises `TaskError` that says how to add one."""
    found = BUILT_IN.get(name) or _added.get(name) or _from_outside(name)
    if found is not None:
        return found
    known = ", ".join(all_families())
    near = difflib.get_close_matches(name, all_families(), 1)
    hint = f"did you mean {near[0]!r}?" if near else "add yours with --family FILE.py"
    raise TaskError(f"{where}{': ' * bool(where)}no family {name!r} (there is {known}); {hint}")


def _from_outside(name: str) -> Family | None:
    """A family of the parent process or of an installed package."""
    if specs := [s for s in os.environ.get(VARIABLE, "").split("\n") if s]:
        use_families(specs)
    if name not in _added:
        use_families(point.value for point in _installed() if point.name == name)
    return _added.get(name)


@lru_cache(maxsize=1)
def _installed() -> tuple[importlib.metadata.EntryPoint, ...]:
    """Families of installed packages; reading them takes milliseconds, and rows are many."""
    return tuple(importlib.metadata.entry_points(group=GROUP))


def family_of(task: Task) -> Family:
    """The task's family. Raises `TaskError` naming the task and, where the task says it, the file
    that its family came from."""
    try:
        return family_named(task.family, f"task {task.id}")
    except TaskError as error:
        origin = task.meta.get("family_origin")
        hint = f"; it was built with --family {origin}" if origin else ""
        raise TaskError(f"{error}{hint}") from None


def require_families(tasks: Iterable[Task]) -> None:
    """Raise `TaskError` for the first task whose family is not known, before any work is done."""
    seen: set[str] = set()
    for task in tasks:
        if task.family not in seen:
            family_of(task)
            seen.add(task.family)


def score_answer(task: Task, answer: Answer, weights: Mapping[str, Any] | None = None) -> Score:
    """Score one answer. `weights`: settings by family name; a family's defaults where it has none.

    Never raises on what a model wrote; an infrastructure failure has no outcome. A thought before
    an answer is no part of it. A scorer from outside that raises, runs into the deadline or returns
    no usable score gives no outcome and says why. Raises `TaskError` for a family that is not known
    or gold that cannot be read.
    """
    family = family_of(task)
    if answer.failure is not None:
        return unscored(f"failure: {answer.failure}")
    if task.meta.get(GOLD_LEFT_OUT):
        return unscored("the task came without its gold")
    mine = (weights or {}).get(family.name)
    arguments = (mine if mine is not None else family.weights(),) if family.takes_weights else ()
    if family.origin:
        return guarded(family, task, answer, arguments)
    return score_after_thoughts(family, task, answer, arguments)


SECONDS = 10.0  # one call of a scorer


class Overtime(BaseException):
    """The deadline; not an `Exception`, so that a scorer's own handler does not swallow it."""


@contextmanager
def deadline(seconds: float = 0.0) -> Generator[None]:
    """Raise `Overtime` in this thread when the body takes longer; by itself, than a scorer may.

    In the main thread by a timer signal, which also ends regular expressions; in another thread
    between two bytecodes.
    """
    if threading.current_thread() is threading.main_thread():
        with _by_signal(seconds or SECONDS):
            yield
        return
    timer = threading.Timer(seconds or SECONDS, interrupt_thread, [threading.get_ident()])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _by_signal(seconds: float) -> Generator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise Overtime

    before = signal.signal(signal.SIGALRM, ring)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
        signal.signal(signal.SIGALRM, before)


def interrupt_thread(thread: int) -> None:
    """Raise `Overtime` in the thread of that ident, between two of its bytecodes."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Overtime))


@contextmanager
def called(family: Family, task: Task, what: str, timed: bool = True) -> Generator[None]:
    """Around a call of a family's function `what`: raises `TaskError` naming the task where it
    raises or, in a family from outside and `timed`, does not end within the scorer's deadline."""
    seconds = SECONDS if family.origin and timed else 0.0
    where = f"task {task.id}: {what} of family {family.name}"
    try:
        with deadline(seconds) if seconds else nullcontext():
            yield
    except TaskError:
        raise
    except Overtime:
        raise TaskError(f"{where} did not end within {seconds:g} s") from None
    except (Exception, SystemExit) as error:
        raise TaskError(f"{where} raised {type(error).__name__}: {error}") from None


def guarded(family: Family, task: Task, answer: Answer, arguments: tuple[Any, ...]) -> Score:
    """The scorer's score, or no outcome with the reason that it failed.

    `TaskError` passes: gold that cannot be read is the task's fault, and stops the run.
    """
    try:
        with deadline(SECONDS):
            score = score_after_thoughts(family, task, answer, arguments)
    except TaskError:
        raise
    except Overtime:
        return unscored(f"scorer of {family.name} did not end within {SECONDS:g} s")
    except (Exception, SystemExit) as error:
        return unscored(f"scorer of {family.name} raised {type(error).__name__}: {error}"[:500])
    wrong = problem(score)
    return unscored(f"scorer of {family.name}: {wrong}") if wrong else score


def problem(score: object) -> str:
    """Why a scorer's result cannot be used; "" if it can."""
    if not isinstance(score, Score):
        return f"returned {type(score).__name__}; return an assay.Score"
    if score.outcome is None:
        return "" if score.reward is None else "a reward without an outcome; return both or none"
    for name, value in (("outcome", score.outcome), ("reward", score.reward)):
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            return f"{name} is {value!r}; return a finite number"
    if not 0 <= score.outcome <= 1:
        return f"outcome is {score.outcome}; return a number from 0 to 1"
    return ""
