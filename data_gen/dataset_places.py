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

from assay import hub
from assay.files import UNFINISHED, atomic_write
from assay.rows import file_system, is_url, stored
from assay.task import TaskError
from data_gen.dataset import CARD, DATA, FILES, MANIFEST, Manifest, inside, read_manifest

ARCHIVES = (".tar.gz", ".tgz")


def written(made: Manifest) -> list[str]:
    """The files of a data set; the list stands last, for it says that the others are there."""
    return [*sorted(made.files), CARD, MANIFEST]


def archive(new: Path, made: Manifest, out: str) -> None:
    """Put a data set from a folder into one file: a tar of regular files in order of name, without
    times and owners, below a folder of the file's name."""
    top = Path(out).name.removesuffix(".tar.gz").removesuffix(".tgz")
    with (
        atomic_write(out) as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in sorted(written(made)):
            about = tarfile.TarInfo(f"{top}/{name}")
            about.mode, about.size = 0o644, (new / name).stat().st_size
            with open(new / name, "rb") as data:
                tar.addfile(about, data)


def files_at(folder: Path) -> list[str]:
    """The files of the data set that lies in a folder of this machine; none where there is none."""
    with suppress(OSError, TaskError):
        return written(read_manifest((folder / MANIFEST).read_bytes(), str(folder)))
    return []


def send(new: Path, made: Manifest, out: str, public: bool) -> None:
    """Bring a data set from a folder to a URL. Raises `TaskError` in one sentence."""
    if out.startswith(hub.PREFIX):
        _to_hub(new, out, public)
        return
    system, path = file_system(out)
    path = path.rstrip("/")
    try:
        old: list[str] = []
        with suppress(OSError, TaskError):
            old += read_manifest(system.cat_file(f"{path}/{MANIFEST}"), path).files
        # Without its list nobody takes what is there for a data set until the new list is written.
        if system.exists(f"{path}/{MANIFEST}"):
            system.rm_file(f"{path}/{MANIFEST}")
        names = written(made)
        for name in names:
            target = f"{path}/{name}"
            system.makedirs(target.rpartition("/")[0], exist_ok=True)
            system.put_file(str(new / name), target)
        for name in sorted(set(old) - set(names)):
            with suppress(FileNotFoundError):
                system.rm_file(f"{path}/{name}")
    except OSError as error:
        raise TaskError(f"{out}: cannot be written to ({error}); push again") from None


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
    archived = source.endswith(ARCHIVES)
    if source.startswith(hub.PREFIX) or not (archived or is_url(source)):
        remote = source.startswith(hub.PREFIX)
        folder = hub.local_place(source, "") if remote else Path(source.removeprefix("file://"))
        if (folder / UNFINISHED).exists():
            raise TaskError(f"{source}: a push was killed while it put its files here; push again")
        yield folder, _manifest(folder, source)
        return
    with TemporaryDirectory(prefix="assay-") as temporary:
        folder = Path(temporary)
        if archived:
            _unpack(source, folder)
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
