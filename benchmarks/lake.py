"""How fast a lake is indexed and sampled: the first time, again, and against plain pandas.

    python benchmarks/lake.py --lake DIR [--files 1500]

With `--files`, the lake's files are repeated (with another last line each) until there are that
many, so that no content is known already. The rival reads the first 100 rows of every CSV with
pandas, as the published system does, every time.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rollouts.krama.index import index_lake, snippet

QUESTION = "Which year had the highest mean of the density in March 2014?"


def enlarge(lake: Path, target: Path, count: int) -> Path:
    """A lake of `count` files, all of different content."""
    names = [p for p in sorted(lake.rglob("*")) if p.is_file()]
    for number in range(count):
        source = names[number % len(names)]
        place = target / f"part{number // len(names)}" / source.relative_to(lake)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(source.read_bytes() + (f"\n# {number}\n".encode() if number else b""))
    return target


def timed(step: object, *arguments: object) -> tuple[float, float, object]:
    """(wall, processor seconds, result)."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = step(*arguments)  # type: ignore[operator]
    return time.perf_counter() - wall, time.process_time() - cpu, result


def heads(lake: Path) -> int:
    """The rival: pandas on the first 100 rows of every CSV."""
    import pandas as pd

    size = 0
    for path in sorted(lake.rglob("*.csv")):
        try:
            size += len(pd.read_csv(path, nrows=100, engine="python", on_bad_lines="skip").to_csv())
        except Exception:  # the rival passes over what it cannot read
            continue
    return size


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", required=True, type=Path)
    parser.add_argument("--files", type=int, default=0)
    parser.add_argument("--budget", type=int, default=8000, help="tokens of the snippet")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lake = enlarge(args.lake, Path(folder) / "lake", args.files) if args.files else args.lake
        cache = Path(folder) / "cache"
        first = timed(index_lake, lake, cache)
        again = timed(index_lake, lake, cache)
        shown = timed(snippet, again[2], args.budget, QUESTION)
        rival = timed(heads, lake)
        size = sum(os.path.getsize(p) for p in lake.rglob("*") if p.is_file())
        files = len(again[2].files)  # type: ignore[attr-defined]
        print(f"{files} files, {size / 1e6:.0f} MB")
        for name, row in (
            ("first index", first),
            ("again", again),
            ("snippet", shown),
            ("pandas, 100 rows of every CSV", rival),
        ):
            print(f"{name:32} {row[0]:8.2f} s wall {row[1]:8.2f} s processor")
        sampled = again[1] + shown[1]
        print(
            f"ratio to pandas, processor: {rival[1] / sampled:.1f}x (index known), "
            f"{rival[1] / (first[1] + shown[1]):.2f}x (first time)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
