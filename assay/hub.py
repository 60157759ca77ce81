"""Data sets of the hub: how they are named, and its client. The one place that imports it for
them."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.errors import TaskError

PREFIX = "hf://"
_REPOSITORY = re.compile(
    r"hf://datasets/(?P<repo>[^/@]+/[^/@]+)(@(?P<revision>[^/]+))?(/(?P<path>.+?))?/*"
)
_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*(@[^/@]+)?")  # OWNER/NAME[@REVISION]


def local_place(place: str, release: str, wanted: Sequence[str] = ()) -> Path:
    """What a user names as a benchmark's place, as a file or folder of this machine.

    A path that is there is taken as it is. `OWNER/NAME[@REVISION]` and
    `hf://datasets/OWNER/NAME[@REVISION][/FOLDER]` are fetched into the cache of the hub's client
    (`HF_HOME`; `HF_HUB_OFFLINE=1` uses what it holds), of them only the files that the patterns
    `wanted` name (all without any). `release` is the name of the benchmark's own data set there.
    Raises `TaskError` in one sentence for what is neither here nor there.
    """
    path = Path(place).expanduser()
    if path.exists():
        return path
    if place.startswith(PREFIX):
        repo, revision, inner = repository(place)
    elif _NAME.fullmatch(place) and not place.endswith((".json", ".jsonl", ".parquet", ".gz")):
        repo, _, revision = place.partition("@")
        inner = ""
    else:
        raise TaskError(
            f"{place}: no such file or folder; give one, or a data set of the hub by name, such as "
            f"{release}"
        )
    patterns = [f"{inner}/{name}" for name in wanted or ("*",)] + [inner] if inner else [*wanted]
    try:
        with said(place):
            found = client().snapshot_download(
                repo,
                repo_type="dataset",
                revision=revision or None,
                allow_patterns=patterns or None,
            )
    except TaskError as error:
        here = "" if place.startswith(PREFIX) else "no such file or folder here, and "
        near = "" if release in (repo, "") else f"; the benchmark's own data set is {release}"
        why = str(error).removeprefix(f"{place}: ")
        raise TaskError(f"{place}: {here}{why}{near}") from None
    target = Path(found) / inner
    if not target.exists():
        what = inner or " or ".join(wanted) or "file"
        raise TaskError(f"{place}: the data set has no {what}; give its revision or another folder")
    print(f"{place}: revision {Path(found).name} of the hub, in {target}", file=sys.stderr)
    return target


def repository(name: str) -> tuple[str, str | None, str]:
    """(OWNER/NAME, revision, folder in it)."""
    found = _REPOSITORY.fullmatch(name)
    if found is None:
        raise TaskError(f"{name}: wanted hf://datasets/OWNER/NAME, or …/NAME@REVISION")
    return found["repo"], found["revision"], found["path"] or ""


def client() -> Any:
    """`huggingface_hub`. Loaded when it is needed."""
    return importlib.import_module("huggingface_hub")


# by the client's own error; others say it themselves
_WHY = {
    "RepositoryNotFoundError": "it has no data set of this name that you may read",
    "GatedRepoError": "its owner has to let you read this data set",
    "RevisionNotFoundError": "the data set has no such revision",
}


@contextmanager
def said(name: str) -> Generator[None]:
    """What the hub's client raises, as one sentence."""
    try:
        yield
    except TaskError:
        raise
    except Exception as error:
        # Its errors are of several libraries; what they have in common is where they come from.
        home = type(error).__module__.partition(".")[0]
        if not isinstance(error, OSError | ValueError) and home not in ("huggingface_hub", "httpx"):
            raise
        first = _WHY.get(type(error).__name__) or str(error).strip().partition("\n")[0]
        raise TaskError(
            f"{name}: the hub cannot be used ({first or type(error).__name__}); check the name, "
            "the network and HF_TOKEN"
        ) from None
