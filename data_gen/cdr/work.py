"""The work folder of a build: what every stage leaves there for the next one.

    build.json                   what is built; a folder of another build is refused
    facts-00003/00000.parquet    columns of some documents      00000.packed  their rows
    library, documents.parquet   the recipes, and all documents by number
    traces-00003/00000.parquet   what recipes do to some documents
    plan, units.parquet          what units are made of, and the units
    rows-00003/00000.parquet     executed and worded units      00000.packed  their lines

Files appear whole or not at all, so whatever is there is kept when a stage is started again.
"""

from __future__ import annotations

import json
import pickle
import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from assay.console import Progress
from assay.files import atomic_write, write_bytes, write_text
from assay.record import installed
from assay.rows import library, write_groups
from assay.task import TaskError
from assay.workers import WorkerPool
from configs.cdr import CdrConfig
from configs.loader import to_dict
from data_gen.readers import Piece, Source, cut

FORMAT = "7"  # of the files here; a folder of another one cannot be gone on from
MEMORY = "300MB"  # of a query; what needs more goes to the disk
Row = tuple[Any, ...]
Job = Any  # what a process makes a part of: its file, and what goes into it


class StageError(TaskError):
    """A stage that cannot be run yet, or a folder of another build; the message says what to do."""


@dataclass(frozen=True)
class Work:
    """A work folder and the build it belongs to. `run`: of this command alone, so that a process
    keeps nothing of another build in the same folder."""

    folder: Path
    config: CdrConfig
    sources: tuple[Source, ...]
    shards: int
    part: int  # documents in a file of the folder
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    def stage(self, name: str, shard: int) -> Path:
        return self.folder / f"{name}-{shard:05d}"

    def pieces(self, shard: int) -> list[Piece]:
        return cut(self.sources, self.shards, shard)

    def is_done(self, stage: str, shard: int) -> bool:
        return (self.stage(stage, shard) / "done").is_file()

    def parts(self, stage: str) -> list[str]:
        """The files of a map, in order. Raises `StageError` where a shard is not finished."""
        for shard in range(self.shards):
            if not self.is_done(stage, shard):
                raise StageError(
                    f"shard {shard} of {self.shards} has no finished stage `{stage}` in "
                    f"{self.folder}; run it: --stage {stage} --shard {shard}"
                )
        folders = (self.stage(stage, shard) for shard in range(self.shards))
        return [str(path) for one in folders for path in sorted(one.glob("*.parquet"))]

    def map(
        self,
        stage: str,
        shard: int,
        crew: WorkerPool,
        make: Callable[[Path, Job], int],
        jobs: Iterable[Job],
        columns: dict[str, Any],
        total: int | None = None,
    ) -> None:
        """Let processes make the parts of a shard, one of each job; `make` says how many documents
        or units it has. Parts that are there already are kept. A shard without jobs has one part
        without rows, of the same `columns`."""
        if self.is_done(stage, shard):
            return
        folder = self.stage(stage, shard)
        folder.mkdir(parents=True, exist_ok=True)
        named = ((folder / f"{number:05d}.parquet", job) for number, job in enumerate(jobs))
        missing = ((make, path, job) for path, job in named if not path.is_file())
        with Progress(stage, "units" if stage == "rows" else "documents", total) as progress:
            for count in crew.map(_made, missing):
                progress.add(count)
        if not any(folder.glob("*.parquet")):
            write_part(folder / "00000.parquet", columns, [])
        write_text(folder / "done", "")

    def query(self, threads: int = 1, **tables: str | Sequence[str]) -> Any:
        """A DuckDB connection with views of Parquet files."""
        spilled = str(self.folder / "spilled")
        settings = {"threads": threads, "memory_limit": MEMORY, "temp_directory": spilled}
        db = library("duckdb").connect(config=settings)
        for name, files in tables.items():
            db.execute(f"CREATE VIEW {name} AS SELECT * FROM {read(files)}")
        return db

    def sent(self) -> Work:
        """The same for another process, which reads no corpus."""
        return replace(self, sources=())

    @property
    def documents(self) -> str:
        """All rows of the corpora by number. Raises `StageError` before they are numbered."""
        if not (self.folder / "library").is_file():
            raise StageError(f"{self.folder}: no recipes yet; run --stage library")
        return str(self.folder / "documents.parquet")

    def save(self, name: str, value: Any) -> None:
        write_bytes(self.folder / name, pickle.dumps(value))

    def load(self, name: str) -> Any:
        """What was saved, read once by a process."""
        return _loaded(self.folder / name, self.run)


