"""What a rollout leaves behind: token ids as sampled, masks, log-probabilities and cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Stop = Literal["eos", "length", "tool", "error"]


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn. `temperature=0` is greedy; `top_k=0` and `top_p=1` are off."""

    max_new_tokens: int = 96
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Completion:
    """One answer of an engine. All three lists have one entry a sampled token (stop included).

    `logprobs` is under the full distribution at the sampling temperature (at temperature 0,
    under the raw softmax); `sampling_logprobs` under the truncated (top-k, top-p) one.
    """

    ids: list[int]
    logprobs: list[float]
    sampling_logprobs: list[float]
    stop: Stop


@dataclass(frozen=True)
class Trajectory:
    """A whole episode as token ids, never re-tokenised.

    `ids` is prompt plus everything after it; `loss_mask` has one entry an id: 1 for tokens the
    model sampled, 0 for prompt and tool tokens; the log-probabilities are 0.0 where the mask is 0.
    """

    task_id: str
    sample: int
    ids: list[int]
    loss_mask: list[int]
    logprobs: list[float]
    sampling_logprobs: list[float]
    stop: Stop
    text: str
    seed: int
    turns: int = 1
    tool_calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    wall_s: float = 0.0
