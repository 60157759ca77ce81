"""Series in one file and in several."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("duckdb")

from dare_worlds import built, days  # noqa: E402

from data_gen.dare.layout import read_entries, write_question_list  # noqa: E402
from data_gen.dare.series import COVARIATES, ENTITIES, Shape  # noqa: E402


@pytest.mark.parametrize("kind", [ENTITIES, COVARIATES])
def test_files_joined_are_the_one_file(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = ("hoehe",) if kind == ENTITIES else ("temperatur", "hoehe")
    found = built(days(tmp_path), tmp_path / "one", monkeypatch, None, Shape())
    other = built(days(tmp_path), tmp_path / "two", monkeypatch, None, Shape(kind, moved))
    for out, rows in (("one", found.rows), ("two", other.rows)):
        write_question_list(tmp_path / out, rows)
    (whole,), (parted,) = (read_entries(tmp_path / out) for out in ("one", "two"))
    assert parted.recipe["contain_multiple_files"] and not whole.recipe["contain_multiple_files"]

    def read(entry: Path, name: str) -> pd.DataFrame:
        return pd.read_csv(io.BytesIO((entry / "source" / name).read_bytes()))

    train = read(parted.folder, "train.csv")
    assert not set(moved) & set(train.columns)
    keys = ["station"] if kind == ENTITIES else ["tag", "station"]
    beside = "entities.csv" if kind == ENTITIES else "covariates_train.csv"
    joined = train.merge(read(parted.folder, beside), on=keys, validate="many_to_one")
    pd.testing.assert_frame_equal(
        joined, read(whole.folder, "train.csv")[list(joined.columns)], check_like=True
    )
    row = other.rows[0]
    assert beside in row["needed_files_v1"] and beside in row["needed_files_v2"]
    assert f"`{beside}`" in row["question_v1"] and f"`{beside}`" in row["question_v2"]
    assert parted.needed("v1") and parted.needed("v2")


def test_forecasts_are_not_handed_later_covariates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = Shape(COVARIATES, ("temperatur", "hoehe"))
    found = built(days(tmp_path), tmp_path / "out", monkeypatch, None, shape)
    (row,) = found.rows
    assert "covariates_val.csv" in row["needed_files_v1"]
    assert "covariates_val.csv" not in row["needed_files_v2"]
    home = tmp_path / "out" / "databases" / row["file_path"]
    recipe = json.loads((home / "verify" / "all_metadata.json").read_text())["question"]
    past = pd.read_csv(home / "source" / "covariates_train.csv")
    assert pd.to_datetime(past["tag"]).max() < pd.Timestamp(recipe["prediction_starting_time"])


def test_a_resampled_question_says_how_a_bin_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = built(days(tmp_path), tmp_path / "out", monkeypatch, ("1W", "mean"), Shape())
    question = found.rows[0]["question_v2"]
    assert "'1W'" in question and "'mean'" in question and "Sunday" in question
