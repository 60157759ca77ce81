"""How to install an extra of this project, for messages about a library that is missing."""

from __future__ import annotations


def install_extra(extra: str) -> str:
    """What to run for the optional libraries of `extra` (pyproject.toml).

    Assay is installed from its checkout: the package of this name in public indexes is another
    project.
    """
    return f"run `pip install -e '.[{extra}]'` in the checkout of Assay"
