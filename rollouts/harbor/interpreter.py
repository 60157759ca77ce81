"""Pythons of this machine that may stand in for an image's, and whether one does."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from packaging.requirements import InvalidRequirement, Requirement

from assay.task import TaskError
from rollouts.harbor.image import Image

_ASK = (
    "import json,sys,importlib.metadata as m;"
    "print(json.dumps([sys.version_info[:2], {(d.metadata['Name'] or '').lower().replace('_','-'):"
    " d.version for d in m.distributions()}]))"
)


@dataclass(frozen=True)
class Interpreter:
    """One Python: its path, its version (`3.11`) and the packages installed beside it."""

    path: str
    version: str
    packages: Mapping[str, str]


@lru_cache(maxsize=32)
def survey(path: str) -> Interpreter:
    """Ask a Python what it is. Raises `TaskError` for one that does not start."""
    try:
        done = subprocess.run(
            [path, "-I", "-c", _ASK], capture_output=True, text=True, check=True, timeout=60
        )
        version, packages = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise TaskError(f"--python {path}: does not start as Python ({error})") from None
    return Interpreter(path, f"{version[0]}.{version[1]}", packages)


def lacking(image: Image, python: Interpreter) -> list[str]:
    """What the image needs and this Python is not or has not, a sentence each."""
    found: list[str] = []
    if image.python and image.python != python.version:
        found.append(f"Python {image.python}; {python.path} is {python.version}")
    for wanted in image.requirements:
        problem = _missing(wanted, python.packages)
        if problem:
            found.append(f"pip install {wanted}: {problem}; give --python with it installed")
    return found


def _missing(wanted: str, packages: Mapping[str, str]) -> str:
    try:
        need = Requirement(wanted)
    except InvalidRequirement:
        return "a requirement that cannot be read"
    if need.marker is not None and not need.marker.evaluate():
        return ""
    here = packages.get(need.name.lower().replace("_", "-"))
    if here is None:
        return "it is not installed"
    return "" if need.specifier.contains(here, prereleases=True) else f"here is {here}"


def fitting(image: Image, pythons: Sequence[str]) -> tuple[str, list[str]]:
    """(path of the first Python that serves the image, []), or ("", what the nearest lacks)."""
    nearest: list[str] = []
    for path in pythons:
        lacks = lacking(image, survey(path))
        if not lacks:
            return path, []
        nearest = lacks if not nearest or len(lacks) < len(nearest) else nearest
    return "", nearest
