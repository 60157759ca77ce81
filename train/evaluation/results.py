# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""results.json, read and shown: of one evaluation, or of several models side by side.

An evaluation writes `{"meta", "tables", "baselines", "rows": [row, …]}` (train/evaluation/run.py).
A run that evaluates several models gives `{"meta", "rows": {name: [row, …]}}`, and its tables are
computed here. A row has at least task_id, outcome, reward, why and tokens_out; see
train/evaluation/rows.py for the rest. `outcome` None counts nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from assay.task import TaskError
from rollouts.words.templates import lines
from train.evaluation.tables import (
    NONE,
    Cell,
    Comparison,
    Draw,
    aligned,
    compare_rows,
    in_order,
    number,
    percent,
    tables,
    with_interval,
)

Row = Mapping[str, Any]
TRAINED = ("untouched", "sft", "rl")  # in the order in which a run makes them
RESULTS, ROWS, RECORD = "results.json", "rows.jsonl", "eval.json"  # in an evaluation's folder
NEEDED = ("task_id", "outcome", "reward", "why", "tokens_out")
SHOWN_VALUES = 12  # of one slice in a table


class ResultsError(TaskError):
    """results.json that cannot be read; the message names the file, the row and the field."""


@dataclass(frozen=True)
class Shown:
    """One model's tables; `baseline`: no model answered."""

    name: str
    tables: Mapping[str, Any]
    baseline: bool = False

    @property
    def cell(self) -> Cell:
        return self.tables["overall"]


def read_results(path: Path) -> dict[str, Any]:
    """results.json, checked; raises `ResultsError`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ResultsError(
            f"{path}: cannot be read ({error.strerror}); give a run directory"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ResultsError(f"{path}: not valid JSON ({error})") from None
    return check_results(data, str(path))


def check_results(data: Any, where: str = "results") -> dict[str, Any]:
    """`data` if every row has what the tables need; raises `ResultsError` naming what lacks."""
    rows = data.get("rows") if isinstance(data, dict) else None
    if not isinstance(rows, dict | list):
        raise ResultsError(f'{where}: wanted {{"rows": {{name: [...]}}, "meta": {{...}}}}')
    for name, mine in named_rows(data).items():
        for place, row in enumerate(mine):
            lacks = [field for field in NEEDED if not isinstance(row, dict) or field not in row]
            if lacks:
                raise ResultsError(f"{where}: row {place} of {name!r} lacks {', '.join(lacks)}")
    return data


def named_rows(data: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Rows by the model's name, trained models last and in the order of their making."""
    rows = data["rows"]
    if isinstance(rows, list):
        return {str((data.get("meta") or {}).get("name") or "model"): rows}
    return {name: rows[name] for name in ordered(list(rows))}


def ordered(names: Sequence[str]) -> list[str]:
    """Baselines first, then gold, then what was trained; other names come last, as given."""

    def rank(name: str) -> int:
        if is_baseline(name):
            return 1 if name == "gold" else 0
        return 2 + TRAINED.index(name) if name in TRAINED else 9

    return sorted(names, key=rank)


def is_baseline(name: str) -> bool:
    return name in ("gold", "empty") or name.startswith("cheat:")


def draw_of(data: Mapping[str, Any]) -> Draw:
    meta = data.get("meta") or {}
    return Draw(int(meta.get("bootstrap", 2000)), int(meta.get("bootstrap_seed", 0)))


def shown(data: Mapping[str, Any]) -> list[Shown]:
    """Every model's tables, baselines first (but the one that was the model): as results.json holds
    them, else computed."""
    draw, models = draw_of(data), named_rows(data)
    stored = data.get("baselines") or {}
    found = [Shown(n, stored[n], True) for n in ordered(list(stored)) if n not in models]
    for name, rows in models.items():
        there = data.get("tables") if isinstance(data["rows"], list) else None
        made = there or tables([{"family": "", **row} for row in rows], draw)
        found.append(Shown(name, made, is_baseline(name) and not isinstance(data["rows"], list)))
    return found


def heldout(data: Mapping[str, Any]) -> bool:
    """Whether the tasks are held out; `meta.heldout` says so where an evaluation knows better."""
    return bool((data.get("meta") or {}).get("heldout", True))


def asked_of(data: Mapping[str, Any], cell: Cell) -> str:
    """What was asked: `200 held-out tasks`, `600 wordings of 200 test tasks of the release`."""
    named = (data.get("meta") or {}).get("tasks_are")
    called = named or ("held-out tasks" if heldout(data) else "tasks")
    if "rs@k" not in cell:
        return f"{cell['tasks']} {called}"
    return f"{cell['tasks']} wordings of {cell['rs@k']['n']} {called}"


