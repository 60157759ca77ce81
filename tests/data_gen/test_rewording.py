"""Questions in other words: every fact is kept and none is brought; what an endpoint said is
journalled; endpoints that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("aiohttp")
from chat_server import serving
from places import tables

from assay.task import TaskError
from data_gen.rewording import FILE, Endpoint, Facts, Job, job_of, lacks, named, report, reword_all

TABLE = tables("rewordings")
QUESTION, GOOD = TABLE["question"], TABLE["good"]
LAST = ("Skip rows without a number.", "Answer with a list of names, as the file writes them.")
FACTS = Facts(
    ("rain_2.csv", *LAST),
    (("'Area'", "above", "12.5"), ("'Kind'", "'Fresh water'")),
    (("'Town'", "'Rain, June'"),),
    ("Acton", "Boston", "Essex"),
)


def why(question: str, text: str, facts: Facts) -> str:
    found = lacks(question, text, facts)
    return found.coded() if found else ""


@pytest.mark.parametrize(("old", "new", "said"), TABLE["refused"])
def test_what_is_refused(old: str, new: str, said: str) -> None:
    assert old in GOOD
    assert why(QUESTION, GOOD.replace(old, new), FACTS).startswith(said)


@given(st.one_of(st.text(max_size=300), st.sets(st.integers(0, len(GOOD.split()) - 1))))
def test_no_accepted_text_lacks_a_fact(said: str | set[int]) -> None:
    """Any text, and the good one with some words left out."""
    words = [w for n, w in enumerate(GOOD.split()) if isinstance(said, str) or n not in said]
    text = said if isinstance(said, str) else " ".join(words)
    assert lacks(QUESTION, text, FACTS) or all(part in text for part in named(QUESTION, FACTS))


# --- the endpoint

ASKED = "What is the mean of 'Rain' in rain.csv, rounded to 2 decimals?"
OTHER = "Rounded to 2 decimals, what does the mean of 'Rain' in rain.csv come to?"


def writer(url: str, folder: Path, **more: Any) -> Endpoint:
    return Endpoint(url, "m", folder / FILE, pause_s=0.001, **more)


def jobs(count: int, seed: int = 5) -> list[Job]:
    facts = Facts(("rain.csv",))
    return [job_of(ASKED.replace("Rain", f"Rain{c}"), facts, seed) for c in "abcdefgh"[:count]]


ONE = [job_of(ASKED, Facts(("rain.csv",)), 7)]


def reply(body: dict[str, Any]) -> str:
    """The question in other words; every second one with another number."""
    asked = str(body["messages"][0]["content"]).rpartition("\n")[2]
    name = asked.partition("'")[2].partition("'")[0]
    return OTHER.replace("Rain", name).replace("2", "2" if name[-1] in "aceg" else "3")


def test_a_proved_rewording_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "abc")
    with serving(lambda _: f"<think>hm</think>\n{OTHER}\n") as (url, seen):
        (found,) = reword_all(ONE, writer(url, tmp_path, key_env="MY_KEY"))
    (body,) = seen
    assert (found.text, found.refused) == (OTHER, None)
    assert (body["key"], body["model"], body["seed"]) == ("Bearer abc", "m", 7)
    asked = body["messages"][0]["content"]
    assert asked.endswith(ASKED) and "- rain.csv\n" in asked and "- 'Rain'\n" in asked


CUT = {"choices": [{"message": {"content": OTHER}, "finish_reason": "length"}]}


@pytest.mark.parametrize(
    ("said", "code"),
    [
        *((OTHER.replace("2", "3"), "a new number: 3"), (ASKED, "not changed"), ("", "empty")),
        (CUT, "cut off: length"),
    ],
)
def test_a_rewording_that_is_not_proved_keeps_the_question(
    tmp_path: Path, said: Any, code: str
) -> None:
    with serving(lambda _: said) as (url, _):
        (found,) = reword_all(ONE, writer(url, tmp_path))
    assert found.refused and (found.text, found.refused.coded()) == (ASKED, code)
    assert report({"t1": found})["refused"] == {code.partition(":")[0]: 1}


def test_the_journal_answers_the_same_command_in_one_order(tmp_path: Path) -> None:
    """Also after a kill that tore a line; another seed is asked, and nothing is lost."""
    path, other = tmp_path / "a" / FILE, tmp_path / "b" / FILE
    with serving(reply) as (url, seen):
        first = reword_all(jobs(8), writer(url, path.parent, in_flight=1))
        assert len(seen) == 8 and sum(not one.refused for one in first) == 4
        reword_all(jobs(8), writer(url, other.parent, in_flight=8))
    data = path.read_bytes()
    assert data == other.read_bytes()
    nobody = writer("http://127.0.0.1:9/v1", path.parent, attempts=1)
    assert reword_all(jobs(8), nobody) == first
    assert nobody.asked == 0 and path.read_bytes() == data
    with serving(reply) as (url, seen):
        path.write_bytes(data[:-9])
        assert reword_all(jobs(8), writer(url, path.parent)) == first
        assert len(seen) == 1 and path.read_bytes() == data
        assert reword_all(jobs(2, 6), writer(url, path.parent)) == first[:2]
        assert len(seen) == 3
    rows = path.read_bytes().splitlines()
    assert len(rows) == 10 and set(data.splitlines()) < set(rows)


def test_what_an_endpoint_said_before_it_failed_is_kept(tmp_path: Path) -> None:
    with serving(lambda _: 401) as (url, seen):
        with pytest.raises(TaskError, match="HTTP 401"):
            reword_all(ONE, writer(url, tmp_path))
        assert len(seen) == 1 and not (tmp_path / FILE).exists()
    calls = iter(range(99))
    gone, said = (lambda body: reply(body) if next(calls) < 3 else 500), r"HTTP 500.*3 new answers"
    with serving(gone) as (url, _), pytest.raises(TaskError, match=said):
        reword_all(jobs(8), writer(url, tmp_path, attempts=2, in_flight=1))
    assert len((tmp_path / FILE).read_text("utf-8").splitlines()) == 3
    with serving(reply) as (url, seen):
        assert len(reword_all(jobs(8), writer(url, tmp_path))) == 8
        assert len(seen) == 5
