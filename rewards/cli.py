"""`assay score`: outputs in, scores out; JSONL or parquet, `-` for standard input or output.

With --tasks, rows are `{id, output}` and `id` names the task; `files` may hold what an episode left
(name to text). Files of `assay rollout` can be given as they are. Without --tasks each row brings
its gold: `{id, family, task, output}`, where `task` is the gold of the row's family. Table rows
hold `prediction_csv`, `prediction_b64` or `prediction_path` in place of `output`, answer rows
`response: {"answer": …}`; both may name a `reading`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from typing import Any

from assay.console import DONE, UNSCORED, Parser, add_family, parser
from assay.family import all_families, use_families
from assay.filters import add_chosen, chosen
from assay.progress import Progress
from assay.rows import STANDARD, blocks, is_plain, matching, total_bytes, writing_lines
from assay.task import TaskError
from assay.workers import map_ordered, usable_cores
from rewards.score_rows import numbered, prepare, score_block
from rewards.score_rows import score_lines as score_lines
from rewards.score_rows import score_row as score_row
from rewards.task_file import open_tasks

SMALL = 8 << 20  # bytes that one process scores in about a second
SENT = 1 << 20  # bytes that a process is sent at a time


def _weights(judge_url: str, judge_model: str) -> dict[str, Any]:
    """Default weights of every family that asks a judge, with this one."""
    made: dict[str, Any] = {}
    for name, family in all_families().items():
        if judge_url and any(f.name == "judge_url" for f in fields(family.weights)):
            made[name] = replace(family.weights(), judge_url=judge_url, judge_model=judge_model)
    return made


def options() -> Parser:
    made = parser("score", __doc__)
    made.add_argument(
        "input",
        nargs="*",
        default=[STANDARD],
        help="rows: files (.jsonl, .gz, .zst, .parquet), patterns, URLs (default: standard input)",
    )
    made.add_argument("--tasks", metavar="FILE", help="tasks whose ids the rows name")
    add_family(made)
    add_chosen(made, "rows of tasks")
    made.add_argument("--out", default=STANDARD, help="scores: .jsonl, .gz, .zst or .parquet")
    made.add_argument(
        "--workers", type=int, default=0, metavar="N", help="processes (default: all cores)"
    )
    made.add_argument("--judge-url", help="OpenAI-compatible endpoint that judges paraphrases")
    made.add_argument("--judge-model", default="", help="its model's name")
    return made


def main(argv: list[str]) -> int:
    """Exit status 0; 3 when some row has no outcome. Raises `TaskError` and OSError for a file or
    family that cannot be used."""
    args = options().parse_args(argv)
    if args.workers < 0:
        raise TaskError(f"--workers {args.workers}: wanted 1 or more, or 0 for all cores")
    use_families(args.family)
    names = matching(args.input)
    total = total_bytes(names)
    weights = _weights(args.judge_url or "", args.judge_model)
    listed = None if args.tasks is None else open_tasks(args.tasks)
    asked = chosen(args)
    unscored = scored = 0
    with ExitStack() as files:
        out = files.enter_context(writing_lines(args.out))
        bar = files.enter_context(Progress("assay score", "rows", total))
        several = len(names) > 1
        workers = _workers(args.workers, names, total)
        # whoever feeds us row by row is answered so: what comes is scored as it comes
        jobs = blocks(names) if workers == 1 else blocks(names, SENT)
        found = map_ordered(score_block, jobs, workers, prepare, (listed, weights, asked))
        for done, lines in numbered(found, several):
            out.write(lines)
            unscored += done.unscored
            scored += done.rows
            bar.add(done.rows, place=done.position)
            if workers == 1:
                out.flush()
        out.flush()
        if asked and not scored:
            raise TaskError(f"{', '.join(names)}: no row is left by {asked.words()}")
    if unscored:
        print(
            f"assay score: {unscored} rows have no outcome; `why` or `error` says why",
            file=sys.stderr,
        )
    return UNSCORED if unscored else DONE


def _workers(asked: int, names: Sequence[str], total: int | None) -> int:
    """Processes: as asked, else all cores, but one where starting more takes longer than the work
    or where answers are waited for."""
    if asked:
        return asked
    small = total is not None and total < SMALL and all(map(is_plain, names))
    return 1 if small or STANDARD in names else usable_cores()
