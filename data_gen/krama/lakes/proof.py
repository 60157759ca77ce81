"""Gold proved: every value of a pipeline is computed a second time, or the task is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from data_gen.krama.lakes import sql
from data_gen.krama.lakes.listings import everything
from data_gen.krama.lakes.ops import Each, Fit, Op, sources_of
from data_gen.krama.lakes.pipeline import Question, subtask_key
from data_gen.proof.original import NotProvable
from data_gen.proof.shelf import Shelf
from data_gen.tally import DIFFERS, UNPROVABLE, Refusal

_TOLERANCE = 1e-7  # relative; two ways of adding up differ in the last digits


class Prover:
    """The second way over one lake. Close it after use."""

    def __init__(self, folder: Path) -> None:
        self.shelf = Shelf(folder)

    def close(self) -> None:
        self.shelf.con.close()

    def refusal(self, question: Question, values: Mapping[str, Any]) -> Refusal | None:
        """None when both ways agree on every step; else why the question is refused."""
        ops = question.ops
        if ops is None:
            return Refusal(UNPROVABLE, "a step without a typed form")
        try:
            found = sql.values(ops, self.shelf)
        except NotProvable as error:
            return Refusal(UNPROVABLE, str(error))
        last = len(ops) - 1
        for number, (op, second) in enumerate(zip(ops, found, strict=True)):
            first = values[subtask_key(number, last)]
            if not same(op, first, second):
                kind = question.steps[number].kind
                said = f"step {number + 1} ({kind}) is {first!r}, by SQL {second!r}"
                return Refusal(DIFFERS, said)
        return None

    def once(self, question: Question) -> bool:
        """Whether a file of the question is read by one library alone."""
        return any(source.path in self.shelf.once for source in sources_of(question.ops or ()))

    def everything(self, question: Question) -> list[list[Any]]:
        """The lists of everything that the question could be about, of a question that is
        proved."""
        return everything(question.ops or (), self.shelf)


def same(op: Op, first: Any, second: Any) -> bool:
    """Whether two ways gave one value. The order of a list matters where the step has one."""
    if not isinstance(first, list) or not isinstance(second, list):
        return not isinstance(first, list | tuple) and _alike(first, second)
    one, two = cast("list[Any]", first), cast("list[Any]", second)
    if not isinstance(op, Each | Fit):
        one, two = sorted(one, key=str), sorted(two, key=str)
    return len(one) == len(two) and all(map(_alike, one, two))


def _alike(one: Any, two: Any) -> bool:
    if isinstance(one, list) or isinstance(two, list):
        return False
    if isinstance(one, str) or isinstance(two, str):
        return one == two
    return math.isclose(float(one), float(two), rel_tol=_TOLERANCE, abs_tol=1e-12)
