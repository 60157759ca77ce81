"""Where data sets lie: a folder, a .tar.gz, a URL that fsspec knows, or a repository of the hub."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assay import hub
from assay.files import UNFINISHED, atomic_write
from assay.rows import file_system, is_url, stored
from assay.task import TaskError
from data_gen.sharing.layout import CARD, DATA, FILES, MANIFEST, Manifest, inside, read_manifest

ARCHIVES = (".tar.gz", ".tgz")


def is_remote(name: str) -> bool:
    return is_url(name)


def is_archive(name: str) -> bool:
    return name.endswith(ARCHIVES)


def archive(new: Path, made: Manifest, out: str) -> None:
    """Put a data set from a folder into one file: a tar of regular files in order of name, without
    times and owners, below a folder of the file's name."""
    top = Path(out).name.removesuffix(ARCHIVES[0]).removesuffix(ARCHIVES[1])
    with (
        atomic_write(out) as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in sorted((*made.files, CARD, MANIFEST)):
            about = tarfile.TarInfo(f"{top}/{name}")
            about.mode, about.size = 0o644, (new / name).stat().st_size
            with open(new / name, "rb") as data:
                tar.addfile(about, data)


def files_at(folder: Path) -> list[str]:
    """The files of the data set that lies in a folder of this machine; none where there is none."""
    with suppress(OSError, TaskError):
        made = read_manifest((folder / MANIFEST).read_bytes(), str(folder))
        return [*made.files, CARD, MANIFEST]
    return []


def send(new: Path, made: Manifest, out: str, public: bool) -> None:
    """Bring a data set from a folder to a URL. Raises `TaskError` in one sentence."""
    if out.startswith(hub.PREFIX):
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


def _to_hub(new: Path, out: str, public: bool) -> None:
    """One commit: readers see the old set or the new one."""
    repo, revision, inner = hub.repository(out)
    client = hub.client()
    with hub.said(out):
        api = client.HfApi()
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
    if not is_remote(source) and not is_archive(source):
        folder = Path(source.removeprefix("file://"))
        if (folder / UNFINISHED).exists():
            raise TaskError(f"{source}: a push was killed while it put its files here; push again")
        yield folder, _manifest(folder, source)
        return
    with TemporaryDirectory(prefix="assay-") as temporary:
        folder = Path(temporary)
        if is_archive(source):
            _unpack(source, folder)
        elif source.startswith(hub.PREFIX):
            folder = _from_hub(source, folder)
        else:
            _fetch(source, MANIFEST, folder)
            for name in _manifest(folder, source).files:
                _fetch(source, name, folder)
        yield folder, _manifest(folder, source)


def _manifest(folder: Path, source: str) -> Manifest:
    """Read the list of a data set in a local folder. Raises `TaskError` where there is none."""
    try:
        data = (folder / MANIFEST).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise TaskError(f"{source}: holds no {MANIFEST}; give what `assay push` wrote") from None
    return read_manifest(data, f"{source}/{MANIFEST}")


def _unpack(source: str, folder: Path) -> None:
    """The regular files of an archive, without its top folder. Raises `TaskError`."""
    try:
        with stored(source) as packed, tarfile.open(fileobj=packed, mode="r|gz") as tar:
            for member in tar:
                name, data = member.name.partition("/")[2], tar.extractfile(member)
                if data is None or not inside(name):
                    continue
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with open(target, "wb") as out:
                    shutil.copyfileobj(data, out)
    except FileNotFoundError:
        raise TaskError(f"{source}: no such file") from None
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TaskError(f"{source}: is no whole .tar.gz ({error}); push again") from None


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
    repo, revision, inner = hub.repository(source)
    client = hub.client()
    with hub.said(source):
        found = client.snapshot_download(
            repo,
            repo_type="dataset",
            revision=revision,
            local_dir=str(folder),
            allow_patterns=[f"{inner}/*"] if inner else None,
        )
    return Path(found) / inner
