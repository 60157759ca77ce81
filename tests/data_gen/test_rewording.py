"""Rewording through a real endpoint: what is kept, journalled, refused; and endpoints that fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")
from chat_server import serving

from assay.task import TaskError
from data_gen.rewording import FILE, Endpoint, Facts, Job, job_of, report, reword_all

QUESTION = "What is the mean of 'Rain' in rain.csv, rounded to 2 decimals?"
FACTS = Facts(("rain.csv",))
OTHER = "Rounded to 2 decimals, what does the mean of 'Rain' in rain.csv come to?"


def writer(url: str, folder: Path, **more: Any) -> Endpoint:
    return Endpoint(url, "m", folder / FILE, pause_s=0.001, **more)


def jobs(count: int, seed: int = 5) -> list[Job]:
    return [job_of(QUESTION.replace("Rain", f"Rain{c}"), FACTS, seed) for c in "abcdefgh"[:count]]


def reply(body: dict[str, Any]) -> str:
    """The question in other words; every second one with another number."""
    asked = str(body["messages"][0]["content"]).rpartition("\n")[2]
    name = asked.partition("'")[2].partition("'")[0]
    return OTHER.replace("Rain", name).replace("2", "2" if name[-1] in "aceg" else "3")


def test_a_proved_rewording_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "abc")
    with serving(lambda _: f"<think>hm</think>\n{OTHER}\n") as (url, seen):
        found = reword_all([job_of(QUESTION, FACTS, 7)], writer(url, tmp_path, key_env="MY_KEY"))[0]
    assert (found.text, found.refused) == (OTHER, None)
    (body,) = seen
    assert body["path"] == "/v1/chat/completions" and body["key"] == "Bearer abc"
    assert (body["model"], body["seed"]) == ("m", 7)
    asked = body["messages"][0]["content"]
    assert asked.endswith(QUESTION) and "- rain.csv\n" in asked and "- 'Rain'\n" in asked


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (OTHER.replace("2", "3"), "a new number: 3"),
        (QUESTION, "not changed"),
        ("", "empty"),
        (
            {"choices": [{"message": {"content": OTHER}, "finish_reason": "length"}]},
            "cut off: length",
        ),
    ],
)
def test_a_refused_rewording_keeps_the_question(tmp_path: Path, said: Any, why: str) -> None:
    with serving(lambda _: said) as (url, _):
        found = reword_all([job_of(QUESTION, FACTS, 7)], writer(url, tmp_path))[0]
    assert found.refused and (found.text, found.refused.coded()) == (QUESTION, why)
    told = report({"t1": found})
    assert (told["asked"], told["reworded"]) == (1, 0)
    assert told["refused"] == {why.partition(":")[0]: 1}
    assert told["refusals"]["t1"]["why"] == why


def test_the_journal_answers_the_same_command(tmp_path: Path) -> None:
    with serving(reply) as (url, seen):
        first = reword_all(jobs(8), writer(url, tmp_path))
        data = (tmp_path / FILE).read_bytes()
        assert len(seen) == 8 and sum(not one.refused for one in first) == 4
    nobody = writer("http://127.0.0.1:9/v1", tmp_path, attempts=1)
    assert reword_all(jobs(8), nobody) == first
    assert nobody.asked == 0 and (tmp_path / FILE).read_bytes() == data
    # an answer counts for its own request alone: another seed is asked, and nothing is lost
    with serving(reply) as (url, seen):
        more = writer(url, tmp_path)
        again = reword_all(jobs(2, 6), more)
        assert len(seen) == 2 == more.asked and again == first[:2]
    rows = (tmp_path / FILE).read_bytes().splitlines()
    assert len(rows) == 10 and set(data.splitlines()) < set(rows)


def test_the_journal_does_not_show_which_answer_came_first(tmp_path: Path) -> None:
    for folder, in_flight in (("a", 1), ("b", 8)):
        with serving(reply) as (url, _):
            reword_all(jobs(8), writer(url, tmp_path / folder, in_flight=in_flight))
    assert (tmp_path / "a" / FILE).read_bytes() == (tmp_path / "b" / FILE).read_bytes()


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failure_that_passes_is_tried_again(tmp_path: Path, status: int) -> None:
    replies: list[str | int] = [status, status, OTHER]
    with serving(lambda _: replies.pop(0)) as (url, seen):
        assert reword_all([job_of(QUESTION, FACTS, 7)], writer(url, tmp_path))[0].text == OTHER
        assert len(seen) == 3


def test_an_endpoint_that_is_gone_is_said_and_what_it_said_is_kept(tmp_path: Path) -> None:
    calls = iter(range(99))
    with serving(lambda body: reply(body) if next(calls) < 3 else 500) as (url, _):
        with pytest.raises(TaskError) as failed:
            reword_all(jobs(8), writer(url, tmp_path, attempts=2, in_flight=1))
        assert "HTTP 500" in str(failed.value) and "3 new answers are kept" in str(failed.value)
    rows = [json.loads(line) for line in (tmp_path / FILE).read_text("utf-8").splitlines()]
    assert len(rows) == 3
    with serving(reply) as (url, seen):
        assert len(reword_all(jobs(8), writer(url, tmp_path))) == 8
        assert len(seen) == 5


def test_an_endpoint_that_does_not_answer_ends(tmp_path: Path) -> None:
    import time

    def late(_: Any) -> str:
        time.sleep(0.5)
        return OTHER

    with serving(late) as (url, _), pytest.raises(TaskError, match="TimeoutError"):
        reword_all([job_of(QUESTION, FACTS, 7)], writer(url, tmp_path, attempts=2, timeout_s=0.05))[
            0
        ]
    assert not (tmp_path / FILE).exists()


def test_a_refusal_of_the_endpoint_is_not_tried_again(tmp_path: Path) -> None:
    with serving(lambda _: 401) as (url, seen):
        with pytest.raises(TaskError, match="HTTP 401"):
            reword_all([job_of(QUESTION, FACTS, 7)], writer(url, tmp_path))[0]
        assert len(seen) == 1


def test_what_cannot_be_asked_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="starts with http"):
        writer("localhost:8000", tmp_path)
    with pytest.raises(TaskError, match="name the model"):
        Endpoint("http://x/v1", "", tmp_path / FILE)
    (tmp_path / FILE).write_text('{"request": 1}\n', encoding="utf-8")
    with pytest.raises(TaskError, match=r"rewordings.jsonl line 1: no journalled reply"):
        writer("http://x/v1", tmp_path)


def test_a_line_that_a_kill_tore_is_asked_again(tmp_path: Path) -> None:
    with serving(reply) as (url, seen):
        reword_all(jobs(2), writer(url, tmp_path))
        path = tmp_path / FILE
        whole = path.read_bytes()
        path.write_bytes(whole[:-9])
        reword_all(jobs(2), writer(url, tmp_path))
        assert len(seen) == 3 and path.read_bytes() == whole
