"""A paraphrase is accepted only when its recipe is recovered and the judge agrees; a local HTTP
server plays the endpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cdr_copies import read_track
from chat_server import Body, serving
from front import command
from small_corpus import write_corpus

from data_gen.cdr.instruct import pool, read_instruction
from data_gen.cdr.paraphrase import CHECKS, FILE, SCORES, job_of, menu
from data_gen.rewording import FILE as JOURNAL
from data_gen.rewording import Endpoint, Rewording, reword_all
from rewards.cdr.release_files import find_tracks
from rewards.gold import Step

pytest.importorskip("duckdb", reason="needs the extra `build`")
main = command("tasks")

STEPS = [Step("clean_email_mapper"), Step("words_num_filter", {"min_num": 1500})]
BASE = pool(STEPS, "key")[0]
GOOD = {name: True for name in CHECKS} | {name: 5 for name in SCORES} | {"verdict": "keep"}
FREE = "Would you lose the mail addresses, and only hold on to it with 1,500 words or up?"
NAMES = [name for name, _, _ in menu()]
CHOICE = [
    {"operation": NAMES.index("clean_email_mapper") + 1, "number": None},
    {"operation": NAMES.index("words_num_filter") + 1, "number": "1,500"},
]
OTHER = {"operation": 0, "number": None}


def answers(text: str, choice: Any = CHOICE, verdict: Any = GOOD) -> Callable[[Body], str]:
    def reply(body: Body) -> str:
        prompt = body["messages"][0]["content"]
        if prompt.startswith("Rewrite"):
            return text
        return json.dumps(choice if prompt.startswith("Which") else verdict)

    return reply


def made_of(reply: Callable[[Body], str], folder: Path) -> Rewording:
    with serving(reply) as (url, _):
        return reword_all([job_of(STEPS, BASE, 0)], Endpoint(url, "stub", folder / JOURNAL))[0]


def test_a_faithful_paraphrase_is_accepted(tmp_path: Path) -> None:
    made = made_of(answers(FREE), tmp_path / "a")
    assert (made.refused, made.text) == (None, FREE)
    other = pool(STEPS, "key")[4].user_requirement  # words of our own grammar need no menu
    assert made_of(answers(other, "nothing"), tmp_path / "b").text == other


@pytest.mark.parametrize(
    ("text", "choice", "verdict", "why"),
    [
        (FREE.replace("1,500", "1,200"), CHOICE, GOOD, "a number is missing"),
        (FREE, CHOICE[::-1], GOOD, "another recipe was recovered"),
        (FREE, CHOICE[:1], GOOD, "another recipe was recovered"),
        (FREE, [*CHOICE, OTHER], GOOD, "no recipe was recovered"),
        (FREE, "no list", GOOD, "no recipe was recovered"),
        (FREE, [{"operation": 1e400}], GOOD, "no recipe was recovered"),
        (FREE, CHOICE, GOOD | {"order_correct": False}, "judge: order_correct"),
        (FREE, CHOICE, GOOD | {"clarity": 1, "naturalness": 1}, "judge: low score"),
        (FREE, CHOICE, GOOD | {"verdict": "drop"}, "judge: drop"),
        (FREE, CHOICE, "fine", "judge: no verdict"),
        ("Run clean_email_mapper, then 1500 words.", CHOICE, GOOD, "names of code in it"),
        (FREE + " <status>", CHOICE, GOOD, "parts of the request in it"),
        (BASE.user_requirement, CHOICE, GOOD, "not changed"),
        ("", CHOICE, GOOD, "empty"),
    ],
)
def test_what_cannot_be_proved_is_refused(
    tmp_path: Path, text: str, choice: Any, verdict: Any, why: str
) -> None:
    made = made_of(answers(text, choice, verdict), tmp_path)
    assert made.refused and (made.refused.coded(), made.text) == (why, BASE.user_requirement)


SMALL = (
    *("workers=1", "instances.min_keep=2", "instances.min_drop=2", "instances.min_groups=2"),
    *("select.max_tasks=40", "select.difficulty_balanced=true"),
    *("paraphrase.candidates=2", "paraphrase.share=0.7"),
)


def free_words(body: Body) -> str:
    """A model that says any instruction in its own words, and finds its operations again; it
    drops the last operation of instructions whose words have an odd number of letters."""
    prompt = body["messages"][0]["content"]
    if prompt.startswith("Judge"):
        return json.dumps(GOOD)
    base = prompt.rsplit("\n\n", 1)[1].removeprefix("Instruction:\n").removeprefix("My way: ")
    steps, _ = read_instruction(base)
    if prompt.startswith("Rewrite"):
        return "My way: " + base
    rows = [
        {"operation": NAMES.index(step.operator) + 1, "number": _number(step)} for step in steps
    ]
    return json.dumps(rows[:-1] if len(re.findall(r"\w", base)) % 2 else rows)


def _number(step: Step) -> str | None:
    values = [v for v in step.params.values() if isinstance(v, int | float)]
    key = next(iter(step.params), "")
    if not values or isinstance(next(iter(step.params.values())), str):
        return None
    return f"{values[0] * 100:g} %" if key.endswith("_ratio") else str(values[0])


def build(folder: Path, url: str, *more: str) -> int:
    words = ["cdr", "--corpus", str(folder / "corpus"), "--out", str(folder / "out"), *SMALL]
    return main([*words, "--writer", url, "--writer-model", "m", *more])


def test_a_task_set_is_paraphrased_counted_and_never_asked_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the endpoint goes away for a while: what it gave is kept."""
    write_corpus(tmp_path / "corpus", 16)
    out, left = tmp_path / "out", [9]
    journal = out / JOURNAL

    def reply(body: Body) -> str | int:
        left[0] -= 1
        return free_words(body) if left[0] >= 0 else 403

    with serving(reply) as (url, seen):
        assert build(tmp_path, url, "paraphrase.workers=1") == 2
        said = capsys.readouterr().err
        assert "HTTP 403" in said and "9 new answers are kept" in said
        assert len(journal.read_text().splitlines()) == 9 and not (out / "tracks").exists()
        with open(journal, "a") as file:
            file.write('{"torn')
        left[0] = 100_000
        assert build(tmp_path, url) == 0
        counts = json.loads((out / "manifest.json").read_text())["paraphrases"]
        assert counts["accepted"] + sum(counts["refused"].values()) == counts["candidates"]
        whys = {"another recipe was recovered", "no recipe was recovered"}
        assert counts["styles_paraphrased"] > 0 and counts["refused"].keys() == whys
        first, asked = {p.name: p.read_bytes() for p in out.rglob("*.jsonl")}, len(seen)
        assert build(tmp_path, url) == 0 and len(seen) == asked
    assert {p.name: p.read_bytes() for p in out.rglob("*.jsonl")} == first
    rows = [row for path in find_tracks(out).values() for row in read_track(path)]
    variants = [v for row in rows for v in row["prompt_variants"]]
    spoken = [v for v in variants if v.get("source") == "paraphrase"]
    assert spoken and len(spoken) < len(variants)
    assert all(v["user_requirement"].startswith("My way: ") for v in spoken)
    (out / FILE).write_text("{}\n")
    journal.unlink()
    assert build(tmp_path, "http://127.0.0.1:9") == 2
    assert "of an older Assay" in capsys.readouterr().err
