"""`assay execute`: gold recipes over JSONL rows, or one recipe over a data set."""

from __future__ import annotations

import argparse
import contextlib
import gzip
import os
import sys
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from rewards import console
from rewards.gold.core import PROFILES, GoldError, library
from rewards.gold.pool import Pool
from rewards.gold.recipe_file import read_recipe

BAD_ROWS = 3
# A batch is sent when it holds this many lines or bytes.
_BATCH_LINES = 64
_BATCH_BYTES = 1 << 18
_DESCRIPTION = """\
Rows {"id", "input_text", "recipe": [{"operator", "params"}], "profile"?} become
{"id", "status", "reference_text", "reference_text_full_run", "trace"}, in order. A row that cannot
be executed becomes {"id", "error"}, the others go on, and the exit status is 3.

With --recipe the rows need no recipe of their own, and a parquet file can be given:
  assay execute --recipe recipe.yaml --text-column text in.parquet out.parquet
writes the rows that the recipe keeps, with their new texts."""


def parser() -> argparse.ArgumentParser:
    made = console.parser("execute", _DESCRIPTION)
    made.add_argument("input", nargs="?", default="-", help=".jsonl, .jsonl.gz, .parquet or -")
    made.add_argument("output", nargs="?", default="-", help="file (or folder with ray), or -")
    made.add_argument("--recipe", type=Path, help="YAML file with the steps of every row")
    made.add_argument("--text-column", default="text", help="of a parquet input")
    made.add_argument("--profile", choices=PROFILES, help="of rows that name none (bench)")
    made.add_argument("--workers", type=int, default=1, help="worker processes")
    made.add_argument(
        "--deadline",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="processor time a row may take",
    )
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
    if args.workers < 1 or args.deadline <= 0:
        raise GoldError("--workers must be 1 or more and --deadline above 0")
    options: dict[str, Any] = {"profile": args.profile or "bench", "states": args.states}
    if args.recipe is not None:
        options["recipe"], named = read_recipe(args.recipe)
        options["profile"] = args.profile or named or "bench"
    table = args.input.endswith(".parquet")
    if args.engine == "ray" and not table:
        raise GoldError("--engine ray reads parquet; give a .parquet input (or a folder of them)")
    if table:
        if args.recipe is None or args.output == "-":
            raise GoldError("a parquet input needs --recipe FILE and an output path")
        return _table(args, options)
    with Pool(args.workers, args.deadline, options) as pool, _reading(args.input) as lines:
        good, bad = _stream(lines, args.output, pool)
    if bad:
        rows = f"{bad} of {good + bad} rows failed"
        print(f"assay execute: {rows}; their output has an 'error' field", file=sys.stderr)
    return BAD_ROWS if bad else 0


def _table(args: argparse.Namespace, options: dict[str, Any]) -> int:
    source, target = Path(args.input), Path(args.output)
    if not source.exists():
        raise GoldError(f"{source}: no such file")
    if args.engine == "ray":
        from rewards.gold.ray_engine import run_ray

        failed = run_ray(
            source,
            target,
            args.text_column,
            workers=args.workers,
            deadline=args.deadline,
            options=options,
        )
        print(f"assay execute: wrote {target}, {failed} rows failed", file=sys.stderr)
        return BAD_ROWS if failed else 0
    from rewards.gold.tables import open_parquet, run_parquet

    rows = open_parquet(source).metadata.num_rows
    # A bar for a person, nothing in a log file.
    bar = library("tqdm", "the progress bar", "tqdm").tqdm(total=rows, unit="row", disable=None)
    with Pool(args.workers, args.deadline, options) as pool, bar:
        tally = run_parquet(
            source,
            target,
            args.text_column,
            pool,
            all_rows=args.all_rows,
            progress=bar.update,
        )
    print(f"assay execute: {tally}", file=sys.stderr)
    if tally.failed:
        print(f"assay execute: see {target}.errors.jsonl", file=sys.stderr)
    return BAD_ROWS if tally.failed else 0


@contextlib.contextmanager
def _reading(name: str) -> Generator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    if not name.endswith(".gz"):
        with open(name, "rb") as stream:
            yield stream
        return
    try:
        with gzip.open(name, "rb") as stream:
            yield cast("BinaryIO", stream)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise GoldError(f"{name}: not a whole gzip file ({error}); write it again") from None


def _batches(lines: BinaryIO) -> Iterator[tuple[None, int, list[bytes]]]:
    """Runs of non-blank lines with the number of their first one."""
    batch: list[bytes] = []
    size = first = 0
    for number, line in enumerate(lines, 1):
        blank = not line.strip()
        if not blank:
            first = first if batch else number
            batch.append(line.rstrip(b"\r\n"))
            size += len(line)
        # A blank line ends a batch too: lines of a batch are numbered one after the other.
        if batch and (blank or len(batch) >= _BATCH_LINES or size >= _BATCH_BYTES):
            yield None, first, batch
            batch, size = [], 0
    if batch:
        yield None, first, batch


def _stream(lines: BinaryIO, output: str, pool: Pool) -> tuple[int, int]:
    """Write every answer in order; returns how many rows were good and bad. A file appears, or is
    replaced, only when it is complete."""
    counts = [0, 0]
    with _writing(output) as out:
        for _, answers in pool.run(_batches(lines)):
            for answer in answers:
                counts[0 if answer.good else 1] += 1
                out.write(answer.line)
            out.flush()
    return counts[0], counts[1]


@contextlib.contextmanager
def _writing(name: str) -> Generator[BinaryIO]:
    if name == "-":
        yield sys.stdout.buffer
        return
    target = Path(name)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as stream:
            yield stream
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
