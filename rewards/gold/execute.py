"""`assay execute`: gold recipes over JSONL rows, or one recipe over a data set."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, cast

from assay import console
from assay.console import ALL_TASKS, Progress, TaskFilter, add_filter, task_filter
from assay.machine import usable_cores
from assay.rows import (
    STANDARD,
    Block,
    blocks,
    folder_of,
    is_parquet,
    is_url,
    library,
    matching,
    read_rows,
    stored,
    total_bytes,
    writing,
    writing_lines,
)
from assay.task import json_line
from assay.workers import workers_for
from rewards.gold.core import PROFILES, GoldError
from rewards.gold.pool import Pool
from rewards.gold.recipe import read_recipe

BAD_ROWS = 3
SMALL = 1 << 20  # bytes that one process executes before another has started
# A batch is sent when it holds this many lines or bytes.
_BATCH_LINES = 256
_BATCH_BYTES = 1 << 18
_TABLE_ROWS = 256  # of a batch of parquet
STATUS = "gold_status"  # the column that says KEEP, DROP or null
_DESCRIPTION = """\
Rows {"id", "input_text", "recipe": [{"operator", "params"}], "profile"?} become
{"id", "status", "reference_text", "reference_text_full_run", "trace"} and their other fields, in
order. A row that cannot be executed becomes {"id", "error"}, the others go on, and the exit status
is 3. --id and --text name other fields. What each operator did is told at the end.

Inputs are files, patterns ("rows-*.jsonl") or URLs, also .gz, .zst and .parquet; of two names or
more the last is the output. With --recipe the rows need no recipe of their own, and a parquet of
texts can be given:
  assay execute --recipe recipe.yaml --text text in.parquet out.parquet
writes the rows that the recipe keeps, with their new texts."""


def parser() -> argparse.ArgumentParser:
    """Make the parser of `assay execute`."""
    made = console.parser("execute", _DESCRIPTION)
    made.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="inputs (.jsonl, .gz, .zst, .parquet or -), then the output (or folder with ray; -)",
    )
    made.add_argument("--recipe", type=Path, help="YAML file with the steps of every row")
    made.add_argument("--id", metavar="FIELD", default="id", help="field that names a row")
    made.add_argument(
        "--text",
        "--text-column",
        metavar="FIELD",
        help="field with the text (input_text; of a parquet with --recipe: text)",
    )
    made.add_argument("--profile", choices=PROFILES, help="of rows that name none (bench)")
    made.add_argument(
        "--workers", type=int, default=0, metavar="N", help="processes (default: all cores)"
    )
    made.add_argument(
        "--deadline",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="processor time a row may take",
    )
    add_filter(made, "rows")
    made.add_argument("--states", action="store_true", help="add the text after each mapper")
    made.add_argument(
        "--all-rows", action="store_true", help="parquet: write dropped and failed rows too"
    )
    made.add_argument("--engine", choices=("local", "ray"), default="local")
    return made


def main(argv: list[str]) -> int:
    """Run `assay execute`. Returns 0, or 3 when some rows failed. Raises `GoldError` and OSError
    for what a user can mend."""
    args = parser().parse_args(argv)
    if args.workers < 0 or args.deadline <= 0:
        raise GoldError("--workers must be 0 or more and --deadline above 0")
    options: dict[str, Any] = {"profile": args.profile or "bench", "states": args.states}
    if args.recipe is not None:
        options["recipe"], options["profile"] = read_recipe(args.recipe, args.profile)
    files: list[str] = args.files or [STANDARD]
    output = files.pop() if len(files) > 1 else STANDARD
    inputs = files if args.engine == "ray" else matching(files)
    if (folder := folder_of(output)) is not None and not folder.is_dir():
        raise FileNotFoundError(2, "no such folder; make it first", str(folder))
    tables = [name for name in inputs if is_parquet(name)]
    if args.recipe is None and args.engine == "local" and all(map(_has_recipes, tables)):
        tables = []  # rows like those of JSON lines
    if tables and task_filter(args):
        raise GoldError("--track and --licence choose rows of JSON lines; filter a parquet before")
    if args.engine == "ray" and not tables:
        raise GoldError("--engine ray reads parquet; give a .parquet input (or a folder of them)")
    if not tables:
        return _rows(args, inputs, output, options)
    if args.recipe is None or output == STANDARD:
        raise GoldError("a parquet input needs --recipe FILE and an output path")
    if len(tables) < len(inputs):
        raise GoldError("parquet and other inputs do not go together; run them one by one")
    if args.engine == "ray":
        return _ray(args, inputs, output, options)
    return _tables(args, inputs, output, options)


def _has_recipes(name: str) -> bool:
    """Whether the rows of a file bring their own recipes."""
    first = next(read_rows(name), None)
    return first is not None and "recipe" in first[1]


# ---- JSON lines


def _rows(
    args: argparse.Namespace, inputs: Sequence[str], output: str, options: dict[str, Any]
) -> int:
    total = total_bytes(inputs)
    workers = workers_for(args.workers, inputs, total, SMALL)
    options |= {"id_field": args.id, "text_field": args.text or "input_text"}
    wanted = [args.id, options["text_field"], *(() if args.recipe else ("recipe",))]
    asked, position = task_filter(args), 0

    def followed() -> Iterator[Block]:
        nonlocal position
        for block in blocks(inputs):
            if not position and block.source != STANDARD:
                _check_fields(block, wanted)
            position = block.position
            yield block

    pool = Pool(workers, args.deadline, options)
    with (
        writing_lines(output) as out,
        pool,
        Progress("assay execute", "rows", total) as bar,
    ):
        found = _batches(followed(), asked)
        for _, answers in pool.execute(found, named=len(inputs) > 1):
            out.writelines(answers)
            bar.add(len(answers), place=position)
            out.flush()
        if asked and not pool.summary.rows:
            raise GoldError(f"{', '.join(inputs)}: no row is left by {asked.options()}")
    print(pool.summary.table(), file=sys.stderr)
    if bad := pool.summary.failed:
        rows = f"{bad} of {pool.summary.rows} rows failed"
        print(f"assay execute: {rows}; their output has an 'error' field", file=sys.stderr)
    return BAD_ROWS if bad else 0


def _check_fields(block: Block, wanted: Sequence[str]) -> None:
    """Raises `GoldError` when no row of an input's first block has a field that each needs."""
    rows = [row for line in block.data.split(b"\n") if (row := _object(line)) is not None]
    for name in wanted:
        if rows and not any(name in row for row in rows):
            given = "--recipe FILE" if name == "recipe" else "--id and --text name others"
            raise GoldError(
                f"{block.source}: no row has a field {name!r}; they have "
                f"{', '.join(map(repr, rows[0])) or 'none'} ({given})"
            )


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", row) if isinstance(row, dict) else None


