# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownVariableType=false
"""What `assay eval` does with its options: checks them, evaluates, prints and reports."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from configs.answers import EvaluationConfig
from train.cli.model_options import settle
from train.evaluation.answering import is_reference, is_remote, say_end
from train.evaluation.opening import files_of
from train.evaluation.results import text_table
from train.evaluation.run import evaluate
from train.report.write import write_page, write_rollouts

MOST_SHOWN = 10_000  # answers that a page is written of unasked; `assay view` writes any


def run(args: Any) -> int:
    """Evaluate; returns the exit status."""
    settle(args, EvaluationConfig, is_reference(args.model), temperature=0.0)
    args.n = args.n or 1
    remote = is_remote(args.model)
    args.name = args.name or model_name(args.model, args.endpoint_model if remote else "")
    aside = sys.stderr if args.json else sys.stdout  # --json: nothing but one object on stdout
    with contextlib.redirect_stdout(aside):
        data, given = evaluate(args)
    if len(data["rows"]) <= MOST_SHOWN:
        write_rollouts(args.out, files_of(args.tasks))
    page = write_page(args.out, data)
    if args.json:
        shown = {k: v for k, v in data.items() if k != "rows"}
        print(json.dumps(shown, ensure_ascii=False, default=str))
    else:
        for found in data["benchmarks"].values():
            print(f"{found['text']}\n")
        print(text_table(data))
        if short := data["tables"]["overall"].get("k_short"):
            print(f"{short} tasks lack an answer and are left out of avg@k and pass@k")
        print(f"results: {args.out / 'results.json'}\nreport: {page}")
    return say_end("assay eval", data["rows"], given)


def model_name(model: str, endpoint_model: str) -> str:
    """What the model is called in tables and file names."""
    kind, colon, rest = model.partition(":")
    if endpoint_model or not colon:
        return Path(endpoint_model or model).name
    return f"{kind}:{Path(rest).name}"
