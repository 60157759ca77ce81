"""Shares, distances between groups, changes between years, and joins of three tables: what is asked
is what pandas gives by another way, and both ways of the builder agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas")
pytest.importorskip("duckdb")

import pandas as pd

from data_gen.queries.carried import messy
from data_gen.queries.lake import Lake, open_lake
from data_gen.queries.lake_checks import refusal, validate
from data_gen.queries.lake_questions import question_for
from data_gen.queries.lake_steps import NoQuestion
from data_gen.queries.ops import Change, Join, Limit, Nth, Share
from data_gen.queries.tables import Link, beside

OWNERS = ("Ann", "Bo", "Cy", "Di", "Ed", "Flo", "Gus", "Hal")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Sales with amounts and years; two more tables that share the key, each without some rows."""
    folder = tmp_path_factory.mktemp("shares") / "lake"
    folder.mkdir()
    lines = ["Shop,Kind,Year,Sales,Height"]
    for i in range(360):
        sales = 100 + (i * i * 13 + 7) % 9_700 + 900 * (i * 7 % 8)
        height = 10 + 3 * (i * 7 % 8) + (i * 37 + i % 24 * 11) % 101 / 3
        lines.append(f"s{i},{'abcdefgh'[i * 7 % 8]},{1990 + i % 24},{sales},{height:.2f}")
    (folder / "shops.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines = ["Shop,Depth"]
    lines += [f"s{i},{3 + 2 * (i * i % 23 % 8) + (i * i * 7 + 3) % 83 / 9:.2f}" for i in range(340)]
    (folder / "depths.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines = ["Shop;Owner;Width"]
    for i in range(330):
        owner = OWNERS[i * i % 23 % 8]
        lines.append(f"s{i};{owner};{7 + (i * i * 11 + 5) % 79 / 8:.2f}")
    (folder / "owners.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return open_lake(folder)


def asked(lake: Lake, kind: str, joins: int | None = None) -> list[tuple[Any, dict[str, Any]]]:
    """Three questions of a kind that hold (with so many joins), with their values; both ways agree
    on each."""
    found: list[tuple[Any, dict[str, Any]]] = []
    for draw in range(400):
        try:
            question = question_for(lake.tables, kind, draw, lake.links)
        except NoQuestion:
            continue
        if joins is not None and len(joins_of(question)) != joins:
            continue
        values, _ = validate(question, lake.folder)
        if values is not None:
            assert refusal(question, values, lake.shelf) is None, question.text
            found.append((question, values))
        if len(found) == 3:
            break
    assert len(found) == 3, kind
    return found


def rows(lake: Lake, question: Any) -> Any:
    """The rows that a question is about: its joins and filters, by pandas' query."""
    frame = pd.read_csv(lake.folder / "shops.csv")
    for op in (step.op for step in question.steps):
        if isinstance(op, Join):
            other = pd.read_csv(lake.folder / op.table.path, sep=None, engine="python")
            frame = frame.join(other.set_index(op.theirs)[op.brings], on=op.mine, how="inner")
        elif isinstance(op, Limit):
            frame = frame.query(f"`{op.column}` {op.sign} {op.limit}")
        elif type(op).__name__ == "Keep":
            frame = frame.query(f"`{op.column}` == {op.value!r}")
    return frame


def plain(found: list[tuple[Any, dict[str, Any]]]) -> list[tuple[Any, dict[str, Any]]]:
    """Those over the table of shops without a least number of rows."""
    return [
        (q, v)
        for q, v in found
        if q.steps[0].op.table.path == "shops.csv" and "Consider only" not in q.text
    ]


def test_a_share_is_of_the_whole_total(lake: Lake) -> None:
    seen = plain(asked(lake, "share"))
    assert seen
    for question, values in seen:
        op = question.steps[-1].op
        assert isinstance(op, Share) and op.of == "Sales"  # the one column that adds up
        totals = rows(lake, question).groupby(op.by)[op.of].sum()
        want = 100 * totals[op.value] / totals.sum()
        assert values["main-task"] == round(want, op.digits)
        assert "without a percent sign" in question.text


def test_a_change_is_of_the_earlier_value(lake: Lake) -> None:
    for question, values in plain(asked(lake, "change")):
        op = question.steps[-1].op
        assert isinstance(op, Change) and op.one < op.other
        how = {"total": "sum"}.get(question.steps[-2].op.how, question.steps[-2].op.how)
        each = rows(lake, question).groupby("Year")[question.steps[-2].op.of].agg(how)
        want = 100 * (each[op.other] - each[op.one]) / each[op.one]
        assert values["main-task"] == round(want, op.digits)
        assert f"from {op.one} to {op.other}" in question.text


def test_rows_are_counted_against_their_own_group(lake: Lake) -> None:
    for question, values in plain(asked(lake, "above_own")):
        op = question.steps[-1].op
        frame = rows(lake, question)
        want = sum(
            int((part[op.of] > part[op.of].mean()).sum()) for _, part in frame.groupby(op.by)
        )
        assert values["main-task"] == want


def test_the_second_best_and_the_spread(lake: Lake) -> None:
    for question, values in asked(lake, "nth_group"):
        op = question.steps[-1].op
        assert isinstance(op, Nth)
        word = {2: "second", 3: "third"}[op.place]
        assert f"{word} {'highest' if op.high else 'lowest'}" in question.text
        assert isinstance(values["main-task"], str)
    for question, values in plain(asked(lake, "spread")):
        group, last = question.steps[-2].op, question.steps[-1].op
        how = {"total": "sum"}.get(group.how, group.how)
        each = rows(lake, question).groupby(group.keys[0])[group.of].agg(how)
        assert values["main-task"] == pytest.approx(round(each.max() - each.min(), last.digits))


def joins_of(question: Any) -> list[str]:
    return [s.op.table.path for s in question.steps if isinstance(s.op, Join)]


def test_three_tables_are_joined_for_a_measure_and_a_group(lake: Lake) -> None:
    for question, values in asked(lake, "best_group", 2):
        assert question.text.count("matched with") == 2
        group = question.steps[-2].op
        frame = pd.read_csv(
            lake.folder / question.steps[0].op.table.path, sep=None, engine="python"
        )
        for op in (step.op for step in question.steps if isinstance(step.op, Join)):
            other = pd.read_csv(lake.folder / op.table.path, sep=None, engine="python")
            frame = frame.merge(other[["Shop", op.brings]], on="Shop")
        if not any(step.kind == "filter" for step in question.steps):
            how = {"total": "sum"}.get(group.how, group.how)
            each = frame.groupby(group.keys[0])[group.of].agg(how)
            high = question.steps[-1].op.high
            assert values["main-task"] == str(each.idxmax() if high else each.idxmin())
        assert sum(step.kind == "join" and step.optional for step in question.steps) == 2


def test_a_second_join_brings_the_other_kind_from_a_third_table() -> None:
    first = Link(1, "k", "k", "Depth", "number")
    links = [
        first,
        Link(1, "k", "k", "Kind", "group"),  # the same table again
        Link(2, "k", "k", "Width", "number"),  # one more measure
        Link(2, "k", "k", "Owner", "group", True),  # the key as a year
        Link(2, "k", "k", "Town", "group"),
        Link(2, "k", "k", "Used", "group"),
    ]
    assert beside(first, links, ["Used"]) == [links[4]]


def test_no_place_below_a_tie_is_asked_for(tmp_path: Path) -> None:
    """Where two groups share the highest figure, who is third is a matter of how one counts."""
    lines = ["Town,Sales"]
    for place, town in enumerate(["Aldra", "Corva", "Hexham", "Morrow", "Tarn", "Velden", "Zell"]):
        level = 900 if place < 2 else 700 - 60 * place
        lines += [f"{town},{level + step}" for step in (-7.5, -2.25, 0, 3.75, 8.5)]
    (tmp_path / "shops.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lake = open_lake(tmp_path)
    found: dict[str, set[str]] = {}
    for seed in range(60):
        question = question_for(lake.tables, "nth_group", seed, lake.links)
        order = question.text.split(" has the ")[1].split(" median")[0].split(" mean")[0]
        if " where " not in question.text and " with " not in question.text.split("Skip")[0]:
            found.setdefault(order, set()).add(validate(question, lake.folder)[1])
    assert found["third highest"] == found["second highest"] == {"ambiguous"}
    assert "ambiguous" not in found["third lowest"] | found["second lowest"]


def test_a_wide_table_may_lie_in_three_files_with_one_key() -> None:
    frame = pd.DataFrame(
        {
            "Name": [f"n{i}" for i in range(60)],
            **{f"c{k}": [(i * 37 + k) % 101 / 3 for i in range(60)] for k in range(8)},
        }
    )
    found = {len(parts): parts for n in range(40) if (parts := messy("o", f"t{n}", frame))}
    assert set(found) == {1, 2, 3}
    name = found[3][0].name
    assert [part.name for part in found[3]] == [name, f"{name}_details", f"{name}_more"]
    first, more, most = (part.frame for part in found[3])
    assert len(more) == len(most) == 55 < len(first)
    assert [*first.columns, *more.columns[1:], *most.columns[1:]] == list(frame.columns)
    assert more["Name"].tolist() != most["Name"].tolist()
