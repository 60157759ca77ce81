"""A recipe over a data set: parquet in, parquet out, a batch of rows at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from assay.rows import is_url, stored, writing
from assay.task import json_line
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

    def __str__(self) -> str:
        total = self.kept + self.dropped + self.failed
        return f"{total} rows: kept {self.kept}, dropped {self.dropped}, failed {self.failed}"


def arrow(module: str = "pyarrow") -> Any:
    return library(module, "a parquet file", extra="parquet")


def open_parquet(path: Path | str, stream: BinaryIO | None = None) -> Any:
    """The parquet file of that name, read from `stream` where given. Raises `GoldError` when it is
    none."""
    try:
        return arrow("pyarrow.parquet").ParquetFile(stream or path)
    except arrow().ArrowInvalid as error:
        raise GoldError(f"{path}: not a parquet file ({error})") from None


def as_lines(texts: list[Any], first: int) -> list[bytes]:
    """Row `first + i` as an input line; a null text is answered with an error."""
    return [
        json.dumps({"id": first + i, "input_text": text}).encode() for i, text in enumerate(texts)
    ]


def apply_answers(batch: Any, column: str, answers: list[Executed]) -> tuple[Any, list[bytes]]:
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
    return table, [json_line(r) for r in results if "error" in r]


def check_column(schema: Any, column: str, path: Path | str) -> None:
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
    sources: Sequence[str],
    target: str,
    column: str,
    pool: Pool,
    *,
    all_rows: bool,
    progress: Callable[[int], object],
) -> Tally:
    """Write the rows that the recipe keeps, with new texts, to `target`; returns the tally.

    With `all_rows` dropped and failed rows are written too, told apart by the `gold_status` column
    (KEEP, DROP, null). Failed rows are also listed in `<target>.errors.jsonl`, by their number over
    all sources. Both files appear when they are complete. Raises `GoldError` for sources whose
    columns differ.
    """
    pa, pc, pq = arrow(), arrow("pyarrow.compute"), arrow("pyarrow.parquet")
    schema = _schema(sources, column)
    written = schema.append(pa.field(STATUS, pa.string())) if all_rows else schema
    tally = Tally()
    with ExitStack() as stack:
        out = stack.enter_context(writing(target))
        writer = stack.enter_context(pq.ParquetWriter(out, written))
        failures = _Failures(f"{target}.errors.jsonl", stack)
        for batch, answers in pool.run(_batches(sources, column)):
            table, errors = apply_answers(batch, column, answers)
            kept = table.filter(pc.equal(table.column(STATUS), "KEEP"))
            tally.kept += len(kept)
            tally.failed += len(errors)
            tally.dropped += len(table) - len(kept) - len(errors)
            failures.write(errors)
            rows = table if all_rows else kept.drop_columns([STATUS])
            writer.write_table(rows.replace_schema_metadata(written.metadata))
            progress(len(table))
    failures.forget_older()
    return tally


def _schema(sources: Sequence[str], column: str) -> Any:
    """The columns that all sources have."""
    found: Any = None
    for name in sources:
        with stored(name) as stream:
            schema = open_parquet(name, stream).schema_arrow
        check_column(schema, column, name)
        if found is not None and not schema.equals(found):
            raise GoldError(
                f"{name}: its columns are not those of {sources[0]}; run them one by one"
            )
        found = schema if found is None else found
    return found


def _batches(sources: Sequence[str], column: str) -> Iterator[tuple[Any, int, list[bytes]]]:
    first = 0
    for name in sources:
        with stored(name) as stream:
            for batch in open_parquet(name, stream).iter_batches(batch_size=BATCH_ROWS):
                yield batch, first + 1, as_lines(batch.column(column).to_pylist(), first)
                first += len(batch)


class _Failures:
    """The file of failed rows, which there is only when some row failed: an older run's file never
    outlives its run."""

    def __init__(self, name: str, stack: ExitStack) -> None:
        self._name, self._stack = name, stack
        self._out: BinaryIO | None = None

    def write(self, errors: Sequence[bytes]) -> None:
        if errors and self._out is None:
            self._out = self._stack.enter_context(writing(self._name))
        if self._out is not None:
            self._out.writelines(errors)

    def forget_older(self) -> None:
        if self._out is None and not is_url(self._name):
            Path(self._name.removeprefix("file://")).unlink(missing_ok=True)
