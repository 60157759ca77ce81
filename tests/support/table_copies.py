"""Tables of one's own, whose copies are to be known and whose likes are not."""

from __future__ import annotations

import random
from typing import Any

import pandas as pd


def homes(seed: int, rows: int = 300) -> Any:
    draw = random.Random(seed)
    return pd.DataFrame(
        {
            "row_id": range(1, rows + 1),
            "Area": [round(draw.uniform(20, 200), 1) for _ in range(rows)],
            "Price": [draw.randrange(50_000, 900_000) for _ in range(rows)],
            "Street": [
                f"{draw.choice('ABCDEF')} Street {draw.randrange(900)}" for _ in range(rows)
            ],
            "Sold": [
                f"20{draw.randrange(10, 24)}-0{draw.randrange(1, 10)}-11" for _ in range(rows)
            ],
            "Kind": [draw.choice(["house", "flat"]) for _ in range(rows)],
        }
    )
