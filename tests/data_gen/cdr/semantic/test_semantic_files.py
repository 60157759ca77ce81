"""What `assay tasks semantic` writes from the files of its sources."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cdr_copies import read_track
from front import command
from semantic_samples import FAVA, PII, RUBRIC, SAFETY, all_rows

from assay.family import score_answer
from assay.task import Answer, TaskError, read_tasks
from data_gen.cdr.semantic.cli import tasks_of
from data_gen.cdr.semantic.rows import published
from rewards.cdr.json_answers import gold_response
from rewards.cdr.leaderboard import leaderboard
from rewards.cdr.release_files import find_tracks, score_file, write_scores
from rewards.published import refuse_published

main = command("tasks")


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
    words = ["semantic", *write_sources(tmp_path / "in"), "--heldout-share", "0.4"]
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
    words = [
        "semantic",
        *write_sources(tmp_path / "in"),
        "--out",
        str(tmp_path),
        "--heldout-share",
        "0",
    ]
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
    leaderboard([tmp_path], tmp_path / "reports")
    rows = json.loads((tmp_path / "reports" / "summary.json").read_text())["semantic_rows"]
    (safety,) = (row for row in rows if row["domain"] == "semantic_safety")
    assert safety["atomic_avg_rs_at_k"] == pytest.approx((1 / 3 + 1 + 0) / 3)