def provenance(data: Mapping[str, Any]) -> list[str]:
    """Lines that say which split was evaluated, and what of it the model was trained on."""
    meta = data.get("meta") or {}
    said = (meta.get("trained_on") or {}).get("said")
    official = any(opened.get("benchmark") for opened in meta.get("opened") or ())
    words = (meta.get("words") or {}).items()
    shown = {name: one for name, one in words if official or one["source"] != "ours"}
    splits = [f"split: {split}" for split in meta.get("splits") or ()]
    return [*splits, *([said] if said else []), *lines(shown)]


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """What a training run logs of an evaluation: `outcome`, `reward`, and where tasks fall into
    classes `balanced` and `outcome/<class>`."""
    overall = tables(rows, Draw(resamples=1))["overall"]
    found = {"outcome": overall["mean_outcome"], "reward": overall["mean_reward"]}
    if "balanced" in overall:
        found["balanced"] = overall["balanced"]
    for label in overall.get("confusion", {}):
        own = [
            float(r["outcome"])
            for r in rows
            if r.get("label") == label and r["outcome"] is not None
        ]
        found[f"outcome/{label}"] = sum(own) / len(own) if own else None
    return {name: value for name, value in found.items() if value is not None}


def comparisons(data: Mapping[str, Any]) -> list[Comparison]:
    """untouched → sft, sft → rl, and so on along the trained rows that are there."""
    rows = named_rows(data)
    pairs = pairwise(n for n in TRAINED if n in rows)
    return [compare_rows(a, b, rows[a], rows[b], draw_of(data)) for a, b in pairs]


# --- text ----------------------------------------------------------------------------------------


def asked_as(parts: Sequence[Shown]) -> str:
    """What the counts of a table are of: tasks, or wordings where instances have several."""
    return "wordings" if any("rs@k" in part.cell for part in parts) else "tasks"


def results_table(parts: Sequence[Shown]) -> list[list[str]]:
    """Headings, and a line a model; columns that no model has a number for are left out."""
    several = asked_as(parts) == "wordings"
    ks = sorted({int(k) for part in parts for k in part.cell.get("pass@k", {})})
    lost = any(part.cell["no_outcome"] for part in parts)
    lines: list[dict[str, str]] = []
    for part in parts:
        cell = part.cell
        instances = str(cell["rs@k"]["n"]) if "rs@k" in cell else NONE
        line = {"model": part.name, **({"instances": instances} if several else {})}
        line |= {
            asked_as(parts): str(cell["tasks"]),
            "outcome [95 %]": with_interval(cell["mean_outcome"], cell["interval"]),
            "balanced": number(cell.get("balanced")),
            "reward": number(cell["mean_reward"]),
            "no answer": percent(cell.get("no_answer")),
            "cut": percent(cell.get("cut")),
            "tokens": number(cell.get("tokens_out"), "{:.0f}"),
        }
        line |= {k: number((cell.get(k) or {}).get("value")) for k in ("rs@k", "ocs@k")}
        line |= {f"pass@{k}": number(cell.get("pass@k", {}).get(str(k))) for k in ks}
        line |= {"no outcome": str(cell["no_outcome"])} if lost else {}
        lines.append(line | {"cost $": number(cell.get("cost"), "{:.4f}")})
    there = {key for part in parts for key, value in part.cell.items() if value is not None}
    needs = {"balanced": "balanced", "rs@k": "rs@k", "ocs@k": "ocs@k", "cost $": "cost"}
    heads = [name for name in lines[0] if needs.get(name, "n") in there]
    return [heads, *([line[name] for name in heads] for line in lines)]


@dataclass(frozen=True)
class Slice:
    """One value of one slice of a family. `cells`: one for each model, None where it has none."""

    family: str
    name: str
    value: str
    cells: Sequence[Cell | None]

    @property
    def tasks(self) -> int:
        return max(cell["tasks"] for cell in self.cells if cell)

    def said(self, families: int) -> str:
        """Its name and value in words."""
        head = f"{self.family}: {self.name}" if families > 1 else self.name
        return f"{head} = {self.value}"


