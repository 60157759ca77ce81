"""Splits by table, licences by name, repeats by what is asked."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from assay.task import TaskError
from data_gen.dare.build import without_repeats
from data_gen.licences import allowed, family, is_open, read_licences
from data_gen.splits import SPLITS, sides_of

GROUPS = [f"{n:064x}" for n in range(21)]


def split(groups: Iterable[str], heldout: float | None, validation: float | None) -> dict[str, str]:
    return sides_of(groups, heldout, validation, lambda group: group[-8:])


def count(splits: dict[str, str]) -> list[int]:
    return [list(splits.values()).count(n) for n in SPLITS]


def test_a_share_of_the_tables_is_held_out_and_another_validated_on() -> None:
    assert count(split(GROUPS, 1 / 7, 0.1)) == [16, 2, 3]
    assert split(GROUPS, 1 / 7, 0.1) == split(reversed(GROUPS), 1 / 7, 0.1)
    held = {g for g, s in split(GROUPS, 1 / 7, 0.0).items() if s == "heldout"}
    assert held == {g for g, s in split(GROUPS, 1 / 7, 0.3).items() if s == "heldout"}
    assert count(split(GROUPS[:2], 1 / 7, 0.1)) == [1, 0, 1]  # one is left to train on
    assert count(split(GROUPS[:3], 0.9, 0.9)) == [1, 0, 2]
    assert count(split(GROUPS[:1], 0.5, 0.5)) == [1, 0, 0]
    assert count(split(GROUPS, 0.0, 0.0)) == [21, 0, 0]


def test_some_are_validated_on_by_default_from_ten_tables_on() -> None:
    assert count(split(GROUPS[:9], None, None)) == [7, 0, 2]
    assert count(split(GROUPS[:10], None, None)) == [7, 1, 2]


@pytest.mark.parametrize(
    ("text", "name", "free"),
    [
        ("CC0: Public Domain", "cc0", True),
        ("CC BY 4.0", "cc-by", True),
        ("Attribution 4.0 International (CC BY 4.0)", "cc-by", True),
        ("CC BY-SA 4.0", "cc-by-sa", True),
        ("CC-BY-NC-SA-4.0", "cc-by-nc-sa", False),
        ("CC BY-NC-SA 4.0", "cc-by-nc-sa", False),
        ("Attribution-NonCommercial 4.0 International (CC BY-NC 4.0)", "cc-by-nc", False),
        ("CC BY-ND 4.0", "cc-by-nd", False),
        ("CC BY-NC-ND 4.0", "cc-by-nc-nd", False),
        ("MIT", "mit", True),
        ("GPL-2.0-or-later", "gpl", True),
        ("Database: Open Database, Contents: Database Contents", "odbl", True),
        ("Data files © Original Authors", "data files © original authors", False),
        ("submitted under permit", "submitted under permit", False),
        ("unknown", "unknown", False),
    ],
)
def test_licences_by_their_names(text: str, name: str, free: bool) -> None:
    assert (family(text), is_open(text)) == (name, free)


def test_only_the_licences_that_are_wanted() -> None:
    assert allowed("CC0: Public Domain", read_licences(["CC0,MIT"]))
    assert not allowed("CC BY-NC 4.0", read_licences(["CC BY"]))
    assert allowed("MIT License", ["open"]) and not allowed("as the R package x", ["open"])
    with pytest.raises(TaskError, match="empty name"):
        read_licences(["MIT,"])


def test_databases_that_ask_the_same_are_counted_and_left_out() -> None:
    row = {"task": "regression", "target": ["y"], "features": list("abcde"), "table_group": "g"}
    rows = [
        row,
        row | {"features": list("abcd")},  # nearly the same features
        row | {"features": list("abxyz")},
        row | {"target": ["y", "z"]},
        row | {"task": "classification"},
        row | {"table_group": "h"},
    ]
    kept, gone = without_repeats(rows)
    assert (len(kept), len(gone)) == (5, 1) and kept[1]["features"] == list("abxyz")
