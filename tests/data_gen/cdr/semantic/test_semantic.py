"""The semantic extension on small hand-made samples, and its scorer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from front import command
from hypothesis import given
from hypothesis import strategies as st
from semantic_samples import EDIT, FAVA, LETTER, PII, RUBRIC, SAFETY, all_rows, usable

from assay.task import read_tasks
from data_gen.cdr.semantic import sources
from data_gen.cdr.semantic.rows import Unusable
from rewards.cdr.json_answers import gold_response, score_structured
from rewards.cdr.release_files import FIELDS, check_row
from rewards.score import score_row

main = command("tasks")


def test_rows_are_valid_and_gold_scores_one_everywhere() -> None:
    rows = all_rows()
    assert {r["source_track"] for r in rows} == {
        f"semantic_{d}_{s}"
        for d in ("pii", "hallu", "rubric", "safety")
        for s in ("atomic", "compositional")
    }
    assert len({r["instance_id"] for r in rows}) == len(rows)
    for row in rows:
        assert tuple(row) == FIELDS
        check_row(row, "row")
        for parsing in ("strict", "release"):
            score = score_structured(row, gold_response(row), parsing)
            assert (score.outcome, score.reward) == (1.0, 1.0), row["semantic_operator"]


def test_redaction_numbers_values_and_leaves_other_groups() -> None:
    samples = usable(sources.pii_sample, PII)
    assert [s["id"] for s in samples] == ["1", "2", "3"]
    rows = {r["semantic_operator"]: r["reference_text"] for r in sources.pii_rows(samples[0])}
    assert rows["redact_contact"] == LETTER.replace("ana@acme.io", "[EMAIL_1]")
    assert rows["redact_all"] == (
        "[GIVENNAME_1] [SURNAME_1] ([EMAIL_1]) lives in [CITY_1]; write to [EMAIL_1] before 3 May."
    )
    assert sources.group_of("passportnum") == "identification"
    assert (sources.group_of("GIVENNAME12"), sources.group_of("IPV4")) == ("person", "contact")


def asks_of(row: dict[str, Any]) -> list[str]:
    return [variant["user_requirement"] for variant in row["prompt_variants"]]


def test_every_dimension_that_the_score_reads_is_defined_in_the_prompt() -> None:
    meanings = {
        **sources.RUBRICS,
        "types": sources.MEANINGS["unverifiable"],
        "spans": sources.MEANINGS["relation"],
        "has_hallucination": sources.MEANINGS["subjective"],
        "corrected_text": "leave out the spans of the other types",
        "hallucination_count": "how many spans",
        "prompt_label": "prompt is unsafe if it asks for or holds",
        "response_label": "response is unsafe if it gives or helps with",
        "violated_categories": "Fraud/Deception, Violence",
    }
    rows = [row for row in all_rows() if row["scoring_profile"] != "text_refinement"]
    keys: set[str] = set()
    for row in rows:
        read = json.loads(gold_response(row))
        for key, ask in ((key, ask) for key in read for ask in asks_of(row)):
            keys.add(key)
            assert meanings[key] in ask, (row["semantic_operator"], key)
    assert keys == set(meanings)
    rubric = [r for r in rows if r["source_track"] == "semantic_rubric_atomic"]
    for row in rubric:  # and none that it does not
        said = [name for name, meant in sources.RUBRICS.items() if meant in asks_of(row)[0]]
        assert said == [row["semantic_operator"]]


def test_redaction_of_all_groups_is_a_list_of_steps_in_order() -> None:
    whole = sources.pii_rows(sources.pii_sample(PII[0]))[-1]
    assert whole["operator_sequence"] == ["redact_contact", "redact_location", "redact_person"]
    assert whole["recipe_length"] == 3
    for ask in asks_of(whole):
        places = [ask.index(f"{n}. Redact every piece of {what}") for n, what in STEPS]
        assert places == sorted(places) and "Work in this order" in ask
    for row in sources.pii_rows(sources.pii_sample(PII[0]))[:-1]:
        assert (row["recipe_length"], row["operator_sequence"]) == (1, [row["semantic_operator"]])
        assert "in this order" not in asks_of(row)[0]


STEPS = (
    (1, "contact information (EMAIL)"),
    (2, "location information (CITY)"),
    (3, "person information (GIVENNAME, SURNAME)"),
)


def entity(text: str, value: str, label: str, group: str) -> dict[str, Any]:
    start = text.index(value)
    return {"start": start, "end": start + len(value), "label": label, "group": group}


def test_what_a_step_has_replaced_is_gone_for_the_next() -> None:
    text = "Ask ana.diaz@acme.io, or Ana in Oslo."
    mail = entity(text, "ana.diaz@acme.io", "EMAIL", "contact")
    first = entity(text, "ana", "GIVENNAME", "person")
    ana = entity(text, "Ana", "GIVENNAME", "person")
    entities = [first, mail, ana]
    assert sources.redact(text, entities, ["contact", "person"]) == (
        "Ask [EMAIL_1], or [GIVENNAME_1] in Oslo."
    )
    assert sources.redact(text, entities, ["person", "contact"]) == (
        "Ask [GIVENNAME_1].diaz@acme.io, or [GIVENNAME_2] in Oslo."
    )
    assert sources.redact(text, entities, ["person"]) == (
        "Ask [GIVENNAME_1].diaz@acme.io, or [GIVENNAME_2] in Oslo."
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 6), st.sampled_from(["contact", "person"])),
        max_size=12,
    )
)
def test_steps_leave_all_text_that_is_no_entity(drawn: list[tuple[int, int, str]]) -> None:
    text = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ"
    entities = [{"start": a, "end": a + n, "label": g[0], "group": g} for a, n, g in drawn]
    done = sources.redact(text, entities, ["contact", "person"])
    inside = {place for a, n, _ in drawn for place in range(a, a + n)}
    left = re.sub(r"\[[CP]_\d+\]", "", done)
    assert all(c in left for place, c in enumerate(text) if place not in inside)
    assert sources.redact(text, entities, []) == text


def test_texts_are_shown_examples_of_their_track(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for n, name in enumerate(("Bo", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hal", "Ida")):
        text = f"{name} {'xyzwvutr'[n] * 9} {n} lives at {n}{n} {name} street, mail {name}@{n}.org."
        parts = [(name, "GIVENNAME"), (f"{name}@{n}.org", "EMAIL")]
        marks = [
            {"value": v, "label": k, "start": text.index(v), "end": text.index(v) + len(v)}
            for v, k in parts
        ]
        rows.append({"uid": n, "source_text": text, "language": "en", "privacy_mask": marks})
    (tmp_path / "english.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    words = ["semantic", "--pii", str(tmp_path / "english.jsonl"), "--mode", "few_shot"]
    assert main([*words, "--out", str(tmp_path / "two")]) == 0
    assert main([*words, "--shots", "1", "--out", str(tmp_path / "one")]) == 0
    assert main([*words, "--shot-chars", "9", "--out", str(tmp_path / "none")]) == 0
    for folder, wanted in (("two", 2), ("one", 1), ("none", 0)):
        train, heldout = (
            read_tasks(tmp_path / folder / f"{s}.jsonl") for s in ("train", "heldout")
        )
        known = {task.id: task for task in train}
        for task in (*train, *heldout):
            shown = [known[name] for name in task.meta.get("examples", [])]
            assert len(shown) == wanted
            assert {example.track for example in shown} <= {task.track}
            assert task.meta["document"] not in {example.meta["document"] for example in shown}
            assert all(e.gold["input_text"] in task.prompt[-1]["content"] for e in shown)
    manifest = json.loads((tmp_path / "none" / "manifest.json").read_text())
    assert sum(manifest["few_shot"]["fixed"].values()) == 24


def test_fava_annotation_gives_passage_correction_and_spans() -> None:
    passage, corrected, spans = sources.read_fava(FAVA[0]["annotated"])
    assert passage == FAVA[0]["output"]
    assert corrected == "Oslo is in Norway. It is a city."
    assert spans == [
        {"text": "Sweden", "type": "entity"},
        {"text": "It has two suns.", "type": "invented"},
    ]
    other = EDIT.replace(
        "<mark>Norway</mark><delete>Sweden</delete>", "<delete>Sweden</delete><mark>Norway</mark>"
    )
    assert sources.read_fava(f"In {other}.")[:2] == ("In Sweden.", "In Norway.")
    nested = f"It is. <contradictory>It left {EDIT} twice.</contradictory> So  it is."
    assert sources.read_fava(nested) == (
        "It is. It left Sweden twice. So  it is.",
        "It is. So  it is.",
        [
            {"text": "Sweden", "type": "entity"},
            {"text": "It left Sweden twice.", "type": "contradictory"},
        ],
    )
    texts = [s["text"] for s in usable(sources.hallu_sample, FAVA)]
    assert texts == [FAVA[0]["output"], "Oslo is a city.", "Bern lies in Sweden."]


@pytest.mark.parametrize(
    "broken",
    [
        "<entity>a",
        "a</entity>",
        "<entity><mark>a</entity></mark>",
        "<delete>a</delete>",
        "<invented>a<invented>",
        "<mark>a</mark>",
        "<entity><mark><entity>",
        "<entity a>b</entity >",
    ],
)
def test_markup_that_is_not_certain_is_left_out(broken: str) -> None:
    with pytest.raises(Unusable):
        sources.read_fava(f"It is {broken} so.")


@given(st.lists(st.sampled_from(["Aha", " ", ". ", EDIT, "<invented>no. </invented>"]), max_size=9))
def test_a_passage_without_tags_is_what_was_between_them(pieces: list[str]) -> None:
    text = "".join(pieces)
    passage, corrected, spans = sources.read_fava(text)
    plain = text.replace(EDIT, "Sweden").replace("<invented>", "").replace("</invented>", "")
    assert passage == plain
    assert len(spans) == text.count(EDIT) + text.count("<invented>")
    kept = text.replace(EDIT, "Norway").replace("<invented>no. </invented>", "")
    assert corrected.split() == kept.split()


def test_labels_outside_their_range_and_redacted_prompts_are_left_out() -> None:
    assert len(usable(sources.rubric_sample, RUBRIC)) == 1
    assert [s["id"] for s in usable(sources.safety_sample, SAFETY)] == ["s1", "s2"]
    rows = [r for r in all_rows() if r["source_track"] == "semantic_safety_atomic"]
    asks = {
        v["user_requirement"]
        for r in rows
        for v in r["prompt_variants"]
        if r["semantic_operator"] == "violated_categories"
    }
    assert all("Fraud/Deception, Violence" in ask for ask in asks)


def test_partly_right_fields_earn_some_reward_and_no_outcome() -> None:
    row = sources.rubric_rows(sources.rubric_sample(RUBRIC[0]))[-1]
    value = {"helpfulness": 3, "correctness": 4, "coherence": 4, "complexity": 0, "verbosity": 0}
    score = score_structured(row, json.dumps(value))
    assert score.outcome == 0.0
    assert score.reward == pytest.approx(0.1 + 0.3 * 0.8)
    assert score_structured(row, "Sure! " + json.dumps(value)).why == "no_answer"
    invented = {f"key{i}": None for i in range(500)}  # null, as a missing key reads in the release
    farmed = score_structured(row, json.dumps(invented))
    assert farmed.reward == pytest.approx(0.1)
    assert farmed.parts["field_accuracy"] > 0.9
    extra = score_structured(row, json.dumps(value | invented))
    assert extra.reward is not None and extra.reward < 0.11
    assert score_structured(row, "Sure! " + gold_response(row), "release").outcome == 1.0


@given(st.text(max_size=80))
def test_no_text_raises_or_beats_gold(text: str) -> None:
    for row in all_rows()[::4]:
        for parsing in ("strict", "release"):
            score = score_structured(row, text, parsing)
            assert score.reward is not None
            assert 0.0 <= score.reward <= 1.0


def test_the_score_command_takes_rows_of_both_families() -> None:
    row = all_rows()[-1]
    for family in ("refinement", "structured"):
        result = score_row(
            {
                "id": 1,
                "family": family,
                "task": row,
                "output": gold_response(row),
                "parsing": "release",
            }
        )
        assert result["outcome"] == 1.0
        assert {"rg", "status_match", "strict_equal"} <= set(result["parts"])
