"""How many verified text-to-SQL tasks come of real tables, in what time, and how fast they score.

    python -m benchmarks.sql [--tables DIR…] [--count 1200] [--workers 2] [--out DIR]

Without `--tables`, the tables of installed packages (`assay tasks sql --carried`). Prints counts of
tasks, tables, kinds and refusals, seconds by the clock and of processors, and answers scored a
second: gold of every task, once over new tasks and once over tasks seen before.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from assay.family import BUILT_IN, score_answer
from assay.task import Answer, Task, read_tasks
from data_gen.queries.sql_build import main as build
from data_gen.splits import SPLITS


def seconds() -> tuple[float, float]:
    """(clock, processors: of this process and of those that ended)."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(u.ru_utime + u.ru_stime for u in used)


def scored(tasks: Sequence[Task]) -> str:
    start = time.perf_counter()
    gold = BUILT_IN["sql"].gold
    rewards = [score_answer(t, Answer(str(gold(t)))).reward for t in tasks]
    wall = time.perf_counter() - start
    assert rewards == [1.0] * len(tasks), "gold does not score 1"
    return f"{len(tasks) / wall:.0f} answers a second"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="*", default=[])
    parser.add_argument("--count", default="1200")
    parser.add_argument("--workers", default="2")
    parser.add_argument("--out", default="")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as made:
        out = Path(args.out or made) / "sql"
        given = ["--tables", *args.tables] if args.tables else ["--carried"]
        words = [*given, "--out", str(out), "--count", args.count, "--workers", args.workers]
        wall, cpu = seconds()
        status = build(words)
        end, used = seconds()
        proof = json.loads((out / "certificate.json").read_text(encoding="utf-8"))
        tasks = [t for name in SPLITS for t in read_tasks(out / f"{name}.jsonl")]
        tables = {str(t.meta["database"]) for t in tasks}
        own = proof["sql"]
        drafts = sum(own["drafts"].values())
        refused = sum(proof["refused"].values())
        differs = proof["refused"].get("proof: differs", 0)
        unproved = proof["refused"].get("proof: not provable", 0)
        size = sum((out / f"{name}.jsonl").stat().st_size for name in SPLITS)
        print(f"tasks {len(tasks)} over {len(tables)} tables, {len(own['kinds']['train'])} kinds")
        print(f"drafts {drafts}: refused {refused}, of these by the second way {differs} that")
        print(f"  differ and {unproved} it could not read; {own['told_apart_by_a_clause']} kept")
        print("  with a clause that tells them from another reading")
        print(f"{end - wall:.0f} s by the clock, {used - cpu:.0f} s of processors")
        print(f"{size / len(tasks) / 1000:.1f} kB a task")
        some = tasks[:200]
        print(f"scoring: {scored(some)}; the same tasks again: {scored(some)}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