def _batches(
    found: Iterator[Block], asked: TaskFilter = ALL_TASKS
) -> Iterator[tuple[str, int, list[bytes]]]:
    """Runs of non-blank lines that are `asked` for, with their input and the number of their first
    one. A line that is no row is left to whoever says so."""
    for block in found:
        batch: list[bytes] = []
        size = first = 0
        for number, line in enumerate(block.data.split(b"\n"), block.number):
            blank = not line.strip()
            if asked and not blank:
                row = _object(line)
                blank = row is not None and not asked.accepts_row(row)
            if not blank:
                first = first if batch else number
                batch.append(line.rstrip(b"\r"))
                size += len(line)
            # A blank line ends a batch too: lines of a batch are numbered one after the other.
            if batch and (blank or len(batch) >= _BATCH_LINES or size >= _BATCH_BYTES):
                yield block.source, first, batch
                batch, size = [], 0
        if batch:
            yield block.source, first, batch


# ---- parquet


def _tables(
    args: argparse.Namespace, inputs: Sequence[str], output: str, options: dict[str, Any]
) -> int:
    """Write the rows that the recipe keeps, with new texts. With --all-rows dropped and failed rows
    are written too, told apart by the `gold_status` column. Failed rows are also listed in
    `<output>.errors.jsonl`, by their number over all inputs; no such file outlives its run."""
    pa, pc, pq = library(), library("pyarrow.compute"), library("pyarrow.parquet")
    column = args.text or "text"
    schema, total = _schema(inputs, column)
    written = schema.append(pa.field(STATUS, pa.string())) if args.all_rows else schema
    listed, errors_out = f"{output}.errors.jsonl", None
    pool = Pool(args.workers or usable_cores(), args.deadline, options)
    with (
        pool,
        Progress("assay execute", "rows", total) as bar,
        ExitStack() as stack,
    ):
        writer = stack.enter_context(
            pq.ParquetWriter(stack.enter_context(writing(output)), written)
        )
        for batch, answers in pool.execute(_table_batches(inputs, column)):
            table, errors = with_answers(batch, column, answers)
            if errors and errors_out is None:
                errors_out = stack.enter_context(writing(listed))
            if errors_out is not None:
                errors_out.writelines(errors)
            if not args.all_rows:
                table = table.filter(pc.equal(table.column(STATUS), "KEEP")).drop_columns([STATUS])
            writer.write_table(table.replace_schema_metadata(written.metadata))
            bar.add(len(answers))
    if errors_out is None and not is_url(listed):
        Path(listed.removeprefix("file://")).unlink(missing_ok=True)
    print(pool.summary.table(), file=sys.stderr)
    if pool.summary.failed:
        print(f"assay execute: see {listed}", file=sys.stderr)
    return BAD_ROWS if pool.summary.failed else 0


def open_parquet(path: Path | str, stream: BinaryIO | None = None) -> Any:
    """Open the parquet file of that name, read from `stream` where given. Raises `GoldError`
    when it is none."""
    try:
        return library("pyarrow.parquet").ParquetFile(stream or path)
    except library().ArrowInvalid as error:
        raise GoldError(f"{path}: not a parquet file ({error})") from None


