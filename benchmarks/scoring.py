"""`assay score` and `assay execute`: rates, and two workers against one, in one run.

    python -m benchmarks.scoring [--rows 300000] [--execute-rows 20000] [--pairs 2]
    python -m benchmarks.scoring --memory [--rows 300000] [--execute-rows 300000]

Rows are made up from a seed: refinement tasks of some 90 words with answers that are right, copied,
wrong in part, of the wrong status or unreadable; and recipes of four operators over texts four
times as long. Runs with one and with two workers take turns, and their outputs are compared.

A machine that does other work makes seconds by the clock mean little. So the rate is rows for each
second of processor time of the command and its processes; and beside the ratio by the clock stands
the ratio that processor time allows where both workers have a core of their own: what the parent
process does stays there, the rest is divided. `--against FOLDER` is another checkout (an older
commit), whose `assay score` takes turns with ours.

`--memory` measures the peak of PSS summed over all processes of a command, with two workers, for a
tenth of the rows and for all of them. Every process may have 1 GB of address space at most; a
command that needs more fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.memory import MemoryWatch

ROOT = Path(__file__).resolve().parents[1]
TEXT = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government"
)
WORDS = TEXT.split()
STEPS = [
    {"operator": "clean_email_mapper"},
    {"operator": "clean_links_mapper"},
    {"operator": "remove_repeat_sentences_mapper"},
    {"operator": "words_num_filter", "params": {"min_num": 10}},
]
LIMIT = 1_000_000_000  # bytes
TIMES = 4  # the texts of executed rows: some 2,700 characters, the benchmark's mean
# Runs the command and says what the parent and its children took, in seconds.
CHILD = """
import os, sys
sys.path.insert(0, sys.argv.pop(1))
import assay
status = assay.main(sys.argv[1:])
own, system, children, children_system, _ = os.times()
print("took", own + system, children + children_system)
sys.exit(status)
"""


@dataclass(frozen=True)
class Run:
    """Seconds of one command: processor time of the parent and of its processes, and the clock;
    and the bytes of memory that all of them together had at most."""

    parent: float
    children: float
    clock: float
    memory: int

    @property
    def processor(self) -> float:
        return self.parent + self.children


def run(words: Sequence[str], checkout: Path = ROOT, limit: int | None = None) -> Run:
    """One command, which must succeed; `limit`: bytes of address space of each process."""

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(checkout), *words],
        cwd=checkout,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=limited,
    )
    watch = MemoryWatch(process.pid)
    watch.start()
    said, _ = process.communicate()
    clock = time.perf_counter() - start
    watch.end()
    if process.returncode:
        raise SystemExit(f"assay {' '.join(words)}: exit status {process.returncode}")
    took = next(line for line in said.splitlines() if line.startswith("took "))
    parent, children = map(float, took.split()[1:])
    return Run(parent, children, clock, watch.memory)


def texts(count: int) -> Iterator[tuple[str, str]]:
    """(text with addresses in it, the same without them)."""
    rng = random.Random(0)
    for number in range(count):
        words = [rng.choice(WORDS) for _ in range(90)]
        for _ in range(4):
            words.insert(rng.randrange(len(words)), f"{rng.choice(WORDS)}{number}@acme.io")
        yield " ".join(words), " ".join("" if "@" in w else w for w in words)


def answered(count: int) -> Iterator[dict[str, Any]]:
    for number, (text, gold) in enumerate(texts(count)):
        status = "DROP" if number % 4 == 0 else "KEEP"
        kind = number % 10
        other = "KEEP" if status == "DROP" else "DROP"
        said = text if kind in (4, 5) else gold.replace("  ", " and ") if kind in (6, 7) else gold
        output = f"<status>{other if kind == 8 else status}</status><clean_text>{said}</clean_text>"
        task = {"input_text": text, "reference_status": status, "reference_text": gold}
        yield {
            "id": f"r{number}",
            "family": "refinement",
            "task": task,
            "output": output[8:] if kind == 9 else output,
        }


def executed(count: int) -> Iterator[dict[str, Any]]:
    for number, (text, _) in enumerate(texts(count)):
        yield {"id": number, "input_text": "\n".join([text] * TIMES), "recipe": STEPS}


def write(path: Path, rows: Iterator[dict[str, Any]]) -> Path:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def compare(name: str, words: Sequence[str], out: str, target: Path, rows: int, pairs: int) -> Run:
    """Runs with one and two workers in turns; prints and returns the quicker one-worker run."""
    found: dict[int, list[Run]] = {1: [], 2: []}
    seen: set[str] = set()
    for _ in range(pairs):
        for workers in (1, 2):
            places = [out, str(target)] if out else [str(target)]
            found[workers].append(run([*words, *places, "--workers", str(workers)]))
            seen.add(digest(target))
    if len(seen) != 1:
        raise SystemExit(f"{name}: outputs differ")
    one, two = (min(found[n], key=lambda r: r.processor) for n in (1, 2))
    clocks = [a.clock / b.clock for a, b in zip(found[1], found[2], strict=True)]
    # parent and workers run side by side; the slower of them is what is waited for
    allowed = max(one.parent, one.children) / max(two.parent, two.children / 2)
    print(
        f"{name}: {rows:,} rows, {target.stat().st_size / 1e6:,.0f} MB out; "
        f"{rows / one.processor:,.0f} rows a processor second with one worker, "
        f"{rows / two.processor:,.0f} with two (parent {two.parent:.1f} s, workers "
        f"{two.children:.1f} s); 2 workers : 1 by the clock "
        f"{statistics.median(clocks):.2f} (median of {pairs}), by processor time {allowed:.2f}"
    )
    return one


def against(other: Path, source: Path, target: Path, rows: int, pairs: int) -> None:
    """Our `assay score` with one worker, and two, against another checkout's, in turns."""
    theirs: list[Run] = []
    known_to = subprocess.run(
        [sys.executable, "-m", "assay", "score", "--help"],
        cwd=other,
        capture_output=True,
        text=True,
    )
    alone = ["--workers", "1"] if "--workers" in known_to.stdout else []
    one: list[Run] = []
    two: list[Run] = []
    words = ["score", str(source), "--out"]
    for _ in range(pairs):
        theirs.append(run([*words, str(target), *alone], other))
        known = digest(target)
        for runs, workers in ((one, "1"), (two, "2")):
            runs.append(run([*words, str(target), "--workers", workers]))
            if digest(target) != known:
                raise SystemExit("score: the other checkout's output differs")
    old, new = (min(r.processor for r in runs) for runs in (theirs, one))
    clocks = [a.clock / b.clock for a, b in zip(theirs, two, strict=True)]
    best = min(two, key=lambda r: r.processor)
    print(
        f"score against {other.name}: {rows / old:,.0f} rows a processor second there with one "
        f"worker, {rows / new:,.0f} here with one ({old / new:.2f}×); two workers here against it "
        f"by the clock {statistics.median(clocks):.2f}×, by processor time "
        f"{old / max(best.parent, best.children / 2):.2f}×; same bytes"
    )


