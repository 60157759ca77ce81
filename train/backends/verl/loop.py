# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false
# pyright: reportUntypedBaseClass=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""Our episode as a verl agent loop: the same multi-turn code, sandbox, scorers. Needs verl.

The loop scores its own episodes, because the files they leave are gone afterwards. A rollout whose
infrastructure broke twice, or that has no outcome, returns nothing: verl leaves it out of its
group, as the embedded loop does. What the reward is made of goes to `reward_extra_info`.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from ray.exceptions import RayError
from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

from assay.family import score_answer
from assay.task import Score, Task, TaskError, derive_seed
from configs.schema import GrpoRunConfig, load_run, weights_of
from rewards.adapters import numbers, task_of
from rollouts.environment import EnvironmentFailure
from rollouts.environments import EnvironmentFactory, read_prompts, tool_settings
from rollouts.episode import Episode
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Completion, Sampling, Trajectory, completion_ids
from train.backends.verl.data import tokenizer_of
from train.grpo import budget_of
from train.model.batch import length_penalty

ABORTED = ("abort", "aborted")  # SGLang's word for it, and that of verl's other servers
# Scoring reads files that a model wrote, which can take long. All episodes of a worker process
# share one event loop, so it happens beside it; one at a time, because scorers share caches.
SCORING = ThreadPoolExecutor(1, "score")


@lru_cache(maxsize=2)
def _settings(path: str) -> tuple[GrpoRunConfig, ChatTokenizer, EnvironmentFactory]:
    """What all episodes of a worker process share. Files have absolute paths (data.prepare)."""
    config = load_run(GrpoRunConfig, path)
    tools = tool_settings(config.tools, budget_of(config.rl), read_prompts(config.prompts))
    tools = replace(tools, workers=config.cluster.sandbox_workers)
    tokenizer = tokenizer_of(config)
    return config, tokenizer, EnvironmentFactory(Path(config.data).parent, tools, config.env)


class AssayLoop(AgentLoopBase):
    """One trajectory. verl makes a new object for each; `run` names the run's config.yaml."""

    def __init__(self, *args: Any, run: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self.run_config, self.chat, self.environment_factory = _settings(run)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        """An output of one trajectory, or [] when it has no outcome."""
        task = task_of(row["reward_model"]["ground_truth"])
        sample, step = int(row.get("session_id", 0)), int(row.get("global_steps", 1))
        run_seed = derive_seed(self.run_config.seed, "rollouts", step - 1)
        steps: list[int] = []  # versions of the weights that its messages came from
        try:
            trajectory = await self._episode(task, sample, run_seed, sampling_params, steps)
        except TaskError as error:  # raised, it would be a page of verl's log and a lost group
            print(f"rollout left out: {error}", flush=True)
            return []
        weights = weights_of(self.run_config.reward)
        score = await asyncio.get_running_loop().run_in_executor(
            SCORING, score_answer, task, trajectory.answer(), weights
        )
        if score.outcome is None or not trajectory.sampled:
            print(f"rollout of {task.id} left out: {trajectory.failure or score.why}", flush=True)
            return []
        rl, penalty = self.run_config.rl, None
        if rl.overlong == "soft":
            penalty = float(length_penalty([task], [[trajectory]], rl)[0, 0])
        return output_of(task, trajectory, score, steps, penalty)

    async def _episode(
        self, task: Task, sample: int, run_seed: int, drawn: dict[str, Any], steps: list[int]
    ) -> Trajectory:
        config = self.run_config
        sampling = Sampling(config.rl.max_new_tokens, float(drawn["temperature"]))
        request = ""  # one a trajectory: its turns go to the server that has its prefix

        async def ask(ids: Any, wanted: Sampling, seed: int) -> Completion:
            """One message from the rollout server: ids in, ids out."""
            nonlocal request
            if episode.turn == 0:  # also where it is played again, maybe by another server
                request = uuid4().hex
                steps.clear()
            params = {**drawn, "max_new_tokens": wanted.max_new_tokens}
            if config.cluster.device == "cpu":  # other servers take none
                params["seed"] = seed
            try:
                out = await self.server_manager.generate(
                    request, prompt_ids=list(ids), sampling_params=params
                )
            except RayError as error:  # the server died, or raised: never the answer's fault
                raise EnvironmentFailure(f"the rollout server failed: {_short(error)}") from error
            if out.stop_reason in ABORTED:
                raise EnvironmentFailure("the rollout server gave up the request")
            found = list(out.token_ids)
            if not found:  # verl empties an answer whose log-probabilities were lost
                raise EnvironmentFailure("the rollout server returned no tokens")
            ages = (out.extra_fields.get(k) for k in ("min_global_steps", "max_global_steps"))
            steps.extend(int(age) for age in ages if age is not None)
            logprobs = list(out.log_probs or [0.0] * len(found))
            stop = "eos" if found[-1] in self.chat.stop_ids else "length"
            return Completion(found, logprobs, logprobs, stop)

        budget = replace(budget_of(config.rl), turns=config.rl.turns if task.tools else 1)
        maker = self.environment_factory.maker
        episode = Episode(task, sample, run_seed, maker, budget, self.chat, again=True)
        return await episode.play(ask, sampling)


def _short(error: Exception) -> str:
    """The last line of an error of Ray's, which holds a whole traceback in its text."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[-1]}"[:300]


def output_of(
    task: Task, trajectory: Trajectory, score: Score, steps: list[int], penalty: float | None
) -> AgentLoopOutput:
    """The trajectory in verl's shape: prompt, everything up to the last sampled token, mask.
    `penalty` is added to the reward that verl learns from, and logged beside it."""
    prompt, response, mask = completion_ids(trajectory)
    start = len(prompt)
    row = numbers(task, score)
    reward = row.pop("score")
    info = row | {
        "truncated": float(trajectory.stop == "length"),
        "turns": float(trajectory.turns),
        "tool_calls": float(len(trajectory.tool_calls)),
        "tool_errors": float(sum(trajectory.errors.values())),
        "tool_seconds": float(trajectory.tool_s),
    }
    if penalty is not None:
        info |= {"length_penalty": penalty, "reward_scored": float(reward)}
    return AgentLoopOutput(
        prompt_ids=prompt,
        response_ids=response,
        response_mask=mask,
        response_logprobs=trajectory.logprobs[start : start + len(response)],
        reward_score=float(reward) + (penalty or 0.0),
        num_turns=2 * trajectory.turns,
        metrics=AgentLoopMetrics(tool_calls=trajectory.tool_s),
        extra_fields={
            "reward_extra_info": info,
            "min_global_steps": min(steps, default=None),
            "max_global_steps": max(steps, default=None),
        },
    )
