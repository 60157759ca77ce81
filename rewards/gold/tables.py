"""A recipe over a data set: parquet in, parquet out, a batch of rows at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewards.gold.core import GoldError, library
from rewards.gold.pool import Executed, Pool

BATCH_ROWS = 256
STATUS = "gold_status"


@dataclass
class Tally:
    """How many rows were kept, dropped and failed."""

    kept: int = 0
    dropped: int = 0
    failed: int = 0
    errors: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        total = self.kept + self.dropped + self.failed
        return f"{total} rows: kept {self.kept}, dropped {self.dropped}, failed {self.failed}"


def arrow(module: str = "pyarrow") -> Any:
    return library(module, "a parquet file", extra="parquet")


def open_parquet(path: Path) -> Any:
    """Raises `GoldError` when the file is no parquet."""
    try:
        return arrow("pyarrow.parquet").ParquetFile(path)
    except arrow().ArrowInvalid as error:
        raise GoldError(f"{path}: not a parquet file ({error})") from None


def as_lines(texts: list[Any], first: int) -> list[bytes]:
    """Row `first + i` as an input line; a null text is answered with an error."""
    return [
        json.dumps({"id": first + i, "input_text": text}).encode() for i, text in enumerate(texts)
    ]


def apply_answers(batch: Any, column: str, answers: list[Executed]) -> tuple[Any, list[str]]:
    """(the batch with new texts and a status column, its error lines). Failed rows keep their text
    and have a null status."""
    pa = arrow()
    results = [json.loads(a.line) for a in answers]
    old = batch.column(column).to_pylist()
    texts = [r.get("reference_text", o) for r, o in zip(results, old, strict=True)]
    index = batch.schema.get_field_index(column)
    table = pa.Table.from_batches([batch])
    new = pa.array(texts, type=batch.schema.field(index).type)
    table = table.set_column(index, batch.schema.field(index), new)
    status = pa.array([r.get("status") for r in results], type=pa.string())
    table = table.append_column(STATUS, status)
    return table, [json.dumps(r, ensure_ascii=False) for r in results if "error" in r]


def check_column(schema: Any, column: str, path: Path) -> None:
    """Raises `GoldError` unless `column` is a text column and the status column is free."""
    kinds = arrow("pyarrow.types")
    if column not in schema.names:
        raise GoldError(f"{path}: no column {column!r}; it has {', '.join(schema.names)}")
    kind = schema.field(column).type
    if not (kinds.is_string(kind) or kinds.is_large_string(kind)):
        raise GoldError(f"{path}: column {column!r} holds {kind}, not text")
    if STATUS in schema.names:
        raise GoldError(f"{path}: already has a column {STATUS!r}; rename it first")


def run_parquet(
    source: Path,
    target: Path,
    column: str,
    pool: Pool,
    *,
    all_rows: bool,
    progress: Callable[[int], object],
) -> Tally:
    """Write the rows that the recipe keeps, with new texts, to `target`; returns the tally.

    With `all_rows` dropped and failed rows are written too, told apart by the `gold_status` column
    (KEEP, DROP, null). Failed rows are also listed in `<target>.errors.jsonl`. Both files appear
    when they are complete.
    """
    pa, pc, pq = arrow(), arrow("pyarrow.compute"), arrow("pyarrow.parquet")
    file = open_parquet(source)
    check_column(file.schema_arrow, column, source)
    schema = file.schema_arrow
    if all_rows:
        schema = schema.append(pa.field(STATUS, pa.string()))

    def batches() -> Iterator[tuple[Any, int, list[bytes]]]:
        first = 0
        for batch in file.iter_batches(batch_size=BATCH_ROWS):
            yield batch, first + 1, as_lines(batch.column(column).to_pylist(), first)
            first += len(batch)

    tally = Tally()
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with pq.ParquetWriter(partial, schema) as writer:
            for batch, answers in pool.run(batches()):
                table, errors = apply_answers(batch, column, answers)
                kept = table.filter(pc.equal(table.column(STATUS), "KEEP"))
                tally.kept += len(kept)
                tally.failed += len(errors)
                tally.dropped += len(table) - len(kept) - len(errors)
                tally.errors += errors
                writer.write_table(table if all_rows else kept.drop_columns([STATUS]))
                progress(len(table))
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    write_errors(target, tally.errors)
    return tally


def write_errors(target: Path, errors: list[str]) -> None:
    """`<target>.errors.jsonl` when there are any; an older run's file never outlives its run."""
    path = target.with_name(target.name + ".errors.jsonl")
    if errors:
        path.write_text("\n".join(errors) + "\n", encoding="utf-8", errors="backslashreplace")
    else:
        path.unlink(missing_ok=True)
