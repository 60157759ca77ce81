"""Gold twice: what is right is proved, and whatever breaks the first computation is refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("duckdb")

from dare_mutants import SERIES, TABULAR  # noqa: E402
from dare_worlds import built, days, houses, source, tabular  # noqa: E402
from front import command  # noqa: E402

from data_gen.dare.layout import csv_bytes  # noqa: E402
from data_gen.dare.proof import prove  # noqa: E402
from data_gen.dare.series import COVARIATES, ENTITIES, Shape  # noqa: E402
from data_gen.proof.original import Original  # noqa: E402
from data_gen.tally import DIFFERS, UNPROVABLE, Refusal  # noqa: E402

main = command("tasks")
SHAPES = (Shape(), Shape(ENTITIES, ("hoehe",)), Shape(COVARIATES, ("temperatur", "hoehe")))


def code(refusal: Refusal | None) -> str:
    return refusal.code if refusal else ""


@pytest.mark.parametrize("kind", ["csv", "sqlite", "parquet"])
@pytest.mark.parametrize("model", ["Ridge", "DecisionTreeRegressor"])
def test_right_gold_is_proved(tmp_path: Path, kind: str, model: str) -> None:
    origin = houses(tmp_path)
    for fill in ("mean", "median", "most_frequent"):
        files = tabular(origin, kind, model_type=model, imputer_type=fill)
        assert prove(origin.original, files) is None


@pytest.mark.parametrize("name", sorted(TABULAR))
def test_every_mutant_of_a_table_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = houses(tmp_path)
    files = TABULAR[name](origin, monkeypatch)
    assert code(prove(origin.original, files)) == DIFFERS


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.kind)
@pytest.mark.parametrize(
    "resample",
    [None, ("1W", "sum"), ("1W", "mean"), ("1W", "count"), ("1M", "mean"), ("1D", "count")],
    ids=str,
)
def test_right_series_are_proved(
    tmp_path: Path,
    shape: Shape,
    resample: tuple[str, str] | None,
    monkeypatch: pytest.MonkeyPatch,
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
    assert found.rows == [] and len(found.refused) == 1 and found.refused[0].code == DIFFERS
    assert not list((tmp_path / "out").rglob("train.csv"))


def test_what_the_second_reader_cannot_decide_is_not_proved(tmp_path: Path) -> None:
    origin = houses(tmp_path)
    files = tabular(origin)
    assert code(prove(None, files)) == UNPROVABLE
    text = (tmp_path / "haeuser.csv").read_text()
    lines = text.splitlines()
    unsure = tmp_path / "unsure.csv"  # all numbers of the file are whole, or like 1.234
    kept = [lines[0], *(";".join(_unsure(line)) for line in lines[1:])]
    unsure.write_text("\n".join(kept) + "\n")
    said = prove(Original(unsure), files)
    assert code(said) == UNPROVABLE and "allow two readings" in str(said)
    assert code(prove(Original(tmp_path / "notes.docx"), files)) == UNPROVABLE


def _unsure(line: str) -> list[str]:
    place, area, _, quote, rooms, age, level = line.split(";")
    return [place, area.split(",")[0], "1.234", quote.replace(",", "."), rooms, age, level[:1]]


def test_another_table_proves_nothing(tmp_path: Path) -> None:
    origin = houses(tmp_path)
    files = tabular(origin)
    other = source(tmp_path, "other.csv", "a;b\n1,5;2\n2,5;3\n")
    assert code(prove(other.original, files)) == UNPROVABLE


def test_a_build_without_duckdb_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "t.csv").write_bytes(csv_bytes(houses(tmp_path).load()))
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert main(["dare", "--tables", str(tmp_path / "in"), "--out", str(tmp_path / "out")]) != 0
    assert "[build]" in capsys.readouterr().err


def test_a_database_that_differs_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seam of the builder: the reason is kept, the folder is not made."""
    from data_gen.dare.database import Settings, Unproved, write_proved

    origin = houses(tmp_path)
    files = tabular(origin)
    settings = Settings(tmp_path / "out", 0, False, frozenset())
    write_proved(origin, settings, "right", files)
    assert (tmp_path / "out" / "databases" / "right").is_dir()
    truth = files["verify/ground_truth.csv"].replace(b"\n1,", b"\n1,9")
    with pytest.raises(Unproved, match="second computation"):
        write_proved(origin, settings, "wrong", files | {"verify/ground_truth.csv": truth})
    with pytest.raises(Unproved, match="no original"):
        write_proved(replace(origin, original=None), settings, "wrong", files)
    assert not (tmp_path / "out" / "databases" / "wrong").exists()
