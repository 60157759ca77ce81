"""Raw corpora for CDR tasks: JSONL, parquet, saved HF data sets, folders of text files.

A row needs a text (`text`, `content` or `raw_content`); `id`, `domain`, `source`, `source_name`,
`url`, `language` and `licence` (or `license`) are kept. Without a domain a row takes its file's:
from the name (web, latex, rag, privacy), else from the ending (.html, .tex), else it is ranked by
what its text activates.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from data_gen.cdr.domains import INTERNAL, LABELS, assign_domain, internal_name, label
from data_gen.cdr.records import Record, active_mappers, record_id
from data_gen.chunks import in_order
from data_gen.corpora import CorpusError
from rewards.gold import Profile
from rewards.gold.core import library

Row = dict[str, Any]
TEXT_FIELDS = ("text", "content", "raw_content")
TEXT_ENDINGS = {".html": "web", ".htm": "web", ".tex": "latex", ".txt": "", ".md": ""}
TABLE_ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".parquet", ".arrow")
_SCAN_CHUNK = 16


@dataclass(frozen=True)
class Left:
    """A document that is not used. `kind` is the reason without its details, to be counted;
    `name` says where it stands in a corpus, without the place of the corpus."""

    name: str
    why: str
    kind: str
    group: str  # the class of documents, or the file, that it belongs to
    licence: str = "unknown"

    def __str__(self) -> str:
        return f"{self.name}: {self.why}; left out"


@dataclass(frozen=True)
class Sources:
    """Rows in reading order, each with `text` and perhaps `domain`; `problems`: rows left out."""

    rows: list[Row]
    problems: list[Left]


def read_sources(paths: Sequence[str | Path], licences: Sequence[str] = ()) -> Sources:
    """Read files and folders; with `licences`, patterns such as `CC-BY*`, documents of these alone.

    Raises `CorpusError` when a file is missing or nothing is usable.
    """
    rows: list[Row] = []
    problems: list[Left] = []
    seen: set[str] = set()
    for path in map(Path, paths):
        if not path.exists():
            raise CorpusError(f"{path}: no such file or folder; give a corpus")
        for file in files_of(path):
            torn: list[str] = []
            shown = shown_name(file, path)
            for number, raw in enumerate(raw_rows(file, path, torn), 1):
                row = _normal(raw, file)
                where = f"{shown} row {number}"
                if row is None:
                    why = f"no text in {' or '.join(TEXT_FIELDS)}"
                    problems.append(Left(where, why, why, shown))
                elif (name := record_id(row)) in seen:
                    problems.append(
                        Left(where, f"id {name!r} occurs twice", "an id that occurs twice", shown)
                    )
                else:
                    seen.add(name)
                    rows.append(row | {"id": name})
            problems += [_torn(problem, file, shown) for problem in torn]
    if not rows:
        first = f"; first problem: {problems[0]}" if problems else ""
        raise CorpusError(f"{', '.join(map(str, paths))}: no usable document{first}")
    return _licensed(rows, problems, licences) if licences else Sources(rows, problems)


def _licensed(rows: list[Row], problems: list[Left], licences: Sequence[str]) -> Sources:
    wanted = [pattern.lower() for pattern in licences]
    kept: list[Row] = []
    for row in rows:
        licence = row["licence"]
        if any(fnmatchcase(licence.lower(), pattern) for pattern in wanted):
            kept.append(row)
            continue
        kind = "a licence that --licence leaves out"
        problems.append(
            Left(row["id"], f"licence {licence!r} is left out", kind, class_of(row), licence)
        )
    if not kept:
        there = Counter(row["licence"] for row in rows).most_common(8)
        raise CorpusError(
            f"no document has a licence of {', '.join(licences)}; there is "
            + ", ".join(f"{name} ({count} documents)" for name, count in there)
        )
    return Sources(kept, problems)


def class_of(row: Mapping[str, Any]) -> str:
    """The class of documents that a row belongs to: its domain and source."""
    return f"{row.get('domain') or 'no domain'} / {row.get('source') or 'unknown'}"


def shown_name(file: Path, root: Path) -> str:
    """A file's name from its corpus on: the same wherever the corpus lies."""
    if not root.is_dir():
        return file.name
    return f"{root.resolve().name}/{file.relative_to(root).as_posix()}"


def _torn(problem: str, file: Path, shown: str) -> Left:
    """A problem of `raw_rows`: `FILE line 3: why (details); left out`."""
    where, _, why = problem.removeprefix(str(file)).removesuffix("; left out").partition(": ")
    return Left(shown + where, why, why.partition(" (")[0], shown)


def files_of(path: Path) -> list[Path]:
    """The files to read of a file or folder; files named after a domain first, in domain order."""
    if path.is_file():
        return [path]
    order = {name: i for i, name in enumerate(INTERNAL)}
    found = [
        p
        for p in path.rglob("*")
        if p.is_file() and (p.name.endswith(TABLE_ENDINGS) or p.suffix in TEXT_ENDINGS)
    ]
    # What a saved data set keeps beside its rows is no row, nor are a folder's own notes.
    beside = ("dataset_info.json", "state.json", "dataset_dict.json", "readme.md", "licences.txt")
    found = [p for p in found if p.name.lower() not in beside]
    if any(p.name.endswith(TABLE_ENDINGS) for p in found):
        found = [p for p in found if p.name.endswith(TABLE_ENDINGS)]
    return sorted(found, key=lambda p: (order.get(_stem(p), len(order)), str(p)))


