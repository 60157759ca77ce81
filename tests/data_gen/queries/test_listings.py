"""Listing everything earns nothing on any type of generated question, in a real lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("duckdb")

import front  # noqa: E402
from lake_files import lake_of_all  # noqa: E402
from small_lake import make_lake  # noqa: E402

from data_gen.proof.forms import Shelf  # noqa: E402
from data_gen.queries.ops import Group, Load, Source, Split, Top  # noqa: E402
from data_gen.queries.pays import best_listing, everything, pays  # noqa: E402
from rewards.krama.episode import score_row  # noqa: E402

TYPES = {
    "numeric_exact",
    "string_exact",
    "list_exact",
    "numeric_approximate",
    "string_approximate",
    "list_approximate",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("listings")
    lake = lake_of_all(make_lake(out / "first", settled=True), wards=True)
    command = ["--lakes", str(lake), "--count", "40", "--seed", "4", "--workers", "1"]
    command += ["--heldout-share", "0"]
    assert front.command("tasks", "lake")([*command, "--out", str(out / "o")]) == 0
    return out / "o"


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_no_listing_of_what_the_pipeline_sees_is_paid(built: Path) -> None:
    """The listings are made here with pandas, by the pipeline's own first steps, and not with the
    builder's code."""
    tasks = [t for s in ("train", "validation") for t in rows(built / f"{s}.jsonl")]
    assert {t["gold"]["answer_type"] for t in tasks} == TYPES, len(tasks)
    seen: dict[str, list[float]] = {}
    for task in tasks:
        gold, lake = task["gold"], built / task["files"]["lake"]
        space: dict[str, Any] = {"print": lambda _: None}
        exec(gold["pipeline"].replace("data/", f"{lake}/"), space)
        frame = space["t"]
        lists = [sorted(frame[c].dropna().unique().tolist(), key=str) for c in frame.columns]
        lists += [[str(v) for v in one] for one in lists] + [list(map(str, frame.columns))]
        lists.append([v for one in lists for v in one])
        texts = [one for one in lists if all(isinstance(v, str) for v in one)]
        lists += [[*one, *other] for one in texts for other in texts]
        for listed in lists:
            for answer in (listed, *(sep.join(map(str, listed)) for sep in (", ", " "))):
                score = score_row({"task": gold, "response": {"answer": answer}})
                assert (score.reward or 0.0) <= 0.05, (task["prompt"][-1]["content"], answer)
                seen.setdefault(gold["answer_type"], []).append(score.outcome or 0.0)
    assert max(seen["list_exact"]) > 0.3  # the benchmark's metric does pay it


def test_the_certificate_says_what_listings_earn(built: Path) -> None:
    proof = json.loads((built / "certificate.json").read_text("utf-8"))
    found = proof["lake"]["listing_everything"]
    made = proof["tasks"]["train"] + proof["tasks"]["validation"]
    assert set(found) == TYPES and sum(row["tasks"] for row in found.values()) == made
    assert max(row["highest reward"] for row in found.values()) <= 0.05
    assert found["list_exact"]["outcome"] > 0.0


def test_everything_that_is_listed(tmp_path: Path) -> None:
    """Also where columns are called as the queries call theirs."""
    lines = [f'"{"ab"[i % 2]}, {"xyz"[i % 3]}",{i % 9},{i},k' for i in range(18)]
    (tmp_path / "t.csv").write_text("\n".join(["two,amount,c,n", *lines]), encoding="utf-8")
    source = Source("t.csv", "", ("two", "amount"))
    ops = (
        Load(source),
        Split("two", "after_comma", "two part"),
        Group(("two part",), (False,), "amount", "mean"),
        Top(2, True),
    )
    with Shelf(tmp_path) as shelf:
        lists = everything(ops, shelf)
    assert ["x", "y", "z"] in lists and ["two", "amount", "c", "n"] in lists
    assert [float(i) for i in range(9)] in lists
    assert {"x", "y", "z", "a, x", "amount", 3.0} <= set(lists[-1])


@pytest.mark.parametrize(
    ("kind", "target", "listed", "paid"),
    [
        ("list_exact", ["a", "b", "c"], ["a", "b", "c"], True),
        ("list_exact", ["a", "b", "c"], list("abcdef"), False),
        ("list_approximate", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0], True),
        ("list_approximate", [1.0, 2.0], [float(i) for i in range(9)], False),
        ("string_exact", "a", ["a", "b"], False),
        ("numeric_exact", 3, [1, 2, 3], False),
        (
            "string_approximate",
            "north, salt",
            ["north", "south", "east", "west", "salt", "sweet", "sour"],
            False,
        ),
        ("string_approximate", "north, salt", ["north", "south", "salt"], True),
    ],
)
def test_what_a_listing_earns(kind: str, target: Any, listed: list[Any], paid: bool) -> None:
    assert pays(best_listing(kind, target, [listed])) == paid
