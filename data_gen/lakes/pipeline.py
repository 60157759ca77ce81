"""A gold pipeline: typed steps, each with its code, its words, and a sub-question; and its runs.

The code is the gold: what a step does is written once, and executed as it will be shown. It is
made of our own templates with quoted constants; nothing in it comes from a model.
"""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from data_gen.lakes.files import read_frame

StepKind = Literal[
    "load", "clean", "join", "filter", "group", "interpolate", "rank", "regress", "finish"
]  # fmt: skip


@dataclass(frozen=True)
class LakeStep:
    """One step. `code` binds its result to variables; `value` is the expression whose value
    answers `query`; `text` says in words what a correct pipeline must do here."""

    kind: StepKind
    text: str
    code: str
    query: str
    value: str
    answer_type: str
    optional: bool = False  # the answer must change when it is left out


@dataclass(frozen=True)
class Draft:
    """A question with its pipeline. `margin` is an expression of how far the answer is from
    another one, relative (ties, rounding); `context` are the words of the whole question."""

    question: str
    steps: tuple[LakeStep, ...]
    shape: str  # the template and its columns: two drafts of one shape are the same question
    margin: str = "1.0"

    def code(self, without: int = -1) -> str:
        """The whole script, as DS-Guru's contract wants it."""
        lines = ["import json", "", "import numpy as np", "import pandas as pd", ""]
        keys: list[str] = []
        last = len(self.steps) - 1
        for number, step in enumerate(self.steps):
            if number == without:
                continue
            lines.append(f"# {_on_one_line(step.text)}")
            lines += step.code.splitlines()
            name = "answer" if number == last else f"found_{number + 1}"
            lines.append(f"{name} = {step.value}")
            key = "main-task" if number == last else f"subtask-{number + 1}"
            keys.append(f"{key!r}: {name}")
        lines.append(f"print(json.dumps({{{', '.join(keys)}}}))")
        return "\n".join(lines) + "\n"


def _on_one_line(text: str) -> str:
    """The text with every line break and control character escaped: names and cells of foreign
    tables stand in it, and must not end the comment that they stand in."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class Frames:
    """Loads tables once and hands out copies, in file order or shuffled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, Any] = {}

    def load(self, expression: str, seed: int | None) -> Any:
        if expression not in self._known:
            self._known[expression] = read_frame(expression, self._folder)
        frame = self._known[expression]
        if seed is None:
            return frame.copy()
        return frame.sample(frac=1, random_state=seed).reset_index(drop=True)


class _Pandas:
    """pandas, but its readers give the frames at hand."""

    def __init__(self, frames: Frames, seed: int | None) -> None:
        self._pandas: Any = importlib.import_module("pandas")
        self._frames, self._seed = frames, seed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("read_"):
            return partial(self._read, name)
        return getattr(self._pandas, name)

    def _read(self, reader: str, path: str, **options: Any) -> Any:
        words = [repr(path), *(f"{k}={v!r}" for k, v in options.items())]
        return self._frames.load(f"pd.{reader}({', '.join(words)})", self._seed)


class PipelineFailed(ValueError):
    """The code raised, or printed no object."""


def run(draft: Draft, frames: Frames, seed: int | None = None, without: int = -1) -> dict[str, Any]:
    """The printed object of a draft's pipeline, and `margin`. Raises `PipelineFailed`."""
    import numpy as np

    printed: list[str] = []
    body = draft.code(without).partition("import pandas as pd\n")[2]
    space: dict[str, Any] = {
        "json": json, "np": np, "pd": _Pandas(frames, seed), "print": printed.append,
    }  # fmt: skip
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(body, "<pipeline>", "exec"), space)
            margin = float(eval(draft.margin, space))
        found: Any = json.loads(printed[0])
    except Exception as error:
        raise PipelineFailed(f"{type(error).__name__}: {error}") from None
    return {**cast("dict[str, Any]", found), "margin": margin}


def gold_subtasks(draft: Draft, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sub-tasks of a task's gold: one for every step, the last one being the question."""
    out: list[dict[str, Any]] = []
    last = len(draft.steps) - 1
    for number, step in enumerate(draft.steps):
        key = "main-task" if number == last else f"subtask-{number + 1}"
        out.append({"id": f"{number + 1}", "kind": step.kind, "step": step.text,
                    "query": step.query, "answer_type": step.answer_type,
                    "answer": values[key]})  # fmt: skip
    return out


def plan(draft: Draft, files: Sequence[str]) -> list[dict[str, Any]]:
    """The plan that goes with the code in DS-Guru's contract."""
    subs = [
        {"id": f"subtask-{n}", "query": s.query, "data_sources": list(files)}
        for n, s in enumerate(draft.steps[:-1], 1)
    ]
    main = {"id": "main-task", "query": draft.question, "data_sources": list(files)}
    return [{**main, "subtasks": subs}]
