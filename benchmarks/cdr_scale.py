"""How `assay tasks cdr` grows: time and memory over the number of documents, workers and shards.

    python -m benchmarks.cdr_scale --documents 2000 20000 --workers 1 2
    python -m benchmarks.cdr_scale --documents 200000 --shards 10 --workers 2
    python -m benchmarks.cdr_scale --documents 20000 --workers 2 1 --beside

Corpora are made from a seed (`benchmarks.cdr_corpus`). Every build is a command of its own; with
--shards its stages are run one after the other, as the tasks of an array would be. Printed are
seconds by the clock, processor seconds of all processes, documents a second, the highest sum of
memory over all processes of a command (PSS, sampled), and the largest work folder; then the ratio
of the largest corpus to the smallest, and of one worker to more. On a busy machine compare
processor seconds.

--beside also runs a build with one worker twice side by side, each in a process of its own that
knows nothing of the other. What that takes more than one build alone is what the machine itself
takes from two busy cores, and bounds what two workers can gain.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cdr_corpus import write_corpus
from benchmarks.memory import MemoryWatch
from data_gen.cdr.cli import MAPS, STAGES

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Measured:
    documents: int
    workers: int
    shards: int
    seconds: float
    processor: float
    memory: int  # bytes
    folder: int  # bytes

    def line(self) -> str:
        return (
            f"{self.documents:9,d} documents  {self.workers} workers  {self.shards} shards  "
            f"{self.seconds:9.1f} s  {self.processor:9.1f} cpu s  "
            f"{self.documents / self.seconds:7.1f} a second  "
            f"{self.memory / 1e6:7.0f} MB memory  {self.folder / 1e6:7.0f} MB work folder"
        )


def size_of(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total


class Watch(MemoryWatch):
    """Also at the size of a folder, now and then."""

    def __init__(self, process: int, folder: Path) -> None:
        super().__init__(process)
        self._folder = folder
        self.folder = 0

    def look(self) -> None:
        super().look()
        if self.looks % 40 == 0:
            self.folder = max(self.folder, size_of(self._folder))


def command(words: Sequence[str], work: Path) -> tuple[int, int]:
    """Run `assay tasks cdr …`; returns the highest memory and the largest work folder."""
    process = subprocess.Popen(
        [sys.executable, "-m", "assay", "tasks", "cdr", *words],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    watch = Watch(process.pid, work)
    watch.start()
    status = process.wait()
    watch.end()
    if status:
        raise SystemExit(f"assay tasks cdr {' '.join(words)}: exit status {status}")
    return watch.memory, watch.folder


def keep_bytecode(folder: Path) -> None:
    """Let Python keep its compiled modules, as it does where nobody forbids it: else each process
    compiles all of them again, and several do so several times."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder)
    words = [sys.executable, "-m", "assay", "tasks", "cdr", "--help"]
    subprocess.run(words, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


def measured(
    corpus: Path, out: Path, documents: int, workers: int, shards: int, config: str
) -> Measured:
    words = ["--config", config, "--corpus", str(corpus), "--out", str(out)]
    words += ["--workers", str(workers)]
    commands = [words]
    if shards > 1:
        cut = [*words, "--shards", str(shards)]
        commands = [
            [*cut, "--stage", stage, "--shard", str(shard)]
            for stage in STAGES
            for shard in range(shards if stage in MAPS else 1)
        ]
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    found = [command(one, out / ".work") for one in commands]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Measured(
        documents,
        workers,
        shards,
        time.monotonic() - start,
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        max(memory for memory, _ in found),
        max(folder for _, folder in found),
    )


def say_beside(corpus: Path, folder: Path, alone: Measured, config: str) -> None:
    """Two builds of one worker side by side against one alone."""
    outs = [folder / f"beside-{place}" for place in range(2)]
    for out in outs:
        shutil.rmtree(out, ignore_errors=True)
    words = ["--config", config, "--corpus", str(corpus), "--workers", "1", "--out"]
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda out: command([*words, str(out)], out / ".work"), outs))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.monotonic() - start
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"{alone.documents:9,d} documents, two builds side by side: {seconds:.1f} s, "
        f"{spent:.1f} cpu s; each takes {spent / 2 / alone.processor:.3f} times the processor "
        f"time of one alone, so two workers are at most {2 * alone.seconds / seconds:.2f} times "
        "as fast as one"
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.cdr_scale")
    parser.add_argument("--documents", type=int, nargs="+", default=[2_000, 20_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--config", default="configs/cdr_train.yaml")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside", action="store_true", help="two builds side by side as well")
    parser.add_argument("--folder", type=Path, help="where corpora and builds go (a temporary one)")
    args = parser.parse_args(argv)
    folder = args.folder or Path(tempfile.mkdtemp(prefix="cdr-scale-"))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    keep_bytecode(folder / "bytecode")
    found: list[Measured] = []
    for documents in args.documents:
        corpus = folder / f"corpus-{documents}" / "documents.jsonl"
        if not corpus.is_file():
            write_corpus(corpus, documents, args.seed)
        for workers in args.workers:
            out = folder / f"build-{documents}-{workers}"
            shutil.rmtree(out, ignore_errors=True)
            one = measured(corpus.parent, out, documents, workers, args.shards, args.config)
            print(one.line(), flush=True)
            found.append(one)
            if args.beside and workers == 1:
                say_beside(corpus.parent, folder, one, args.config)
    say_ratios(found)
    if args.folder is None:
        shutil.rmtree(folder)


def say_ratios(found: Sequence[Measured]) -> None:
    for workers in dict.fromkeys(one.workers for one in found):
        own = [one for one in found if one.workers == workers]
        if len(own) > 1:
            small, large = own[0], own[-1]
            print(
                f"{large.documents:,} : {small.documents:,} documents, {workers} workers: "
                f"{large.seconds / small.seconds:.2f} by the clock, "
                f"{large.processor / small.processor:.2f} of processor time"
            )
    for documents in dict.fromkeys(one.documents for one in found):
        own = {one.workers: one for one in found if one.documents == documents}
        if 1 in own:
            for workers, one in own.items():
                if workers > 1:
                    print(
                        f"{documents:,} documents, {workers} workers : 1: "
                        f"{own[1].seconds / one.seconds:.2f} times as fast by the clock"
                    )


if __name__ == "__main__":
    main()
