"""`assay tasks lake`, built once and looked at from many sides: gold holds, nothing is shared,
nothing is paid without work, twins ask anew, and the same bytes come out however it is run."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("duckdb")
pytest.importorskip("openpyxl")
pytest.importorskip("pyarrow")

import front
from assay_command import rows
from chat_server import serving
from lake_files import lake_of_all, open_lake, surveyed
from places import ROOT
from small_lake import make_lake

from assay.task import Task, read_tasks
from data_gen.certificate import CERTIFICATE
from data_gen.queries.lake import Lake
from data_gen.queries.lake_build import SHORT, fits, short_lake
from data_gen.queries.lake_proof import validate
from data_gen.queries.lake_questions import NoQuestion, question_for
from data_gen.queries.pipeline import short_script
from rewards.krama.answer import category, score_response
from rewards.krama.episode import score_row

main = front.command("tasks", "lake")
SPLITS = ("train", "validation", "heldout")
TYPES = {f"{a}_{b}" for a in ("numeric", "string", "list") for b in ("exact", "approximate")}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders, one of them held out; every question twice; moved after it was built."""
    top = tmp_path_factory.mktemp("lakes")
    here = top / "here"
    lake_of_all(make_lake(here / "first", settled=True), wards=True)
    (here / "first" / "broken.parquet").write_bytes(b"PAR1 no")
    (here / "held").mkdir()
    for shift in range(3):
        table = surveyed(shift, 120).rename(columns={"Sales": f"Sales {shift}"})
        table.to_csv(here / "held" / f"t{shift}.csv", index=False)
    words = ["--lakes", str(here / "first"), "--heldout", str(here / "held"), "--count", "20"]
    words += ["--validation-share", "0.3", "--seed", "4", "--workers", "1", "--obscured"]
    assert main([*words, "--stated-licence", "CC0", "--out", str(here / "o")]) == 0
    here.rename(top / "there")
    return top / "there" / "o"


def tasks_of(built: Path, obscured: str = "") -> dict[str, list[Task]]:
    return {n: read_tasks(built / f"{n}{obscured}.jsonl") for n in SPLITS}


def test_tasks_hold_and_share_no_table(built: Path) -> None:
    parts = tasks_of(built)
    every = [t for tasks in parts.values() for t in tasks]
    proof = json.loads((built / "certificate.json").read_text("utf-8"))
    assert 16 <= len(every) == len({t.id for t in every}) <= 20
    assert {str(t.gold["answer_type"]) for t in every} == TYPES
    sides = [{d for t in tasks for d in t.meta["tables"]} for tasks in parts.values()]
    assert all(sides) and len(set.union(*sides)) == sum(map(len, sides))
    assert proof["ok"] and not any(n["tables"] for n in proof["shared"].values())
    assert proof["proof"]["agreed"] >= len(every) and set(proof["proof"]) == {"agreed"}
    assert "broken.parquet" in (built / "refused.jsonl").read_text("utf-8")
    for split, task in ((n, t) for n, tasks in parts.items() for t in tasks):
        gold = task.gold
        assert task.split == split and task.meta["licence"] == "CC0"
        answer = {"answer": gold["answer"]}
        assert score_response(gold["answer_type"], gold["answer"], answer).outcome == 1.0
        fixed = gold["answer_type"] in ("list_approximate", "string_approximate")
        assert (gold.get("ordered") is True) == fixed == ("ordered" in gold["subtasks"][-1])
        assert all(s["step"] and s["query"] for s in gold["subtasks"])


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux only")
def test_moved_tasks_are_answered_by_their_gold(built: Path, tmp_path: Path) -> None:
    """In the sandbox of agents."""
    for name in ("train", "heldout", "heldout_obscured"):
        path, out = built / f"{name}.jsonl", tmp_path / f"{name}.jsonl"
        assert str(built.parents[1] / "here") not in path.read_text("utf-8")
        words = ["--tasks", str(path), "--solver", "gold", "--out", str(out)]
        assert front.command("rollout")(words) == 0
        assert {row["outcome"] for row in rows(out)} == {1.0}
    files = [task.meta["gold_files"][0] for task in read_tasks(built / "train.jsonl")]
    assert len({name.rpartition(".")[2] for name in files}) >= 4  # forms


FOREIGN = ("Kind", "Height", "Cost", "Turm", "Büro", "rain", "semicolon", "Marine", "Häuser")


