"""The semantic extension on small samples in its sources' formats, its scorer, and its command."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from cdr_copies import read_track
from front import command
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


def first(domain: str) -> dict[str, Any]:
    return DOMAINS[domain].read(SAMPLES[domain][0])


def test_redaction_numbers_values_group_by_group() -> None:
    *parts, whole = sources.pii_rows(first("pii"))
    alone = {row["semantic_operator"]: row["reference_text"] for row in parts}
    assert alone["redact_contact"] == LETTER.replace("ana@acme.io", "[EMAIL_1]")
    assert whole["reference_text"] == (
        "[GIVENNAME_1] [SURNAME_1] ([EMAIL_1]) lives in [CITY_1]; write to [EMAIL_1] before 3 May."
    )
    assert whole["operator_sequence"] == ["redact_contact", "redact_location", "redact_person"]
    asked = [variant["user_requirement"] for variant in whole["prompt_variants"]]
    assert asked and all("2. Redact every piece of location" in ask for ask in asked)
    assert (sources.group_of("GIVENNAME12"), sources.group_of("IPV4")) == ("person", "contact")
    # of two that overlap the first is taken, and what a step has replaced is gone for the next
    ends = (("A", 0, 3), ("A", 2, 5), ("B", 2, 4), ("B", 4, 6), ("A", 6, 9))
    found = [{"label": g, "group": g, "start": a, "end": b} for g, a, b in ends]
    assert sources.redact("abcdefghi", found, ["A", "B"]) == "[A_1]d[B_1][A_2]"


def test_fava_annotation_gives_passage_correction_and_spans() -> None:
    """An edit, the right words first or last, within a sentence that is wrong and outside of it."""
    edit = "<entity><mark>Norway</mark><delete>Sweden</delete></entity>"
    other = "<entity><delete>Sweden</delete><mark>Norway</mark></entity>"
    marked = f"In {other}. <contradictory>It left {edit} twice.</contradictory> So  it is."
    *found, spans = sources.read_fava(marked)
    assert found == ["In Sweden. It left Sweden twice. So  it is.", "In Norway. So  it is."]
    assert [span["type"] for span in spans] == ["entity", "entity", "contradictory"]
    assert all(span["text"] in found[0] for span in spans)


@pytest.mark.parametrize(
    "broken", ["<entity>a", "a</entity>", "<entity><mark>a</entity></mark>", "<delete>a</delete>"]
)
def test_markup_that_is_not_certain_is_left_out(broken: str) -> None:
    with pytest.raises(Unusable):
        sources.read_fava(f"It is {broken} so.")


def test_invented_fields_earn_no_more_than_the_form() -> None:
    row = sources.rubric_rows(first("rubric"))[-1]
    value = {"helpfulness": 3, "correctness": 4, "coherence": 4, "complexity": 0, "verbosity": 0}
    invented = {f"key{i}": None for i in range(500)}  # null, as a missing key reads in the release
    rewards = (score_structured(row, json.dumps(a)).reward for a in (value, invented))
    assert [*rewards] == pytest.approx([0.1 + 0.3 * 0.8, 0.1])
    assert (score_structured(row, json.dumps(value | invented)).reward or 1.0) < 0.11


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


def test_the_command_writes_tracks_tasks_and_what_it_left_out(tmp_path: Path) -> None:
    words = ["semantic", *write_sources(tmp_path / "in"), "--heldout-share", "0.4"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    out = tmp_path / "out"
    rows = {name: read_track(path) for name, path in find_tracks(out).items()}
    counts = [f"{name.removeprefix('semantic_')} {len(own)}" for name, own in rows.items()]
    assert counts == [
        *("pii_atomic 9", "pii_compositional 3", "hallu_atomic 12", "hallu_compositional 3"),
        *("rubric_atomic 5", "rubric_compositional 1", "safety_atomic 6", "safety_compositional 2"),
    ]
    for row in (row for own in rows.values() for row in own):
        assert tuple(row) == FIELDS
        check_row(row, "row")
        for parsing in ("strict", "release"):
            asked = {"id": 1, "family": "structured", "task": row, "output": gold_response(row)}
            assert score_row({**asked, "parsing": parsing})["reward"] == 1.0
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


def test_the_part_of_a_source_is_told_by_its_names(tmp_path: Path) -> None:
    root = tmp_path / "test of validation"  # what lies above the given folder says nothing
    for domain, name, row, own in (
        ("rubric", "data/validation-00000-of-00001.parquet", {}, True),
        ("safety", "latest.json", {}, False),
        ("pii", "english.jsonl", {"split": "validation"}, True),
        ("pii", "validation/x.jsonl", {"split": "train"}, False),
        ("hallu", "training.json", {"annotated": "a"}, True),
        ("hallu", "training.json", {"completion": "a"}, False),
    ):
        assert published(domain, row, root / name, root / name.split("/")[0]) == own
