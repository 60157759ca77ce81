"""The semantic extension on small hand-made samples in its sources' formats, and its scorer."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from front import command
from hypothesis import given
from hypothesis import strategies as st

from data_gen.cdr.semantic import hallu, judged, pii
from data_gen.cdr.semantic.cli import tasks_of
from data_gen.cdr.semantic.hallu import read_fava
from data_gen.cdr.semantic.rows import Unusable, published
from rewards.cdr.files import FIELDS, check_row, find_tracks, read_track, reports, write_scores
from rewards.cdr.scorefile import score_file
from rewards.cdr.structured import gold_response, score_structured
from rewards.cli import score_row
from rewards.families import score_answer
from rewards.task import Answer, TaskError, read_tasks, refuse_published

main = command("tasks")

LETTER = "Ana Diaz (ana@acme.io) lives in Oslo; write to ana@acme.io before 3 May."


def mask(*parts: tuple[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for value, label in parts:
        start = LETTER.index(value)
        found.append(
            {
                "value": value,
                "label": label,
                "start": start,
                "end": start + len(value),
                "label_index": 1,
            }
        )
    second = LETTER.rindex("ana@acme.io")
    found.append({"value": "ana@acme.io", "label": "EMAIL", "start": second, "end": second + 11})
    return found


ENTITIES = mask(
    ("Ana", "GIVENNAME"), ("Diaz", "SURNAME"), ("ana@acme.io", "EMAIL"), ("Oslo", "CITY")
)
PII = [
    {
        "uid": 1,
        "source_text": LETTER,
        "masked_text": "",
        "language": "en",
        "locale": "US",
        "split": "train",
        "privacy_mask": ENTITIES,
    },
    {
        "uid": 2,
        "source_text": LETTER + " ",
        "language": "English",
        "privacy_mask": json.dumps(ENTITIES),
    },
    {"uid": 3, "source_text": LETTER + "  ", "language": "en", "privacy_mask": str(ENTITIES)},
    {"uid": 4, "source_text": "Hola", "language": "es", "privacy_mask": []},
    {"uid": 5, "source_text": "x" + LETTER, "language": "en", "privacy_mask": ENTITIES},
    {"uid": 6, "source_text": LETTER, "language": "en", "privacy_mask": "{["},
    {"uid": 7, "source_text": LETTER, "language": "en", "privacy_mask": ENTITIES[:1]},
]
EDIT = "<entity><mark>Norway</mark><delete>Sweden</delete></entity>"
FAVA = [
    {
        "annotated": f"Oslo is in {EDIT}. <invented>It has two suns.</invented> It is a city.",
        "output": "Oslo is in Sweden. It has two suns. It is a city.",
        "model": "m",
        "prompt": "?",
    },
    {"annotated": "Oslo is a city.", "output": "Oslo is a city.", "model": "m", "prompt": "?"},
    {
        "prompt": "Read the following references:\nR\nPlease identify all the errors in the "
        "following passage using the references provided and suggest edits:\n"
        "Text: Bern lies in Sweden.",
        "completion": f"Bern lies in {EDIT}.",
    },
    {"annotated": "Bern lies in <entity><mark>Norway</mark>.", "output": "x"},
    {"annotated": f"Bern lies in {EDIT}.", "output": "Bern is in Norway."},
]
RUBRIC = [
    {
        "prompt": "Hi",
        "response": "Hello",
        "helpfulness": 3,
        "correctness": 4,
        "coherence": 4,
        "complexity": 0,
        "verbosity": 1,
    },
    {
        "prompt": "Hi",
        "response": "Hello!",
        "helpfulness": 3.0,
        "correctness": 4,
        "coherence": 4,
        "complexity": 0,
        "verbosity": 5,
    },
]
PAIR = {
    "prompt_label_source": "human",
    "response_label_source": "llm_jury",
    "reconstruction_id_if_redacted": None,
}
SAFETY = [
    {
        "id": "s1",
        "prompt": "a",
        "response": "b",
        "prompt_label": "unsafe",
        "response_label": "safe",
        "violated_categories": "Violence, Fraud/Deception",
    }
    | PAIR,
    {
        "id": "s2",
        "prompt": "c",
        "response": "d",
        "prompt_label": "safe",
        "response_label": "safe",
        "violated_categories": "",
    }
    | PAIR,
    {
        "id": "s3",
        "prompt": "REDACTED",
        "response": "d",
        "prompt_label": "unsafe",
        "response_label": "safe",
        "violated_categories": "",
    }
    | PAIR
    | {"reconstruction_id_if_redacted": 7.0},
    {
        "id": "s4",
        "prompt": "c",
        "response": None,
        "prompt_label": "safe",
        "response_label": None,
        "violated_categories": "",
    }
    | PAIR,
]


def usable(module_read: Any, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for row in rows:
        try:
            found.append(module_read(row))
        except Unusable:
            continue
    return found


def all_rows() -> list[dict[str, Any]]:
    parts = (
        (pii.sample_of, pii.choose, pii.rows_of, PII),
        (hallu.sample_of, hallu.choose, hallu.rows_of, FAVA),
        (judged.rubric_sample, judged.choose_rubric, judged.rubric_rows, RUBRIC),
        (judged.safety_sample, judged.choose_safety, judged.safety_rows, SAFETY),
    )
    return [
        row
        for read, choose, rows, given in parts
        for sample in choose(usable(read, given))
        for row in rows(sample)
    ]


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
    samples = usable(pii.sample_of, PII)
    assert [s["id"] for s in samples] == ["1", "2", "3"]
    rows = {r["semantic_operator"]: r["reference_text"] for r in pii.rows_of(samples[0])}
    assert rows["redact_contact"] == LETTER.replace("ana@acme.io", "[EMAIL_1]")
    assert rows["redact_all"] == (
        "[GIVENNAME_1] [SURNAME_1] ([EMAIL_1]) lives in [CITY_1]; write to [EMAIL_1] before 3 May."
    )
    assert pii.group_of("passportnum") == "identification"
    assert (pii.group_of("GIVENNAME12"), pii.group_of("IPV4")) == ("person", "contact")


def asks_of(row: dict[str, Any]) -> list[str]:
    return [variant["user_requirement"] for variant in row["prompt_variants"]]


def test_every_dimension_that_the_score_reads_is_defined_in_the_prompt() -> None:
    meanings = {
        **judged.RUBRICS,
        "types": hallu.MEANINGS["unverifiable"],
        "spans": hallu.MEANINGS["relation"],
        "has_hallucination": hallu.MEANINGS["subjective"],
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
        said = [name for name, meant in judged.RUBRICS.items() if meant in asks_of(row)[0]]
        assert said == [row["semantic_operator"]]


def test_redaction_of_all_groups_is_a_list_of_steps_in_order() -> None:
    whole = pii.rows_of(pii.sample_of(PII[0]))[-1]
    assert whole["operator_sequence"] == ["redact_contact", "redact_location", "redact_person"]
    assert whole["recipe_length"] == 3
    for ask in asks_of(whole):
        places = [ask.index(f"{n}. Redact every piece of {what}") for n, what in STEPS]
        assert places == sorted(places) and "Work in this order" in ask
    for row in pii.rows_of(pii.sample_of(PII[0]))[:-1]:
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
    assert pii.redact(text, entities, ["contact", "person"]) == (
        "Ask [EMAIL_1], or [GIVENNAME_1] in Oslo."
    )
    assert pii.redact(text, entities, ["person", "contact"]) == (
        "Ask [GIVENNAME_1].diaz@acme.io, or [GIVENNAME_2] in Oslo."
    )
    assert pii.redact(text, entities, ["person"]) == (
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
    done = pii.redact(text, entities, ["contact", "person"])
    inside = {place for a, n, _ in drawn for place in range(a, a + n)}
    left = re.sub(r"\[[CP]_\d+\]", "", done)
    assert all(c in left for place, c in enumerate(text) if place not in inside)
    assert pii.redact(text, entities, []) == text


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
    passage, corrected, spans = read_fava(FAVA[0]["annotated"])
    assert passage == FAVA[0]["output"]
    assert corrected == "Oslo is in Norway. It is a city."
    assert spans == [
        {"text": "Sweden", "type": "entity"},
        {"text": "It has two suns.", "type": "invented"},
    ]
    other = EDIT.replace(
        "<mark>Norway</mark><delete>Sweden</delete>", "<delete>Sweden</delete><mark>Norway</mark>"
    )
    assert read_fava(f"In {other}.")[:2] == ("In Sweden.", "In Norway.")
    nested = f"It is. <contradictory>It left {EDIT} twice.</contradictory> So  it is."
    assert read_fava(nested) == (
        "It is. It left Sweden twice. So  it is.",
        "It is. So  it is.",
        [
            {"text": "Sweden", "type": "entity"},
            {"text": "It left Sweden twice.", "type": "contradictory"},
        ],
    )
    texts = [s["text"] for s in usable(hallu.sample_of, FAVA)]
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
        read_fava(f"It is {broken} so.")


@given(st.lists(st.sampled_from(["Aha", " ", ". ", EDIT, "<invented>no. </invented>"]), max_size=9))
def test_a_passage_without_tags_is_what_was_between_them(pieces: list[str]) -> None:
    text = "".join(pieces)
    passage, corrected, spans = read_fava(text)
    plain = text.replace(EDIT, "Sweden").replace("<invented>", "").replace("</invented>", "")
    assert passage == plain
    assert len(spans) == text.count(EDIT) + text.count("<invented>")
    kept = text.replace(EDIT, "Norway").replace("<invented>no. </invented>", "")
    assert corrected.split() == kept.split()


def test_labels_outside_their_range_and_redacted_prompts_are_left_out() -> None:
    assert len(usable(judged.rubric_sample, RUBRIC)) == 1
    assert [s["id"] for s in usable(judged.safety_sample, SAFETY)] == ["s1", "s2"]
    rows = [r for r in all_rows() if r["source_track"] == "semantic_safety_atomic"]
    asks = {
        v["user_requirement"]
        for r in rows
        for v in r["prompt_variants"]
        if r["semantic_operator"] == "violated_categories"
    }
    assert all("Fraud/Deception, Violence" in ask for ask in asks)


def test_partly_right_fields_earn_some_reward_and_no_outcome() -> None:
    row = judged.rubric_rows(judged.rubric_sample(RUBRIC[0]))[-1]
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


def write_sources(folder: Path) -> list[str]:
    """The four sources in the files they are published as."""
    folder.mkdir(parents=True)
    (folder / "english.jsonl").write_text("".join(json.dumps(r) + "\n" for r in PII))
    (folder / "annotations.json").write_text(json.dumps(FAVA, indent=2))
    with gzip.open(folder / "validation.jsonl.gz", "wt") as file:
        file.write("".join(json.dumps(r) + "\n" for r in RUBRIC) + "{torn\n[1]\n")
    (folder / "test.json").write_text(json.dumps(SAFETY))
    return [
        "--pii",
        str(folder / "english.jsonl"),
        "--hallu",
        str(folder / "annotations.json"),
        "--rubric",
        str(folder / "validation.jsonl.gz"),
        "--safety",
        str(folder / "test.json"),
    ]


def test_the_command_writes_tracks_tasks_and_what_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["semantic", *write_sources(tmp_path / "in"), "--heldout", "0.4"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    assert "privacy_mask does not fit source_text" in capsys.readouterr().out
    out = tmp_path / "out"
    rows = {name: read_track(path) for name, path in find_tracks(out).items()}
    assert {name: len(own) for name, own in rows.items()} == {
        "semantic_pii_atomic": 9,
        "semantic_pii_compositional": 3,
        "semantic_hallu_atomic": 12,
        "semantic_hallu_compositional": 3,
        "semantic_rubric_atomic": 5,
        "semantic_rubric_compositional": 1,
        "semantic_safety_atomic": 6,
        "semantic_safety_compositional": 2,
    }
    train, heldout = (read_tasks(out / f"{side}.jsonl") for side in ("train", "heldout"))
    assert len(train) + len(heldout) == sum(map(len, rows.values()))
    assert not {t.meta["document"] for t in train} & {t.meta["document"] for t in heldout}
    for task in (*train, *heldout):
        assert score_answer(task, Answer(gold_response(task.gold))).reward == 1.0
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["domains"]["rubric"]["left_out"] == {
        "no verbosity from 0 to 4": 1,
        "not an object": 1,
        "not valid JSON": 1,
    }
    assert json.loads((out / "certificate.json").read_text())["ok"]
    assert main([*words, "--out", str(tmp_path / "again")]) == 0
    for path in out.rglob("*.json*"):
        assert path.read_bytes() == (tmp_path / "again" / path.relative_to(out)).read_bytes()


def test_samples_that_may_be_the_benchmarks_are_held_out_and_train_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["semantic", *write_sources(tmp_path / "in"), "--out", str(tmp_path), "--heldout", "0"]
    assert main(words) == 0
    said = capsys.readouterr()
    assert "held out: 24 rows from the part" in said.out
    assert "nvidia/HelpSteer2: used, 6 tasks, licence CC-BY-4.0" in said.err
    train, heldout = (read_tasks(tmp_path / f"{side}.jsonl") for side in ("train", "heldout"))
    own = ["semantic_rubric", "semantic_safety", "semantic_hallu"]
    assert {t.track.rpartition("_")[0] for t in heldout} == set(own)
    assert all(t.meta["published"] for t in heldout)
    # FAVA's training rows and AI4Privacy's are no part that the benchmark is known to draw from
    assert {t.meta["document"] for t in train} >= {"1", "2", "3"}
    assert "Bern lies in Sweden." in {t.gold["input_text"] for t in train}
    assert not any(t.meta["published"] for t in train)
    refuse_published(train, "train.jsonl")
    with pytest.raises(TaskError, match="published benchmark task"):
        refuse_published(heldout, "heldout.jsonl")
    assert {t.meta["licence"] for t in heldout} == {"CC-BY-4.0"}
    assert any("non-commercial" in t.meta["licence"] for t in train)


@pytest.mark.parametrize(
    ("domain", "name", "row", "own"),
    [
        ("rubric", "data/validation-00000-of-00001.parquet", {}, True),
        ("rubric", "data/train-00000-of-00001.parquet", {}, False),
        ("safety", "refusals_validation.json", {}, False),
        ("safety", "test.json", {}, True),
        ("safety", "latest.json", {}, False),
        ("pii", "english.jsonl", {"split": "validation"}, True),
        ("pii", "validation/x.jsonl", {"split": "train"}, False),
        ("hallu", "training.json", {"annotated": "a"}, True),
        ("hallu", "training.json", {"completion": "a"}, False),
    ],
)
def test_the_part_of_a_source_is_told_by_its_names(
    domain: str, name: str, row: dict[str, Any], own: bool, tmp_path: Path
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    root = tmp_path / "test of validation"  # what lies above the given folder says nothing
    assert published(domain, row, root / name, root / name) == own
    (root / name).parent.mkdir(parents=True)
    inner = root / name.split("/")[0] if "/" in name else root / name
    assert published(domain, row, root / name, inner) == own


def test_styles_of_semantic_tasks_are_drawn_alike_often() -> None:
    rows = [
        row | {"instance_id": f"{row['instance_id']}{n}", "source_record_id": f"{n}"}
        for row in all_rows()[:1]
        for n in range(300)
    ]
    styles = Counter(task.meta["style"] for task in tasks_of(rows, "direct", 0.0, 0))
    assert len(styles) == 3 and all(70 < count < 130 for count in styles.values())


def test_a_source_in_another_format_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sources(tmp_path / "in")
    wrong = ["semantic", "--pii", str(tmp_path / "in" / "test.json"), "--out", str(tmp_path / "o")]
    assert main(wrong) == 2
    said = capsys.readouterr().err
    assert "ai4privacy/pii-masking-400k" in said and "no source_text" in said
    assert main(["semantic", "--out", str(tmp_path / "o")]) == 2
    assert main(["semantic", "--pii", "nowhere", "--out", str(tmp_path / "o")]) == 2


def test_the_leaderboard_averages_subtasks_of_a_domain(tmp_path: Path) -> None:
    rows = [r for r in all_rows() if r["source_track"] == "semantic_safety_atomic"]
    done = [
        row
        | {
            "variant_predictions": [
                {
                    "prompt_variant_index": i,
                    "predicted_status": "KEEP",
                    "valid_prediction": True,
                    "predicted_clean_text": gold_response(row) if right else "{}",
                }
                for i in range(3)
            ]
        }
        for n, row in enumerate([*rows, *rows[:1]])
        for right in [n == 0 or row["semantic_operator"] == "response_label"]
    ]
    scored = score_file(done, 0, 0, "semantic_safety_atomic", "m")
    home = tmp_path / "semantic_safety_atomic" / "m" / "score_semantic_styles3"
    write_scores(home, scored)
    reports(tmp_path)
    model = json.loads((tmp_path / "reports" / "summary.json").read_text())["semantic"][0]
    assert model["safety_atomic"] == pytest.approx(100 * (1 / 3 + 1 + 0) / 3, abs=1e-3)