def _stem(path: Path) -> str:
    stem = path.name.split(".")[0].lower()
    return LABELS.get(stem, stem)


def raw_rows(file: Path, root: Path, problems: list[str]) -> Iterator[Any]:
    """The rows of one file as they are; lines that are no JSON go to `problems`. Raises
    `CorpusError` when the file cannot be read."""
    try:
        if file.suffix in TEXT_ENDINGS:
            text = file.read_bytes().decode("utf-8", "replace")  # line ends as they are
            name = file.relative_to(root).as_posix() if root.is_dir() else file.name
            yield {"id": name, "text": text, "source": name}
        elif file.suffix == ".parquet":
            yield from _parquet(file)
        elif file.suffix == ".arrow":
            yield from _arrow(file)
        else:
            yield from _jsonl(file, problems)
    except (OSError, EOFError) as error:
        raise CorpusError(f"{file}: cannot be read: {error}") from None


def _jsonl(file: Path, problems: list[str]) -> Iterator[Any]:
    if file.suffix == ".json" and (listed := _json_list(file)) is not None:
        yield from listed
        return
    opener = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt", encoding="utf-8-sig", errors="replace", newline="\n") as lines:
        for number, line in enumerate(cast("Iterable[str]", lines), 1):
            if not line.strip():
                continue
            try:
                value: Any = json.loads(line)
            except (ValueError, RecursionError) as error:
                problems.append(f"{file} line {number}: not valid JSON ({error}); left out")
                continue
            yield value


def _json_list(file: Path) -> list[Any] | None:
    """The rows of a .json file that is one list; None for one with a row a line."""
    with open(file, encoding="utf-8-sig", errors="replace") as text:
        if text.read(1000).lstrip()[:1] != "[":
            return None
        text.seek(0)
        try:
            value: Any = json.loads(text.read().lstrip("\ufeff"))
        except (ValueError, RecursionError):
            return None
    return cast("list[Any]", value) if isinstance(value, list) else None


def _parquet(file: Path) -> Iterator[Any]:
    parquet = library("pyarrow.parquet", "reading parquet", "pyarrow>=17")
    for batch in parquet.ParquetFile(file).iter_batches(batch_size=256):
        yield from batch.to_pylist()


def _arrow(file: Path) -> Iterator[Any]:
    """A shard of a data set saved with `save_to_disk`: an Arrow stream (or file)."""
    arrow = library("pyarrow", "reading a saved data set", "pyarrow>=17")
    ipc = library("pyarrow.ipc", "reading a saved data set", "pyarrow>=17")
    with arrow.memory_map(str(file)) as source:
        try:
            reader = ipc.open_stream(source)
        except arrow.ArrowInvalid:
            source.seek(0)
            reader = ipc.open_file(source)
            reader = (reader.get_batch(i) for i in range(reader.num_record_batches))
        for batch in reader:
            yield from batch.to_pylist()


def _normal(raw: Any, file: Path) -> Row | None:
    fields: Row = cast("Row", raw) if isinstance(raw, dict) else {}
    text = next((fields[f] for f in TEXT_FIELDS if isinstance(fields.get(f), str)), None)
    if not text or not text.strip():
        return None
    row: Row = {"text": text}
    for name in ("id", "domain", "source", "source_name", "url", "language"):
        if fields.get(name) not in (None, ""):
            row[name] = str(fields[name])
    row["licence"] = str(fields.get("licence") or fields.get("license") or "unknown")
    if "domain" not in row:
        named = [p for p in (_stem(file), file.parent.name.lower()) if internal_name(p) in LABELS]
        guess = label(named[0]) if named else TEXT_ENDINGS.get(file.suffix, "")
        if guess:
            row["domain"] = guess
    return row


def scan(
    rows: Sequence[Row], workers: int, profile: Profile = "bench", domains: str = "source"
) -> list[Record]:
    """Records with their active mappers, in order, by `workers` processes.

    `domains="ranked"` assigns every record by what it activates (spec section 5); "source" does
    so only where a row names no domain of the benchmark.
    """
    from tqdm import tqdm

    bar = tqdm(total=len(rows), desc="support scan", unit="doc", disable=None, delay=2)
    texts = [str(row["text"]) for row in rows]
    jobs: list[tuple[list[str], Profile]] = [
        (texts[i : i + _SCAN_CHUNK], profile) for i in range(0, len(texts), _SCAN_CHUNK)
    ]
    found = in_order(_scan_chunk, jobs, workers, bar)
    return [_record(row, active, domains) for row, active in zip(rows, found, strict=True)]


def _scan_chunk(job: tuple[list[str], Profile]) -> list[list[str]]:
    texts, profile = job
    return [active_mappers(text, profile) for text in texts]


def _record(row: Row, active: list[str], domains: str) -> Record:
    domain = internal_name(str(row.get("domain", "")))
    if domains == "ranked" or domain not in LABELS:
        domain = assign_domain(active, domain) or (domain if domain in LABELS else "knowledge_base")
    return Record(
        id=str(row["id"]),
        domain=domain,
        text=row["text"],
        active=frozenset(active),
        source_name=row.get("source_name"),
        url=row.get("url"),
        language=row.get("language"),
        source=str(row.get("source", "unknown")),
        licence=str(row.get("licence", "unknown")),
        label=label(domain),
    )
