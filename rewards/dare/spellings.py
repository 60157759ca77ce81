# pandas ships no types for what is used here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
"""Harmless respellings of a prediction file, and what the published harness says of them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from assay.task import Answer, Task
from rewards.dare.prediction import read_gold, score_table
from rewards.dare.read import read_truth

FILE = "prediction.csv"


def spellings(task: Task) -> Mapping[str, Answer]:
    """The truth in other orders, number forms, quotes and line ends."""
    gold = read_gold(task.gold)
    truth = read_truth(gold.truth_csv)
    whole = _csv(truth)
    files = {
        "as it is": whole,
        "rows in other order": _csv(truth.iloc[::-1]),
        "columns in other order": _csv(truth[list(truth.columns)[::-1]]),
        "one more column": _csv(truth.assign(note="x")),
        "an index column": truth.to_csv(),
        "CRLF": whole.replace("\n", "\r\n"),
        "no last newline": whole.rstrip("\n"),
        "empty lines at the end": whole + "\n\n",
        "everything quoted": _csv(truth, quoting=1),
        "byte order mark": "\ufeff" + whole,
        "numbers by 17 digits": _csv(truth, float_format="%.17g"),
        "numbers by exponent": _csv(_floats(truth, gold.targets), float_format="%.17e"),
        "whole numbers as 1.0": _csv(_floats(truth, gold.targets)),
        "keys as 1.0": _csv(_floats(truth, gold.key_columns)),
        "plus signs": _csv(_signed(truth, gold.targets)),
        "spaces after commas": whole.replace(",", ", "),
        "tabs for commas": whole.replace(",", "\t"),
        "semicolons for commas": whole.replace(",", ";"),
        "names in upper case": _csv(truth.rename(columns=str.upper)),
        "code fence": f"```csv\n{whole}```\n",
    }
    return {n: Answer(files={FILE: t.encode("utf-8", "surrogatepass")}) for n, t in files.items()}


def benchmark(task: Task, answer: Answer) -> float | None:
    """The published harness on the same file."""
    return score_table(read_gold(task.gold), answer.files[FILE], "release").outcome


def _csv(frame: Any, **how: Any) -> str:
    made = io.StringIO()
    frame.to_csv(made, index=False, **how)
    return made.getvalue()


def _floats(frame: Any, names: tuple[str, ...]) -> Any:
    whole = [n for n in names if frame[n].dtype.kind in "iu"]
    return frame.astype(dict.fromkeys(whole, float))


def _signed(frame: Any, names: tuple[str, ...]) -> Any:
    made = frame.astype(object).copy()
    for name in names:
        if frame[name].dtype.kind in "iuf":
            made[name] = [f"{v:+.17g}" if v == v else "" for v in frame[name]]
    return made
