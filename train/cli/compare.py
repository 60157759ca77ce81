# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownVariableType=false
"""`assay compare RUN RUN...`: paired differences of outcome on the same tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay import console
from assay.family import use_families
from assay.task import TaskError
from rollouts.words.templates import in_short
from train.evaluation.results import is_baseline, named_rows, read_results
from train.evaluation.tables import (
    Comparison,
    Draw,
    Pair,
    aligned,
    compare_pairs,
    groups_of,
    in_order,
    instances_of,
    mean,
    pairs_of,
    signed,
    wordings,
)

# settings that a comparison of two evaluations does not name: what was compared, and how it ran
OF_ITSELF = (
    *("weights", "tokenizer", "families", "model", "endpoint_model", "dtype", "engine"),
    *("device", "limit"),
)
Rows = Sequence[Mapping[str, Any]]
Model = tuple[Rows, Mapping[str, Any]]  # what answered in a run, and the run's `meta`


def models(run: Path) -> dict[str, Model]:
    """What answered in a run, by the name it is compared under. Raises `TaskError`."""
    data = read_results(run / "results.json" if run.is_dir() else run)
    rows, meta = named_rows(data), data.get("meta") or {}
    found = {name: mine for name, mine in rows.items() if not is_baseline(name)} or rows
    named = {name: str(run) if len(found) == 1 else f"{run}:{name}" for name in found}
    return {named[name]: (mine, meta) for name, mine in found.items()}


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
    """One pair of runs. `by` has, of outcomes under "" and of RS@K and OCS@K where instances were
    asked in several ways and where there are groups, the comparison of all tasks and those by
    family and slice; `differ` says which settings of the two evaluations differ; `tokens` are means
    of an answer, before and after."""

    by: Mapping[str, tuple[Comparison, Parts]]
    tokens: Sequence[float | None]
    differ: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        found = {
            name: {**whole.to_json(), "parts": {n: part.to_json() for n, part in parts.items()}}
            for name, (whole, parts) in self.by.items()
        }
        return {**found.pop(""), **found, "tokens_out": self.tokens, "differ": self.differ}


def compare(before: str, after: str, found: Mapping[str, Model], draw: Draw) -> Compared:
    """Over all shared tasks, and by family and slice. Raises `TaskError` without a shared task."""
    (old, one), (new, other) = found[before], found[after]
    pairs = {"": pairs_of(old, new)}
    if not pairs[""]:
        raise TaskError(
            f"{before} and {after} have no task with an outcome in common; compare runs on the "
            "same tasks"
        )
    # each instance then has the same wordings in both
    shared = {str(row["task_id"]) for row in old} & {str(row["task_id"]) for row in new}
    first, last = ([r for r in rows if str(r["task_id"]) in shared] for rows in (old, new))
    if (k := wordings(first)) > 1:
        pairs[f"RS@{k}"] = pairs_of(instances_of(first), instances_of(last))
    pairs[f"OCS@{k}"] = pairs_of(groups_of(first), groups_of(last))
    made: dict[str, tuple[Comparison, Parts]] = {}
    for name, mine in pairs.items():
        parts = {n: part for n, part in by_part(mine).items() if len(part) < len(mine)}
        compared = {
            n: compare_pairs(before, after, parts[n], draw) for n in sorted(parts, key=in_order)
        }
        made |= {name: (compare_pairs(before, after, mine, draw), compared)} if mine else {}
    tokens = [mean(row.get("tokens_out") for row in rows) for rows in (first, last)]
    return Compared(made, tokens, differing(one, other))


def asked_how(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What of an evaluation's record says how the model was asked, for a comparison of two."""
    settings: Mapping[str, Any] = meta.get("settings") or {}
    found = {name: value for name, value in settings.items() if name not in OF_ITSELF}
    return found | {"thinking": meta.get("thinking"), "words": in_short(meta.get("words"))}


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
    (whole, parts), wholes = found.by[""], {n: one for n, one in found.by.items() if n}
    lines = [whole.line(), *(f"{name} {one.said()}" for name, (one, _) in wholes.items())]
    if None not in found.tokens:
        lines.append("tokens an answer: {:.0f} → {:.0f}".format(*found.tokens))
    if found.differ:
        lines.append(f"asked differently: {'; '.join(found.differ)}")
    heads = ["part", "tasks", "sources", "outcome [95 %]", "gained", "lost", "McNemar p"]
    table = [[*heads, *(f"{name} [95 %]" for name in wholes)]]
    for name, c in parts.items():
        numbers = [str(c.gained), str(c.lost), f"{c.p:.2g}"]
        more = [signed(of[name].outcome) if name in of else "–" for _, of in wholes.values()]
        table.append([name, str(c.n), str(c.sources), signed(c.outcome), *numbers, *more])
    return "\n".join([*lines, *(aligned(table) if parts else ())])


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
    made = [compare(first, other, found, draw) for other in others]
    if args.json:
        shown = [pair.to_json() for pair in made]
        print(json.dumps({"comparisons": shown}, ensure_ascii=False))
    else:
        print("\n\n".join(map(text, made)))
    return 0
