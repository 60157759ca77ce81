"""`assay execute`: gold recipes over JSONL rows, or one recipe over a data set."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from assay import console
from assay.filters import ALL, Chosen, add_chosen, chosen
from assay.progress import Progress
from assay.rows import (
    STANDARD,
    Block,
    blocks,
    folder_of,
    is_parquet,
    is_plain,
    matching,
    read_rows,
    stored,
    total_bytes,
    writing_lines,
)
from assay.workers import usable_cores
from rewards.gold.core import PROFILES, GoldError
from rewards.gold.pool import Pool
from rewards.gold.recipe_file import read_recipe

BAD_ROWS = 3
SMALL = 1 << 20  # bytes that one process executes before another has started
# A batch is sent when it holds this many lines or bytes.
_BATCH_LINES = 64
_BATCH_BYTES = 1 << 18
_DESCRIPTION = """\
Rows {"id", "input_text", "recipe": [{"operator", "params"}], "profile"?} become
{"id", "status", "reference_text", "reference_text_full_run", "trace"}, in order. A row that cannot
be executed becomes {"id", "error"}, the others go on, and the exit status is 3.

Inputs are files, patterns ("rows-*.jsonl") or URLs, also .gz, .zst and .parquet; of two names or
more the last is the output. With --recipe the rows need no recipe of their own, and a parquet of
texts can be given:
  assay execute --recipe recipe.yaml --text-column text in.parquet out.parquet
