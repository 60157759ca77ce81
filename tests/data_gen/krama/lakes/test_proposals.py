"""Lake questions that an endpoint proposes: the builder's checks decide, the journal answers."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas")
pytest.importorskip("duckdb")
pytest.importorskip("aiohttp")

import front
import pandas as pd
from chat_server import serving

from data_gen.asking import FILE
from data_gen.krama.lakes.lake import open_lake
from data_gen.krama.lakes.proposals import prompt
from data_gen.krama.lakes.questions import proposed_question
from data_gen.krama.lakes.steps import NoQuestion
from data_gen.proposing import Unfit

main = front.command("tasks", "lake")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    lines = ["Ident,Name,Kind,Place,Area,Year,Height,Weight"]
    for i in range(300):
        lines.append(
            f"{7000 + i},n{i},{'abcdefgh'[i * 7 % 8]},{'xyzuvw'[i // 3 % 6]},"
            f"{20 + (i * 37 + 5) % 101 / 3:.3f},{1990 + i % 25},"
            f"{10 + 3 * (i * 7 % 8) + (i * i * 13 + 7) % 89 / 7:.3f},"
            f"{5 + (i * 53 + i % 8 * 40) % 97 / 7:.3f}"
        )
    (folder / "things.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    more = ["Name,Depth"] + [f"n{i},{3 + (i * i * 7 + 3) % 83 / 9:.3f}" for i in range(300)]
    (folder / "more.csv").write_text("\n".join(more) + "\n", encoding="utf-8")
    return folder


GOOD = {
    "kind": "one_number",
    "file": "things.csv",
    "measure": "Height",
    "summary": "mean",
    "filter": {"column": "Kind", "is": "c"},
    "digits": 2,
}
JOINED = {
    "kind": "one_number",
    "join": {"file": "more.csv", "brings": "Depth"},
    "measure": "Depth",
    "summary": "median",
    "filter": {"column": "Kind", "is": "c"},
}


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def run(lake: Path, out: Path, url: str, count: int = 4, *more: str) -> int:
    words = ["--lakes", str(lake), "--count", str(count), "--seed", "3", "--workers", "1"]
    words += ["--validation-share", "0", "--out", str(out)]
    return main([*words, "--proposer", url, "--proposer-model", "m", *more])


def answer(*drafts: Any) -> str:
    return "Here you are:\n```json\n" + json.dumps({"proposals": drafts}) + "\n```"


def of_things(body: dict[str, Any]) -> bool:
    return '- "file": "things.csv"' in str(body["messages"][0]["content"])


def test_a_good_draft_becomes_a_proved_task_and_others_are_refused(
    lake: Path, tmp_path: Path
) -> None:
    bad = [
        (GOOD | {"measure": "Ident"}, "'Ident' is not a measured number"),
        (GOOD | {"summary": "total"}, "total is none of"),
        (GOOD | {"filter": {"column": "Kind", "is": "q"}}, "'Kind' is never 'q'"),
        (GOOD | {"code": "print(1)"}, "no field 'code'"),
        (GOOD | {"k": 3}, "k: this kind of question does not take it"),
        (GOOD | {"file": "../secret.csv"}, "no usable table"),
        (GOOD, "asked already"),
        (7, "no JSON object"),
    ]
    said = answer(GOOD, *(draft for draft, _ in bad))
    with serving(lambda body: said if of_things(body) else "nonsense") as (url, seen):
        assert run(lake, tmp_path / "o", url) == 0
    (task,) = rows(tmp_path / "o" / "train.jsonl")
    frame = pd.read_csv(lake / "things.csv")
    assert task["gold"]["answer"] == round(frame[frame["Kind"] == "c"]["Height"].mean(), 2)
    assert task["meta"]["proposed_by"] == "m" and "gold" not in str(seen[0]["messages"])
    told = json.loads((tmp_path / "o" / "certificate.json").read_text("utf-8"))
    assert told["proof"] == {"agreed": 1}
    # a second round repeats the first, gives nothing new, and ends the build
    assert told["proposals"]["requests"] == len(seen) == 4
    assert told["proposals"]["accepted"] == 1
    refused = rows(tmp_path / "o" / "refused.jsonl")
    for number, (_, why) in enumerate(bad, 2):
        found = [r for r in refused if r["name"].startswith(f"lake/things.csv, proposal {number}:")]
        assert found and why in found[0]["why"][0], (why, found)
    assert any(r["why"] == ["no JSON with proposals"] for r in refused)


@pytest.mark.parametrize(
    "draft",
    [
        GOOD,
        JOINED,
        {"kind": "portion", "measure": "Area", "limit": 30, "side": "above"},
        {
            "kind": "difference",
            "measure": "Area",
            "by": "Kind",
            "values": ["a", "b"],
            "summary": "median",
        },
        {
            "kind": "top_groups",
            "measure": "Weight",
            "by": ["Kind"],
            "summary": "mean",
            "k": 3,
            "order": "highest",
            "filter": {"column": "Area", "at least": 28},
        },
        {"kind": "line", "measure": ["Height", "Weight"], "line": "both"},
        {
            "kind": "pair",
            "measure": "Area",
            "by": ["Kind", "Place"],
            "summary": "mean",
            "order": "lowest",
        },
        {
            "kind": "pair",
            "measure": "Area",
            "by": ["Kind", "Year"],
            "summary": "mean",
            "order": "lowest",
            "rows": 2,
        },
        {
            "kind": "between_years",
            "measure": "Area",
            "by": "Year",
            "summary": "mean",
            "share": 0.5,
            "back": 2,
        },
        {
            "kind": "line",
            "measure": ["Height", "Depth"],
            "line": "slope",
            "join": {"file": "more.csv", "brings": "Depth", "on": "Name"},
        },
        {"kind": "count_groups", "measure": "Area", "by": "Kind", "summary": "median"},
        {"kind": "group_values", "measure": "Area", "by": "Kind", "summary": "median"},
        {
            "kind": "best_group",
            "measure": "Area",
            "by": "Kind",
            "summary": "mean",
            "order": "lowest",
            "rows": None,
        },
    ],
)
def test_every_kind_can_be_proposed(lake: Path, draft: dict[str, Any]) -> None:
    one = open_lake(lake)
    wanted = {"file": "things.csv"} | draft | {"": 1}
    kind, question = proposed_question(one.tables, wanted, 5, one.links)
    again = proposed_question(one.tables, wanted, 5, one.links)
    assert kind == draft["kind"] and again == (kind, question)
    names = [draft["measure"]] if isinstance(draft["measure"], str) else draft["measure"]
    assert all(f"'{name}'" in question.text for name in names)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kind": "poem"}, "kind: 'poem'"),
        ({"measure": 7}, "measure: wanted names"),
        ({"measure": []}, "one more column is needed"),
        ({"measure": ["Height", "Area"]}, "no place for 'Area'"),
        ({"summary": ["mean"]}, "is none of"),
        ({"summary": None}, "summary: not given"),
        ({"filter": "Kind"}, "filter: wanted"),
        ({"filter": {"column": "Area", "above": 1e9}}, "is not between"),
        ({"filter": {"column": "Area", "above": True}}, "wanted a number"),
        ({"filter": {"column": "Area", "above": 30, "below": 40}}, "one of is"),
        ({"filter": {"column": "Kind", "is": ["c"]}}, "is never"),
        ({"filter": {"column": "Name", "is": "n1"}}, "no column to filter by"),
        ({"join": {"file": "more.csv", "brings": "Weight"}}, "nothing here brings 'Weight'"),
        ({"join": {"file": "more.csv", "brings": "Depth"}}, "'Depth', must stand there"),
        ({"digits": 17}, "digits: 17 is none of"),
    ],
)
def test_what_a_draft_may_not_want_is_refused_with_a_reason(
    lake: Path, change: dict[str, Any], why: str
) -> None:
    one = open_lake(lake)
    with pytest.raises((Unfit, NoQuestion)) as error:
        proposed_question(one.tables, GOOD | change | {"": 1}, 5, one.links)
    assert why in str(error.value)


def test_a_figure_that_many_rows_find_is_not_joined(tmp_path: Path) -> None:
    """A yearly panel by state and one figure a state: a total over years counts it many times."""
    states = [f"S{n}" for n in range(12)]
    panel = ["state,year,crime"] + [
        f"{s},{1980 + y},{40 + (n * 37 + y * 53) % 101 / 7:.3f}"
        for n, s in enumerate(states)
        for y in range(10)
    ]
    (tmp_path / "panel.csv").write_text("\n".join(panel) + "\n", encoding="utf-8")
    firms = ["state,side,firms"] + [
        f"{s},{'ns'[n % 2]},{100 + n * n * 37 % 101}" for n, s in enumerate(states * 1)
    ]
    firms += [f"X{n},{'ns'[n % 2]},{90 + n * 31}" for n in range(6)]
    (tmp_path / "firms.csv").write_text("\n".join(firms) + "\n", encoding="utf-8")
    one = open_lake(tmp_path)
    place = next(n for n, t in enumerate(one.tables) if t.key == "panel.csv")
    assert {link.brings for link in one.links[place]} == {"side"}


def test_the_endpoint_sees_what_the_builder_knows(lake: Path) -> None:
    one = open_lake(lake)
    place = next(n for n, t in enumerate(one.tables) if t.key == "things.csv")
    said = prompt(one, place)
    assert "'Height': a measure" in said and "'Kind': to group by; values 'a', 'b'" in said
    assert "file \"more.csv\" by 'Name'; brings 'Depth', a measure" in said
    assert "'Ident'" not in said


def test_a_killed_build_goes_on_from_its_journal_with_the_same_bytes(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = 0

    def dying(body: dict[str, Any]) -> str | int:
        nonlocal calls
        calls += 1
        if calls == 1:
            return reply(body)
        for _ in range(2000):  # the endpoint is lost only after its first answer is kept
            if (tmp_path / "killed" / FILE).exists():
                break
            time.sleep(0.01)
        return 403

    def reply(body: dict[str, Any]) -> str:
        return answer(GOOD) if of_things(body) else answer({"kind": "poem"})

    with serving(dying) as (url, _):
        assert run(lake, tmp_path / "killed", url) == 2
    said = capsys.readouterr().err
    assert "the proposer gave no answer" in said and "1 new answers are kept" in said
    assert not (tmp_path / "killed" / "train.jsonl").exists()
    with serving(reply) as (url, seen):
        assert run(lake, tmp_path / "killed", url) == 0
        resumed = len(seen)
        assert run(lake, tmp_path / "whole", url) == 0
        asked = len(seen)
        assert asked - resumed == resumed + 1
        assert run(lake, tmp_path / "whole", url) == 0
        assert len(seen) == asked  # the journal answers
    for name in ("train.jsonl", "refused.jsonl", "certificate.json", FILE):
        one, two = ((tmp_path / d / name).read_bytes() for d in ("killed", "whole"))
        assert one == two, name


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--proposer", "http://127.0.0.1:9/v1"], "--proposer-model"),
        (["--proposer", "some-model"], "OPENAI_BASE_URL"),
        (
            ["--proposer", "http://127.0.0.1:9/v1", "--proposer-model", "m", "--obscured"],
            "--obscured",
        ),
    ],
)
def test_a_proposer_that_cannot_be_used_is_said_first(
    lake: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    why: str,
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert main(["--lakes", str(lake), "--out", str(tmp_path / "o"), *words]) == 2
    assert why in capsys.readouterr().err
