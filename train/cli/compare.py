# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownVariableType=false
"""`assay compare RUN RUN...`: paired differences of outcome on the same tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rewards import console
from rewards.families import use_families
from rewards.task import TaskError
from train.evaluation.comparing import Comparison, Pair, compare_pairs, pairs_of, signed
from train.evaluation.results import aligned, is_baseline, named_rows, read_results
from train.evaluation.tables import Draw

Rows = Sequence[Mapping[str, Any]]


def models(run: Path) -> dict[str, Rows]:
    """What answered in a run, by the name it is compared under. Raises `TaskError`."""
    path = run / "results.json" if run.is_dir() else run
    rows = named_rows(read_results(path))
    found = {name: mine for name, mine in rows.items() if not is_baseline(name)} or dict(rows)
    if len(found) == 1:
        return {str(run): mine for mine in found.values()}
    return {f"{run}:{name}": mine for name, mine in found.items()}


def by_part(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """Pairs by family (where there are several) and by each value of each slice."""
    found: dict[str, list[Pair]] = {}
    families = {str(pair.row.get("family") or "") for pair in pairs}
    for pair in pairs:
        family = str(pair.row.get("family") or "")
        head = f"{family}: " if len(families) > 1 else ""
        if len(families) > 1:
            found.setdefault(family, []).append(pair)
        for name, value in (pair.row.get("slices") or {}).items():
            found.setdefault(f"{head}{name} = {value}", []).append(pair)
    return found


def compare(
    before: str, after: str, old: Rows, new: Rows, draw: Draw
) -> tuple[Comparison, dict[str, Comparison]]:
    """Over all shared tasks, and by family and slice. Raises `TaskError` without a shared task."""
    pairs = pairs_of(old, new)
    if not pairs:
        raise TaskError(
            f"{before} and {after} have no task with an outcome in common; compare runs on the "
            "same tasks"
        )
    parts = {n: p for n, p in by_part(pairs).items() if len(p) < len(pairs)}
    return compare_pairs(before, after, pairs, draw), {
        name: compare_pairs(before, after, parts[name], draw) for name in sorted(parts)
    }


def text(whole: Comparison, parts: Mapping[str, Comparison]) -> str:
    """The line of all tasks, and a table by family and slice."""
    lines = [["part", "tasks", "sources", "outcome [95 %]", "gained", "lost", "McNemar p"]]
    for name, c in parts.items():
        numbers = [str(c.gained), str(c.lost), f"{c.p:.2g}"]
        lines.append([name, str(c.n), str(c.sources), signed(c.outcome), *numbers])
    return "\n".join([whole.line(), *(aligned(lines) if len(lines) > 1 else [])])


def main(argv: list[str]) -> int:
    """Exit status 0. Raises `TaskError` for runs that cannot be compared."""
    parser = console.parser("compare", __doc__)
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="run folder, first to last"
    )
    console.add_json(parser)
    parser.add_argument("--resamples", type=int, default=2000, help="of the bootstrap")
    console.add_seed(parser)
    console.add_family(parser)
    args = parser.parse_args(argv)
    use_families(args.family)
    found = {name: rows for run in args.runs for name, rows in models(run).items()}
    if len(found) < 2:
        raise TaskError(f"{args.runs[0]} has one model; give two runs to compare")
    first, *others = found
    draw = Draw(args.resamples, args.seed)
    made = [compare(first, other, found[first], found[other], draw) for other in others]
    if args.json:
        shown = [
            {**whole.to_json(), "parts": {n: c.to_json() for n, c in parts.items()}}
            for whole, parts in made
        ]
        print(json.dumps({"comparisons": shown}, ensure_ascii=False))
    else:
        print("\n\n".join(text(whole, parts) for whole, parts in made))
    return 0