def _schema(sources: Sequence[str], column: str) -> tuple[Any, int]:
    """(the columns that all sources have, their rows). Raises `GoldError` where they differ."""
    found: Any = None
    total = 0
    for name in sources:
        if folder_of(name) is not None and not Path(name.removeprefix("file://")).exists():
            raise GoldError(f"{name}: no such file")
        with stored(name) as stream:
            file = open_parquet(name, stream)
            schema, total = file.schema_arrow, total + file.metadata.num_rows
        check_column(schema, column, name)
        if found is not None and not schema.equals(found):
            raise GoldError(
                f"{name}: its columns are not those of {sources[0]}; run them one by one"
            )
        found = schema if found is None else found
    return found, total


def check_column(schema: Any, column: str, path: Path | str) -> None:
    """Check that `column` is a text column and that the status column is free. Raises
    `GoldError`."""
    kinds = library("pyarrow.types")
    if column not in schema.names:
        raise GoldError(f"{path}: no column {column!r}; it has {', '.join(schema.names)}")
    kind = schema.field(column).type
    if not (kinds.is_string(kind) or kinds.is_large_string(kind)):
        raise GoldError(f"{path}: column {column!r} holds {kind}, not text")
    if STATUS in schema.names:
        raise GoldError(f"{path}: already has a column {STATUS!r}; rename it first")


def _table_batches(sources: Sequence[str], column: str) -> Iterator[tuple[Any, int, list[bytes]]]:
    first = 0
    for name in sources:
        with stored(name) as stream:
            for batch in open_parquet(name, stream).iter_batches(batch_size=_TABLE_ROWS):
                yield batch, first + 1, as_lines(batch.column(column).to_pylist(), first)
                first += len(batch)


def as_lines(texts: list[Any], first: int) -> list[bytes]:
    """Write texts as input lines, the first with the id `first`; a null text is answered with an
    error."""
    return [
        json.dumps({"id": first + i, "input_text": text}).encode() for i, text in enumerate(texts)
    ]


def with_answers(batch: Any, column: str, answers: list[bytes]) -> tuple[Any, list[bytes]]:
    """Put the answers into a batch: (it with new texts and a status column, its error lines).
    Failed rows keep their text and have a null status."""
    pa = library()
    results = [*map(json.loads, answers)]
    old = batch.column(column).to_pylist()
    texts = [r.get("reference_text", o) for r, o in zip(results, old, strict=True)]
    index = batch.schema.get_field_index(column)
    table = pa.Table.from_batches([batch])
    new = pa.array(texts, type=batch.schema.field(index).type)
    table = table.set_column(index, batch.schema.field(index), new)
    status = pa.array([r.get("status") for r in results], type=pa.string())
    table = table.append_column(STATUS, status)
    return table, [json_line(r) for r in results if "error" in r]


# ---- Ray Data, for corpora that outgrow one machine


class RayExecutor:
    """A Ray actor: one guarded worker process, reused for every batch."""

    def __init__(self, column: str, deadline: float, options: dict[str, Any]) -> None:
        self._column = column
        self._pool = Pool(1, deadline, options)

    def __call__(self, table: Any) -> Any:
        pa = library()
        lines = as_lines(table.column(self._column).to_pylist(), 0)
        (batch,) = table.combine_chunks().to_batches() or [None]
        if batch is None:
            return table
        ((_, answers),) = list(self._pool.execute([("", 1, lines)]))
        done, errors = with_answers(batch, self._column, answers)
        iterator = iter(errors)
        # Ray splits the output by this column, and a path cannot hold a null.
        status = [s or "FAILED" for s in done.column(STATUS).to_pylist()]
        why = [next(iterator) if s == "FAILED" else None for s in status]
        index = done.schema.get_field_index(STATUS)
        done = done.set_column(index, STATUS, pa.array(status))
        return done.append_column("gold_error", pa.array(why, type=pa.string()))


def _ray(
    args: argparse.Namespace, inputs: Sequence[str], output: str, options: dict[str, Any]
) -> int:
    """Write `output/gold_status=KEEP|DROP|FAILED/*.parquet`. Every row lands in one of the three,
    failed ones with their text unchanged and the reason in `gold_error`."""
    ray, data = (library(m, "--engine ray", extra="ray") for m in ("ray", "ray.data"))
    source, target, column = Path(inputs[0]), Path(output), args.text or "text"
    if len(inputs) > 1:
        raise GoldError("--engine ray reads one file or folder; put the files into a folder")
    if not source.exists():
        raise GoldError(f"{source}: no such file")
    if target.exists():
        raise GoldError(f"{target}: exists already; --engine ray writes a new folder")
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    rows: Any = data.read_parquet(str(source))
    check_column(rows.schema().base_schema, column, source)
    rows = rows.map_batches(
        RayExecutor,
        fn_constructor_args=(column, args.deadline, options),
        batch_format="pyarrow",
        concurrency=args.workers or usable_cores(),
        batch_size=1024,
    )
    rows.write_parquet(str(target), partition_cols=[STATUS])
    parts = (target / f"{STATUS}=FAILED").glob("*.parquet")
    failed = sum(open_parquet(part).metadata.num_rows for part in parts)
    print(f"assay execute: wrote {output}, {failed} rows failed", file=sys.stderr)
    return BAD_ROWS if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
