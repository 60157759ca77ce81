"""What a pushed set of tasks is made of: `assay.json` lists its splits and the hash of every file.

README.md            the card
certificate.json     what the splits share, as the builder wrote it
data/SPLIT.parquet   the tasks
files/…              what tasks need, at its place in the set
assay.json           this list

It lies in a folder, a .tar.gz, at a URL that fsspec knows, or in a repository of the hub.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import tarfile
import zlib
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, cast

from assay import hub
from assay.console import licences_of
from assay.files import UNFINISHED, atomic_write
from assay.rows import file_system, is_url, parquet_rows, stored, write_groups
from assay.task import GOLD_LEFT_OUT, Task, TaskError, json_text
from data_gen.certificate import PROVED

MANIFEST, CARD = "assay.json", "README.md"
DATA, FILES = "data", "files"
FORMAT = 1


@dataclass(frozen=True)
class Split:
    """One file of tasks: its name in the data set, its place in the set, how many tasks, and the
    SHA-256 of the JSON lines that pull writes."""

    name: str
    file: str
    tasks: int
    sha256: str

    @property
    def parquet(self) -> str:
        return parquet_of(self.name)


def parquet_of(split: str) -> str:
    """Where the tasks of a split lie."""
    return f"{DATA}/{split}.parquet"


@dataclass(frozen=True)
class Manifest:
    """`files`: SHA-256 and bytes by place; `folders`: empty ones that tasks name; `runs`: places of
    files that are programs. The counts are numbers of tasks."""

    splits: tuple[Split, ...]
    gold: bool = True
    files: Mapping[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    folders: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    families: Mapping[str, int] = field(default_factory=dict[str, int])
    tracks: Mapping[str, int] = field(default_factory=dict[str, int])
    licences: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def tasks(self) -> int:
        return sum(split.tasks for split in self.splits)

    def to_bytes(self) -> bytes:
        return json_text({"assay_dataset": FORMAT, **asdict(self)}, indent=1)


def read_manifest(data: bytes, where: str) -> Manifest:
    """Raises `TaskError` for what is no manifest, of a newer format, or names a place outside."""
    try:
        row: Any = json.loads(data)
        version: Any = row["assay_dataset"]
        if version != FORMAT:
            raise TaskError(f"{where}: was pushed by a newer Assay (format {version}); update")
        files = {str(n): (str(s), int(b)) for n, (s, b) in row["files"].items()}
        made = Manifest(
            tuple(
                Split(str(s["name"]), str(s["file"]), int(s["tasks"]), str(s["sha256"]))
                for s in row["splits"]
            ),
            bool(row["gold"]),
            files,
            tuple(str(name) for name in row["folders"]),
            tuple(str(name) for name in row["runs"]),
            *(cast("dict[str, int]", row[name]) for name in ("families", "tracks", "licences")),
        )
    except TaskError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise TaskError(f"{where}: is no list of a pushed set; push the tasks again") from None
    for place in (*made.files, *made.folders, *(s.file for s in made.splits)):
        if not inside(place):
            raise TaskError(f"{where}: names {place!r}, which is no place in a set of tasks")
    for split in made.splits:
        if split.parquet not in made.files or not split.file.endswith(".jsonl"):
            raise TaskError(f"{where}: split {split.name!r} has no file {split.parquet}")
    return made


def inside(place: str) -> bool:
    """Whether a path stays below the folder it is relative to."""
    path = PurePosixPath(place)
    plain = bool(place) and "\0" not in place and "\\" not in place
    return plain and not path.is_absolute() and ".." not in path.parts and path.name != ""


def split_name(file: str, taken: Collection[str]) -> str:
    """A name that `datasets` takes for a split: letters, digits, _ and dots."""
    name = ".".join(re.sub(r"\W", "_", part) for part in file.removesuffix(".jsonl").split("/"))
    name = "tasks" if name == "all" else name  # "all" means every split there
    while name in taken:
        name += "_"
    return name


# of what a task says of itself, what tells nothing of its gold
_SAID = ("benchmark", "domain", "family_origin", "language", "licence", "licences", "published")


def proved(certificate: Mapping[str, Any]) -> dict[str, Any]:
    """What a certificate says of its splits, and nothing that leads to gold: no seed, no setting,
    no example."""
    return {name: certificate[name] for name in PROVED if name in certificate}


def without_gold(task: Task) -> Task:
    """The task as others may see it: no gold, and of `meta` nothing that leads to it."""
    meta = {name: task.meta[name] for name in _SAID if name in task.meta}
    return replace(task, gold={}, meta=meta | {GOLD_LEFT_OUT: True})


# --- tasks as rows of parquet and back. The columns hold a task exactly; what they cannot hold (a
# part of a character, a message with more than role and content) stands whole in `exact`

GROUP_ROWS = 1000  # of a row group
COLUMNS = {
    "id": "unique in the set",
    "family": "the kind of task, which decides how it is scored",
    "track": "what results are broken down by",
    "prompt": "the chat: messages with role and content",
    "gold": "what the scorer needs, JSON text",
    "tools": "names of the tools that a model may call",
    "files": "files of the task: name, and path from the file of tasks",
    "group": "tasks that belong together",
    "licences": "of the data that the task was made from",
    "meta": "source, domain, difficulty and more, JSON text",
    "split": "as the task itself says it",
    "exact": "the whole task as JSON text, where the columns cannot hold it; else null",
}


def row_of(task: Task) -> dict[str, Any]:
    """The task's row. `task_of(row_of(task))` is the task again."""
    row: dict[str, Any] = {
        "id": task.id,
        "family": task.family,
        "track": task.track,
        "prompt": [{"role": m["role"], "content": m["content"]} for m in task.prompt],
        "gold": _json(task.gold),
        "tools": list(task.tools),
        "files": [{"name": name, "path": path} for name, path in task.files.items()],
        "group": task.group,
        "licences": list(licences_of(task)),
        "meta": _json(task.meta),
        "split": task.split,
        "exact": None,
    }
    clean = json.loads(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace"))
    if clean != row or _json(task_of(row, "task").to_json()) != _json(task.to_json()):
        return clean | {"exact": json.dumps(task.to_json())}
    return row


def task_of(row: Mapping[str, Any], where: str) -> Task:
    """Raises `TaskError` naming `where` for a row that is no task."""
    try:
        if row["exact"] is not None:
            return Task.from_json(json.loads(row["exact"]), where)
        files = {f["name"]: f["path"] for f in row["files"]}
        known = ("id", "family", "track", "split", "prompt", "tools", "group")
        whole = {name: row[name] for name in known} | {"files": files}
        whole |= {name: json.loads(row[name]) for name in ("gold", "meta")}
        return Task.from_json(whole, where)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, TaskError):
            raise
        raise TaskError(f"{where}: is no task of a pushed set ({error!r})") from None


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return json.dumps(value) if text.encode("utf-8", "replace").decode() != text else text


