"""The semantic extension on small samples in its sources' formats, its scorer, and its command."""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cdr_copies import read_track
from front import command
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT

from assay.family import score_answer
from assay.task import Answer, TaskError, read_tasks
from data_gen.cdr import semantic_sources as sources
from data_gen.cdr.semantic_sources import DOMAINS, Unusable, published
from rewards.cdr.release_files import FIELDS, check_row, find_tracks
from rewards.cdr.release_scores import gold_response, score_structured
from rewards.published import refuse_published
from rewards.score import score_row

main = command("tasks")
SAMPLES: dict[str, list[dict[str, Any]]] = json.loads(
    (ROOT / "tests" / "data" / "semantic.json").read_text(encoding="utf-8")
)
LETTER = SAMPLES["pii"][0]["source_text"]
EDIT = "<entity><mark>Norway</mark><delete>Sweden</delete></entity>"


def usable(domain: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for row in SAMPLES[domain]:
        try:
            found.append(DOMAINS[domain].read(row))
        except Unusable:
            continue
    return found


@cache
def all_rows() -> list[dict[str, Any]]:
    return [
        row
        for name, domain in DOMAINS.items()
        for sample in domain.choose(usable(name), 0, 42)
        for row in domain.rows(sample)
    ]


def asks_of(row: dict[str, Any]) -> list[str]:
    return [variant["user_requirement"] for variant in row["prompt_variants"]]


def test_rows_are_valid_and_gold_scores_one_everywhere() -> None:
    rows = all_rows()
    assert {r["source_track"] for r in rows} == {
        f"semantic_{d}_{s}" for d in DOMAINS for s in ("atomic", "compositional")
    }
    assert len({r["instance_id"] for r in rows}) == len(rows)
    for row in rows:
        assert tuple(row) == FIELDS
        check_row(row, "row")
        for parsing in ("strict", "release"):
            score = score_structured(row, gold_response(row), parsing)
            assert (score.outcome, score.reward) == (1.0, 1.0), row["semantic_operator"]
        scored = score_row(
            {"id": 1, "family": "structured", "task": row, "output": gold_response(row)}
            | {"parsing": "release"}
        )
        assert scored["outcome"] == 1.0 and "rg" in scored["parts"]


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
        for key in json.loads(gold_response(row)):
            keys.add(key)
            assert all(meanings[key] in ask for ask in asks_of(row)), row["semantic_operator"]
    assert keys == set(meanings)
    for row in (r for r in rows if r["source_track"] == "semantic_rubric_atomic"):
        said = [name for name, meant in sources.RUBRICS.items() if meant in asks_of(row)[0]]
        assert said == [row["semantic_operator"]]  # and none that it does not


def test_redaction_numbers_values_group_by_group() -> None:
    *parts, whole = sources.pii_rows(usable("pii")[0])
    alone = {row["semantic_operator"]: row["reference_text"] for row in parts}
    assert alone["redact_contact"] == LETTER.replace("ana@acme.io", "[EMAIL_1]")
    assert whole["reference_text"] == (
        "[GIVENNAME_1] [SURNAME_1] ([EMAIL_1]) lives in [CITY_1]; write to [EMAIL_1] before 3 May."
    )
    assert whole["operator_sequence"] == ["redact_contact", "redact_location", "redact_person"]
    steps = ("contact information (EMAIL)", "location information (CITY)")
    for ask in asks_of(whole):
        places = [
            ask.index(f"{n}. Redact every piece of {what}") for n, what in enumerate(steps, 1)
        ]
        assert places == sorted(places)
    assert all(row["recipe_length"] == 1 for row in parts) and whole["recipe_length"] == 3
    assert sources.group_of("passportnum") == "identification"
    assert (sources.group_of("GIVENNAME12"), sources.group_of("IPV4")) == ("person", "contact")


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


OTHER = EDIT.replace(
    "<mark>Norway</mark><delete>Sweden</delete>", "<delete>Sweden</delete><mark>Norway</mark>"
)


@pytest.mark.parametrize(
    ("marked", "passage", "corrected", "kinds"),
    [
        (
            SAMPLES["hallu"][0]["annotated"],
            SAMPLES["hallu"][0]["output"],
            "Oslo is in Norway. It is a city.",
            ["entity", "invented"],
        ),
        (f"In {OTHER}.", "In Sweden.", "In Norway.", ["entity"]),
        (
            f"It is. <contradictory>It left {EDIT} twice.</contradictory> So  it is.",
            "It is. It left Sweden twice. So  it is.",
            "It is. So  it is.",
            ["entity", "contradictory"],
        ),
    ],
)
def test_fava_annotation_gives_passage_correction_and_spans(
    marked: str, passage: str, corrected: str, kinds: list[str]
) -> None:
    found = sources.read_fava(marked)
    assert found[:2] == (passage, corrected) and [span["type"] for span in found[2]] == kinds
    assert all(span["text"] in passage for span in found[2])


@pytest.mark.parametrize(
    "broken",
    [
        *("<entity>a", "a</entity>", "<entity><mark>a</entity></mark>", "<delete>a</delete>"),
        *("<invented>a<invented>", "<mark>a</mark>", "<entity><mark><entity>"),
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
    assert passage == text.replace(EDIT, "Sweden").replace("<invented>", "").replace(
        "</invented>", ""
    )
    assert len(spans) == text.count(EDIT) + text.count("<invented>")
    kept = text.replace(EDIT, "Norway").replace("<invented>no. </invented>", "")
    assert corrected.split() == kept.split()


def test_partly_right_fields_earn_some_reward_and_no_outcome() -> None:
    row = sources.rubric_rows(usable("rubric")[0])[-1]
    value = {"helpfulness": 3, "correctness": 4, "coherence": 4, "complexity": 0, "verbosity": 0}
    score = score_structured(row, json.dumps(value))
    assert score.outcome == 0.0 and score.reward == pytest.approx(0.1 + 0.3 * 0.8)
    assert score_structured(row, "Sure! " + json.dumps(value)).why == "no_answer"
    invented = {f"key{i}": None for i in range(500)}  # null, as a missing key reads in the release
    farmed = score_structured(row, json.dumps(invented))
    assert farmed.reward == pytest.approx(0.1) and farmed.parts["field_accuracy"] > 0.9
    extra = score_structured(row, json.dumps(value | invented))
    assert extra.reward is not None and extra.reward < 0.11
    assert score_structured(row, "Sure! " + gold_response(row), "release").outcome == 1.0


# --- the command


def write_sources(folder: Path) -> list[str]:
    """The four sources in the files they are published as."""
    folder.mkdir(parents=True)
    names = ("english.jsonl", "annotations.json", "validation.jsonl.gz", "test.json")
    for name, rows in zip(names, SAMPLES.values(), strict=True):
        lines = "".join(json.dumps(r) + "\n" for r in rows)
        if name.endswith(".gz"):
            (folder / name).write_bytes(gzip.compress(f"{lines}{{torn\n[1]\n".encode()))
        else:
            (folder / name).write_text(lines if name.endswith("l") else json.dumps(rows))
    given = zip(DOMAINS, names, strict=True)
    return [word for option, name in given for word in (f"--{option}", str(folder / name))]


def test_the_command_writes_tracks_tasks_and_what_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["semantic", *write_sources(tmp_path / "in"), "--heldout-share", "0.4"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    out, said = tmp_path / "out", capsys.readouterr()
    assert "held out: 24 rows" in said.out
    assert "nvidia/HelpSteer2: used, 6 tasks, licence CC-BY-4.0" in said.err
    rows = {name: read_track(path) for name, path in find_tracks(out).items()}
    assert [(name.removeprefix("semantic_"), len(own)) for name, own in rows.items()] == [
        *(("pii_atomic", 9), ("pii_compositional", 3), ("hallu_atomic", 12)),
        *(("hallu_compositional", 3), ("rubric_atomic", 5), ("rubric_compositional", 1)),
        *(("safety_atomic", 6), ("safety_compositional", 2)),
    ]
    train, heldout = (read_tasks(out / f"{side}.jsonl") for side in ("train", "heldout"))
    assert len(train) + len(heldout) == sum(map(len, rows.values()))
    assert not {t.meta["document"] for t in train} & {t.meta["document"] for t in heldout}
    for task in (*train, *heldout):
        assert score_answer(task, Answer(gold_response(task.gold))).reward == 1.0
        assert "prompt_variants" not in task.gold
    told = json.loads((out / "manifest.json").read_text())["domains"]
    assert told["pii"]["left_out"]["a value that is masked at one place and not at another"] == 1
    assert told["safety"]["left_out"]["labels and categories that contradict each other"] == 2
    assert told["hallu"]["left_out"]["an edit without its right or its wrong text"] == 3
    assert told["rubric"]["left_out"] == {
        "no verbosity from 0 to 4": 1,
        "not an object": 1,
        "not valid JSON": 1,
    }
    assert json.loads((out / "certificate.json").read_text())["ok"]
    assert main([*words, "--out", str(tmp_path / "again")]) == 0
    for path in out.rglob("*.json*"):
        assert path.read_bytes() == (tmp_path / "again" / path.relative_to(out)).read_bytes()
    # what may be the benchmark's is held out and trains nothing
    assert main([*words[:-1], "0", "--out", str(out)]) == 0
    train, heldout = (read_tasks(out / f"{side}.jsonl") for side in ("train", "heldout"))
    assert {t.meta["domain"] for t in heldout} == {"rubric", "safety", "hallu"}
    assert all(t.meta["published"] for t in heldout)
    assert "Bern lies in Sweden." in {t.gold["input_text"] for t in train}
    refuse_published(train, "train.jsonl")
    with pytest.raises(TaskError, match="published benchmark task"):
        refuse_published(heldout, "heldout.jsonl")


@pytest.mark.parametrize(
    ("domain", "name", "row", "own"),
    [
        ("rubric", "data/validation-00000-of-00001.parquet", {}, True),
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
    root = tmp_path / "test of validation"  # what lies above the given folder says nothing
    assert published(domain, row, root / name, root / name) == own
    assert published(domain, row, root / name, root / name.split("/")[0]) == own
