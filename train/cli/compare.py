# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownVariableType=false
"""`assay compare RUN RUN...`: paired differences of outcome on the same tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay import console
from assay.family import use_families
from assay.task import TaskError
from train.evaluation.comparing import Comparison, Pair, compare_pairs, pairs_of, signed
from train.evaluation.results import is_baseline, named_rows, read_results
from train.evaluation.settings import asked_how
from train.evaluation.show import aligned
from train.evaluation.tables import Draw, groups_of, in_order, instances_of, mean, wordings

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Model:
    """What answered in a run, and the run's `meta`."""

    rows: Rows
    meta: Mapping[str, Any]


def models(run: Path) -> dict[str, Model]:
    """What answered in a run, by the name it is compared under. Raises `TaskError`."""
    path = run / "results.json" if run.is_dir() else run
    data = read_results(path)
    meta: dict[str, Any] = data.get("meta") or {}
    rows = named_rows(data)
    found = {name: mine for name, mine in rows.items() if not is_baseline(name)} or dict(rows)
    if len(found) == 1:
        return {str(run): Model(mine, meta) for mine in found.values()}
    return {f"{run}:{name}": Model(mine, meta) for name, mine in found.items()}


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


Parts = dict[str, Comparison]


@dataclass(frozen=True)
class Compared:
    """One pair of runs. `whole` and `parts` (by family and slice) compare outcomes; `wholes` holds
    the same for RS@K and OCS@K, where instances were asked in several ways and where there are
    groups; `differ` says which settings of the two evaluations differ; `tokens` are means of an
    answer, before and after."""

    whole: Comparison
    parts: Parts
    wholes: Mapping[str, tuple[Comparison, Parts]]
    tokens: tuple[float | None, float | None]
    differ: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        return {
            **_json(self.whole, self.parts),
            **{name: _json(*found) for name, found in self.wholes.items()},
            "tokens_out": list(self.tokens),
            "differ": list(self.differ),
        }


def _json(whole: Comparison, parts: Parts) -> dict[str, Any]:
    return {**whole.to_json(), "parts": {name: c.to_json() for name, c in parts.items()}}


def compare(before: str, after: str, old: Rows, new: Rows, draw: Draw) -> Compared:
    """Over all shared tasks, and by family and slice. Raises `TaskError` without a shared task."""
    pairs = pairs_of(old, new)
    if not pairs:
        raise TaskError(
            f"{before} and {after} have no task with an outcome in common; compare runs on the "
            "same tasks"
        )
    whole, parts = _compared(before, after, pairs, draw)
    # each instance then has the same wordings in both
    shared = {str(row["task_id"]) for row in old} & {str(row["task_id"]) for row in new}
    one, other = ([r for r in rows if str(r["task_id"]) in shared] for rows in (old, new))
    k = wordings(one)
    made: dict[str, tuple[Comparison, Parts]] = {}
    for name, rows_of in ((f"RS@{k}", instances_of), (f"OCS@{k}", groups_of)):
        if k > 1 or rows_of is groups_of:
            found = pairs_of(rows_of(one), rows_of(other))
            made |= {name: _compared(before, after, found, draw)} if found else {}
    tokens = (mean(r.get("tokens_out") for r in one), mean(r.get("tokens_out") for r in other))
    return Compared(whole, parts, made, tokens, ())


def _compared(
    before: str, after: str, pairs: Sequence[Pair], draw: Draw
) -> tuple[Comparison, Parts]:
    parts = {n: p for n, p in by_part(pairs).items() if len(p) < len(pairs)}
    return compare_pairs(before, after, pairs, draw), {
        name: compare_pairs(before, after, parts[name], draw)
        for name in sorted(parts, key=in_order)
    }


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """`thinking: off → on` and so on: how two evaluations of results.json asked differently."""
    old, new = asked_how(one), asked_how(other)
    return [
        f"{name}: {_word(old.get(name))} → {_word(new.get(name))}"
        for name in sorted(old.keys() & new.keys())
        if old.get(name) != new.get(name)
    ]


def _word(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "–" if value is None else "on" if value else "off"
    return str(value)


def text(found: Compared) -> str:
    """The line of all tasks, what differs, and a table by family and slice."""
    lines = [found.whole.line()]
    for name, (whole, _) in found.wholes.items():
        lines.append(f"{name} {whole.said()}")
    if None not in found.tokens:
        lines.append("tokens an answer: {:.0f} → {:.0f}".format(*found.tokens))
    if found.differ:
        lines.append(f"asked differently: {'; '.join(found.differ)}")
    return "\n".join([*lines, *_table(found)])


def _table(found: Compared) -> list[str]:
    heads = ["part", "tasks", "sources", "outcome [95 %]", "gained", "lost", "McNemar p"]
    lines = [[*heads, *(f"{name} [95 %]" for name in found.wholes)]]
    for name, c in found.parts.items():
        numbers = [str(c.gained), str(c.lost), f"{c.p:.2g}"]
        wholes = [
            signed(parts[name].outcome) if name in parts else "–"
            for _, parts in found.wholes.values()
        ]
        lines.append([name, str(c.n), str(c.sources), signed(c.outcome), *numbers, *wholes])
    return aligned(lines) if len(lines) > 1 else []


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
    found = {name: one for run in args.runs for name, one in models(run).items()}
    if len(found) < 2:
        raise TaskError(f"{args.runs[0]} has one model; give two runs to compare")
    first, *others = found
    draw = Draw(args.resamples, args.seed)
    made = [(other, _pair(first, other, found, draw)) for other in others]
    if args.json:
        shown = [pair.to_json() for _, pair in made]
        print(json.dumps({"comparisons": shown}, ensure_ascii=False))
    else:
        print("\n\n".join(text(pair) for _, pair in made))
    return 0


def _pair(before: str, after: str, found: Mapping[str, Model], draw: Draw) -> Compared:
    old, new = found[before], found[after]
    made = compare(before, after, old.rows, new.rows, draw)
    return replace(made, differ=differing(old.meta, new.meta))
