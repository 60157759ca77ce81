"""The reference runs on foreign tables in the sandbox alone."""

from __future__ import annotations

import ast
import asyncio
from typing import Any

import pytest
from places import ROOT

from assay.task import TaskError
from data_gen.dare.reference_run import run_jobs
from rollouts.sandbox.model import Result, SandboxError

HOME = ROOT / "data_gen" / "dare"


def test_the_builder_neither_imports_the_reference_nor_runs_code_of_its_own() -> None:
    """Its text goes into the sandbox; what is imported here would run on the host."""
    for path in sorted(HOME.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").endswith("reference_solution"), path
            if isinstance(node, ast.Import):
                assert all("reference_solution" not in a.name for a in node.names), path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("exec", "eval", "compile"), path


@pytest.mark.parametrize(
    ("status", "kind"), [("sandbox_error", SandboxError), ("error", TaskError)]
)
def test_a_sandbox_that_fails_is_no_reason_to_refuse_a_table(
    status: Any, kind: type[Exception]
) -> None:
    class Refusing:
        async def run(self, *_: object) -> Result:
            return Result(status, why="because")

    pool: Any = Refusing()
    with pytest.raises(kind, match="because"):
        asyncio.run(run_jobs(pool, {}, {}))


def test_what_the_reference_learnt_is_what_scikit_learn_says() -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("sklearn")
    from data_gen.dare.reference_solution import fit, learnt, predict, solve

    train = pd.DataFrame(
        {"a": [1.0, 2.0, None, 6.0], "w": ["x", None, "y", "x"], "y": [1.0, 2.0, 3.0, 5.0]}
    )
    recipe = {
        "selected_features": ["w", "a"],
        "column_type_inference": {"a": "numerical", "w": "categorical", "y": "numerical"},
        "target": ["y"],
        "imputer_type": "median",
        "model_type": "Ridge",
        "random_state": 0,
        "problem_type": "regression",
    }
    model = fit(train, recipe)
    known = learnt(model, recipe, len(train))
    fill, mean, spread = known["numeric"]["a"]
    assert (fill, mean) == (2.0, 2.75) and spread == pytest.approx(1.9202, abs=1e-4)  # population
    assert known["categorical"]["w"] == ["x", ["x", "y"]] and known["rows"] == 4
    test = train.drop(columns="y").assign(row_id=range(1, 5))
    assert predict(model, test, recipe).equals(solve(train, test, recipe))