writes the rows that the recipe keeps, with their new texts."""


def parser() -> argparse.ArgumentParser:
    made = console.parser("execute", _DESCRIPTION)
    made.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="inputs (.jsonl, .gz, .zst, .parquet or -), then the output (or folder with ray; -)",
    )
    made.add_argument("--recipe", type=Path, help="YAML file with the steps of every row")
    made.add_argument("--text-column", default="text", help="of a parquet input")
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
    add_chosen(made, "rows")
    made.add_argument("--states", action="store_true", help="add the text after each mapper")
    made.add_argument(
        "--all-rows", action="store_true", help="parquet: write dropped and failed rows too"
    )
    made.add_argument("--engine", choices=("local", "ray"), default="local")
    return made


def main(argv: list[str]) -> int:
    """Returns 0, or 3 when some rows failed. Errors that a user can mend are raised."""
    args = parser().parse_args(argv)
    return _run(args)


def _run(args: argparse.Namespace) -> int:
    if args.workers < 0 or args.deadline <= 0:
        raise GoldError("--workers must be 0 or more and --deadline above 0")
    options: dict[str, Any] = {"profile": args.profile or "bench", "states": args.states}
    if args.recipe is not None:
        options["recipe"], named = read_recipe(args.recipe)
        options["profile"] = args.profile or named or "bench"
    files: list[str] = args.files or [STANDARD]
    output = files.pop() if len(files) > 1 else STANDARD
    inputs = files if args.engine == "ray" else matching(files)
    if (folder := folder_of(output)) is not None and not folder.is_dir():
        raise FileNotFoundError(2, "no such folder; make it first", str(folder))
    tables = [name for name in inputs if is_parquet(name)]
    if args.recipe is None and args.engine == "local" and all(map(_has_recipes, tables)):
        tables = []  # rows like those of JSON lines
    if tables and chosen(args):
        raise GoldError("--track and --licence choose rows of JSON lines; filter a parquet before")
    if args.engine == "ray" and not tables:
        raise GoldError("--engine ray reads parquet; give a .parquet input (or a folder of them)")
    if tables:
        if args.recipe is None or output == STANDARD:
            raise GoldError("a parquet input needs --recipe FILE and an output path")
        if len(tables) < len(inputs):
            raise GoldError("parquet and other inputs do not go together; run them one by one")
        return _table(args, inputs, output, options)
    return _rows(args, inputs, output, options)


def _has_recipes(name: str) -> bool:
    """Whether the rows of a file bring their own recipes."""
    first = next(read_rows(name), None)
    return first is not None and "recipe" in first[1]


def _rows(
    args: argparse.Namespace, inputs: Sequence[str], output: str, options: dict[str, Any]
) -> int:
    total = total_bytes(inputs)
    workers = args.workers or _workers(inputs, total)
    asked = chosen(args)
    counts = [0, 0]  # bad and good
    read = [0]

    def followed() -> Iterator[Block]:
        for block in blocks(inputs):
            read[0] = block.position
            yield block

    with (
        writing_lines(output) as out,
        Pool(workers, args.deadline, options) as pool,
        Progress("assay execute", "rows", total) as bar,
    ):
        found = _batches(followed(), asked)
        for _, answers in pool.run(found, named=len(inputs) > 1):
            for answer in answers:
                counts[answer.good] += 1
                out.write(answer.line)
            bar.add(len(answers), place=read[0])
            out.flush()
        if asked and not sum(counts):
            raise GoldError(f"{', '.join(inputs)}: no row is left by {asked.words()}")
    bad = counts[False]
    if bad:
        rows = f"{bad} of {sum(counts)} rows failed"
        print(f"assay execute: {rows}; their output has an 'error' field", file=sys.stderr)
    return BAD_ROWS if bad else 0


def _workers(inputs: Sequence[str], total: int | None) -> int:
    """All cores, but one process for what it has done before others have started."""
    small = total is not None and total < SMALL and all(map(is_plain, inputs))
    return 1 if small or STANDARD in inputs else usable_cores()


def _table(
    args: argparse.Namespace, inputs: Sequence[str], output: str, options: dict[str, Any]
) -> int:
    if args.engine == "ray":
        return _ray(args, inputs, output, options)
    from rewards.gold.tables import open_parquet, run_parquet

    total = 0
    for name in inputs:
        if folder_of(name) is not None and not Path(name.removeprefix("file://")).exists():
            raise GoldError(f"{name}: no such file")
        with stored(name) as stream:
            total += open_parquet(name, stream).metadata.num_rows
    with (
        Pool(args.workers or usable_cores(), args.deadline, options) as pool,
        Progress("assay execute", "rows", total) as bar,
    ):
        tally = run_parquet(
            inputs,
            output,
            args.text_column,
            pool,
            all_rows=args.all_rows,
            progress=bar.add,
        )
    print(f"assay execute: {tally}", file=sys.stderr)
    if tally.failed:
        print(f"assay execute: see {output}.errors.jsonl", file=sys.stderr)
    return BAD_ROWS if tally.failed else 0


def _ray(
    args: argparse.Namespace, inputs: Sequence[str], output: str, options: dict[str, Any]
) -> int:
    from rewards.gold.ray_engine import run_ray

    source = Path(inputs[0])
    if len(inputs) > 1:
        raise GoldError("--engine ray reads one file or folder; put the files into a folder")
    if not source.exists():
        raise GoldError(f"{source}: no such file")
    failed = run_ray(
        source,
        Path(output),
        args.text_column,
        workers=args.workers or usable_cores(),
        deadline=args.deadline,
        options=options,
    )
    print(f"assay execute: wrote {output}, {failed} rows failed", file=sys.stderr)
    return BAD_ROWS if failed else 0


def _batches(found: Iterator[Block], asked: Chosen = ALL) -> Iterator[tuple[str, int, list[bytes]]]:
    """Runs of non-blank lines that are `asked` for, with their input and the number of their first
    one."""
    for block in found:
        batch: list[bytes] = []
        size = first = 0
        for number, line in enumerate(block.data.split(b"\n"), block.number):
            blank = not line.strip() or (bool(asked) and not _asked_for(line, asked))
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


def _asked_for(line: bytes, asked: Chosen) -> bool:
    """A line that is no row is left to whoever says so."""
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        return True
    return not isinstance(row, dict) or asked.takes_row(cast("dict[str, Any]", row))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