def _made(job: tuple[Callable[[Path, Job], int], Path, Job]) -> int:
    make, path, given = job
    return make(path, given)


@lru_cache(maxsize=8)
def _loaded(path: Path, run: str) -> Any:
    return pickle.loads(path.read_bytes())


def quoted(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def read(files: str | Sequence[str], more: str = "") -> str:
    """Parquet files in SQL, as one table in the order of the files with `filename`."""
    listed = ", ".join(map(quoted, [files] if isinstance(files, str) else files))
    return f"read_parquet([{listed}], filename = true{more})"


def need_extra() -> None:
    """Raise `TaskError`, which names the extra to install, where it is missing."""
    for name in ("duckdb", "pyarrow.parquet", "zstandard"):
        library(name, "`assay tasks cdr`", "build")


def write_part(path: Path, columns: dict[str, Any], rows: Sequence[Row]) -> int:
    """Write rows as a Parquet file; `columns` are names with their types. Returns how many."""
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    with atomic_write(path) as out:
        return write_groups(out, columns, [named])


def write_packed(path: Path, pieces: Iterable[Any]) -> list[tuple[int, int]]:
    """Write values beside a part, each packed for itself; where each begins, and its bytes."""
    pack = library("zstandard").ZstdCompressor(level=1).compress
    places: list[tuple[int, int]] = []
    at = 0
    with atomic_write(path.with_suffix(".packed")) as out:
        for piece in pieces:
            size = out.write(pack(pickle.dumps(piece)))
            places.append((at, size))
            at += size
    return places


def packed(part: str, start: int, size: int) -> Any:
    """One value that stands beside a part."""
    zstd = library("zstandard")
    path = Path(part).with_suffix(".packed")
    with open(path, "rb") as file:
        file.seek(start)
        try:
            return pickle.loads(zstd.ZstdDecompressor().decompress(file.read(size)))
        except zstd.ZstdError:
            raise TaskError(
                f"{path}: is cut off or damaged; remove it and run the same command again"
            ) from None


def raw(text: str) -> bytes:
    """A text as it stands in a column: one that JSON escapes may hold what UTF-8 does not."""
    return text.encode("utf-8", "surrogatepass")


def said(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def layout_of(work: Work) -> dict[str, Any]:
    """What a build is, without what its result does not depend on. Files are known by their place
    and size."""
    plain = {
        "config": to_dict(work.config),
        "sources": [[one.place, one.size] for one in work.sources],
        "shards": work.shards,
        "part": work.part,
        "versions": installed() | {"work folder": FORMAT},
    }
    return json.loads(json.dumps(plain))


NAMES = {
    "config": "settings",
    "sources": "corpus files",
    "shards": "--shards",
    "part": "--part",
    "versions": "versions of libraries or of Assay",
}


def begin(
    folder: Path,
    config: CdrConfig,
    sources: Sequence[Source],
    shards: int,
    part: int,
    whole: bool,
) -> Work:
    """The folder for a build, new or as an earlier start left it. What another build left there
    goes when the build is one command (`whole`), and raises `StageError` when it is in stages."""
    work = Work(folder, replace(config, workers=0), tuple(sources), shards, part)
    path, layout = folder / "build.json", layout_of(work)
    if path.is_file():
        old = json.loads(path.read_text(encoding="utf-8", errors="surrogatepass"))
        changed = [said for name, said in NAMES.items() if old.get(name) != layout[name]]
        if changed and not whole:
            raise StageError(
                f"{folder} holds an unfinished build with other {', '.join(changed)}; "
                "remove it, or give the same settings"
            )
        if not changed:
            return work
        shutil.rmtree(folder)
    write_text(path, json.dumps(layout) + "\n", errors="surrogatepass")
    return work
