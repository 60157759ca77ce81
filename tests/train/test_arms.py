"""The arms of the searches ask for settings that exist."""

from __future__ import annotations

import pytest

from benchmarks import demo_search, order, reward_noise, table_training
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


@pytest.mark.parametrize("name", reward_noise.ARMS)
def test_an_arm_of_the_noise_benchmark_can_be_run(name: str) -> None:
    settings = [*demo_search.RL, *reward_noise.SMALL, *reward_noise.ARMS[name]]
    config = load_run(GrpoRunConfig, None, settings)
    words = name.split("_")
    assert config.noise.share == (int(words[1]) / 100 if words[-1].isdigit() else 0)
    assert config.noise.by == ("task" if words[0] == "task" else "rollout")


def test_the_arms_of_the_table_benchmark_can_be_run() -> None:
    shared = table_training.ENGINE
    for words in (table_training.SFT, table_training.AGAIN):
        load_run(SftRunConfig, None, [*shared, *words])
    config = load_run(GrpoRunConfig, None, [*shared, *table_training.RL])
    assert config.rl.turns == 1 and config.tools.brief
    assert {*table_training.BASES} <= {*table_training.NAMES}
