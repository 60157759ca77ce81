"""What is written was run again from its own words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from configs.cdr import InstructConfig
from data_gen.cdr.instruct import pool_of
from data_gen.cdr.records import Record
from data_gen.cdr.settle import Outcome
from data_gen.cdr.units import MAIN, Instance, RowPlan
from data_gen.cdr.write import Proof, word
from rewards.cdr.release_files import RESULT_STYLES
from rewards.gold import Step, bind_recipe, execute, run_bound
from rewards.gold.recipe import BoundStep

TEXT = "Mail ana@acme.io or see https://acme.io/x now. Mail ana@acme.io or see it now."
MAPPERS = ("clean_email_mapper", "clean_links_mapper")


def row(text: str, gold: str, sequence: tuple[str, ...] = MAPPERS) -> Instance:
    plan = RowPlan(MAIN, "agnostic_m", "main", ("i",), sequence, recipe_type="clean-only")
    return Instance(plan, Record("d", "web", text), "KEEP", gold)


def test_a_gold_that_its_words_do_not_lead_to_is_refused() -> None:
    steps = [Step(name) for name in MAPPERS]
    gold = execute(TEXT, steps).text
    fine = word([row(TEXT, gold)], InstructConfig(), {})
    assert not fine.refused and len(fine.rows) == 1
    wrong = word([row(TEXT, gold + ".")], InstructConfig(), {})
    assert wrong.refused == "its recipe does not lead to its gold" and not wrong.rows
    proof = Proof()  # what one task made it remember proves no other
    assert not word([row(TEXT, gold)], InstructConfig(), {}, proof).refused
    assert word([row(TEXT, gold + ".")], InstructConfig(), {}, proof).refused


@pytest.mark.parametrize("bounds", [{"min_num": 3}, {"min_num": 30}, {"max_num": 5}, {}])
def test_a_proof_gives_what_a_run_gives(bounds: dict[str, Any]) -> None:
    proof = Proof()
    for first in (*MAPPERS, "remove_repeat_sentences_mapper"):
        recipe = [Step(first), Step("words_num_filter", bounds), Step("clean_links_mapper")]
        assert proof.run(TEXT, recipe) == run_bound(TEXT, bind_recipe(recipe))
        assert proof.run(TEXT, recipe) == run_bound(TEXT, bind_recipe(recipe))


def test_a_proof_runs_an_operator_once_on_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counting(name: str, params: Any) -> BoundStep:
        step = bind_recipe([Step(name, dict(params))])[0]

        def call(text: str, **given: Any) -> Any:
            calls.append(name)
            return step.call(text, **given)

        return replace(step, call=call)

    monkeypatch.setattr("data_gen.cdr.write._bind", counting)
    proof = Proof()
    for bounds in ({"min_num": 3}, {"min_num": 4}, {"min_num": 3, "max_num": 9}):
        proof.run(TEXT, [Step("clean_email_mapper"), Step("words_num_filter", bounds)])
    assert sorted(calls) == ["clean_email_mapper", "words_num_filter"]
    proof.run(TEXT + " more", [Step("clean_email_mapper")])
    assert len(calls) == 3


def test_pools_that_were_made_before_give_the_same_words() -> None:
    config = InstructConfig()
    gold = execute(TEXT, [Step(name) for name in MAPPERS]).text
    rows = [row(TEXT, gold), row(TEXT + "!", gold + "!")]
    (asked,) = {one.asked for one in rows}
    known = {asked: pool_of(asked, config)}
    assert len(known[asked].variants) == 11
    assert word(rows[:1], config, {}, known=known) == word(rows[:1], config, {})
    refused = {asked: replace(known[asked], variants=(), refused="unspoken: x")}
    assert word(rows[:1], config, {}, known=refused).refused == "unspoken: x"


def test_a_result_is_described_where_the_words_say_what_every_mapper_does() -> None:
    name = "remove_repeat_sentences_mapper"
    outcome = Outcome(frozenset({(name, 0)}))
    said = "The box is open now. The lid is here. The box is open now."
    unsaid = "The box weighs 3.5 kg now. The lid weighs 4.5 kg now."  # "5 kg now." is no sentence
    assert Proof().is_true(outcome, said, [Step(name)])
    assert not Proof().is_true(outcome, unsaid, [Step(name)])


def test_a_row_is_asked_for_by_its_result_or_says_that_it_tells_the_steps() -> None:
    texts = {"outcome": "Write to a@b.org now.", "steps": "password: token: abc"}
    names = {"outcome": "clean_email_mapper", "steps": "clean_secret_mapper"}
    for wording, text in texts.items():
        step = Step(names[wording])
        planned = row(text, execute(text, [step]).text, (step.operator,))
        found = word([planned], InstructConfig(variants=0), {})
        told = {v["style_id"]: v.get("wording") for v in found.rows[0]["prompt_variants"]}
        assert len(told) == 11
        assert {told.pop(style) for style in RESULT_STYLES} == {wording}
        assert set(told.values()) == {None}
        assert (found.told == ["outcome"]) == (wording == "outcome")
