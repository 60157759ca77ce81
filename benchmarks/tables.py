"""Rows a second of the reader of tables, beside pandas with the right options given by hand.

`python -m benchmarks.tables --rows 200000 --repeats 3`: both read the same file in turn.
Deciding reads the whole file as text and looks at every cell.
"""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path
from typing import Any

from assay.tables.load import load, plan_file
from assay.tables.plan import ReadPlan
from benchmarks.runner import compare, machine


def write(path: Path, rows: int, german: bool) -> None:
    """A table of numbers, days and towns: as pandas expects it, or with German marks."""
    rng = random.Random(0)
    sep, day = (";", "%02d.%02d.%d") if german else (",", "%d-%02d-%02d")
    with open(path, "w", encoding="utf-8") as out:
        out.write(sep.join(("id", "price", "count", "day", "town", "level")) + "\n")
        for number in range(rows):
            price, count = f"{rng.gauss(0, 900):.3f}", rng.randrange(10**7)
            when = (2010 + number % 15, rng.randint(1, 12), rng.randint(1, 28))
            level = "-9999" if rng.random() < 0.01 else str(rng.randrange(-20, 40))
            written = f"{count:,}".replace(",", ".") if german else str(count)
            price = price.replace(".", ",") if german else price
            date = day % (when[::-1] if german else when)
            town = rng.choice(("Bonn", "Ulm", "Hof"))
            out.write(sep.join((str(number), price, written, date, town, level)) + "\n")


def by_hand(path: Path, german: bool) -> Any:
    """What someone who knows the file writes."""
    import pandas as pd

    if not german:
        frame = pd.read_csv(path, na_values={"level": ["-9999"]})
        frame["day"] = pd.to_datetime(frame["day"], format="%Y-%m-%d")
        return frame
    marks = {"sep": ";", "decimal": ",", "thousands": ".", "dtype": {"day": str}}
    frame = pd.read_csv(path, na_values={"level": ["-9999"]}, **marks)
    frame["day"] = pd.to_datetime(frame["day"], format="%d.%m.%Y")
    return frame


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        for german in (False, True):
            path = Path(folder) / ("german.csv" if german else "plain.csv")
            write(path, args.rows, german)
            (path.parent / "tables.yaml").write_text('"*": {missing: {level: ["-9999"]}}')
            (reading,) = plan_file(path)
            assert isinstance(reading, ReadPlan), reading.said()
            assert load(reading, Path(folder)).equals(by_hand(path, german))
            sides = {
                "load": lambda r=reading: load(r, Path(folder)),
                "pandas by hand": lambda path=path, g=german: by_hand(path, g),
                "deciding": lambda path=path: plan_file(path),
            }
            compare(path.name, sides, args.repeats, args.rows, "rows")


if __name__ == "__main__":
    main()