def write_parquet(out: BinaryIO, rows: Iterable[dict[str, Any]]) -> int:
    """Write rows a group at a time; returns how many. Raises `TaskError` without pyarrow."""
    kinds = dict.fromkeys(COLUMNS, "string") | {
        "prompt": [{"role": "string", "content": "string"}],
        "tools": ["string"],
        "files": [{"name": "string", "path": "string"}],
        "licences": ["string"],
    }
    left = iter(rows)
    return write_groups(out, kinds, iter(lambda: list(islice(left, GROUP_ROWS)), []))


def read_parquet(path: Path, where: str) -> Iterator[Task]:
    """The tasks of a file, in order. Raises `TaskError` naming `where` and the row."""
    with open(path, "rb") as file:
        for number, row in enumerate(parquet_rows(where, file), 1):
            yield task_of(row, f"{where} row {number}")


# --- where a set lies: a folder, a .tar.gz, a URL that fsspec knows, or a repository of the hub

ARCHIVES = (".tar.gz", ".tgz")


def files_of(made: Manifest) -> list[str]:
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
        for name in sorted(files_of(made)):
            about = tarfile.TarInfo(f"{top}/{name}")
            about.mode, about.size = 0o644, (new / name).stat().st_size
            with open(new / name, "rb") as data:
                tar.addfile(about, data)


def files_at(folder: Path) -> list[str]:
    """The files of the data set that lies in a folder of this machine; none where there is none."""
    with suppress(OSError, TaskError):
        return files_of(read_manifest((folder / MANIFEST).read_bytes(), str(folder)))
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
        names = files_of(made)
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
def fetched(source: str) -> Generator[tuple[Path, Manifest]]:
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