def slices_of(parts: Sequence[Shown], data: Mapping[str, Any]) -> list[Slice]:
    """Slices by family and name; of one with many values those with the most tasks. A slice that
    has one value alone says nothing and is left out, and so is one that parts the tasks (of the
    last model) as an earlier one does."""
    made: list[Slice] = []
    rows = named_rows(data).get(parts[-1].name, [])
    for family in dict.fromkeys(f for part in parts for f in part.tables["by_slice"]):
        of = [part.tables["by_slice"].get(family, {}) for part in parts]
        seen: list[set[frozenset[str]]] = []
        for name in dict.fromkeys(n for mine in of for n in mine):
            values = dict.fromkeys(v for mine in of for v in mine.get(name, {}))
            parted = _parted(rows, family, name)
            if len(values) < 2 or (parted and parted in seen):
                continue
            seen.append(parted)
            found = [Slice(family, name, v, [m.get(name, {}).get(v) for m in of]) for v in values]
            kept = sorted(found, key=lambda one: -one.tasks)[:SHOWN_VALUES]
            made += sorted(kept, key=lambda one: in_order(one.value))
    return made


def _parted(rows: Sequence[Row], family: str, name: str) -> set[frozenset[str]]:
    """The sets of tasks that share a value of a slice."""
    found: dict[str, set[str]] = {}
    for row in rows:
        if (row.get("family") or "") == family and name in (row.get("slices") or {}):
            found.setdefault(str(row["slices"][name]), set()).add(str(row["task_id"]))
    return {frozenset(tasks) for tasks in found.values()}


def slice_table(parts: Sequence[Shown], data: Mapping[str, Any]) -> list[list[str]]:
    """Headings and lines: slices, mean outcomes of the models side by side, and RS@K where
    instances were asked in several ways."""
    found, several = slices_of(parts, data), [n for n, p in enumerate(parts) if "rs@k" in p.cell]
    heads = [f"{parts[n].name} {at_k(parts[n].cell)}" for n in several]
    lines = [["slice", asked_as(parts), *(part.name for part in parts), *heads]]
    families = len({one.family for one in found})
    for one in found:
        outcomes = [number(cell["mean_outcome"] if cell else None) for cell in one.cells]
        wholes = [number((one.cells[n] or {}).get("rs@k", {}).get("value")) for n in several]
        lines.append([one.said(families), str(one.tasks), *outcomes, *wholes])
    return lines


def at_k(cell: Mapping[str, Any]) -> str:
    """RS@K with its K."""
    return f"RS@{cell['rs@k']['k']}"


def curve_table(parts: Sequence[Shown]) -> list[list[str]]:
    """Headings and lines: RS@1 to RS@K of the models, where instances were asked in K ways."""
    curves = [(part.name, part.cell.get("rs_curve") or {}) for part in parts]
    ks = sorted({int(k) for _, curve in curves for k in curve})
    having = [(name, curve) for name, curve in curves if curve]
    lines = [["wordings", *(name for name, _ in having)]]
    for k in ks if len(ks) > 1 else ():
        lines.append([str(k), *(number(curve.get(str(k))) for _, curve in having)])
    return lines


def family_table(parts: Sequence[Shown]) -> list[list[str]]:
    """Headings and lines by family, where there are several."""
    lines = [["family", asked_as(parts), *(part.name for part in parts)]]
    families = list(dict.fromkeys(f for part in parts for f in part.tables["by_family"]))
    for family in families if len(families) > 1 else ():
        cells = [part.tables["by_family"].get(family) for part in parts]
        most = max(cell["tasks"] for cell in cells if cell)
        outcomes = [
            "–" if c is None else with_interval(c["mean_outcome"], c["interval"]) for c in cells
        ]
        lines.append([family, str(most), *outcomes])
    return lines


def text_table(data: Mapping[str, Any]) -> str:
    """The results, families and slices, who is taken for what, and paired comparisons."""
    parts = shown(data)
    out = aligned(results_table(parts))
    counts = sorted({asked_of(data, part.cell) for part in parts if not part.baseline})
    out.append(
        f"{' or '.join(counts)}; outcome is the benchmark's metric, reward what "
        "RL sees; intervals are clustered by source"
    )
    out += provenance(data)
    if failed := sum(part.cell["no_outcome"] for part in parts):
        out.append(f"without an outcome, and counted nowhere: {failed} answers")
    for table in (family_table(parts), curve_table(parts), slice_table(parts, data)):
        out += ["", *aligned(table)] if len(table) > 1 else []
    width = max(len(part.name) for part in parts)
    for part in parts:
        for label, said in part.cell.get("confusion", {}).items():
            counted = ", ".join(f"{n} {name}" for name, n in said.items())
            out.append(f"said by {part.name:<{width}}  where gold is {label}: {counted}")
    for c in comparisons(data):
        out.append(c.line())
    return "\n".join(out)
