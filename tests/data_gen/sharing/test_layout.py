"""What a pushed set keeps of its certificate, whatever builder wrote it."""

from __future__ import annotations

from data_gen.cdr.merge import compared
from data_gen.certificate import certificate, shared
from data_gen.overlap import Fingerprint, fingerprint_of
from data_gen.sharing.layout import proved
from data_gen.tally import Refusal, Tally

SIDES = ("train", "validation", "heldout")
WORDS = "the quick brown fox jumps over the lazy dog by the river near a quiet town of stone"


def prints(side: str) -> list[Fingerprint]:
    return [fingerprint_of(f"{side} 1", f"document of {side}", WORDS, f"{WORDS} {side}", ["one"])]


def test_without_gold_a_certificate_keeps_the_proof_of_its_split() -> None:
    tally = Tally()
    tally.refuse(Refusal("ambiguous", "its gold is 7", "t.csv"))
    pairs = shared({"train": {"tables": {1, 2}}, "heldout": {"tables": {2}}})
    whole = certificate("sql", {"train": [], "heldout": []}, pairs, 5, tally=tally, kinds={"a": 1})
    assert not whole["ok"] and whole["examples"] == {"ambiguous": ["t.csv: its gold is 7"]}
    kept = proved(whole)
    assert kept["shared"] == {"train and heldout": {"tables": 1}} and kept["ok"] is False
    assert kept["builder"] == "sql" and kept["tasks"] == {"train": 0, "heldout": 0}
    assert not {"seed", "sql", "examples", "refused"} & kept.keys() and "gold" not in str(kept)


def test_the_counts_of_what_is_shared_stay() -> None:
    pairs, own = compared({side: prints(side) for side in SIDES})
    proof = certificate("cdr", dict.fromkeys(SIDES, 1), pairs, 1, **own)
    kept = proved(proof)
    assert kept["shared"]["train and heldout"]["inputs exact"] == 1 and not kept["ok"]
    assert proof["cdr"]["recipes"]["train and heldout"]["exact"] == 1
