"""A paraphrase is accepted only when its recipe is recovered and the judge agrees; a local HTTP
server plays the endpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cdr_copies import read_track
from chat_server import Body, serving
from front import command
from small_corpus import write_corpus

from data_gen.cdr.instruct import pool, read_instruction
from data_gen.cdr.paraphrase import CHECKS, SCORES, job_of, menu
from data_gen.rewording import FILE as JOURNAL
from data_gen.rewording import Endpoint, reword_all
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


def answers(text: str, choice: Any = CHOICE, verdict: Any = GOOD) -> Callable[[Body], str]:
    def reply(body: Body) -> str:
        prompt = body["messages"][0]["content"]
        if prompt.startswith("Rewrite"):
            return text
        return json.dumps(choice if prompt.startswith("Which") else verdict)

    return reply


@pytest.mark.parametrize(
    ("text", "choice", "verdict", "why"),
    [
        (FREE, CHOICE, GOOD, None),
        (pool(STEPS, "key")[4].user_requirement, "none", GOOD, None),  # our own words need no menu
        (FREE.replace("1,500", "1,200"), CHOICE, GOOD, "a number is missing"),
        (FREE, CHOICE[::-1], GOOD, "another recipe was recovered"),
        (FREE, [*CHOICE, {"operation": 0}], GOOD, "no recipe was recovered"),
        (FREE, CHOICE, GOOD | {"order_correct": False}, "judge: order_correct"),
        (FREE, CHOICE, GOOD | {"clarity": 1, "naturalness": 1}, "judge: low score"),
        (FREE, CHOICE, "fine", "judge: no verdict"),
        ("Run clean_email_mapper, then 1500 words.", CHOICE, GOOD, "names of code in it"),
        (BASE.user_requirement, CHOICE, GOOD, "not changed"),
    ],
)
def test_what_cannot_be_proved_is_refused(
    tmp_path: Path, text: str, choice: Any, verdict: Any, why: str | None
) -> None:
    with serving(answers(text, choice, verdict)) as (url, _):
        (made,) = reword_all([job_of(STEPS, BASE, 0)], Endpoint(url, "stub", tmp_path / JOURNAL))
    assert made.text == (BASE.user_requirement if why else text)
    assert (made.refused.coded() if made.refused else None) == why


SMALL = (
    *("workers=1", "instances.min_keep=2", "instances.min_drop=2", "instances.min_groups=2"),
    *("select.max_tasks=40", "select.difficulty_balanced=true"),
    *("paraphrase.candidates=2", "paraphrase.share=0.7"),
)


def other_words(body: Body) -> str:
    """A model that says an instruction in other words of our grammar, or as it was."""
    prompt = body["messages"][0]["content"]
    if prompt.startswith("Judge"):
        return json.dumps(GOOD)
    base = prompt.rsplit("\n\n", 1)[1].removeprefix("Instruction:\n")
    steps, style = read_instruction(base)
    other = next(v.user_requirement for v in pool(steps, "other") if v.style_id == style)
    return base if len(base) % 2 else other


def test_a_task_set_is_paraphrased_counted_and_never_asked_twice(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["cdr", "--corpus", str(write_corpus(tmp_path / "corpus", 16)), "--out", str(out)]
    with serving(other_words) as (url, seen):
        words += [*SMALL, "--writer", url, "--writer-model", "m"]
        assert main(words) == 0
        counts = json.loads((out / "manifest.json").read_text())["paraphrases"]
        assert counts["accepted"] + sum(counts["refused"].values()) == counts["candidates"]
        assert counts["accepted"] > 0 and counts["refused"].keys() == {"not changed"}
        first, asked = {p.name: p.read_bytes() for p in out.rglob("*.jsonl")}, len(seen)
        assert main(words) == 0 and len(seen) == asked
    assert {p.name: p.read_bytes() for p in out.rglob("*.jsonl")} == first
    rows = [row for path in find_tracks(out).values() for row in read_track(path)]
    variants = [v for row in rows for v in row["prompt_variants"]]
    spoken = [v for v in variants if v.get("source") == "paraphrase"]
    assert spoken and len(spoken) < len(variants)
