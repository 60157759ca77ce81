"""The command line's one dialect: how parsers look, and what an error says and exits with.

Nouns are options (`--tasks`, `--out`, `--seed`), settings are `key=value`. Every command returns
its exit status; errors that a user can mend are raised, and said in one sentence by `status_of`.
"""

from __future__ import annotations

import argparse
import difflib
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from assay.task import MachineError
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
    once. What saves its state when it is asked to (`train.run.stop`) listens by itself; a TERM that
    is ignored stays so."""
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


class Parser(argparse.ArgumentParser):
    """A mistyped option names the nearest one."""

    def error(self, message: str) -> NoReturn:
        said = re.search(r"unrecognized arguments: (--[\w-]+)", message)
        if said is not None:
            near = difflib.get_close_matches(said[1], self._option_string_actions, 1)
            message += f"; did you mean {near[0]}?" if near else ""
        super().error(message)


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


def near_miss(given: str, known: Sequence[str]) -> str:
    """ "; did you mean 'x'?" where a known word is near, else ""."""
    near = difflib.get_close_matches(given, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def status_of(error: BaseException, command: str, known: tuple[type[Exception], ...]) -> int | None:
    """The exit status of an error, said on standard error in one sentence; None for a bug, whose
    traceback is to be seen. `known`: the errors that say what to do.

    This is the one place that maps errors to exit statuses.
    """
    status, said = _mapped(error, known)
    if said:
        print(f"{command}: {said}", file=sys.stderr)
    return status


def _mapped(error: BaseException, known: tuple[type[Exception], ...]) -> tuple[int | None, str]:
    if isinstance(error, Terminated):
        return ENDED, "ended by TERM; run the same command again"
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted; run the same command again to resume"
    if isinstance(error, BrokenPipeError):  # the reader of our output went away
        return PIPE, ""
    if isinstance(error, SavedAndStopped):
        return error.status, str(error)
    if isinstance(error, MachineError):
        return FAILED, str(error)
    if isinstance(error, known):
        return UNUSABLE, str(error)
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
        return _mapped_os(error)
    named = isinstance(error, ModuleNotFoundError) or "cannot import name" in str(error)
    if isinstance(error, ImportError) and not named:  # it is there and cannot be loaded
        first = str(error).partition("\n")[0].partition(". Please see")[0]
        return FAILED, f"{first} (often for want of memory; else run `make setup`)"
    return None, ""


def _mapped_os(error: OSError) -> tuple[int, str]:
    unusable = isinstance(
        error, FileNotFoundError | NotADirectoryError | IsADirectoryError | PermissionError
    )
    what = error.strerror or str(error) or type(error).__name__
    said = f"{error.filename}: {what}" if error.filename is not None else what
    return (UNUSABLE if unusable else FAILED), said
