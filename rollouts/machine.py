"""What this process may use of the machine."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where things are kept that can be made or fetched again: $ASSAY_CACHE, else ~/.cache/assay.

    Raises RuntimeError where there is neither the variable nor a home.
    """
    named = os.environ.get("ASSAY_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "assay"


def usable_cores() -> int:
    """Cores this process may run on, which in a container or a job is fewer than there are.

    Only Linux can tell; elsewhere it is the number of all cores.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
