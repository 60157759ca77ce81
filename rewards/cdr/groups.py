"""The order-group reward: what one order earns depends on its siblings on the other orders.

OCS, as a reward. Sibling tasks ask for the same operators on the same input in another order; the
benchmark counts a group only when all of them are right. Here a rollout that succeeds earns, on
top, the product over its siblings of the share of *their* rollouts that succeeded: the chance that
the group is right when siblings are drawn at random. So a policy that solves one order and treats
the other alike earns nothing for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from rewards.task import Score


def success_share(scores: Sequence[Score]) -> float | None:
    """Share of rollouts with outcome 1 among those that have an outcome; None without any."""
    outcomes = [s.outcome for s in scores if s.outcome is not None]
    return sum(o == 1.0 for o in outcomes) / len(outcomes) if outcomes else None


def group_bonuses(
    groups_P: Sequence[str | None], scores_PG: Sequence[Sequence[Score]]
) -> list[float | None]:
    """For each of P prompts, what its successful rollouts earn: the product of its siblings'
    success shares. None without a sibling in the batch (or when one of them was not scored)."""
    members: defaultdict[str, list[int]] = defaultdict(list)
    for prompt, group in enumerate(groups_P):
        if group is not None:
            members[group].append(prompt)
    shares = [success_share(scores) for scores in scores_PG]
    bonuses: list[float | None] = []
    for prompt, group in enumerate(groups_P):
        siblings = [q for q in members[group] if q != prompt] if group is not None else []
        product: float | None = 1.0 if siblings else None
        for q in siblings:
            share = shares[q]
            product = None if share is None or product is None else product * share
        bonuses.append(product)
    return bonuses


def with_group_reward(
    groups_P: Sequence[str | None], scores_PG: Sequence[Sequence[Score]], weight: float
) -> list[list[Score]]:
    """Scores whose reward is (reward + weight · bonus) / (1 + weight), bonus in [0, 1].

    Part `order_group` holds the bonus. A prompt without siblings in the batch has its own success
    for a bonus, so that rewards stay comparable. Weight 0 logs the part and changes no reward;
    rollouts without an outcome stay as they are.
    """
    bonuses = group_bonuses(groups_P, scores_PG)
    return [
        [_scored(score, 1.0 if bonus is None else bonus, weight) for score in scores]
        for scores, bonus in zip(scores_PG, bonuses, strict=True)
    ]


def _scored(score: Score, bonus: float, weight: float) -> Score:
    if score.outcome is None or score.reward is None:
        return score
    earned = bonus if score.outcome == 1.0 else 0.0
    return replace(
        score,
        reward=(score.reward + weight * earned) / (1.0 + weight),
        parts=score.parts | {"order_group": earned},
    )
