"""Lake questions reworded by an endpoint: proved or left alone, the same bytes from the journal."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas")
pytest.importorskip("duckdb")
pytest.importorskip("aiohttp")

import front
from chat_server import serving
from small_lake import make_lake

from data_gen.queries.lake import open_lake
from data_gen.queries.lake_questions import KINDS, facts_of, question_for
from data_gen.queries.lake_steps import NoQuestion
from data_gen.rewording import lacks, named

main = front.command("tasks", "lake")


def lake(folder: Path) -> Path:
    make_lake(folder, settled=True)
    lines = ["Name,Kind,Area,Year,Height,Weight"]
    for i in range(300):
        lines.append(
            f"n{i},{'abcdefgh'[i * 7 % 8]},{'xyz'[i % 3]},{1990 + i % 25},"
            f"{10 + (i * 37 + 5) % 101 / 3:.2f},{5 + (i * i * 13 + 5) % 97 / 7:.2f}"
        )
    (folder / "things.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def reply(body: dict[str, Any]) -> str:
    """Other words for questions that start with "What"; for others another file."""
    asked = str(body["messages"][0]["content"]).rpartition("\n")[2]
    if asked.startswith("What "):
        return re.sub(r"^What ", "Please tell me: what ", asked)
    return asked.replace(".csv", "_2.csv")


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_every_question_keeps_its_own_facts(tmp_path: Path) -> None:
    """What a question must keep, it has; and each fact that is taken away is missed."""
    tables = open_lake(lake(tmp_path / "lake")).tables
    seen: set[str] = set()
    for draw in range(50):
        for kind in KINDS:
            try:
                question = question_for(tables, kind, draw)
            except NoQuestion:
                continue
            facts = facts_of(question, tables, "no such answer")
            text = question.text
            assert lacks(text, text, facts) is None, text
            assert any(part.endswith(".csv") for part in facts.literals), text
            assert any(part.startswith("Skip rows") for part in facts.literals), text
            for part in named(text, facts):
                assert lacks(text, text.replace(part, "it"), facts), (part, text)
            for group in (*facts.together, *facts.in_order):
                assert all(part in text for part in group), (group, text)
            seen.add(kind)
    assert seen == set(KINDS)


def test_rewordings_are_proved_counted_and_journalled(tmp_path: Path) -> None:
    one = lake(tmp_path / "lake")
    command = [
        "--lakes",
        str(one),
        "--heldout-share",
        "0",
        "--count",
        "12",
        "--seed",
        "2",
        "--workers",
        "1",
    ]
    plain, out = tmp_path / "plain", tmp_path / "o"
    assert main([*command, "--out", str(plain)]) == 0
    with serving(reply) as (url, seen):
        command += ["--writer", url, "--writer-model", "m"]
        assert main([*command, "--out", str(out)]) == 0
        asked = len(seen)
        files = sorted(p.name for p in out.glob("*.json*"))
        first = {n: (out / n).read_bytes() for n in files if n != "provenance.json"}
        assert main([*command, "--out", str(out)]) == 0
        assert len(seen) == asked  # the journal answered
    assert first == {n: (out / n).read_bytes() for n in first}
    told = json.loads((out / "certificate.json").read_text("utf-8"))["lake"]["wordings"]
    before = {t["id"]: t for s in ("train", "validation") for t in rows(plain / f"{s}.jsonl")}
    after = {t["id"]: t for s in ("train", "validation") for t in rows(out / f"{s}.jsonl")}
    assert before.keys() == after.keys() and asked == len(after) == told["asked"]
    new = {i for i in after if after[i]["prompt"] != before[i]["prompt"]}
    assert 0 < len(new) == told["reworded"] < len(after)
    assert len(told["refusals"]) == sum(told["refused"].values()) == len(after) - len(new)
    for name, task in after.items():
        question = before[name]["prompt"][-1]["content"]
        assert task["gold"] == before[name]["gold"]
        if name in new:
            assert task["prompt"][-1]["content"].startswith("Please tell me: what ")
            assert task["meta"]["template"] == question
        else:
            assert told["refusals"][name]["why"] in ("new marks", "not changed")
    assert len(rows(out / "rewordings.jsonl")) == asked


def test_an_endpoint_that_is_gone_leaves_no_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, out = lake(tmp_path / "lake"), tmp_path / "o"
    command = [
        "--lakes",
        str(one),
        "--heldout-share",
        "0",
        "--count",
        "3",
        "--workers",
        "1",
        "--out",
        str(out),
    ]
    with serving(lambda _: 401) as (url, _):
        assert main([*command, "--writer", url, "--writer-model", "m"]) == 2
    said = capsys.readouterr().err
    assert "the writer gave no answer" in said and "HTTP 401" in said
    assert not list(out.glob("*.jsonl")) and not (out / "certificate.json").exists()
    assert main([*command, "--writer", "localhost:1"]) == 2
    assert "starts with http" in capsys.readouterr().err
