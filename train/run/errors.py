"""Turn the mistakes a user can mend into one sentence and an exit status, at the edge only."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from configs.loader import ConfigError
from rewards.task import TaskError
from train.run.stop import EXIT_STOPPED, Stopped


@dataclass
class Status:
    """Exit status of a command: 0, 2 when a known error was said, 75 when asked to stop."""

    code: int = 0


@contextmanager
def say_known_errors(command: str) -> Iterator[Status]:
    """Run a command's body; errors that name their own remedy are printed without a traceback.

    Those are `ConfigError` and `TaskError`, of which every error that a user can mend is one.
    """
    status = Status()
    try:
        yield status
    except Stopped as stopped:
        print(f"{command}: {stopped}", file=sys.stderr)
        status.code = EXIT_STOPPED
    except (ConfigError, TaskError) as error:
        print(f"{command}: {error}", file=sys.stderr)
        status.code = 2
    except ValueError as error:
        # the task builder's own errors: imported by the caller only where it builds tasks
        if type(error).__module__.split(".")[0] != "data_gen":
            raise
        print(f"{command}: {error}", file=sys.stderr)
        status.code = 2
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's; not imported for this
            raise
        print(
            f"{command}: out of GPU memory; lower engine.micro_tokens or engine.slots, set "
            "model.lora_rank, or spread the run over GPUs (--backend, docs/clusters.md)",
            file=sys.stderr,
        )
        status.code = 2
    except MemoryError:
        print(
            f"{command}: out of memory; lower engine.micro_tokens or engine.slots", file=sys.stderr
        )
        status.code = 2


def say_unscored(rows: Sequence[Mapping[str, Any]], name: str, what: str) -> int:
    """Exit status of an evaluation: 3 when rows have no outcome, which is said with the reason of
    the first, else 0. `name` is the key of a row's id, `what` a row is called."""
    broken = [row for row in rows if row["outcome"] is None]
    if not broken:
        return 0
    first = broken[0]
    print(
        f"assay eval: {len(broken)} of {len(rows)} {what} have no outcome and count nowhere; "
        f"the first: {first[name]}: {first['failure'] or first['why']}",
        file=sys.stderr,
    )
    return 3
