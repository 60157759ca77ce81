"""Error analyses of a run's CDR-Bench predictions: what `assay report` adds."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.rows import read_rows
from rewards.cdr.errors import MODES, analyse, error_text
from rewards.cdr.release_files import write_json


def write_errors(run: Path) -> str:
    """Analyse every predictions file below `run/data/evaluation`; returns the text to print, ""
    when there is none."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((run / "data" / "evaluation").glob("*/*/predictions_*.jsonl")):
        name = f"{path.parent.parent.name} / {path.parent.name} / {path.stem}"
        found[name] = analyse([row for _, row in read_rows(path)])
    if not found:
        return ""
    if len(found) > 1:
        found["all"] = _together(list(found.values()))
    write_json(run / "errors.json", found)
    (run / "errors.html").write_text(_page(found), "utf-8", "backslashreplace")
    texts = [f"{name}\n{error_text(rows)}" for name, rows in found.items()]
    return "\n".join(texts) + f"\nerrors: {run / 'errors.html'}"


def _together(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The failure modes of all tracks, as the paper's Fig. 13b to d show them."""
    modes = {name: sum(part["failure_modes"].get(name, 0) for part in parts) for name in MODES}
    return {
        "predictions": sum(part["predictions"] for part in parts),
        "failures": sum(part["failures"] for part in parts),
        "failure_modes": {name: count for name, count in modes.items() if count},
        "operator_progress": None,
        "stop_behaviour": {},
        "order_confusion": {"n": 0},
    }


def _page(found: dict[str, dict[str, Any]]) -> str:
    heads = "".join(f"<th>{html.escape(m)}</th>" for m in MODES)
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{r['predictions']}</td><td>{r['failures']}</td>"
        + "".join(f"<td>{r['failure_modes'].get(m, 0)}</td>" for m in MODES)
        + "</tr>"
        for name, r in found.items()
    )
    details = html.escape(json.dumps(found, indent=2, ensure_ascii=False))
    return (
        "<!doctype html><meta charset=utf-8><title>Errors</title>"
        "<style>body{font:15px sans-serif;margin:2em}td,th{padding:.2em .6em;text-align:right}"
        "td:first-child{text-align:left}</style><h1>Failure modes</h1>"
        f"<table><tr><th>predictions</th><th>n</th><th>wrong</th>{heads}</tr>{rows}</table>"
        f"<h2>All analyses</h2><pre>{details}</pre>\n"
    )
