"""A folder of tables for text-to-SQL questions: customers (CSV) and orders (SQLite)."""

from __future__ import annotations

import csv
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

CITIES = ("Lyon", "Bern", "Oslo", "Kyiv", "Rome", "Graz", "Turin", "Basel")


def write_shop(folder: Path, seed: int = 0) -> Path:
    """Customers with missing values, and orders that mostly name a customer."""
    rng = Random(seed)
    folder.mkdir(parents=True)
    people = [f"Customer {seed}-{i}" for i in range(60)]
    with open(folder / "customers.csv", "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["customer", "city", "segment", "age", "income", "since"])
        for name in people:
            segment = rng.choice(["retail", "trade", "public", ""])
            income = round(rng.gauss(3000, 900), 1) if rng.random() < 0.9 else ""
            since = rng.randint(1981, 2019)
            row = [name, rng.choice(CITIES), segment, rng.randint(18, 80), income, since]
            out.writerow(row)
    with closing(sqlite3.connect(folder / "sales.sqlite")) as db:
        db.execute("CREATE TABLE orders (order_date, customer, channel, price, quantity)")
        for _ in range(300):
            day = f"20{rng.randint(18, 23)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
            who = rng.choice(people[:50]) if rng.random() < 0.97 else "Walk-in"
            row = (
                day,
                who,
                rng.choice(("web", "shop", "phone")),
                round(rng.expovariate(1 / 50), 2),
                rng.randint(1, 40),
            )
            db.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", row)
        db.commit()
    return folder
