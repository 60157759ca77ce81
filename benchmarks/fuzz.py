"""Fuzzing of every scorer and parser with outputs that a model might write.

    python benchmarks/fuzz.py --outputs 100000 [--start 0] [--seed 0] [--only NAME] [--json]

Output number i depends on (seed, i) alone, so a range can be run in parts and a finding repeated:
`--start I --outputs 1`. Every output must be read without an exception, within the deadline, to the
same bits twice, to an outcome between 0 and 1 where there is one, and never above gold. Exit status
1 with the findings on standard output. `--readings` lists what is fuzzed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from assay import scorer_timeout as guard
from assay.console import progress
from assay.seeds import derive_seed
from benchmarks.fuzz_read import Read, Reading
from benchmarks.fuzz_readings import READINGS, drawn
from benchmarks.fuzz_words import TOKENS, output

DEADLINE = 10.0  # seconds of processor time for one output, read once
HANGS = 600.0  # seconds of clock time, for machines that do other work too
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Finding:
    """One output that broke a rule; `number` repeats it."""

    number: int
    reading: str
    rule: str
    why: str
    output: str


def case(seed: int, number: int, only: str = "") -> tuple[Reading, int, str]:
    """(reading, pick of its gold, output) of one number."""
    rng = Random(derive_seed(seed, "fuzz", number))
    reading = drawn(rng)
    if only:
        reading = next(r for r in READINGS if r.name == only)
    pick = rng.randrange(1 << 16)
    return reading, pick, output(rng, reading.gold(pick))


def findings(seed: int, start: int, count: int, only: str = "") -> Iterator[Finding | float]:
    """For every number the processor seconds that its two readings took, or what it broke."""
    for number in range(start, start + count):
        reading, pick, text = case(seed, number, only)
        begun = time.process_time()
        rule, why = broken(reading, pick, text)
        if rule:
            shown = text if len(text) <= 200 else f"{text[:200]}… ({len(text)} characters)"
            yield Finding(number, reading.name, rule, why, ascii(shown))
        else:
            yield time.process_time() - begun


LONG = 200_000  # characters
# where a token may stand so that a reading looks at it at all
FRAMES = (
    ("<tool_call><function=run>", "</function></tool_call>"),
    ("<tool_call>", "</tool_call>"),
    ("<analyze>", "</analyze>"),
    ("```python\n", "```"),
)


def long_outputs() -> Iterator[tuple[Reading, int, str]]:
    """Every token repeated, alone and with a letter between, for every reading: what a pattern
    that is not linear takes minutes for."""
    for reading in READINGS:
        for token in TOKENS:
            for unit in (token, f"{token}a", f"{token}\n"):
                text = unit * (LONG // len(unit))
                yield reading, 1, text
                for front, back in FRAMES:
                    if front[:5] in reading.gold(1):
                        yield reading, 1, f"{front}{text}{back}"
        for opening in ("<answer>", "```json", "<tool_call>", "<analyze>", "<clean_text>", "["):
            yield reading, 1, opening + " " * LONG
            yield reading, 1, opening + "\n" * LONG


def long_findings(only: str = "") -> Iterator[Finding | float]:
    """`findings` of `long_outputs`."""
    for number, (reading, pick, text) in enumerate(long_outputs()):
        if only and reading.name != only:
            continue
        begun = time.process_time()
        rule, why = broken(reading, pick, text)
        if rule:
            yield Finding(number, reading.name, rule, why, ascii(text[:40]))
        else:
            yield time.process_time() - begun


def broken(reading: Reading, pick: int, text: str, seconds: float = DEADLINE) -> tuple[str, str]:
    """(which rule one output breaks, why), or ("", "")."""
    used = time.process_time()
    try:
        with guard.deadline(HANGS), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parsers, about what a model wrote
            one = reading.read(pick, text)
            used = time.process_time() - used
            two = reading.read(pick, text)
    except guard.Overtime:
        return "deadline", f"not read within {HANGS:g} s of clock time"
    except Exception as error:
        return "exception", f"{type(error).__name__}: {str(error)[:200]}"
    if used > seconds:
        return "deadline", f"took {used:.1f} s of processor time"
    if one.same != two.same:
        return "same twice", f"{one.same} then {two.same}"
    return _bounds(one)


def _bounds(read: Read) -> tuple[str, str]:
    score, gold = read.score, read.gold
    if score is None:
        return "", ""
    if score.outcome is None or score.reward is None:
        return "no outcome", score.why
    if not (0 <= score.outcome <= 1 and math.isfinite(score.reward)):
        return "bounds", f"outcome {score.outcome}, reward {score.reward}"
    if gold is None or gold.outcome is None or gold.reward is None:
        return "", ""
    if score.outcome > gold.outcome + _ROUNDING or score.reward > gold.reward + _ROUNDING:
        return "above gold", f"{score.outcome}, {score.reward} against {gold.outcome}"
    return "", ""


def main() -> int:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("--outputs", type=int, default=10_000)
    made.add_argument("--start", type=int, default=0, help="number of the first output")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--only", default="", choices=["", *(r.name for r in READINGS)])
    made.add_argument("--long", action="store_true", help="every token 200,000 characters long")
    made.add_argument("--readings", action="store_true", help="list what is fuzzed, and end")
    made.add_argument("--json", action="store_true")
    args = made.parse_args()
    if args.readings:
        print("\n".join(f"{r.name} (weight {r.weight})" for r in READINGS))
        return 0
    found: list[Finding] = []
    slowest, wall, cpu = 0.0, time.perf_counter(), time.process_time()
    counts: Counter[str] = Counter()
    numbers = findings(args.seed, args.start, args.outputs, args.only)
    if args.long:
        numbers = long_findings(args.only)
        args.outputs = sum(not args.only or r.name == args.only for r, _, _ in long_outputs())
    for one in progress(numbers, "fuzz", "outputs", args.outputs):
        if isinstance(one, Finding):
            found.append(one)
            counts[one.rule] += 1
            print(f"{one.number} {one.reading}: {one.rule}: {one.why}: {one.output}", flush=True)
        else:
            slowest = max(slowest, one)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    report = {
        "outputs": args.outputs,
        "start": args.start,
        "seed": args.seed,
        "readings": len(READINGS),
        "findings": dict(counts),
        "slowest_s": round(slowest, 3),
        "wall_s": round(wall, 1),
        "cpu_s": round(cpu, 1),
        "outputs_per_cpu_s": round(args.outputs / max(cpu, 1e-9)),
    }
    if args.json:
        print(json.dumps(report | {"found": [asdict(f) for f in found]}))
    else:
        print(", ".join(f"{k} {v}" for k, v in report.items()))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
