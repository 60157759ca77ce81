"""Gold twice: what is right is proved, and whatever breaks the first computation is refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("duckdb")

from dare_mutants import SERIES, TABULAR
from dare_worlds import built, days, houses, source, tabular
from front import command

from data_gen.dare.database import Settings, prove, write_proved
from data_gen.dare.layout import csv_bytes
from data_gen.dare.series import COVARIATES, ENTITIES, Shape
from data_gen.dare.sources import Source
from data_gen.proof.original import Original
from data_gen.tally import DIFFERS, UNPROVABLE, Refused

SHAPES = (Shape(), Shape(ENTITIES, ("hoehe",)), Shape(COVARIATES, ("temperatur", "hoehe")))
RESAMPLED = (None, ("1W", "sum"), ("1W", "count"), ("1M", "mean"), ("1D", "count"))


def code(original: Original | None, files: dict[str, bytes]) -> str:
    """The code of what the proof has against a database, "" for one that is proved."""
    try:
        prove(original, files)
    except Refused as refused:
        return refused.why.code
    return ""


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return houses(tmp_path_factory.mktemp("houses"))


@pytest.fixture(scope="module")
def right(origin: Source) -> dict[str, bytes]:
    return tabular(origin)


@pytest.mark.parametrize("fill", ["mean", "median", "most_frequent"])
@pytest.mark.parametrize(
    ("kind", "model"),
    [("csv", "Ridge"), ("sqlite", "DecisionTreeRegressor"), ("parquet", "Ridge")],
)
def test_right_gold_is_proved(origin: Source, kind: str, model: str, fill: str) -> None:
    files = tabular(origin, kind, model_type=model, imputer_type=fill)
    assert code(origin.original, files) == ""


@pytest.mark.parametrize("name", sorted(TABULAR))
def test_every_mutant_of_a_table_is_refused(
    origin: Source, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert code(origin.original, TABULAR[name](origin, monkeypatch)) == DIFFERS


@pytest.mark.parametrize(
    ("shape", "resample"),
    [(SHAPES[i % 3], one) for i, one in enumerate(RESAMPLED)] + [(s, None) for s in SHAPES[1:]],
    ids=str,
)
def test_right_series_are_proved(
    tmp_path: Path, shape: Shape, resample: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = built(days(tmp_path), tmp_path / "out", monkeypatch, resample, shape)
    assert found.refused == [] and len(found.rows) == 1


@pytest.mark.parametrize("name", sorted(SERIES))
def test_every_mutant_of_a_series_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resample, mutant = SERIES[name]
    mutant(monkeypatch)
    found = built(days(tmp_path), tmp_path / "out", monkeypatch, resample)
    assert found.rows == [] and [one.code for one in found.refused] == [DIFFERS]
    assert not list((tmp_path / "out").rglob("train.csv"))


def test_what_the_second_reader_cannot_decide_is_not_proved(
    origin: Source, right: dict[str, bytes], tmp_path: Path
) -> None:
    assert origin.original is not None
    lines = origin.original.path.read_text("utf-8").splitlines()
    unsure = [lines[0]]  # all numbers of the file are whole, or like 1.234
    for line in lines[1:]:
        place, area, _, quote, rooms, age, level = line.split(";")
        cells = [place, area.split(",")[0], "1.234", quote.replace(",", "."), rooms, age, level[:1]]
        unsure.append(";".join(cells))
    (tmp_path / "unsure.csv").write_text("\n".join(unsure) + "\n")
    other = source(tmp_path, "other.csv", "a;b\n1,5;2\n2,5;3\n")
    for original in (
        None,
        Original(tmp_path / "unsure.csv"),
        Original(tmp_path / "notes.docx"),
        other.original,
    ):
        assert code(original, right) == UNPROVABLE


def test_a_database_that_differs_is_not_written(
    origin: Source, right: dict[str, bytes], tmp_path: Path
) -> None:
    settings = Settings(tmp_path / "out", 0, False, frozenset())
    write_proved(origin, settings, "right", right)
    truth = right["verify/ground_truth.csv"].replace(b"\n1,", b"\n1,9")
    with pytest.raises(Refused, match=DIFFERS):
        write_proved(origin, settings, "wrong", right | {"verify/ground_truth.csv": truth})
    with pytest.raises(Refused, match=UNPROVABLE):
        write_proved(replace(origin, original=None), settings, "wrong", right)
    assert [p.name for p in (tmp_path / "out" / "databases").iterdir()] == ["right"]


def test_a_build_without_duckdb_names_the_extra(
    origin: Source,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "t.csv").write_bytes(csv_bytes(origin.load()))
    monkeypatch.setitem(sys.modules, "duckdb", None)
    words = ["dare", "--tables", str(tmp_path / "in"), "--out", str(tmp_path / "out")]
    assert command("tasks")(words) != 0
    assert "[build]" in capsys.readouterr().err
