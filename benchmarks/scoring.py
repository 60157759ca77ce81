"""`assay score` and `assay execute`: rates, and two workers against one, in one run.

    python -m benchmarks.scoring [--rows 300000] [--execute-rows 20000] [--pairs 2]
    python -m benchmarks.scoring --memory [--rows 300000] [--execute-rows 300000]

Rows are made up from a seed: refinement tasks of some 90 words with answers that are right, copied,
wrong in part, of the wrong status or unreadable; and recipes of four operators over texts four
times as long. Runs with one and with two workers take turns, and their outputs are compared.

The rate is rows for each second of processor time of the command and its processes. Beside the
ratio of two workers by the clock stands the ratio that processor time allows where each has a core
of its own. `--against FOLDER` is another checkout (an older commit), whose command takes turns with
ours and has to write the same bytes.

`--memory` measures the peak of PSS summed over all processes of a command, with two workers, for a
tenth of the rows and for all of them. Every process may have 1 GB of address space at most; a
command that needs more fails.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.task import write_jsonl
from benchmarks.runner import ROOT, Command, command, machine, workers_ratio

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
        row = {"id": f"r{number}", "family": "refinement", "task": task}
        yield {**row, "output": output[8:] if kind == 9 else output}


def executed(count: int) -> Iterator[dict[str, Any]]:
    for number, (text, _) in enumerate(texts(count)):
        yield {"id": number, "input_text": "\n".join([text] * TIMES), "recipe": STEPS}


MAKES = {"score": answered, "execute": executed}


def run(name: str, source: Path, target: Path, workers: int, **how: Any) -> Command:
    places = ["--out", target] if name == "score" else [target]
    return command(name, source, *places, "--workers", workers, **how)


def rates(name: str, folder: Path, rows: int, pairs: int, other: Path | None) -> None:
    """Runs with one and two workers, and those of another checkout, in turns."""
    source, target = folder / f"{name}.jsonl", folder / "out.jsonl"
    write_jsonl(source, MAKES[name](rows))
    sides = {"one worker": (1, ROOT), "two workers": (2, ROOT)}
    sides |= {f"one worker of {other.name}": (1, other)} if other else {}
    found: dict[str, list[Command]] = {side: [] for side in sides}
    seen: set[str] = set()
    for _ in range(pairs):
        for side, (workers, checkout) in sides.items():
            found[side].append(run(name, source, target, workers, checkout=checkout))
            seen.add(hashlib.sha256(target.read_bytes()).hexdigest())
    if len(seen) != 1:
        raise SystemExit(f"{name}: outputs differ")
    for side, runs in found.items():
        rate = rows / min(one.cpu for one in runs)
        print(f"{name}: {rows:,} rows, {side}: {rate:,.0f} a processor second", flush=True)
    print(f"{name}: {workers_ratio(found['one worker'], found['two workers'], 2)}", flush=True)


def memory(name: str, folder: Path, rows: int) -> None:
    """The command over a tenth of the rows and over all of them."""
    found: list[int] = []
    for count in (rows // 10, rows):
        source = folder / f"{name}-{count}.jsonl"
        write_jsonl(source, MAKES[name](count))
        found.append(run(name, source, folder / "out.jsonl", 2, limit=LIMIT).memory)
        source.unlink()
    few, many = found
    print(
        f"{name}: {few / 1e6:.0f} MB for {rows // 10:,} rows, {many / 1e6:.0f} MB for {rows:,} "
        f"({many / few:.2f}×): peak PSS of all processes, two workers, each process held to "
        f"{LIMIT / 1e9:.0f} GB of address space",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="assay score and assay execute: rates and ratios")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--execute-rows", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout")
    parser.add_argument("--memory", action="store_true", help="peak memory for two sizes instead")
    args = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(prefix="assay-scoring-") as name:
        for what, rows in (("score", args.rows), ("execute", args.execute_rows)):
            if args.memory:
                memory(what, Path(name), rows)
            else:
                other = args.against.resolve() if args.against else None
                rates(what, Path(name), rows, args.pairs, other)


if __name__ == "__main__":
    main()
