"""Where data sets lie: a folder, a URL that fsspec knows, or a repository of the hub."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assay.files import UNFINISHED
from assay.rows import file_system, is_url, stored
from data_gen.readers import library
from data_gen.sharing.layout import CARD, DATA, FILES, MANIFEST, Manifest, read_manifest
from rewards.task import TaskError

_HUB = "hf://"
_REPOSITORY = re.compile(
    r"hf://datasets/(?P<repo>[^/@]+/[^/@]+)(@(?P<revision>[^/]+))?(/(?P<path>.+?))?/*"
)
_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*(@[^/@]+)?")  # OWNER/NAME[@REVISION]


def is_remote(name: str) -> bool:
    return is_url(name)


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
    if place.startswith(_HUB):
        repo, revision, inner = _repository(place)
    elif _NAME.fullmatch(place) and not place.endswith((".json", ".jsonl", ".parquet", ".gz")):
        repo, _, revision = place.partition("@")
        inner = ""
    else:
        raise TaskError(
            f"{place}: no such file or folder; give one, or a data set of the hub by name, such as "
            f"{release}"
        )
    patterns = [f"{inner}/{name}" for name in wanted or ("*",)] + [inner] if inner else [*wanted]
    hub = _hub()
    try:
        with _said(place):
            found = hub.snapshot_download(
                repo,
                repo_type="dataset",
                revision=revision or None,
                allow_patterns=patterns or None,
            )
    except TaskError as error:
        here = "" if place.startswith(_HUB) else "no such file or folder here, and "
        near = "" if repo == release else f"; the benchmark's own data set is {release}"
        said = str(error).removeprefix(f"{place}: ")
        raise TaskError(f"{place}: {here}{said}{near}") from None
    target = Path(found) / inner
    if not target.exists():
        what = inner or " or ".join(wanted) or "file"
        raise TaskError(f"{place}: the data set has no {what}; give its revision or another folder")
    print(f"{place}: revision {Path(found).name} of the hub, in {target}", file=sys.stderr)
    return target


def files_at(folder: Path) -> list[str]:
    """The files of the data set that lies in a folder of this machine; none where there is none."""
    with suppress(OSError, TaskError):
        made = read_manifest((folder / MANIFEST).read_bytes(), str(folder))
        return [*made.files, CARD, MANIFEST]
    return []


def send(new: Path, made: Manifest, out: str, public: bool) -> None:
    """Bring a data set from a folder to a URL. Raises `TaskError` in one sentence."""
    if out.startswith(_HUB):
        _to_hub(new, out, public)
        return
    system, path = file_system(out)
    path = path.rstrip("/")
    try:
        old = _listed(system, path)
        # Without its list nobody takes what is there for a data set until the new list is written.
        if system.exists(f"{path}/{MANIFEST}"):
            system.rm_file(f"{path}/{MANIFEST}")
        names = [*sorted(made.files), CARD, MANIFEST]
        for name in names:
            target = f"{path}/{name}"
            system.makedirs(target.rpartition("/")[0], exist_ok=True)
            system.put_file(str(new / name), target)
        for name in sorted(set(old) - set(names)):
            with suppress(FileNotFoundError):
                system.rm_file(f"{path}/{name}")
    except OSError as error:
        raise TaskError(f"{out}: cannot be written to ({error}); push again") from None


def _listed(system: Any, path: str) -> list[str]:
    with suppress(OSError, TaskError):
        return [*read_manifest(system.cat_file(f"{path}/{MANIFEST}"), path).files]
    return []


def _repository(name: str) -> tuple[str, str | None, str]:
    """(OWNER/NAME, revision, folder in it)."""
    found = _REPOSITORY.fullmatch(name)
    if found is None:
        raise TaskError(f"{name}: wanted hf://datasets/OWNER/NAME, or …/NAME@REVISION")
    return found["repo"], found["revision"], found["path"] or ""


def _hub() -> Any:
    return library("huggingface_hub", "hf://", "huggingface_hub>=1.5")


# by the client's own error; others say it themselves
_WHY = {
    "RepositoryNotFoundError": "it has no data set of this name that you may read",
    "GatedRepoError": "its owner has to let you read this data set",
    "RevisionNotFoundError": "the data set has no such revision",
}


@contextmanager
def _said(name: str) -> Generator[None]:
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


def _to_hub(new: Path, out: str, public: bool) -> None:
    """One commit: readers see the old set or the new one."""
    repo, revision, inner = _repository(out)
    hub = _hub()
    with _said(out):
        api = hub.HfApi()
        api.create_repo(repo, repo_type="dataset", private=not public, exist_ok=True)
        api.upload_folder(
            repo_id=repo,
            repo_type="dataset",
            revision=revision,
            folder_path=str(new),
            path_in_repo=inner or None,
            commit_message="A set of tasks, pushed by Assay",
            delete_patterns=[f"{DATA}/*", f"{FILES}/*"],
        )


@contextmanager
def here(source: str) -> Generator[tuple[Path, Manifest]]:
    """A data set as a folder of this machine, with its list. Raises `TaskError`."""
    if not is_remote(source):
        folder = Path(source.removeprefix("file://"))
        if (folder / UNFINISHED).exists():
            raise TaskError(f"{source}: a push was killed while it put its files here; push again")
        try:
            data = (folder / MANIFEST).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise TaskError(
                f"{source}: holds no {MANIFEST}; give what `assay push` wrote"
            ) from None
        yield folder, read_manifest(data, f"{source}/{MANIFEST}")
        return
    with TemporaryDirectory(prefix="assay-") as temporary:
        folder = Path(temporary)
        if source.startswith(_HUB):
            folder = _from_hub(source, folder)
        else:
            _fetch(source, MANIFEST, folder)
        try:
            data = (folder / MANIFEST).read_bytes()
        except FileNotFoundError:
            raise TaskError(
                f"{source}: holds no {MANIFEST}; give what `assay push` wrote"
            ) from None
        made = read_manifest(data, f"{source}/{MANIFEST}")
        if not source.startswith(_HUB):
            for name in made.files:
                _fetch(source, name, folder)
        yield folder, made


def _fetch(source: str, name: str, folder: Path) -> None:
    """Copy a file of a URL. One that is missing is told by whoever looks for it."""
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with stored(f"{source.rstrip('/')}/{name}") as data, open(target, "wb") as out:
            shutil.copyfileobj(data, out)
    except TaskError:
        target.unlink(missing_ok=True)
        if name == MANIFEST:
            raise


def _from_hub(source: str, folder: Path) -> Path:
    repo, revision, inner = _repository(source)
    hub = _hub()
    with _said(source):
        found = hub.snapshot_download(
            repo,
            repo_type="dataset",
            revision=revision,
            local_dir=str(folder),
            allow_patterns=[f"{inner}/*"] if inner else None,
        )
    return Path(found) / inner
