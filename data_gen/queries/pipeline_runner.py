"""Runs of one gold pipeline, inside the sandbox.

This file's text is what runs there: it imports nothing of Assay. `job.json` holds the code of every
run and the seed its tables are shuffled with; `answers.json` comes back.
"""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import json
import warnings
from functools import partial
from typing import Any


class Pandas:
    """pandas, but a table is read once and handed out as a copy, in file order or shuffled."""

    def __init__(self, known: dict[str, Any], seed: int | None) -> None:
        import pandas

        self._pandas: Any = pandas
        self._known, self._seed = known, seed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("read_"):
            return partial(self._read, name)
        if name == "DataFrame":
            return self._made
        return getattr(self._pandas, name)

    def _made(self, *given: Any, **options: Any) -> Any:
        """Rows that the code itself took out of a file."""
        return self._handed(self._pandas.DataFrame(*given, **options))

    def _read(self, reader: str, path: str, *more: Any, **options: Any) -> Any:
        key = f"{reader} {path} {sorted(options.items(), key=str)}"  # `more`: an open database
        if key not in self._known:
            self._known[key] = getattr(self._pandas, reader)(path, *more, **options)
        found = self._known[key]
        if isinstance(found, list):  # the tables of a page
            return [self._handed(frame) for frame in found]
        return self._handed(found)

    def _handed(self, frame: Any) -> Any:
        if self._seed is None:
            return frame.copy()
        return frame.sample(frac=1, random_state=self._seed).reset_index(drop=True)


def by_trend(names: list[Any], first: int, last: int) -> bool:
    """Whether most of the names at these places stand there in their own order, too, from one end
    or the other: of years, that is what a trend lets one guess."""
    asked, ordered = {*names[first:last]}, sorted({*names})
    ends = ({*ordered[first:last]}, {*ordered[::-1][first:last]})
    return any(2 * len(asked & end) > len(asked) for end in ends)


def answer(code: str, margin: str, pandas: Any) -> dict[str, Any]:
    """The object that the code prints, with `margin`; {"error": …} where it does not."""
    import numpy as np

    printed: list[str] = []
    space: dict[str, Any] = {"json": json, "np": np, "pd": pandas, "print": printed.append}
    space["by_trend"] = by_trend
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(code, "<pipeline>", "exec"), space)
            found: Any = json.loads(printed[0])
            return {**found, "margin": float(eval(margin, space))}
    except Exception as error:  # a step left out may break a later one: that too is an answer
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def main() -> None:
    with open("job.json", encoding="utf-8") as file:
        job = json.load(file)
    known: dict[str, Any] = {}
    answers = [answer(r["code"], job["margin"], Pandas(known, r["seed"])) for r in job["runs"]]
    with open("answers.json", "w", encoding="utf-8") as file:
        json.dump(answers, file)


if __name__ == "__main__":
    main()
