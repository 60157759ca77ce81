"""The versions that decide what a task's gold is, for certificates."""

from __future__ import annotations

import platform
from importlib import metadata

PACKAGES = ("assay", "numpy", "regex", "rapidfuzz", "ftfy", "beautifulsoup4", "selectolax")


def versions() -> dict[str, str]:
    """Python and the packages that gold depends on, as far as they are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
