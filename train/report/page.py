"""The report of one run as one HTML file: no scripts, nothing loaded from elsewhere, all text
escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from train.evaluation.results import asked_of, named_rows, shown
from train.report.benchmark_tables import own_tables
from train.report.costs import left_out, provenance, spent
from train.report.curves import training
from train.report.evaluated import evaluation
from train.report.markup import Links, document
from train.report.samples import samples
from train.report.signs import warnings_of


def render(
    title: str,
    data: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
    record: Mapping[str, Any],
    viewer: str = "",
) -> str:
    """The whole page from results.json ({} for a run without one), metrics.jsonl and run.json.
    `viewer`: a page of `assay view` beside it, which numbers and example answers link to."""
    links = Links(viewer, bool(data) and isinstance(data["rows"], list))
    sections = [
        *(evaluation(data, links) if data else ()),
        *(own_tables(data) if data else ()),
        warnings_of(metrics, record),
        training(metrics, links),
        spent(data, metrics, record),
        left_out(data, metrics, links),
        samples(named_rows(data), links) if data else "",
        provenance(data, record),
    ]
    return document(title, _subtitle(data, record), sections)


def _subtitle(data: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    said: list[str] = []
    if data:
        most = max((part.cell for part in shown(data)), key=lambda cell: cell["tasks"])
        said.append(asked_of(data, most))
    if "seed" in record:
        said.append(f"seed {record['seed']}")
    if record.get("starts"):
        said.append(f"started {record['starts'][0]}")
    return " · ".join(said)
