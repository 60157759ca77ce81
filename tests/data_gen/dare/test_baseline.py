"""A modelling task that no model can do is no task, also where few rows are asked."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest

from data_gen.dare.tabular import Candidate, propose, tabular_baseline
from data_gen.dare.targets import Looked


def proposed(seed: int, family: str, told: bool) -> Candidate:
    """150 rows, of which the features tell the target, or nothing at all."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({name: draw.normal(size=150) for name in ("a", "b", "c")})
    y: Any = (frame["a"] if told else pd.Series(draw.normal(size=150))) + draw.normal(0, 0.3, 150)
    frame["y"] = y if family == "reg" else np.where(y > 0, "yes", "no")
    kinds = {c: "numerical" if c != "y" or family == "reg" else "categorical" for c in frame}
    made = propose(Looked(frame, kinds), family, ["y"], Random(seed), mini=False)
    assert made is not None
    return replace(made, recipe={**made.recipe, "target": ["y"]})


@pytest.mark.parametrize("family", ["class", "reg"])
def test_a_target_that_nothing_tells_is_refused_and_one_that_is_told_is_kept(family: str) -> None:
    refused = [bool(tabular_baseline(proposed(seed, family, told=False))) for seed in range(3, 6)]
    assert all(refused)
    assert not any(tabular_baseline(proposed(seed, family, told=True)) for seed in range(2))
