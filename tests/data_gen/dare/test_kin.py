"""Tables drawn from one another are on one side of a split."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pd = pytest.importorskip("pandas")

from data_gen.dare.build import question_rows  # noqa: E402
from data_gen.dare.database import Built  # noqa: E402
from data_gen.dare.sources import fingerprints  # noqa: E402
from data_gen.groups import kin_of_databases  # noqa: E402


def table(seed: int, rows: int = 300) -> pd.DataFrame:
    rng = random.Random(seed)
    return pd.DataFrame({c: [rng.gauss(0, 1) for _ in range(rows)] for c in "abcde"})


def database(
    top: Path, name: str, frame: pd.DataFrame, file: str = "train_v2.csv"
) -> dict[str, str]:
    folder = top / name / "source"
    folder.mkdir(parents=True)
    if file.endswith(".parquet"):
        frame.to_parquet(folder / file, index=False)
    else:
        frame.to_csv(folder / file, index=False)
    return {"file_path": name, "source": name, "table_group": f"group-{name}"}


def test_some_rows_of_a_table_in_another_order_are_its_kin(tmp_path: Path) -> None:
    whole = table(0)
    drawn = whole.sample(frac=0.6, random_state=1)[list("ecbda")]
    rows = [
        database(tmp_path, "whole", whole),
        database(tmp_path, "drawn", drawn, "train.csv"),
        database(tmp_path, "packed", drawn.head(150), "train_v2.parquet"),
        database(tmp_path, "other", table(1)),
    ]
    found = kin_of_databases(rows, tmp_path)
    assert found["group-whole"] == found["group-drawn"] == found["group-packed"]
    assert found["group-other"] == "group-other"
    assert sorted(found) == sorted(row["table_group"] for row in rows)


def test_covariates_in_files_of_their_own_tell_kin(tmp_path: Path) -> None:
    whole = table(0).assign(firm=[f"Firm {i // 10}" for i in range(300)])
    first = database(tmp_path, "first", whole[["firm", "a"]], "train.csv")
    copy = whole.sample(frac=0.8, random_state=1).drop(columns="firm")
    rows = [first, database(tmp_path, "copy", copy), database(tmp_path, "other", table(1))]
    found = kin_of_databases(rows, tmp_path)
    assert found["group-first"] != found["group-copy"]  # one measured column says too little
    whole[["firm", "b", "c", "d"]].to_csv(
        tmp_path / "first" / "source" / "covariates_train.csv", index=False
    )
    found = kin_of_databases(rows, tmp_path)
    assert found["group-first"] == found["group-copy"] != found["group-other"]


def test_every_database_of_a_table_is_read(tmp_path: Path) -> None:
    whole = table(0).assign(firm=[f"Firm {i // 10}" for i in range(300)])
    first = database(tmp_path, "first", whole[["firm", "a"]], "train.csv")
    second = {**database(tmp_path, "second", whole, "train.csv"), "source": "first"}
    second["table_group"] = first["table_group"]
    copy = whole.sample(frac=0.8, random_state=1).drop(columns="firm")
    found = kin_of_databases([first, second, database(tmp_path, "copy", copy)], tmp_path)
    assert found["group-first"] == found["group-copy"]


def test_a_table_under_other_labels_in_another_unit_is_kin(tmp_path: Path) -> None:
    whole = table(0).assign(firm=[f"Firm {i // 10}" for i in range(300)])
    copy = whole.sample(frac=0.8, random_state=1).rename(columns=str.upper)
    copy["FIRM"] = pd.factorize(copy["FIRM"])[0] + 100
    copy[["A", "B"]] *= 0.3048
    rows = [
        database(tmp_path, "whole", whole),
        database(tmp_path, "copy", copy, "train.csv"),
        database(tmp_path, "other", table(1)),
    ]
    found = kin_of_databases(rows, tmp_path)
    assert found["group-whole"] == found["group-copy"] != found["group-other"]


def test_a_part_of_a_table_asks_nothing_that_the_table_has_asked(tmp_path: Path) -> None:
    whole = table(0)
    found: list[Built] = []
    for name, frame in (("whole", whole), ("part", whole.head(180)), ("other", table(1))):
        row = {**database(tmp_path, name, frame), "task": "CF", "target": ["a"]}
        found.append(Built(name, [{**row, "features": list("bcde")}], fingerprints(frame)))
    rows, repeats = question_rows(found, tmp_path, 1)
    assert [row["file_path"] for row in rows] == ["whole", "other"] and len(repeats) == 1
    found[1].rows[0]["target"] = ["b"]  # another question of the same table
    rows, repeats = question_rows(found, tmp_path, 1)
    assert len(rows) == 3 and repeats == []
    assert rows[0]["table_group"] == rows[1]["table_group"] != rows[2]["table_group"]
