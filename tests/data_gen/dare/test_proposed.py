"""Databases that an endpoint proposes: the builder's own checks decide, the journal answers."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("duckdb")
pytest.importorskip("aiohttp")

from chat_server import serving  # noqa: E402
from front import command  # noqa: E402

from data_gen.asking import FILE  # noqa: E402
from rewards.task import read_tasks  # noqa: E402

run = command("tasks")


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Houses, whose tax is a share of the price, and the daily load of two towns."""
    rng = random.Random(3)
    rows: list[dict[str, Any]] = []
    for n in range(360):
        size, age = rng.uniform(40, 200), rng.uniform(0, 90)
        town = rng.choice(["Ulm", "Bonn", "Kiel"])
        price = 3 * size - age + 40 * (town == "Kiel") + rng.gauss(0, 12)
        rows.append(
            {"house_id": 50_000 + 7 * n, "size": round(size, 1), "age": round(age, 1)}
            | {"town": town, "rooms": round(size / 25 + rng.gauss(0, 1), 2)}
            | {"price": round(price, 2), "tax": round(0.07 * round(price, 2), 4)}
        )
    folder = tmp_path / "in"
    folder.mkdir()
    pd.DataFrame(rows).to_csv(folder / "houses.csv", index=False)
    days = pd.date_range("2020-01-01", periods=220, freq="D")
    load: list[dict[str, Any]] = []
    for town, base in (("Ulm", 50.0), ("Bonn", 80.0)):
        for n, day in enumerate(days):
            warm = 10 + 8 * (n % 30) / 30 + rng.gauss(0, 1)
            used = base - 1.5 * warm + n / 20 + rng.gauss(0, 1)
            load.append(
                {"day": day.date().isoformat(), "town": town}
                | {"warmth": round(warm, 2), "load": round(used, 3)}
            )
    pd.DataFrame(load).to_csv(folder / "load.csv", index=False)
    return folder


HOUSE = {"task": "reg", "target": "price", "features": ["size", "age", "town", "rooms"]}
STEPS = {
    "train_on": ["size", "age"],
    "filter": ["size", "age"],
    "model": "Ridge",
    "impute": "median",
}
LOAD = {"task": "series", "target": "load", "time": "day", "resample": None, "tracks": ["CF"]}


def answer(*drafts: Any) -> str:
    return "Sure!\n```json\n" + json.dumps({"proposals": drafts}) + "\n```\nGood luck."


def of_houses(body: dict[str, Any]) -> bool:
    return "house_id" in str(body["messages"][0]["content"])


def words(tables: Path, out: Path, url: str) -> list[str]:
    told = ["dare", "--tables", str(tables), "--databases", "9", "--per-table", "3", "--seed", "2"]
    told += ["--workers", "1", "--heldout-share", "0", "--out", str(out)]
    return [*told, "--proposer", url, "--proposer-model", "m"]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_good_proposals_are_built_and_proved_and_bad_ones_refused(
    tables: Path, tmp_path: Path
) -> None:
    bad = [
        (HOUSE | {"target": "house_id"}, "target 'house_id': an identifier"),
        (HOUSE | {"features": ["size", "tax"]}, "feature 'tax' gives the target away"),
        (HOUSE | {"target": "rent"}, "no column 'rent'"),
        (HOUSE | {"gold": [1, 2]}, "no field 'gold'"),
        (HOUSE | {"steps": {"model": "import os"}}, "steps, model: 'import os' is none of"),
        ("price, please", "no JSON object"),
        (HOUSE | {"steps": STEPS}, ""),
        ({"task": "reg", "target": ["price"]}, "asks for the same targets again"),
    ]
    said = answer(*(draft for draft, _ in bad))
    with serving(lambda body: said if of_houses(body) else answer(LOAD)) as (url, seen):
        assert run(words(tables, tmp_path / "o", url)) == 0
    assert len(seen) == 2 and {body["model"] for body in seen} == {"m"}
    shown = next(str(b["messages"][0]["content"]) for b in seen if of_houses(b))
    assert "`town`: 3 values" in shown and "Some rows:" in shown
    tasks = {t.track: t for t in read_tasks(tmp_path / "o" / "train.jsonl")}
    assert set(tasks) == {"reg-IF", "reg-MM", "time-CF"}
    question = str(tasks["reg-IF"].prompt)
    assert "Ridge" in question and "`tax`" not in question
    (house,) = [d for d in (tmp_path / "o" / "databases").iterdir() if "price" in d.name]
    recipe = json.loads((house / "verify" / "all_metadata.json").read_text())["question"]
    assert recipe["selected_features"] == ["size", "age"] and recipe["imputer_type"] == "median"
    assert set(recipe["related_features"]) == {"size", "age", "town", "rooms"}
    told = json.loads((tmp_path / "o" / "certificate.json").read_text("utf-8"))
    assert told["gold_proved_twice"]["proved"] == 2
    counts = told["proposals"]
    assert (counts["proposals"], counts["accepted"], counts["requests"]) == (9, 2, 2)
    assert sum(counts["refused"].values()) == len(bad) - 1
    refused = rows(tmp_path / "o" / "refused.jsonl")
    for number, (_, why) in enumerate(bad, 1):
        found = [r["why"][0] for r in refused if f"houses, proposal {number}:" in r["name"]]
        assert len(found) == bool(why) and all(why in said for said in found), (why, found)


def test_nonsense_gives_no_task_and_says_so(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = iter(["[" * 5000, '{"proposals": [NaN]}'])
    with serving(lambda body: next(texts)) as (url, _):
        assert run(words(tables, tmp_path / "o", url)) == 2
    assert "no table gave a task" in capsys.readouterr().err
    refused = rows(tmp_path / "o" / "refused.jsonl")
    assert sum("no JSON with proposals" in str(r["why"]) for r in refused) == 2
    assert not (tmp_path / "o" / "train.jsonl").exists()


def test_a_killed_build_goes_on_from_its_journal_with_the_same_bytes(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def reply(body: dict[str, Any]) -> str:
        return answer(HOUSE | {"tracks": ["MM"]}) if of_houses(body) else answer(LOAD)

    def dying(body: dict[str, Any]) -> str | int:
        return reply(body) if of_houses(body) else 403

    out = tmp_path / "killed"
    with serving(dying) as (url, _):
        assert run(words(tables, out, url)) == 2
    said = capsys.readouterr().err
    assert "the proposer gave no answer" in said and "the same command goes on there" in said
    assert not (out / "certificate.json").exists()
    kept = len(rows(out / FILE)) if (out / FILE).exists() else 0
    with serving(reply) as (url, seen):
        assert run(words(tables, out, url)) == 0
        assert len(seen) == 2 - kept
        assert run(words(tables, tmp_path / "whole", url)) == 0
        asked = len(seen)
        assert run(words(tables, tmp_path / "whole", url)) == 0
        assert len(seen) == asked
    for name in ("train.jsonl", "refused.jsonl", "certificate.json", "question_list.json", FILE):
        one, two = ((tmp_path / d / name).read_bytes() for d in ("killed", "whole"))
        assert one.replace(b"killed", b"whole") == two, name


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--target", "houses:price"], "--proposer does not go with --target"),
        (["--style", "mini"], "--style mini"),
        (["--proposer-model", ""], "--proposer-model"),
        (["--refine-url", "http://127.0.0.1:9/v1"], "--writer URL --writer-model NAME"),
    ],
)
def test_what_does_not_go_together_is_said_first(
    tables: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    why: str,
) -> None:
    assert run([*words(tables, tmp_path / "o", "http://127.0.0.1:9/v1"), *more]) == 2
    assert why in capsys.readouterr().err
