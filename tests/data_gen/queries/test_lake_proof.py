"""Gold proved twice: both ways agree on right pipelines, and a wrong reader or step is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lake_files import open_lake, shelf_of
from places import ROOT, tables

pytest.importorskip("pandas")
pytest.importorskip("duckdb")

from data_gen.certificate import DIFFERS, UNPROVABLE, Refusal
from data_gen.queries import ops as o
from data_gen.queries.lake import Lake
from data_gen.queries.lake_proof import refusal
from data_gen.queries.ops import Op, Source
from data_gen.queries.pipeline import LakeStep, Question, written
from data_gen.queries.pipeline_runner import Pandas, answer


def question(lake: Lake, ops: Sequence[Op], answer_type: str = "numeric_exact") -> Question:
    """The pipeline of these steps, in words that do not matter."""

    def loads(source: Source, name: str) -> str:
        (table,) = [t for t in lake.tables if t.path == source.path]
        return table.reading.code(name)

    steps: list[LakeStep] = []
    for op in ops:
        code, value = written(op, loads)
        steps.append(LakeStep("finish", "Step", code, "?", value, answer_type, False, op))
    return Question("What?", tuple(steps), "shape")


def values_of(code: str, folder: Path) -> dict[str, Any]:
    """What a pipeline prints beside a lake that lies in `folder`/data."""
    here = os.getcwd()
    os.chdir(folder)
    try:
        body = code.partition("import pandas as pd\n")[2]
        return answer(body, "1.0", Pandas({}, None))
    finally:
        os.chdir(here)


def opened(folder: Path) -> Lake:
    """The lake in `folder`/data."""
    shutil.copytree(ROOT / "tests/data/queries/lake", folder / "data")
    lake = open_lake(folder / "data")
    assert len(lake.tables) == 3, lake.refused
    return lake


PRICES = o.Source("preise.csv", columns=("Name", "Art", "Preis"))
LEVELS = o.Source("preise.csv", columns=("Name", "Art", "Stufe"))
SITES = o.Source("sites.csv", columns=("Place", "Rain", "Year"))
AREA = o.Join(o.Source("register.tsv", columns=("Objekt", "Fläche")), "Name", "Objekt", "Fläche")
OFFICE = o.Join(o.Source("register.tsv", columns=("Objekt", "Amt")), "Name", "Objekt", "Amt", False)
TOWN = o.Split("Place", "after_comma", "town")
GROUP = o.Group(("Art",), (False,), "Preis", "median")

PRICED: list[o.Op] = [o.Load(PRICES), o.Clean("Preis")]
GROUPED = [*PRICED, GROUP]
RAINED: list[o.Op] = [o.Load(SITES), o.Clean("Rain")]
YEARLY = [*RAINED, o.Years("Year"), o.Group(("Year",), (True,), "Rain", "mean")]
SAMPLED: list[o.Op] = [o.Load(SITES), o.Clean("Samples")]
LEVELLED: list[o.Op] = [o.Load(LEVELS), o.Clean("Stufe")]
GOOD: dict[str, list[o.Op]] = {
    "mean": [*PRICED, o.Figure("Preis", "mean", 2)],
    "total": [*SAMPLED, o.Figure("Samples", "total", 0)],
    "rain": [*RAINED, o.Figure("Rain", "mean", 3)],
    "wind": [
        *(o.Load(SITES), o.Clean("Wind"), o.Limit("Wind", "<=", 20.0)),
        o.Figure("Wind", "std", 3),
    ],
    "keep": [*PRICED, o.Keep("Art", "Büro"), o.Figure("Preis", "median", 2)],
    "join": [o.Load(PRICES), AREA, o.Figure("Fläche", "mean", 3)],
    "best": [*GROUPED, o.Best(True)],
    "top": [*GROUPED, o.Top(3, True)],
    "each": [*GROUPED, o.Each()],
    "above": [*GROUPED, o.Above()],
    "least": [*PRICED, o.Least(("Art",), (False,), 12), GROUP, o.Each()],
    "halves": [*RAINED, TOWN, o.Group(("town",), (False,), "Rain", "mean"), o.Best(False)],
    "years": [*YEARLY, o.Interpolate(0.25, 2)],
    "nth": [*GROUPED, o.Nth(2, True)],
    "spread": [*GROUPED, o.Spread(2)],
    "change": [*YEARLY, o.Change(1992, 2003, 1)],
    "share": [*SAMPLED, TOWN, o.Share("town", "Ely", "Samples", 2)],
    "above own": [*SAMPLED, TOWN, o.AboveOwn("town", "Samples")],
    "two joins": [
        *(o.Load(PRICES), AREA, OFFICE),
        *(o.Group(("Amt",), (False,), "Fläche", "mean"), o.Each()),
    ],
    "portion": [*LEVELLED, o.Portion("Stufe", ">", 5.0, 1)],
    "difference": [*LEVELLED, o.Difference("Art", "Hof", "Büro", "Stufe", "mean", 3)],
    "correlation": [*PRICED, o.Clean("Stufe"), o.Correlate("Preis", "Stufe")],
    "fit": [*PRICED, AREA, o.Fit("Preis", "Fläche", True)],
}
# what is broken in the code of a pipeline, by what: each must be found by the second way
BROKEN = [
    json.loads(line)
    for line in (ROOT / "tests/data/queries/broken_pipelines.jsonl").read_text("utf-8").splitlines()
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return opened(tmp_path_factory.mktemp("proof"))


def found(lake: Lake, name: str, old: str = "", new: str = "") -> tuple[Refusal | None, Any]:
    """(why the second way refuses, values of the first), with the code changed by a pattern."""
    asked = question(lake, GOOD[name])
    code, count = re.subn(old, new.replace("\\", r"\\"), asked.code()) if old else (asked.code(), 1)
    values = values_of(code, lake.folder.parent)
    assert count and "error" not in values, (old, values, code)
    return refusal(asked, values, shelf_of(lake.folder)), values


@pytest.mark.parametrize(("name", "answer"), tables("queries")["right_pipelines"].items())
def test_right_pipelines_are_proved(lake: Lake, name: str, answer: Any) -> None:
    why, values = found(lake, name)
    assert why is None
    words = isinstance(answer, str) or (isinstance(answer, list) and isinstance(answer[0], str))
    assert values["main-task"] == (answer if words else pytest.approx(answer, rel=1e-9))


@pytest.mark.parametrize("row", BROKEN, ids=lambda row: row["what"])
def test_a_wrong_reader_or_step_is_refused(lake: Lake, row: dict[str, str]) -> None:
    why, values = found(lake, row["of"], row["code"], row["becomes"])
    assert why and why.code == DIFFERS and why.what.startswith("step "), (why, values)


def test_what_the_second_way_cannot_decide_is_refused(lake: Lake) -> None:
    mean = question(lake, GOOD["mean"])
    untyped = replace(mean, steps=(replace(mean.steps[0], op=None),))
    no_number = question(lake, [o.Load(PRICES), o.Clean("Name"), o.Figure("Name", "mean", 2)])
    for one in (untyped, no_number):
        said = refusal(one, {}, shelf_of(lake.folder))
        assert said and said.code == UNPROVABLE


def test_the_second_way_shares_no_code_and_no_reader_with_the_first() -> None:
    folder = ROOT / "data_gen" / "queries"
    # the last is Python's own parser, one thread at a time
    allowed = {"assay.errors", "assay.syntax", "data_gen.queries.ops"}
    own = sorted((ROOT / "data_gen" / "proof").glob("*.py"))
    allowed |= {f"data_gen.proof.{path.stem}" for path in own}
    # of a package's frame, whose rows stand in no file, pandas reads what it wrote; a model is
    # refitted with the library that fitted it
    apart = {"forms": {"pandas"}, "proof": {"numpy"}}
    dare = ROOT / "data_gen" / "dare" / "proof.py"  # which also says why, and scores gold
    for path in (folder / "ops.py", folder / "duckdb_sql.py", *own, dare):
        text = path.read_text("utf-8").replace("data_gen.queries import ", "data_gen.queries.")
        modules = set(re.findall(r"^ *(?:import|from) ([\w.]+)", text, re.M))
        more = {"data_gen.certificate", "rewards.dare.score"} if path == dare else set[str]()
        own_code = {
            m for m in modules if m.startswith(("assay", "data_gen", "rewards", "rollouts"))
        }
        assert own_code <= allowed | more, path.stem
        modules |= set(re.findall(r"\"(pandas|numpy)\"", text))  # imported by name
        assert modules & {"pandas", "numpy"} <= apart.get(path.stem, set()), path.stem
