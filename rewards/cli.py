"""`assay score`: rows `{id, family, task, output}` in, scores out; JSONL, `-` for std streams.

Rows of family "table" hold `prediction_csv`, `prediction_b64` or `prediction_path` (or none, which
is no prediction) instead of `output`, and may name a `reading` (strict, release). Rows of family
"answer" hold `response: {"answer": …}`, and may name a `reading` (table3, release) and a `judge`
verdict (yes, no, null).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, TextIO, cast

from rewards.cdr.predictions import JSON, MIXED, profile_of
from rewards.cdr.refinement import score_refinement
from rewards.cdr.structured import score_structured
from rewards.dare.prediction import score_table_row
from rewards.krama.answer import score_row as score_answer_row
from rewards.task import Score, TaskError

Row = dict[str, Any]
Scorer = Callable[[Mapping[str, Any], str, Row], Score]


def _refinement(task: Mapping[str, Any], output: str, row: Row) -> Score:
    truncated, parsing = bool(row.get("truncated")), str(row.get("parsing") or "strict")
    if "reference_text" in task and profile_of(task) in (JSON, MIXED):  # of the semantic extension
        return score_structured(task, output, parsing, truncated=truncated)
    return score_refinement(task, output, parsing, truncated=truncated)


def _structured(task: Mapping[str, Any], output: str, row: Row) -> Score:
    parsing = str(row.get("parsing") or "strict")
    return score_structured(task, output, parsing, truncated=bool(row.get("truncated", False)))


def _table(task: Mapping[str, Any], output: str, row: Row) -> Score:
    return score_table_row(task, row)


def _answer(task: Mapping[str, Any], output: str, row: Row) -> Score:
    return score_answer_row(row)


def _answer_by(url: str, model: str) -> Scorer:
    """The scorer of family "answer" with an endpoint as its judge; the key is $ASSAY_JUDGE_KEY."""
    from rewards.krama.judge_endpoint import Endpoint, EndpointJudge

    judge = EndpointJudge(Endpoint(url, model, os.environ.get("ASSAY_JUDGE_KEY", "")))
    return lambda task, output, row: score_answer_row(row, judge)


# family -> scorer(task, output, whole row). A family adds one function and one line.
SCORERS: dict[str, Scorer] = {
    "refinement": _refinement,
    "structured": _structured,
    "answer": _answer,
    "table": _table,
}


def score_row(row: Row, scorers: Mapping[str, Scorer] = SCORERS) -> Row:
    """One result row. Raises `TaskError` or ValueError when the row itself is unusable."""
    family, task, output = row.get("family"), row.get("task"), row.get("output")
    if output is None and (family == "table" or "response" in row):  # files or typed values
        output = ""
    if not isinstance(family, str) or family not in scorers:
        raise TaskError(f"field 'family' is {family!r}; wanted one of {', '.join(scorers)}")
    if not isinstance(task, dict):
        raise TaskError("field 'task' is missing or not an object; give the task's gold there")
    if not isinstance(output, str):
        raise TaskError("field 'output' is missing or not a string; give the model's answer there")
    gold = cast("dict[str, Any]", task)
    return {"id": row.get("id"), **scorers[family](gold, output, row).to_json()}


def score_lines(lines: Iterable[str], scorers: Mapping[str, Scorer] = SCORERS) -> Iterator[Row]:
    """A result for every non-blank line, in order; a bad line gives `{id, error}`."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name: Any = None
        try:
            row: Any = json.loads(line)
            if not isinstance(row, dict):
                raise TaskError("wanted a JSON object")
            name = cast("Row", row).get("id")
            result = score_row(cast("Row", row), scorers)
        except json.JSONDecodeError as error:
            result = {"id": None, "error": f"line {number}: not valid JSON ({error.msg})"}
        except RecursionError:
            result = {"id": name, "error": f"line {number}: JSON nested too deep"}
        except ValueError as error:
            result = {"id": name, "error": f"line {number}: {error}"}
        yield result


def main(argv: list[str]) -> int:
    """Exit status 0, 2 when a file cannot be opened, 3 when some row could not be scored."""
    parser = argparse.ArgumentParser(prog="assay score", description=__doc__)
    parser.add_argument("input", nargs="?", default="-", help="rows, JSONL; - is standard input")
    parser.add_argument("--out", default="-", help="scores, JSONL; - is standard output")
    parser.add_argument("--judge-url", help="OpenAI-compatible endpoint that judges paraphrases")
    parser.add_argument("--judge-model", default="", help="the model to ask there")
    args = parser.parse_args(argv)
    scorers = SCORERS
    if args.judge_url:
        scorers = SCORERS | {"answer": _answer_by(args.judge_url, args.judge_model)}
    with ExitStack() as stack:
        try:
            source = _open(args.input, "r", sys.stdin, stack)
            target = _open(args.out, "w", sys.stdout, stack)
        except OSError as error:
            print(f"assay score: {error.filename}: {error.strerror}", file=sys.stderr)
            return 2
        bad = 0
        for result in score_lines(source, scorers):
            bad += "error" in result
            target.write(json.dumps(result) + "\n")
    if bad:
        print(f"assay score: {bad} rows could not be scored; see their 'error'", file=sys.stderr)
    return 3 if bad else 0


def _open(name: str, mode: str, standard: TextIO, stack: ExitStack) -> TextIO:
    if name == "-":
        return standard
    # A byte that is not UTF-8 spoils its own row's JSON, not the whole run.
    return cast("TextIO", stack.enter_context(open(name, mode, encoding="utf-8", errors="replace")))
