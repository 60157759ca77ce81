"""Tables of one's own, whose copies are to be known and whose likes are not."""

from __future__ import annotations

import random
from typing import Any

import pandas as pd


def homes(seed: int, rows: int = 300) -> Any:
    draw = random.Random(seed)
    cells: dict[str, Any] = {
        "Area": lambda: round(draw.uniform(20, 200), 1),
        "Price": lambda: draw.randrange(50_000, 900_000),
        "Street": lambda: f"{draw.choice('ABCDEF')} Street {draw.randrange(900)}",
        "Sold": lambda: f"20{draw.randrange(10, 24)}-0{draw.randrange(1, 10)}-11",
        "Kind": lambda: draw.choice(["house", "flat"]),
    }
    columns = {name: [cell() for _ in range(rows)] for name, cell in cells.items()}
    return pd.DataFrame({"row_id": range(1, rows + 1), **columns})
