"""Make the sample of conformance vectors that ships with the repository.

    python tests/support/make_conformance.py DIR

`DIR` holds the full sets (docs/checks.md). Only rows are taken whose texts may be given on:
short cases written for these sets, records made by Faker from templates written for these sets,
numbers, and tables under CC0, MIT, Apache-2.0 or PDDL. The same sets give the same bytes.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1] / "conformance"
Row = dict[str, Any]
# First words of records that templates made: they hold Faker's words and nothing else.
MADE = (
    "Employee record\nName:",
    "Support chat transcript",
    "Subject: Ticket #",
    "# config\n",
    "Dear ",
    '{\n  "name": "',
)
FREE = ("CC0-1.0", "MIT", "Apache-2.0", "PDDL-1.0")
CHARACTERS = 9_000  # of a row


def read(path: Path) -> list[Row]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        return [json.loads(line) for line in lines]


def write(path: Path, rows: Sequence[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))


def spread(rows: Iterable[Row], count: int, kind: Callable[[Row], Any] = lambda _: 0) -> list[Row]:
    """`count` rows of each kind, chosen by hash, in their own order; long rows are left out."""
    taken: Counter[Any] = Counter()
    kept: set[int] = set()
    listed = [row for row in rows if len(json.dumps(row)) <= CHARACTERS]
    for number in sorted(range(len(listed)), key=lambda i: _hash(listed[i])):
        key = kind(listed[number])
        if taken[key] < count:
            taken[key] += 1
            kept.add(number)
    return [listed[number] for number in sorted(kept)]


def _hash(row: Row) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()


def made(row: Row) -> bool:
    """Whether the text is a record that a template made."""
    text = str(row.get("input_text", ""))
    clock = re.search(r"\d\d:\d\d:\d\d", text)  # public log samples have times
    return text.startswith(MADE) and not clock


def refinement(full: Path, out: Path) -> None:
    for path in sorted(full.glob("*/*.jsonl.gz")):
        rows = spread((r for r in read(path) if r["edge"]), 8, lambda r: r["profile"])
        write(out / path.relative_to(full), rows)
    recipes = (r for r in read(full / "recipes.jsonl.gz") if made(r))
    kinds = spread(recipes, 3, lambda r: (r["kind"], r["slot"], r["status"]))
    write(out / "recipes.jsonl.gz", kinds)
    write(out / "order_m.jsonl.gz", spread(filter(made, read(full / "order_m.jsonl.gz")), 6))
    scorer = read(full / "scorer.jsonl.gz")
    chosen = spread(
        (r for r in scorer if r["kind"] == "metric" and made(r)), 2, lambda r: r["case"]
    )
    for kind, longest, count in (
        ("parse", 250, 24),
        ("normalise", 120, 16),
        ("json_compare", 400, 12),
    ):
        own = (r for r in scorer if r["kind"] == kind and len(json.dumps(r)) <= longest)
        chosen += spread(own, count)
    write(out / "scorer.jsonl.gz", chosen)
    write(out / "keys.jsonl.gz", spread(read(full / "keys.jsonl.gz"), 8, lambda r: r["kind"]))
    write(out / "mining.jsonl.gz", spread(read(full / "mining.jsonl.gz"), 3))
    thresholds = spread(read(full / "thresholds.jsonl.gz"), 6, lambda r: r["kind"])
    write(out / "thresholds.jsonl.gz", thresholds)


def tables(full: Path, out: Path) -> None:
    """Truths under free licences, one or two of each task type, and cases of each."""
    with open(full / "tasks" / "licences.csv", encoding="utf-8", newline="") as file:
        free = {row["database"]: row for row in csv.DictReader(file) if row["spdx"] in FREE}
    rows = read(full / "conformance.jsonl.gz")
    truths = [r for r in rows if r["kind"] == "truth" and r["database"] in free]
    chosen = spread(truths, 1, lambda r: r["task_type"])
    names = {r["truth_id"] for r in chosen}
    cases = spread(
        (r for r in rows if r["kind"] == "case" and r["truth_id"] in names),
        4,
        lambda r: (r["truth_id"], r["reason"]),
    )
    write(out / "conformance.jsonl.gz", [*chosen, *cases])
    listed = [
        {k: free[name][k] for k in ("database", "title", "author", "spdx", "source_page")}
        for name in sorted({r["database"] for r in chosen})
    ]
    text = json.dumps(listed, indent=2, ensure_ascii=False) + "\n"
    (out / "licences.json").write_text(text, encoding="utf-8")


def answers(full: Path, out: Path) -> None:
    """Cases made for the scorer: none with a published task's gold."""
    rows = [
        r
        for r in read(full / "conformance.jsonl.gz")
        if r.get("category") not in ("gold", "near", "malformed", "failure_text")
    ]
    kind = lambda r: (r["level"], r.get("answer_type"))  # noqa: E731
    write(out / "conformance.jsonl.gz", spread(rows, 10, kind))


def counts(out: Path) -> dict[str, int]:
    """Rows of every file."""
    return {str(p.relative_to(out)): len(read(p)) for p in sorted(out.rglob("*.jsonl.gz"))}


def main(full: Path, out: Path = HERE) -> None:
    refinement(full / "cdr" / "conformance", out / "cdr" / "conformance")
    tables(full / "dare", out / "dare")
    answers(full / "krama", out / "krama")
    text = json.dumps(counts(out), indent=2) + "\n"
    (out / "rows.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
