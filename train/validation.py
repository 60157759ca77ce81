"""Evaluation while a run trains: greedy answers to validation tasks, and the best model kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.task import Score, Task
from configs.machine import ValidationConfig
from rollouts.environment import Budget, Maker
from rollouts.prompts import ChatTokenizer
from rollouts.sampler import Asked, Batch, Plan, sample
from rollouts.trajectory import Sampling, Trajectory
from train.model.batch import Scorer, cuts_of, lengths_of
from train.run.log import rollout_metrics
from train.run.run import Run, Trainable, Validate

BEST = "best"  # the folder of the best model, in the run's
NOTE = "validation.json"  # in it: which step, and what it reached


@dataclass(frozen=True)
class Validation:
    """The validation tasks of a run and what answers to them need."""

    run: Run[Any]
    tasks: Sequence[Task]
    tokenizer: ChatTokenizer
    score: Scorer
    config: ValidationConfig

    max_new_tokens: int
    """Longest answer, where `config` leaves it open."""

    maker: Maker | None = None
    budget: Budget | None = None

    def of(self, policy: Trainable) -> Validate:
        """What the loop that trains `policy` calls after every step.

        Every `config.every` steps and after the last it logs the greedy mean outcome and reward as
        a row of stage `eval`, and saves the model as `best/` when the mean outcome is above all
        before. Nothing here draws at random, so training goes on to the same bits.
        """
        if not any((self.run.out / "checkpoints").glob("*/step_*")):
            self.run.remove(BEST)  # left by a run that ended before its first checkpoint

        def validate(step: int, last: int) -> None:
            if step % self.config.every == 0 or step == last:
                self._evaluate(policy, step, last)

        return validate

    def _evaluate(self, policy: Trainable, step: int, last: int) -> None:
        groups, scores = self.answers(policy)
        found = rollout_metrics(scores, lengths_of(groups), cuts_of(groups))
        found = {k: v for k, v in found.items() if not k.startswith("by_group/")}
        self.run.log.record("eval", step, found)
        scored = sum(s.outcome is not None for row in scores for s in row)
        mean, before = found["outcome/mean"], self.best()
        better = scored > 0 and (before is None or mean > before)
        if better:
            self.run.save(policy, BEST, {NOTE: {"step": step, **found}})
        lost = f", {len(scores) - scored} without an outcome" if scored < len(scores) else ""
        print(
            f"validation {step}/{last} | outcome {mean:.3f} | reward {found['reward/mean']:.3f} | "
            f"tok {found['response_length/mean']:.0f} | {len(scores)} tasks{lost}"
            + (" | best so far" if better else ""),
            flush=True,
        )

    def answers(self, policy: Trainable) -> tuple[list[list[Trajectory]], list[list[Score]]]:
        """One greedy answer per task, and its score."""
        slots = self.run.config.engine.slots
        engine = policy.engine(self.tokenizer.stop_ids, slots)
        room = self.config.max_new_tokens or self.max_new_tokens
        plan = Plan(room, self.budget or Budget())
        greedy = Sampling(room, temperature=0.0)
        groups: list[list[Trajectory]] = []
        sample(
            Asked(self.tasks, lambda task: plan, greedy, maker=self.maker),
            Batch(engine, self.tokenizer, slots),
            lambda task, run: groups.append([run]),
        )
        return groups, self.score(self.tasks, groups)

    def best(self) -> float | None:
        """The best mean outcome so far."""
        folder = self.run.saved(BEST)
        if folder is None:
            return None
        try:
            return float(json.loads((folder / NOTE).read_text(encoding="utf-8"))["outcome/mean"])
        except (OSError, ValueError, KeyError):
            return None