def files_of(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of the files below a folder, workbooks and Parquet opened."""
    for path in (p for p in folder.rglob("*") if p.is_file()):
        data = path.read_bytes()
        if path.suffix == ".xlsx":
            with zipfile.ZipFile(path) as book:
                parts = b"\n".join(book.read(name) for name in book.namelist())
                data = parts.replace(b"defaultRowHeight", b"")
        elif path.suffix == ".parquet":
            data += pd.read_parquet(path).to_csv().encode()
        yield path.name, path.name.encode() + data


def test_twins_ask_the_same_over_other_names_and_numbers(built: Path) -> None:
    plain = {t.id: t for tasks in tasks_of(built).values() for t in tasks}
    other = [t for tasks in tasks_of(built, "_obscured").values() for t in tasks]
    proof = json.loads((built / "certificate.json").read_text("utf-8"))
    dropped = sum(n for why, n in proof["refused"].items() if why.startswith("obscured"))
    assert len(plain) == len(other) + dropped and len(other) >= 10
    for name, data in files_of(built / "obscured"):
        assert not [word for word in FOREIGN if word.encode() in data], name
    for task in other:
        twin, gold = plain[task.meta["plain"]].gold, task.gold
        kinds = [[s["kind"] for s in one["subtasks"]] for one in (gold, twin)]
        assert gold["answer_type"] == twin["answer_type"] and kinds[0] == kinds[1]
        text = task.prompt[-1]["content"] + json.dumps(gold["subtasks"]) + gold["pipeline"]
        assert not [word for word in FOREIGN if word in text]
        # who answers from memory of the plain lake is wrong, and is called so
        memory = {"answer": twin["answer"]}
        recalled = score_response(gold["answer_type"], gold["answer"], memory).outcome or 0.0
        assert recalled <= 0.95
        assert category(gold, twin["answer"], recalled, "ran", "", []) == "recalled"


def test_no_listing_of_what_the_pipeline_sees_is_paid(built: Path) -> None:
    """The listings are made here with pandas, by the pipeline's own first steps, and not with the
    builder's code."""
    seen: dict[str, list[float]] = {}
    for task in (t for tasks in tasks_of(built).values() for t in tasks):
        space: dict[str, Any] = {"print": lambda _: None}
        exec(task.gold["pipeline"].replace("data/", f"{built / task.files['lake']}/"), space)
        frame = space["t"]
        lists = [sorted(frame[c].dropna().unique().tolist(), key=str) for c in frame.columns]
        lists += [[*map(str, frame.columns)], [v for one in lists for v in one]]
        for listed in lists:
            for answer in (listed, *(sep.join(map(str, listed)) for sep in (", ", " "))):
                score = score_row({"task": task.gold, "response": {"answer": answer}})
                assert (score.reward or 0.0) <= 0.05, (task.prompt[-1]["content"], answer)
                seen.setdefault(task.gold["answer_type"], []).append(score.outcome or 0.0)
    assert max(seen["list_exact"]) > 0.3  # the benchmark's metric does pay it


def test_rewordings_are_proved_and_journalled_and_workers_do_not_show(tmp_path: Path) -> None:
    """An endpoint puts other words for questions that start with "What", for others another file:
    these are refused."""
    for shift in range(2):
        table = surveyed(shift, 200).rename(columns={"Sales": f"Sales {shift}"})
        (tmp_path / "lake").mkdir(exist_ok=True)
        table.to_csv(tmp_path / "lake" / f"t{shift}.csv", index=False)

    def reply(body: dict[str, Any]) -> str:
        asked = str(body["messages"][0]["content"]).rpartition("\n")[2]
        other = re.sub(r"^What ", "Please say: what ", asked)
        return other if other != asked else asked.replace(".csv", "_2.csv")

    def build(out: str, *more: str) -> list[Task]:
        words = ["--lakes", str(tmp_path / "lake"), "--heldout-share", "0", "--count", "6"]
        assert main([*words, *more, "--out", str(tmp_path / out)]) == 0
        return read_tasks(tmp_path / out / "train.jsonl")

    before = build("plain", "--workers", "1")
    with serving(reply) as (url, seen):
        writer = ("--writer", url, "--writer-model", "m", "--workers")
        after, asked = build("new", *writer, "2"), len(seen)
        certificate = (tmp_path / "new" / CERTIFICATE).read_bytes()
        assert after == build("new", *writer, "1") and len(seen) == asked  # the journal answered
        assert certificate == (tmp_path / "new" / CERTIFICATE).read_bytes()
    new = [(a, b) for a, b in zip(after, before, strict=True) if a.prompt != b.prompt]
    assert 0 < len(new) < len(after) == asked
    assert [t.gold for t in after] == [t.gold for t in before]
    for task, plain in new:
        assert task.prompt[-1]["content"].startswith("Please say: what ")
        assert task.meta["template"] == plain.prompt[-1]["content"]


# --- short questions


SHORT_LAKE = ROOT / "tests/data/queries/short"  # plain tables that a short script can load


def test_short_tasks_are_proved_split_by_table_and_have_twins(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--lakes", str(SHORT_LAKE), "--short", "--obscured", "--count", "8", "--out", str(out)]
    shares = ["--heldout-share", "0.25", "--validation-share", "0.3", "--seed", "2"]
    assert main([*words, *shares, "--workers", "1"]) in (0, 2)  # 2: a constant pays among few
    parts, twins = tasks_of(out), read_tasks(out / "train_obscured.jsonl")
    sides = [{str(k) for t in tasks for k in t.meta["keys"]} for tasks in parts.values()]
    assert all(sides) and sum(map(len, sides)) == len(set.union(*sides))
    plain = {t.id: t for found in parts.values() for t in found}
    assert twins and {t.meta["plain"] for t in twins} <= plain.keys()
    for task in [*plain.values(), *twins]:
        assert task.tools == ("lake_script",) and len(task.meta["keys"]) == 1
        steps = [s["kind"] for s in task.gold["subtasks"]]
        assert len([k for k in steps if k not in ("load", "clean")]) <= 2
        assert task.gold["pipeline"].count("print(") == len(steps)
    assert all(t.gold["pipeline"] != plain[t.meta["plain"]].gold["pipeline"] for t in twins)


@pytest.fixture(scope="module")
def short() -> Lake:
    return short_lake(open_lake(SHORT_LAKE))


@pytest.mark.parametrize("kind", SHORT.kinds)
def test_a_script_that_prints_other_values_is_refused(short: Lake, kind: str) -> None:
    values, seed = None, 0
    while values is None:
        seed += 1
        with contextlib.suppress(NoQuestion):
            found = question_for(short.tables, kind, seed, short.links)
            if not fits(short, found):
                found = replace(found, script=short_script(found, short.tables))
                values, why = validate(found, short.folder)
                assert why != "the short script differs", (found.script, values)
    one_more = found.script.replace("print(len(t))", "print(len(t) + 1)", 1)
    for broken in (one_more, found.script.rpartition("print(")[0]):
        broken = replace(found, script=broken)
        assert validate(broken, short.folder)[1] == "the short script differs"