def grown(words: Sequence[str], out: str, sources: Sequence[Path], target: Path) -> tuple[int, int]:
    """The memory of a command with two workers over few and many rows."""
    rest = [*([out] if out else []), str(target), "--workers", "2"]
    few, many = (run([*words, str(s), *rest], limit=LIMIT).memory for s in sources)
    return few, many


def memory(folder: Path, rows: int, execute_rows: int) -> None:
    """Both commands over a tenth of the rows and over all of them."""
    target = folder / "out.jsonl"
    for name, made, count in (("score", answered, rows), ("execute", executed, execute_rows)):
        counts = (count // 10, count)
        sources = [write(folder / f"{name}-{n}.jsonl", made(n)) for n in counts]
        few, many = grown([name], "--out" if name == "score" else "", sources, target)
        print(
            f"{name}: {few / 1e6:.0f} MB for {counts[0]:,} rows, {many / 1e6:.0f} MB for {count:,} "
            f"({many / few:.2f}×): peak PSS of all processes, two workers, each process held to "
            f"{LIMIT / 1e9:.0f} GB of address space",
            flush=True,
        )
        for path in (*sources, target):
            path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description="assay score and assay execute: rates and ratios")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--execute-rows", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout")
    parser.add_argument("--memory", action="store_true", help="peak memory for two sizes instead")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f} at the start")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="assay-scoring-") as name:
        folder = Path(name)
        if args.memory:
            memory(folder, args.rows, args.execute_rows)
            return
        source = write(folder / "answered.jsonl", answered(args.rows))
        target = folder / "scores.jsonl"
        compare("score", ["score", str(source)], "--out", target, args.rows, args.pairs)
        if args.against:
            against(args.against.resolve(), source, target, args.rows, args.pairs)
        source.unlink()
        rows = args.execute_rows
        source = write(folder / "executed.jsonl", executed(rows))
        compare("execute", ["execute", str(source)], "", folder / "gold.jsonl", rows, args.pairs)


if __name__ == "__main__":
    main()
