"""The command line's one dialect: how parsers look, which tasks `--track` and `--licence` name, how
progress is shown, and what an error says and exits with.

Nouns are options (`--tasks`, `--out`, `--seed`), settings are `key=value`. Every command returns
its exit status; errors that a user can mend are raised, and said in one sentence by `status_of`.
Progress goes to standard error: what a command prints as its result stays apart.
"""

from __future__ import annotations

import argparse
import difflib
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from threading import RLock
from types import FrameType
from typing import Any, NoReturn, TextIO, TypeVar, cast

from assay.task import MachineError, Task, TaskError
from assay.task import SavedAndStopped as SavedAndStopped

DONE, FAILED, UNUSABLE, UNSCORED, STOPPED, INTERRUPTED = 0, 1, 2, 3, 75, 130
# how Python and torch say that the kernel gave them no memory, where they raise something else
_NO_MEMORY = (
    *("can't start new thread", "failed to map segment", "Cannot allocate memory"),
    *("can't allocate memory", "could not create a primitive"),
    "error return without exception set",
)
ENDED = 143  # what a shell gives to a program that TERM ended
PIPE = 141  # what a shell gives to a program whose reader went away
STATUSES = (
    "exit status: 0 done, 1 failed, 2 the request cannot be used, 3 done but some rows have no\n"
    "outcome, 75 stopped and saved, 130 interrupted, 143 ended by TERM"
)


class Terminated(KeyboardInterrupt):
    """TERM ends the command the way an interrupt does: files and processes are cleared away."""


