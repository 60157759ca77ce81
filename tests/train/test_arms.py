"""The arms of the searches ask for settings that exist."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import (
    demo_search,
    one_model,
    order,
    table_training,
    tracks,
)
from configs.schema import GrpoRunConfig, SftRunConfig
from data_gen.builder_settings import given_values
from data_gen.demo.order import OrderSettings
from data_gen.demo.settings import DemoTaskSettings
from train.run.settings import load_run


@pytest.mark.parametrize("name", demo_search.ARMS)
def test_an_arm_of_the_search_can_be_run(name: str) -> None:
    arm = demo_search.ARMS[name]
    given_values(DemoTaskSettings, [*arm.tasks, *demo_search.SPLITS])
    load_run(SftRunConfig, None, [*demo_search.SFT])
    load_run(GrpoRunConfig, None, [*demo_search.RL, f"rl.steps={arm.steps}", *arm.rl])


@pytest.mark.parametrize("name", order.ARMS)
def test_an_arm_of_the_order_benchmark_can_be_run(name: str) -> None:
    arm = order.ARMS[name]
    OrderSettings(**given_values(OrderSettings, [*order.TASKS, order.FORMS[arm.form]]))
    load_run(SftRunConfig, None, [*order.SHARED, *order.SFT])
    config = load_run(GrpoRunConfig, None, [*order.SHARED, *order.RL, *arm.rl])
    assert arm.start in order.ARMS and not order.ARMS[arm.start].rl
    assert not arm.rl or config.reward["refinement"]["success"] == 1


def test_the_runs_of_the_tracks_benchmark_can_be_run() -> None:
    load_run(SftRunConfig, None, [*tracks.SHARED, *tracks.SFT])
    config = load_run(GrpoRunConfig, None, [*tracks.SHARED, *tracks.RL])
    assert config.rl.prompts_per_step == len(tracks.TRACKS)  # one of each, by balance=track


def test_a_draw_takes_whole_groups_and_none_twice() -> None:
    tasks = [
        {"id": f"{track} {n}", "track": track, "group": f"{track} {n // 2}" if group else None}
        for track, group in zip(tracks.TRACKS, (False, False, False, True, True), strict=True)
        for n in range(20)
    ]
    first = tracks.drawn(tasks, 5, 0, frozenset())
    taken = frozenset(str(task["group"] or task["id"]) for task in first)
    second = tracks.drawn(tasks, 5, 0, taken)
    for some in (first, second):
        counts = Counter(task["track"] for task in some)
        assert counts == {"atomic_m": 5, "atomic_f": 5, "agnostic_m": 5, "order_m": 6, "order_f": 6}
        assert set(Counter(task["group"] for task in some if task["group"]).values()) == {2}
    assert not {task["id"] for task in first} & {task["id"] for task in second}
    assert tracks.drawn(tasks, 5, 0, frozenset()) == first
    assert tracks.drawn(tasks, 5, 1, frozenset()) != first


def test_ocs_needs_every_row_of_a_group() -> None:
    def row(group: str, *right: float) -> tracks.Instance:
        return tracks.Instance("order_m", "d", group, {}, right, ())

    rows = [row("a", 0, 1, 0), row("a", 1, 0, 0), row("b", 1, 1, 1), row("b", 0, 0, 0)]
    assert tracks.ocs(rows) == {"a": 1, "b": 0}


def test_the_runs_of_the_one_model_benchmark_can_be_run() -> None:
    load_run(SftRunConfig, None, [*one_model.SHARED, *one_model.SFT])
    load_run(GrpoRunConfig, None, [*one_model.SHARED, *one_model.RL])
    assert all(
        before is None or before in one_model.TAUGHT for _, before in one_model.TAUGHT.values()
    )


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_kinds_take_turns_in_proportion(counts: list[int]) -> None:
    columns = [[{"kind": k, "n": n} for n in range(count)] for k, count in enumerate(counts)]
    rows = one_model.in_turns(columns)
    for kind, column in enumerate(columns):
        assert [row for row in rows if row["kind"] == kind] == column
    for cut in range(len(rows) + 1):  # after any share of all, about that share of each kind
        for kind, count in enumerate(counts):
            seen = sum(row["kind"] == kind for row in rows[:cut])
            assert abs(seen - count * cut / max(1, len(rows))) <= len(counts)


def test_the_arms_of_the_table_benchmark_can_be_run() -> None:
    shared = table_training.ENGINE
    for words in (table_training.SFT, table_training.AGAIN):
        load_run(SftRunConfig, None, [*shared, *words])
    for words in (table_training.RL, table_training.EVEN):
        config = load_run(GrpoRunConfig, None, [*shared, *words])
        assert config.rl.turns == 1 and config.tools.brief
        assert config.rl.steps * config.rl.prompts_per_step == 48
    assert {name for pair in table_training.PAIRS for name in pair} <= {*table_training.NAMES}
