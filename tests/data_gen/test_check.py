"""`assay tasks check`: what each family says two splits must not share, exactly and nearly."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_copies import homes

from assay import main
from assay.task import Task, write_jsonl
from data_gen.overlap import PERMUTATIONS, Fingerprint, copies, fingerprint_of, overlaps, signature

pytestmark = pytest.mark.usefixtures("no_family_of_another_test")

TRUTH = "row_id,y\n" + "".join(f"{i},{i * 37 % 11 / 7:.4f}\n" for i in range(1, 25))
TABLE: dict[str, Any] = {"task_type": "reg-MM", "truth_csv": TRUTH, "key_columns": ["row_id"]}
OTHER = TABLE | {"truth_csv": "row_id,y\n1,2\n"}
LAKE: dict[str, Any] = {"answer_type": "numeric_exact", "answer": 3}
Capture = pytest.CaptureFixture[str]


def task(name: str, family: str, gold: dict[str, Any], asked: str, **meta: Any) -> Task:
    return Task(name, family, "t", "s", [{"role": "user", "content": asked}], gold, meta=meta)


def write(folder: Path, *tasks: Task) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_jsonl(folder / "tasks.jsonl", [one.to_json() for one in tasks])
    return folder / "tasks.jsonl"


def compare(capsys: Capture, one: Path, two: Path, *more: str) -> dict[str, Any]:
    capsys.readouterr()
    out = one.parent / "certificate.json"
    words = [str(one), "--against", str(two), "--out", str(out), "--json", *more]
    code = main(["tasks", "check", *words])
    found = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == found
    assert code == int(not found["ok"])
    return found


QUESTION = "How many of the stations along the river reported rain in June of that year"
LONGER = f"{QUESTION} and the next one and the one after it"


def test_every_family_is_compared_by_its_content(tmp_path: Path, capsys: Capture) -> None:
    digest = {"tables": ["digest"]}
    for family, one, two, meta, exact, near in (
        ("table", (TABLE, "x"), (TABLE, "y"), {}, 1, None),
        ("table", (TABLE, "x"), (OTHER, "x"), {}, 0, None),
        ("answer", (LAKE, QUESTION), (LAKE, f"{QUESTION}  "), {}, 1, True),
        ("answer", (LAKE, LONGER), (LAKE, f"{LONGER} or so"), {}, 0, True),
        ("answer", (LAKE, "What?"), (LAKE, "Which?"), digest, 1, False),
        ("answer", (LAKE, "What?"), (LAKE, "Which?"), {}, 0, False),
    ):
        ours = write(tmp_path / "one", task("a", family, *one, **meta))
        theirs = write(tmp_path / "two", task("b", family, *two, **meta))
        found = compare(capsys, ours, theirs)["contents"]
        assert found["exact"] == exact and near in (None, found["near"] >= 1), (one, two)
        assert not exact or found["examples"][0][:2] == ["a", "b"]


# --- tables and lakes, whose content stands in files


def table_task(folder: Path, frame: Any, name: str = "train.csv") -> Path:
    (folder / "data").mkdir(parents=True)
    frame.to_csv(folder / "data" / name, index=False)
    own = task(f"{folder.name}:MM", "table", TABLE, "Predict the price.")
    return write(folder, replace(own, files={name: f"data/{name}"}))


def lake_task(folder: Path, frame: Any, asked: str, name: str = "homes.csv") -> Path:
    (folder / "lake").mkdir(parents=True)
    frame.to_csv(folder / "lake" / name, index=False)
    own = task(f"{folder.name}-1", "answer", LAKE, asked, gold_files=[name])
    return write(folder, replace(own, files={"lake": str(folder / "lake")}))


def test_copies_of_table_tasks_are_found(tmp_path: Path, capsys: Capture) -> None:
    frame = homes(1)
    one = table_task(tmp_path / "one", frame)
    codes = {c: pd.factorize(frame[c])[0] for c in ("Street", "Sold")}
    relabelled = frame.assign(**codes, Price=frame["Price"] / 1000)
    two = table_task(tmp_path / "two", relabelled.sample(frac=0.9, random_state=2), "x.csv")
    found = compare(capsys, one, two)
    assert found["tables"] == {"shared": 1, "examples": [["one:MM", "two:MM", 1.0]]}
    other = compare(capsys, one, table_task(tmp_path / "other", homes(2)))
    assert other["ok"] and other["tables"]["shared"] == 0  # the same file name, question and truth


def test_copies_of_lakes_are_found(tmp_path: Path, capsys: Capture) -> None:
    one = lake_task(tmp_path / "one", homes(1), "How many?")
    copy = lake_task(tmp_path / "two", homes(1).sort_values("Area"), "Which one?", "villas.csv")
    found = compare(capsys, one, copy)
    assert found["tables"]["shared"] == 1 and found["contents"]["exact"] == 0


def texts(folder: Path, numbers: range) -> Path:
    """Refinement tasks, each over a text of its own."""
    made: list[Task] = []
    for i in numbers:
        words = [f"w{number}" for number in Random(i).choices(range(10**6), k=40)]
        gold = {"input_text": " ".join(words), "status": "KEEP", "text": " ".join(words[1:])}
        made.append(task(f"{folder.name}{i}", "refinement", gold, "x", document=f"d{i}"))
    return write(folder, *made)


def test_pieces_and_processes_give_the_same_certificate(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = texts(tmp_path / "a", range(300)), texts(tmp_path / "b", range(200, 600))
    whole = compare(capsys, one, two)
    assert whole["contents"]["exact"] == whole["inputs"]["exact"] == 100
    assert whole["shared_documents"] == 100 and whole["against"] == 400
    pieces = compare(capsys, one, two, "--memory", "0.00005")  # several passes
    monkeypatch.setattr("data_gen.check.LARGE", 0)
    assert whole == pieces == compare(capsys, one, two, "--workers", "2")


# --- nearly: signatures


HAN = "".join(chr(0x4E00 + 37 * i) for i in range(120))
KANA = "".join(chr(0x3042 + i) for i in range(70))


@pytest.mark.parametrize(
    ("letters", "size", "changed"),
    [(HAN, 2000, 10), (HAN, 90, 1), (KANA, 300, 3)],
)
def test_a_copy_is_found_where_a_script_has_no_spaces(
    letters: Sequence[str], size: int, changed: int
) -> None:
    for seed in range(2):
        one, other = (Random(s).choices(letters, k=size) for s in (seed, seed + 100))
        two = list(one)
        for place in Random(seed).sample(range(size), changed):
            two[place] = "鲸"
        said = {name: "".join(text) for name, text in zip("abc", (one, two, other), strict=True)}
        assert copies(said) == {"a": "a", "b": "a", "c": "c"}
        a, b, c = (fingerprint_of(name, "", text, "", []) for name, text in said.items())
        assert overlaps([b], [a, c])["inputs"]["near"] == 1
        assert overlaps([c], [a, b])["inputs"]["near"] == 0


FORMS: list[Callable[[str], str]] = [
    lambda text: unicodedata.normalize("NFD", text),
    str.upper,
    lambda text: text.replace("a", "a\u200b").replace("e", "e\u00ad"),
    lambda text: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text),
]


def test_forms_of_characters_hide_no_copy_and_short_texts_say_too_little() -> None:
    text = " ".join(f"größe w{i} café sea{i * 7}" for i in range(12))
    assert {signature(change(text)) for change in FORMS} == {signature(text)}
    eight = "one two three four five six seven eight"
    assert signature(eight.removesuffix(" eight")) is None is signature(HAN[:15])
    assert signature(eight) is not None is not signature(HAN[:16])
    assert signature("\ud800" * 9 + " x" * 9) is not None  # half a pair raises nothing


@given(st.integers(0, 1000))
@settings(max_examples=30)
def test_what_is_alike_is_what_comparing_every_pair_finds(seed: int) -> None:
    draw = Random(seed)
    bases = [draw.choices([f"w{i}" for i in range(60)], k=60) for _ in range(6)]
    made = ["too short"] * 2
    for _ in range(40):
        words = list(draw.choice(bases))
        for _ in range(draw.randrange(4)):
            words[draw.randrange(len(words))] = f"new{draw.randrange(9)}"
        made.append(" ".join(words))
    prints = [fingerprint_of(f"t{i}", "", text, text, []) for i, text in enumerate(made)]
    ours, theirs = prints[:20], prints[20:]

    def similarity(one: Fingerprint, other: Fingerprint) -> float:
        a, b = (np.frombuffer(p.input[1] or b"", "<u2") for p in (one, other))
        if not a.size or not b.size:
            return 0.0
        bands = (a == b).reshape(-1, PERMUTATIONS // 16).all(axis=1).any()
        return float((a == b).mean()) if bands else 0.0

    best = [max((similarity(one, other), -j) for j, other in enumerate(theirs)) for one in ours]
    near = [[f"t{i}", f"t{20 - j}", round(s, 3)] for i, (s, j) in enumerate(best) if s >= 0.8]
    found = overlaps(ours, theirs)["inputs"]
    assert (found["near"], found["examples"]) == (len(near), near[:20])
    groups = copies({p.id: text for p, text in zip(prints, made, strict=True)})
    for one, other in combinations(prints, 2):
        if similarity(one, other) >= 0.8 or one.input[0] == other.input[0]:
            assert groups[one.id] == groups[other.id]
    assert all(min(name, first) == first for name, first in groups.items())
