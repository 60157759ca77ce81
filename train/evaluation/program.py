# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownVariableType=false
"""What `assay eval` does with its options: checks them, evaluates, prints and reports."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.loader import ConfigError
from train.evaluation.answering import URLS, is_reference
from train.evaluation.opening import files_of
from train.evaluation.results import text_table
from train.evaluation.run import evaluate
from train.report.write import write_page, write_rollouts

MOST_SHOWN = 10_000  # answers that a page is written of unasked; `assay view` writes any
CUT_OFTEN = 0.1  # share of answers cut by the token limit from which that is said


def run(args: Any) -> int:
    """Evaluate; returns the exit status."""
    settle(args)
    aside = sys.stderr if args.json else sys.stdout  # --json: nothing but one object on stdout
    with contextlib.redirect_stdout(aside):
        data = evaluate(args)
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
        print(f"results: {args.out / 'results.json'}\nreport: {page}")
    _say_cut(data)
    return say_unscored(data["rows"])


def settle(args: Any) -> None:
    """Check what the options say and fill in what follows from them. Raises `ConfigError`."""
    remote = args.model.startswith(URLS)
    if args.samples < 1:
        raise ConfigError(f"--samples {args.samples}: give 1 or more")
    if remote and not args.endpoint_model:
        raise ConfigError(f"--model {args.model}: say which model there: --endpoint-model NAME")
    if args.workers < 1:
        raise ConfigError(f"--workers {args.workers}: set 1 or more")
    for name, least in (("tries", 1), ("snippet_rows", 0), ("snippet_tokens", 50)):
        if (given := getattr(args, name)) < least:
            raise ConfigError(f"--{name.replace('_', '-')} {given}: give {least} or more")
    if args.temperature < 0:
        raise ConfigError(f"--temperature {args.temperature}: give 0 (greedy) or more")
    if is_reference(args.model) and args.samples > 1:
        raise ConfigError(f"--samples {args.samples}: {args.model} gives the same answer each time")
    args.request_fields = request_fields(args.request)
    args.price = prices(args.price)
    args.name = args.name or model_name(args.model, args.endpoint_model if remote else "")


def model_name(model: str, endpoint_model: str) -> str:
    """What the model is called in tables and file names."""
    kind, colon, rest = model.partition(":")
    if endpoint_model or not colon:
        return Path(endpoint_model or model).name
    return f"{kind}:{Path(rest).name}"


def request_fields(text: str) -> dict[str, Any]:
    """`--request` as fields. Raises `ConfigError` for anything but a JSON object."""
    try:
        fields: Any = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--request {text}: not valid JSON ({error})") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"--request {text}: wanted a JSON object, such as '{{\"top_k\": 1}}'")
    return fields


def prices(text: str) -> tuple[float, ...]:
    """`IN,OUT` in dollars a million tokens, () for none. Raises `ConfigError`."""
    if not text:
        return ()
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if len(found) != 2 or min(found) < 0:
        raise ConfigError(f"--price {text}: wanted two numbers, such as 0.15,0.60")
    return found


def _say_cut(data: Mapping[str, Any]) -> None:
    cut = data["tables"]["overall"].get("cut") or 0.0
    if cut >= CUT_OFTEN:
        print(
            f"assay eval: {cut:.0%} of the answers were cut by the token limit; raise "
            "--max-new-tokens to let them end",
            file=sys.stderr,
        )


def say_unscored(rows: Sequence[Mapping[str, Any]]) -> int:
    """Exit status: 3 when answers have no outcome, which is said with the reason of the first."""
    broken = [row for row in rows if row["outcome"] is None]
    if not broken:
        return 0
    first = broken[0]
    print(
        f"assay eval: {len(broken)} of {len(rows)} answers have no outcome and count nowhere; the "
        f"first: {first['task_id']}: {first['failure'] or first['why']}; the same command asks "
        "them again",
        file=sys.stderr,
    )
    return 3
