"""Which versions of which packages made something."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib import metadata

# what the gold executors and scorers compute with: another version may give other gold
GOLD = ("beautifulsoup4", "ftfy", "numpy", "rapidfuzz", "regex", "selectolax")

# what weights and answers depend on beside it
PROVENANCE = (
    "assay",
    *GOLD,
    "duckdb",
    "pandas",
    "pyarrow",
    "safetensors",
    "scikit-learn",
    "tokenizers",
    "torch",
    "transformers",
)

TABLES = ("pandas", "pyarrow", "scikit-learn", *GOLD)  # what answers over tables depend on too


def installed(packages: Iterable[str] = GOLD) -> dict[str, str]:
    """Python's version, and that of each package that is installed."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