def as_program(command: Callable[[], int]) -> int:
    """The exit status of a command that is a program of its own: TERM raises `Terminated` in it,
    once. What saves its state when it is asked to (`train.run.checkpoint`) listens by itself; a
    TERM that is ignored stays so."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return command()
    try:
        signal.signal(signal.SIGTERM, _on_term)
        status = command()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # all is done; only the exit is left
        return status
    except Terminated:  # outside of what maps errors
        return ENDED


def _on_term(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one does not wait
    raise Terminated


class Layout(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Defaults in the help, where there is something to say."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        unset = action.default is None or action.default is False
        silent = unset or action.default in ("", argparse.SUPPRESS) or action.default == []
        if silent or "default" in (action.help or ""):
            return action.help
        if not action.option_strings and action.nargs != "?":
            return action.help
        return (action.help or "") + " (default: %(default)s)"


class Understood(Exception):
    """The words of a command were parsed; nothing was run (`understands`)."""


class Parser(argparse.ArgumentParser):
    """A mistyped option names the nearest one; one that is a setting now (`moved`) names that."""

    moved: Mapping[str, str] = {}

    only_parse = False  # of the process: `understands`

    def parse_args(self, *given: Any, **more: Any) -> Any:
        found = super().parse_args(*given, **more)
        if Parser.only_parse:
            raise Understood
        return found

    def parse_intermixed_args(self, *given: Any, **more: Any) -> Any:
        found = super().parse_intermixed_args(*given, **more)
        if Parser.only_parse:
            raise Understood
        return found

    def error(self, message: str) -> NoReturn:
        said = re.search(r"unrecognized arguments: (--[\w-]+)", message)
        if said is not None and said[1] in self.moved:
            name = self.moved[said[1]]
            message = f"{said[1]} is the setting {name}: write {name}=VALUE"
        elif said is not None:
            options = {option: option for option in self._option_string_actions}
            message += near_miss(said[1], {**self.moved, **options})
        super().error(message)


def understands(command: Callable[[list[str]], object], argv: list[str]) -> None:
    """Ask a command's own parser about its words, and run nothing. Raises what it raises, such as
    SystemExit."""
    Parser.only_parse = True
    try:
        command(argv)
    except Understood:
        pass
    finally:
        Parser.only_parse = False


def parser(command: str, what: str | None, *, settings: str = "") -> Parser:
    """The parser of `assay COMMAND`, which shows defaults and exit statuses in its help.

    `settings` says where the command's `key=value` words are listed; with it, use
    `parse_intermixed_args`, so that they may stand between options.
    """
    made = Parser(
        prog=f"assay {command}",
        description=what,
        formatter_class=Layout,
        epilog=STATUSES,
        allow_abbrev=False,
    )
    if settings:
        made.add_argument("settings", nargs="*", metavar="key=value", help=settings)
    return made


def add_family(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--family",
        action="append",
        default=[],
        metavar="FILE.py[:NAME]",
        help="a family of your own (or pkg.module:NAME); may be repeated",
    )


def add_tasks(to: argparse.ArgumentParser, what: str = "tasks.jsonl; may be repeated") -> None:
    to.add_argument(
        "--tasks", required=True, action="extend", nargs="+", type=Path, metavar="FILE", help=what
    )


def add_out(to: argparse.ArgumentParser, what: str, *, required: bool = False) -> None:
    to.add_argument("--out", type=Path, required=required, help=what)


def add_seed(to: argparse.ArgumentParser) -> None:
    to.add_argument("--seed", type=int, default=0, help="of everything that is drawn")


def add_json(to: argparse.ArgumentParser) -> None:
    to.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")


def add_config(to: argparse.ArgumentParser) -> None:
    to.add_argument("--config", help="YAML file of settings")


def add_limit(to: argparse.ArgumentParser, what: str = "tasks") -> None:
    to.add_argument("--limit", type=int, default=0, metavar="N", help=f"first N {what} (0: all)")


def near_miss(given: str, known: Sequence[str] | Mapping[str, str]) -> str:
    """ "; did you mean 'x'?" where a known word is near, else "". A mapping says what each word is
    called now."""
    near = difflib.get_close_matches(given, known, 1)
    if not near:
        return ""
    said = known[near[0]] if isinstance(known, Mapping) else near[0]
    return f"; did you mean {said!r}?"


def status_of(error: BaseException, command: str) -> int | None:
    """The exit status of an error, said on standard error in one sentence; None for a bug, whose
    traceback is to be seen.

    This is the one place that maps errors to exit statuses.
    """
    status, said = _mapped(error)
    if said:
        print(f"{command}: {said}", file=sys.stderr)
    return status


def _mapped(error: BaseException) -> tuple[int | None, str]:
    if isinstance(error, Terminated):
        return ENDED, "ended by TERM; run the same command again"
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted; run the same command again to resume"
    if isinstance(error, BrokenPipeError):  # the reader of our output went away
        return PIPE, ""
    if isinstance(error, SavedAndStopped):
        return error.status, str(error)
    if isinstance(error, TaskError):
        return FAILED if isinstance(error, MachineError) else UNUSABLE, str(error)
    if type(error).__name__ == "OutOfMemoryError":  # torch's; not imported for this
        return FAILED, (
            "out of GPU memory; lower engine.micro_tokens or engine.slots, set model.lora_rank, "
            "or spread the run over GPUs (--backend, docs/clusters.md)"
        )
    if type(error).__name__ == "SandboxError":  # this machine cannot run the jail
        return FAILED, str(error)
    if isinstance(error, MemoryError) or any(sign in str(error) for sign in _NO_MEMORY):
        return FAILED, (
            "out of memory; lower --workers, engine.micro_tokens or engine.slots, or use --limit"
        )
    if isinstance(error, OSError):
        unusable = isinstance(
            error, FileNotFoundError | NotADirectoryError | IsADirectoryError | PermissionError
        )
        what = error.strerror or str(error) or type(error).__name__
        said = f"{error.filename}: {what}" if error.filename is not None else what
        return (UNUSABLE if unusable else FAILED), said
    named = isinstance(error, ModuleNotFoundError) or "cannot import name" in str(error)
    if isinstance(error, ImportError) and not named:  # it is there and cannot be loaded
        first = str(error).partition("\n")[0].partition(". Please see")[0]
        return FAILED, f"{first} (often for want of memory; else run `make setup`)"
    return None, ""


# --- which tasks a command works on

UNKNOWN = "unknown"
# `--licence permissive`: the licences of DARE-bench's strictly open subset (its appendix E), which
# neither bind what is made from the data nor forbid any use of it.
PERMISSIVE = ("MIT", "Apache-2.0", "CC0-1.0", "CC-BY-4.0")


def licences_of(task: Task) -> tuple[str, ...]:
    """The licences of what a task was made from, sorted: `meta.licences`, else `meta.licence`."""
    return licences_in(task.meta)


def licences_in(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The same of a task's `meta` or of a row that was written about a task."""
    several: Any = row.get("licences")
    if isinstance(several, list | tuple) and several:
        return tuple(sorted({str(name) for name in cast("list[Any]", several)}))
    return (str(row.get("licence") or UNKNOWN),)


