"""Published tables are known by content alone, and nothing else is taken for one."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
np = pytest.importorskip("numpy")

from make_published import TEXTS, row_of, texts_of  # noqa: E402
from places import SHARED  # noqa: E402

from data_gen.dare import published  # noqa: E402
from data_gen.dare.layout import read_entries  # noqa: E402
from data_gen.dare.published import Published, same_as_published, sketches_of  # noqa: E402
from data_gen.dare.sources import sources, tables_in  # noqa: E402


def table(rows: int = 300, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    days = pd.date_range("2019-01-01", periods=rows).strftime("%Y-%m-%d")
    return pd.DataFrame(
        {
            "price": rng.normal(100, 20, rows).round(2),
            "area": rng.integers(1000, 90_000, rows),
            "day": days,
            "name": [f"house {n}" for n in rng.integers(0, 200, rows)],
            "rooms": rng.integers(1, 6, rows),
        }
    )


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Any:
    """One published table, a made one."""
    frame = table()
    kept = (Published("houses_reg", len(frame), tuple(sketches_of(frame))),)
    monkeypatch.setattr(published, "published_tables", lambda: kept)
    return frame


@pytest.mark.parametrize(
    "changed",
    [
        lambda f: f,
        lambda f: f.sort_values("price"),
        lambda f: f.sample(frac=1, random_state=1)[["name", "area", "day", "price"]],
        lambda f: f.rename(columns=str.upper).assign(extra=range(len(f))),
        lambda f: f.sample(frac=0.97, random_state=2),
        lambda f: f.astype(str),
        lambda f: f.assign(day=pd.to_datetime(f["day"])),
        lambda f: f.assign(day=pd.to_datetime(f["day"]).dt.strftime("%d.%m.%Y")),
        lambda f: f.assign(name=f["name"].str.upper(), area=f["area"].astype(float)),
    ],
    ids=["same", "sorted", "shuffled", "renamed", "shorter", "texts", "days", "german", "upper"],
)
def test_copies_are_known_however_they_are_kept(known: Any, changed: Any) -> None:
    assert "houses_reg" in same_as_published(changed(known))


def test_a_decimal_comma_copy_is_refused_with_the_reason_unless_told(
    known: Any, tmp_path: Path
) -> None:
    known.to_csv(tmp_path / "mine.csv", sep=";", decimal=",", index=False)
    ((_, load),) = tables_in(tmp_path / "mine.csv")
    with pytest.raises(ValueError, match=r"houses_reg.*published: false in tables\.yaml"):
        load()
    (tmp_path / "tables.yaml").write_text('"mine.csv": {published: false}')
    ((_, load),) = tables_in(tmp_path / "mine.csv")
    assert len(load()) == len(known)


def test_other_tables_of_the_same_kind_are_none(known: Any) -> None:
    assert same_as_published(table(seed=1).drop(columns="day")) == ""
    counted = pd.DataFrame({"id": range(300), "rooms": known["rooms"], "one": [1.5] * 300})
    assert same_as_published(counted) == ""


def test_the_name_of_a_file_says_nothing(tmp_path: Path) -> None:
    for name in ("diabetes", "wine", "titanic", "thyroid"):
        table(150, random.Random(name).randrange(999)).to_csv(tmp_path / f"{name}.csv", index=False)
    found = list(sources([str(tmp_path)]))
    assert [s.slug for s in found] == ["diabetes", "thyroid", "titanic", "wine"]
    assert all(len(s.load()) == 150 for s in found)


OFFICIAL = SHARED / "dare" / "tasks"
at_hand = pytest.mark.skipif(not OFFICIAL.is_dir(), reason="published databases are not at hand")


@at_hand
def test_what_is_shipped_was_made_from_the_published_databases() -> None:
    shipped = {row["name"]: row for row in json.loads(published.FILE.read_text("utf-8"))}
    assert len(shipped) == 162
    for entry in read_entries(OFFICIAL):
        made = row_of(entry, {})
        assert {**shipped[entry.name], "files": []} == made
        assert "published evaluation database" in published.evaluation_database(entry)


@at_hand
def test_texts_that_are_shipped_were_made_from_the_published_databases() -> None:
    shipped = {row["name"]: row for row in json.loads(TEXTS.read_text("utf-8"))}
    for row in texts_of(read_entries(OFFICIAL)):
        assert row["questions"] == shipped[row["name"]]["questions"]


def test_what_is_shipped_holds_hashes_only() -> None:
    found = published.published_tables()
    assert len(found) >= 150 and all(p.columns for p in found)
    assert all(0 <= h < 1 << 32 for p in found for c in p.columns for h in c)
    hashed = re.compile(r"[0-9a-f]{16}")
    rows = json.loads(TEXTS.read_text("utf-8"))
    kept = [h for row in rows for h in (*row["questions"], *row["lines"])]
    assert len(rows) == 162 and all(hashed.fullmatch(h) for h in kept)
