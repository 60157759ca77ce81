"""The recipe over a data set through Ray Data, for corpora that outgrow one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assay.parquet import library as arrow
from rewards.gold.core import GoldError, library
from rewards.gold.execute import STATUS, as_lines, check_column, open_parquet, with_answers
from rewards.gold.pool import Pool


class Executor:
    """A Ray actor: one guarded worker process, reused for every batch."""

    def __init__(self, column: str, deadline: float, options: dict[str, Any]) -> None:
        self._column = column
        self._pool = Pool(1, deadline, options)

    def __call__(self, table: Any) -> Any:
        pa = arrow()
        lines = as_lines(table.column(self._column).to_pylist(), 0)
        (batch,) = table.combine_chunks().to_batches() or [None]
        if batch is None:
            return table
        ((_, answers),) = list(self._pool.run([("", 1, lines)]))
        done, errors = with_answers(batch, self._column, answers)
        iterator = iter(errors)
        # Ray splits the output by this column, and a path cannot hold a null.
        status = [s or "FAILED" for s in done.column(STATUS).to_pylist()]
        why = [next(iterator) if s == "FAILED" else None for s in status]
        index = done.schema.get_field_index(STATUS)
        done = done.set_column(index, STATUS, pa.array(status))
        return done.append_column("gold_error", pa.array(why, type=pa.string()))


def run_ray(
    source: Path,
    target: Path,
    column: str,
    *,
    workers: int,
    deadline: float,
    options: dict[str, Any],
) -> int:
    """Write `target/gold_status=KEEP|DROP|FAILED/*.parquet`; returns the number of failed rows.

    Every row lands in one of the three, failed ones with their text unchanged and the reason in
    `gold_error`. Needs the `ray` extra.
    """
    ray, ray_data = (library(m, "--engine ray", extra="ray") for m in ("ray", "ray.data"))
    if target.exists():
        raise GoldError(f"{target}: exists already; --engine ray writes a new folder")
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    data: Any = ray_data.read_parquet(str(source))
    check_column(data.schema().base_schema, column, source)
    data = data.map_batches(
        Executor,
        fn_constructor_args=(column, deadline, options),
        batch_format="pyarrow",
        concurrency=workers,
        batch_size=1024,
    )
    data.write_parquet(str(target), partition_cols=[STATUS])
    failed = target / f"{STATUS}=FAILED"
    if not failed.is_dir():
        return 0
    return sum(open_parquet(f).metadata.num_rows for f in failed.glob("*.parquet"))