@dataclass(frozen=True)
class TaskFilter:
    """Tracks and licences that are asked for, patterns such as `CC-BY*`; (): all. A pattern after
    `!` takes away, from all or from what the others name."""

    tracks: tuple[str, ...] = ()
    licences: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tracks or self.licences)

    def accepts_track(self, track: str) -> bool:
        return _passes(track, self.tracks)

    def accepts_licences(self, licences: Iterable[str]) -> bool:
        """Whether every one of them is asked for: a task is bound by all it was made from."""
        named = (PERMISSIVE if p == "permissive" else (p,) for p in self.licences)
        patterns = [pattern.lower() for one in named for pattern in one]
        return all(_passes(name.lower(), patterns) for name in licences)

    def accepts(self, task: Task) -> bool:
        return self.accepts_track(task.track) and self.accepts_licences(licences_of(task))

    def accepts_row(self, row: Mapping[str, Any]) -> bool:
        """The same of a row of a file, which says it itself or, as a task, in `meta`."""
        meta: Any = row.get("meta")
        about = cast("Mapping[str, Any]", {**row, **meta} if isinstance(meta, Mapping) else row)
        track = str(row.get("track") or "")
        return self.accepts_track(track) and self.accepts_licences(licences_in(about))

    def options(self) -> str:
        """The options that say this."""
        tracks = [f"--track {name}" for name in self.tracks]
        return " ".join([*tracks, *(f"--licence {name}" for name in self.licences)])

    def select(self, tasks: Iterable[Task], where: str) -> list[Task]:
        """The tasks that are asked for, in order. Raises `TaskError` where none is left."""
        if not self:
            return list(tasks)
        there = SeenTasks()
        left = list(self.stream(tasks, there))
        if not left:
            raise there.none_left(self, where)
        return left

    def stream(self, tasks: Iterable[Task], there: SeenTasks) -> Iterator[Task]:
        """The tasks that are asked for; `there` remembers what all of them are."""
        for task in tasks:
            there.add(task)
            if self.accepts(task):
                yield task


