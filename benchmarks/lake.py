"""How fast a lake is indexed and sampled: the first time, again, and against plain pandas.

    python -m benchmarks.lake --lake DIR [--files 1500]

With `--files`, the lake's files are repeated (with another last line each) until there are that
many, so that no content is known already. The rival reads the first 100 rows of every CSV with
pandas, as the published system does, every time.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.runner import Took, machine, timed
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", required=True, type=Path)
    parser.add_argument("--files", type=int, default=0)
    parser.add_argument("--budget", type=int, default=8000, help="tokens of the snippet")
    args = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        lake = enlarge(args.lake, Path(folder) / "lake", args.files) if args.files else args.lake
        cache = Path(folder) / "cache"
        works = {
            "first index": lambda: index_lake(lake, cache),
            "again": lambda: index_lake(lake, cache),
            "snippet": lambda: snippet(index_lake(lake, cache), args.budget, QUESTION),
            "pandas, 100 rows of every CSV": lambda: heads(lake),
        }
        took: dict[str, Took] = {name: timed(work) for name, work in works.items()}
        size = sum(p.stat().st_size for p in lake.rglob("*") if p.is_file())
        print(f"{len(index_lake(lake, cache))} files, {size / 1e6:.0f} MB")
    for name, one in took.items():
        print(f"{name:32} {one.wall:8.2f} s wall {one.cpu:8.2f} s processor")
    rival, shown, first = (took[n].cpu for n in (list(works)[3], "snippet", "first index"))
    print(f"ratio to pandas, processor: {rival / shown:.1f}x (index known), ", end="")
    print(f"{rival / (first + shown):.2f}x (first time)")


if __name__ == "__main__":
    main()
