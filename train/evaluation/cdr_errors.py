"""Error analyses of a run's CDR-Bench predictions: what `assay report` adds."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

from assay.rows import read_rows
from rewards.cdr.errors import MODES, analyse, error_text
from rewards.cdr.files import write_json


def write_errors(run: Path) -> str:
    """Analyse every predictions file below `run/data/evaluation`; returns the text to print, ""
    when there is none."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((run / "data" / "evaluation").glob("*/*/predictions_*.jsonl")):
        name = f"{path.parent.parent.name} / {path.parent.name} / {path.stem}"
        found[name] = analyse([row for _, row in read_rows(path)])
    if not found:
        return ""
    write_json(run / "errors.json", found)
    (run / "errors.html").write_text(_page(found), "utf-8", "backslashreplace")
    texts = [f"{name}\n{error_text(rows)}" for name, rows in found.items()]
    return "\n".join(texts) + f"\nerrors: {run / 'errors.html'}"


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