def _passes(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name is one of those asked for, and none that is taken away."""
    wanted = [p for p in patterns if not p.startswith("!")]
    gone = any(fnmatchcase(name, p[1:]) for p in patterns if p.startswith("!"))
    return not gone and (not wanted or any(fnmatchcase(name, p) for p in wanted))


ALL_TASKS = TaskFilter()


class SeenTasks:
    """The tracks and licences of tasks, to say what there is where nothing is left."""

    def __init__(self) -> None:
        self._tracks, self._licences = Counter[str](), Counter[str]()

    def add(self, task: Task) -> None:
        self._tracks[task.track] += 1
        self._licences.update([", ".join(licences_of(task))])

    def none_left(self, asked: TaskFilter, where: str) -> TaskError:
        return TaskError(
            f"{where}: no task is left by {asked.options()}; there are tracks "
            f"{_shown(self._tracks)} and licences {_shown(self._licences)}"
        )


def _shown(counts: Counter[str], most: int = 8) -> str:
    names = [f"{name!r} ({count})" for name, count in counts.most_common(most)]
    more = len(counts) - len(names)
    return (", ".join(names) or "none") + (f" and {more} more" if more > 0 else "")


def add_filter(to: Any, what: str = "tasks") -> None:
    """`--track` and `--licence` for a parser, or a group of one."""
    to.add_argument(
        "--track",
        action="append",
        default=[],
        metavar="LIST",
        help=f"only {what} of these tracks, with commas, or patterns; '!*-IF' takes away; may be "
        "repeated",
    )
    to.add_argument(
        "--licence",
        action="append",
        default=[],
        metavar="LIST",
        help=f"only {what} made from data of these licences alone, with commas, or patterns such "
        "as CC-BY*; permissive: MIT, Apache-2.0, CC0-1.0 and CC-BY-4.0; may be repeated",
    )


def task_filter(args: argparse.Namespace) -> TaskFilter:
    """What the two options say."""
    licences = [*args.licence, *_listed(args.licence)]  # the name of one may hold a comma
    return TaskFilter(_listed(args.track), tuple(dict.fromkeys(licences)))


def _listed(words: Sequence[str]) -> tuple[str, ...]:
    names = (name.strip() for word in words for name in word.split(","))
    return tuple(dict.fromkeys(name for name in names if name))


# --- progress

T = TypeVar("T")
FIRST_S = 2.0  # work that ends before shows nothing on a terminal
EVERY_S = 15.0  # before the first line, and between two, where there is no terminal


class Progress:
    """A bar of tqdm: what is done, the rate and, with a total, the time left. In a log it is a line
    now and then. Work that is soon done shows nothing.

    `total` counts units, unless `add` is told where else the work stands (bytes of the input).
    `done` units were done before: they count, but not in the rate. Use as a context manager.
    """

    def __init__(
        self,
        name: str,
        unit: str,
        total: int | None = None,
        to: TextIO | None = None,
        done: int = 0,
    ) -> None:
        from tqdm import tqdm  # not for a command that shows no progress

        log: TextIO = to or sys.stderr
        drawn = log.isatty()
        tqdm.monitor_interval = 0  # no thread of its own, nor a process for its lock
        tqdm.set_lock(RLock())
        self._name, self._unit, self._count = name, unit, done
        self._bar: tqdm[Any] = tqdm(
            total=total,
            desc=name,
            unit=f" {unit}",
            initial=done,
            file=log if drawn else cast("TextIO", _Lines(log)),
            delay=FIRST_S if drawn else EVERY_S,
            mininterval=0.1 if drawn else EVERY_S,
            miniters=1,
            dynamic_ncols=drawn,
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the bar."""
        self._bar.close()

    def add(self, count: int = 1, total: int | None = None, place: int | None = None) -> None:
        """Count `count` more units as done. `total`: a better guess of the total. `place`: how far
        the work is, in units of `total`, where these are not those counted (bytes, not rows)."""
        self._count += count
        self._bar.total = total or self._bar.total
        if place is not None:
            self._bar.set_description_str(f"{self._name}: {self._count:,} {self._unit}", False)
            self._bar.unit, self._bar.unit_scale = "B", True
        self._bar.update((self._count if place is None else place) - self._bar.n)

    def note(self, text: str) -> None:
        """What is known so far (`outcome 0.41, 118 tok/s`), shown behind the count."""
        self._bar.set_postfix_str(text, False)

    def above(self, line: str) -> None:
        """A line of the command's own output, on standard output, above the bar if there is one."""
        self._bar.write(line, file=sys.stdout)
        sys.stdout.flush()


class _Lines:
    """A log: what a bar would draw over itself are lines."""

    def __init__(self, to: TextIO) -> None:
        self._to = to

    def write(self, text: str) -> None:
        if text.strip():
            print(text.strip(), file=self._to)

    def flush(self) -> None:
        self._to.flush()


def progress(items: Iterable[T], name: str, unit: str, total: int | None = None) -> Iterator[T]:
    """Yield `items` and show how far the caller got; `total` defaults to their number."""
    if total is None and hasattr(items, "__len__"):
        total = len(items)  # pyright: ignore[reportArgumentType]
    with Progress(name, unit, total) as bar:
        for item in items:
            yield item
            bar.add()
