"""What questions over lakes look like: which kinds are asked, of what, and what gold does.

`FULL` is the benchmark's form: plan and pipeline over a whole lake. `short` (short.py) is for small
models: one table, one or two steps, one script.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from data_gen.krama.lakes.lake import Lake
from data_gen.krama.lakes.pipeline import Question
from data_gen.krama.lakes.questions import KINDS

TYPES = (
    "numeric_exact",
    "string_exact",
    "list_exact",
    "numeric_approximate",
    "string_approximate",
    "list_approximate",
)


def _fits(lake: Lake, question: Question) -> str:
    return ""


def _script(lake: Lake, question: Question) -> str:
    return ""  # the pipeline that was run is gold


@dataclass(frozen=True)
class Form:
    """`fits` says why a draft is not asked, "" where it is; `script` gives what stands in gold in
    place of the pipeline (`Question.script`), "" where nothing does."""

    agent: str = "ds_guru_few_shot"
    kinds: tuple[str, ...] = tuple(KINDS)
    types: tuple[str, ...] = TYPES
    fits: Callable[[Lake, Question], str] = _fits
    script: Callable[[Lake, Question], str] = _script


FULL = Form()
