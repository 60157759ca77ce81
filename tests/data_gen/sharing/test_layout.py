"""What a pushed set keeps of its certificate, whatever family built it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pandas")

from data_gen.cdr.out import certificate as of_cdr
from data_gen.dare.certificate import certificate as of_dare
from data_gen.krama.lakes.build import certificate as of_lake
from data_gen.krama.lakes.generate import Tally as LakeTally
from data_gen.overlap import Fingerprint, fingerprint_of
from data_gen.sharing.layout import proved
from data_gen.splits import certificate as of_splits
from data_gen.sql.build import certificate as of_sql
from data_gen.sql.generate import Tally as SqlTally

SIDES = ("train", "validation", "heldout")
WORDS = "the quick brown fox jumps over the lazy dog by the river near a quiet town of stone"


def prints(side: str) -> list[Fingerprint]:
    return [fingerprint_of(f"{side} 1", f"document of {side}", WORDS, f"{WORDS} {side}", ["one"])]


CERTIFICATES: dict[str, tuple[Callable[[], dict[str, Any]], set[str]]] = {
    "cdr": (
        lambda: of_cdr({side: prints(side) for side in SIDES}),
        {"ok", "shared_documents", "train_and_heldout", "train_and_validation"},
    ),
    "dare": (lambda: of_dare([], [], [], 5, 0), {"tasks", "splits", "shared_tables"}),
    "lake": (
        lambda: of_lake({side: [] for side in SIDES}, LakeTally(), 5),
        {"ok", "tasks", "tables_in_both_splits"},
    ),
    "sql": (
        lambda: of_sql({side: [] for side in SIDES}, SqlTally(), 5),
        {"ok", "tasks", "tables", "tables_in_two_splits"},
    ),
    "demo": (lambda: of_splits({side: [] for side in SIDES}), {"ok", "tasks", "overlaps"}),
}


@pytest.mark.parametrize("family", CERTIFICATES)
def test_without_gold_a_certificate_keeps_the_proof_of_its_split(family: str) -> None:
    make, wanted = CERTIFICATES[family]
    whole = make()
    kept = proved(whole)
    assert wanted <= set(kept)
    assert "seed" not in kept and "examples" not in str(kept) and "refused" not in kept
    assert {name: whole[name] for name in kept if not isinstance(kept[name], dict)} == {
        name: value for name, value in kept.items() if not isinstance(value, dict)
    }


def test_the_counts_of_what_is_shared_stay() -> None:
    kept = proved(of_cdr({side: prints(side) for side in SIDES}))
    assert kept["train_and_heldout"]["inputs"] == {"exact": 1, "near": 1} and not kept["ok"]
