"""Why an answer failed, decided without a judge (specification notes, section 11)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from assay.family import THOUGHT
from assay.task import RIGHT
from rewards.krama.answer import as_list, close, number, rounding_slip, score_response

_SCALES = (100.0, 0.01, 1000.0, 0.001, 1e6, 1e-6, -1.0)


def category(
    gold: Mapping[str, Any],
    answer: Any,
    outcome: float | None,
    ended: str,
    code: str,
    gold_files: Sequence[str],
) -> str:
    """Name why an answer failed (specification notes, section 11): right, partly, no_reply,
    thought_did_not_end, contract_broken, code_fails, time_limit, gold_file_never_opened,
    ran_no_answer, wrong_type, scale_slip, rounding_slip, other_wrong, recalled or infrastructure.

    `ended` is the agent's own word on how its last try went.
    """
    if outcome is None:
        return "infrastructure"
    if outcome >= RIGHT:
        return "right"
    if _recalled(gold, answer):
        return "recalled"
    if outcome > 0:
        return "partly"
    by_end = {"no_reply": "no_reply", "no_code": "contract_broken", "timeout": "time_limit"}
    by_end |= {THOUGHT: THOUGHT}
    if answer is None:
        if ended in by_end:
            return by_end[ended]
        if ended in ("error", "memory", "disk"):
            return "code_fails"
        return "contract_broken" if ended == "ran" else "ran_no_answer"
    return _wrong_value(gold, answer, code, gold_files)


def _recalled(gold: Mapping[str, Any], answer: Any) -> bool:
    """Whether an answer is right for the task as it was before its lake was obscured."""
    plain = gold.get("plain_answer")
    if plain is None or answer is None:
        return False
    found = score_response(str(gold["answer_type"]), plain, {"answer": answer}).outcome
    return found is not None and found >= RIGHT


def _wrong_value(gold: Mapping[str, Any], answer: Any, code: str, gold_files: Sequence[str]) -> str:
    if gold_files and code and not any(_opened(name, code) for name in gold_files):
        return "gold_file_never_opened"
    target, kind = gold["answer"], str(gold["answer_type"])
    want, said = number(target), number(answer)
    if kind.startswith("numeric") and want is not None and said is None:
        return "wrong_type"
    if (kind.startswith("list") or isinstance(target, list)) and as_list(answer) is None:
        return "wrong_type"
    if want is not None and said is not None:
        if rounding_slip(target, answer) == 1.0 or (want and abs(said - want) < 0.01 * abs(want)):
            return "rounding_slip"
        if any(close(said * factor, want) for factor in _SCALES):
            return "scale_slip"
    return "other_wrong"


def _opened(name: str, code: str) -> bool:
    """Whether a file can be named by the code: its base name, or the steady parts of it."""
    base = name.rpartition("/")[2]
    if base in code:
        return True
    steady = [p for p in re.split(r"\d+", base.rpartition(".")[0] or base) if len(p) > 3]
    return bool(steady) and all(part in code for part in steady)
