"""Units one by one: what is written was run again from its own words, what is left out, counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from configs.cdr import InstructConfig, SelectConfig, SplitConfig
from data_gen.cdr.documents import Record
from data_gen.cdr.plan import thin
from data_gen.cdr.rows import Proof, word
from data_gen.cdr.units import (
    MAIN,
    ORDER,
    TRACKS,
    Instance,
    RowPlan,
    Rule,
    Unit,
    difficulty,
    splitter,
)
from rewards.gold import Step, execute

TEXT = "Mail ana@acme.io or see https://acme.io/x now. Mail ana@acme.io or see it now."
MAPPERS = ("clean_email_mapper", "clean_links_mapper")


def row(text: str, gold: str, sequence: tuple[str, ...] = MAPPERS, **more: Any) -> Instance:
    plan = RowPlan(MAIN, sequence, variant_id="i", recipe_type="clean-only", **more)
    return Instance(plan, Record("d", "web", text), "KEEP", gold)


def test_a_gold_that_its_words_do_not_lead_to_is_refused() -> None:
    gold = execute(TEXT, [Step(name) for name in MAPPERS]).text
    proof = Proof()  # what one task made it remember proves no other
    fine, refused = word([row(TEXT, gold)], InstructConfig(), {}, proof)
    assert not refused and len(fine) == 1
    wrong = word([row(TEXT, gold + ".")], InstructConfig(), {}, proof)
    assert wrong == ([], "its recipe does not lead to its gold")
    # its words say no lower bound, and the operator has one
    rule = Rule({"max_len": 50}, {"threshold_raw_value": 50})
    low = row("abc", "abc", ("average_line_length_filter",), rule=rule)
    unspoken = word([replace(low, status="DROP")], InstructConfig(), {})[1]
    assert unspoken == "an unspoken bound of a filter decides it"
    assert word([row("abc", "abc", ("clean_nothing_mapper",))], InstructConfig(), {})[1]


def test_caps_count_units_and_families_of_a_recipe() -> None:
    plans = [
        RowPlan(ORDER, ("x",), recipe_id="r", family_id=family)
        for family in ("one", "one", "two", "one", "three", "two")
    ]
    listed = [(n, [Instance(plan, Record("d", "web", ""), "KEEP")]) for n, plan in enumerate(plans)]
    for families, groups, wanted in ((2, 0, [0, 1, 2, 3, 5]), (0, 1, [0, 2, 4]), (1, 2, [0, 1])):
        config = SelectConfig(families_per_recipe=families, groups_per_family=groups)
        assert [number for number, _ in thin(listed, config)] == wanted


def test_difficulty_ranks_length_and_recipe() -> None:
    steps = range(2, 6)
    ranks = {chars: [difficulty(chars, n) for n in steps] for chars in (4000, 4001, 8000, 8001)}
    middle = [1, 2, 2, 2]
    assert ranks == {4000: [1, 1, 1, 2], 4001: middle, 8000: middle, 8001: [2, 2, 2, 3]}


def unit_of(number: int) -> Unit:
    plan = RowPlan(TRACKS.index("atomic_m"), ("clean_html_mapper",), variant_id="0")
    rows = [Instance(plan, Record(f"doc-{number}", "web", ""), "KEEP")]
    return Unit(number, rows, "", ("", ""), [], ("", 0, 0))


# --- splits


def test_copies_of_a_document_are_never_on_two_splits() -> None:
    """By the splitter itself: rows that are alike on two splits are left out only after it."""
    units = [unit_of(n) for n in range(40)]
    for unit in units:
        unit.prints.append((bytes([unit.number // 2]), None))
    sides = [*map(splitter(units, SplitConfig(validation_documents=0.2)), units)]
    assert sides[::2] == sides[1::2] and {*sides} == {"train", "validation", "heldout"}
