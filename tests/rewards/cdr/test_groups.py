"""The order-group reward, and the groups it is for."""

from __future__ import annotations

from data_gen.corpora import read_corpus
from data_gen.demo.order import OrderSettings, build_order_tasks
from rewards.cdr.groups import group_bonuses, with_group_reward
from rewards.task import Score


def scores(*outcomes: float | None) -> list[Score]:
    return [Score(o, None if o is None else o) for o in outcomes]


def test_an_order_earns_its_bonus_only_when_its_siblings_succeed() -> None:
    batch = [scores(1, 1, 0, 0), scores(1, 0, 0, 0), scores(1, 1, 1, 1)]
    assert group_bonuses(["a", "a", None], batch) == [0.25, 0.5, None]
    made = with_group_reward(["a", "a", None], batch, 1.0)
    assert [s.reward for s in made[0]] == [0.625, 0.625, 0.0, 0.0]
    assert [s.reward for s in made[2]] == [1.0] * 4
    assert made[0][0].parts["order_group"] == 0.25


def test_weight_zero_only_logs_and_failures_stay_without_outcome() -> None:
    batch = [scores(1, None), scores(0, 1)]
    made = with_group_reward(["a", "a"], batch, 0.0)
    assert [[s.reward for s in row] for row in made] == [[1, None], [0, 1]]
    assert made[0][1].parts == {}
    assert group_bonuses(["a", "a"], [scores(None), scores(1)]) == [1.0, None]


def test_order_tasks_differ_by_order_only_where_the_text_is_rejected() -> None:
    counts = OrderSettings(train_sft=4, train_rl=6, heldout=6)
    for split in build_order_tasks(read_corpus(), counts, 3).values():
        for pre, post in zip(split[::2], split[1::2], strict=True):
            assert pre.group == post.group
            assert pre.gold["input_text"] == post.gold["input_text"]
            assert (pre.gold["text"] != post.gold["text"]) == pre.meta["sensitive"]
