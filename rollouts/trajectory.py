"""What a rollout leaves behind: token ids as sampled, masks, log-probabilities and cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from assay.task import Answer, Score, Task

Stop = Literal["eos", "length", "tool", "error"]  # why one message ended
# Why an episode ended: the model stopped calling (`eos`), a message or the sequence was cut
# (`length`), turns or seconds ran out, the environment was satisfied (`done`), or it broke.
EpisodeStop = Literal["eos", "length", "turns", "time", "done", "error", "tool"]

NO_NUMBERS = "engine: the model's logits are NaN: its weights are damaged, or too large"


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn. `temperature=0` is greedy; `top_k=0` and `top_p=1` are off.

    `last`: no later turn goes on from what is drawn, so an engine need not keep it.
    """

    max_new_tokens: int = 96
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    last: bool = False


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

    failure: str | None = None
    """Why this is no answer, whatever was drawn (`NO_NUMBERS`); None for an answer."""

    given: tuple[int, int] = (0, 0)
    """Which of the ids (start, end) were put there and not drawn: they carry no loss."""

    def drawn(self, count: int | None = None) -> list[int]:
        """The loss mask of the first `count` ids: 1 for those that were drawn."""
        start, end = self.given
        size = len(self.ids) if count is None else count
        return [0 if start <= i < end else 1 for i in range(size)]


UNTOLD = "messages_without_usage"  # in `notes`: how many messages' tokens nobody told


KEPT_FILE = 64 * 1024
"""Bytes of the longest file whose text a row of rollouts keeps."""


def file_texts(files: Mapping[str, bytes]) -> dict[str, str]:
    """The files that are UTF-8 text of at most `KEPT_FILE` bytes, by name: what `assay view` shows
    beside gold, and what `assay score` scores again."""
    found: dict[str, str] = {}
    for name, data in sorted(files.items()):
        if len(data) <= KEPT_FILE:
            with suppress(UnicodeDecodeError):
                found[name] = data.decode("utf-8")
    return found


@dataclass(frozen=True)
class Trajectory:
    """A whole episode as token ids, never re-tokenised.

    `ids` is prompt plus everything after it; `loss_mask` has one entry an id: 1 for tokens the
    model sampled, 0 for prompt and tool tokens; the log-probabilities are 0.0 where the mask is 0.
    An engine that gives no ids (a chat endpoint) leaves all four lists empty. `tokenizer` is the
    fingerprint of the tokenizer and chat template that made the ids; "" without ids.

    `text` is the model's last message, `messages` the whole conversation in words, `tools` the
    schemas the model was shown, `files` what the environment collected, `failure` what broke in
    the infrastructure, `errors` counts of what the model did wrong (`bad_call`, `unknown_tool`, …),
    `tool_calls` one record a call (what was asked, what came back), `notes` what the environment
    wants kept. `wall_s` is the episode's share of wall time, `tool_s` the seconds its tools ran.
    """

    task_id: str
    sample: int
    ids: list[int]
    loss_mask: list[int]
    logprobs: list[float]
    sampling_logprobs: list[float]
    stop: EpisodeStop
    text: str
    seed: int
    turns: int = 1
    tool_calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    wall_s: float = 0.0
    tool_s: float = 0.0
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    tools: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    failure: str | None = None
    errors: Mapping[str, int] = field(default_factory=dict[str, int])
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    usage: Mapping[str, int] = field(default_factory=dict[str, int])
    tokenizer: str = ""

    def answer(self) -> Answer:
        """What there is to score: the one place where a trajectory becomes an answer."""
        return Answer(self.text, self.stop == "length", self.files, self.failure)

    def kept_files(self) -> dict[str, Any]:
        """What a row keeps of the files: their sizes in bytes, and the short texts among them."""
        sizes = {name: len(data) for name, data in sorted(self.files.items())}
        return {"files": sizes, "file_texts": file_texts(self.files)}

    def to_json(self, score: Score, task: Task) -> dict[str, Any]:
        """One line of a rollouts file: what was asked, what came back, and how it scored."""
        row: dict[str, Any] = {
            "task_id": self.task_id,
            "sample": self.sample,
            "text": self.text,
            "stop": self.stop,
            "tokens": self.sampled,
            "seed": self.seed,
            **score.to_json(),
            "family": task.family,
            "track": task.track,
            "ids": self.ids,
            "loss_mask": self.loss_mask,
            "tokenizer": self.tokenizer,  # whose ids these are: others' mean nothing to a model
            "logprobs": _known(self.logprobs),
            "sampling_logprobs": _known(self.sampling_logprobs),
            "messages": self.messages,  # what `assay select` makes a training row of
        }
        if self.told:
            row["thought"] = self.told  # what an endpoint told apart; other thoughts are in text
        if task.meta.get("published") or task.gold.get("doubt"):
            row["published"] = True  # `assay select` refuses it
        # `assay select --licence` goes by them
        row |= {k: task.meta[k] for k in ("licence", "licences") if task.meta.get(k)}
        if self.usage:
            row["usage"] = dict(self.usage)
        if self.files or task.tools:
            row |= self.kept_files()
        if self.failure is not None or task.tools:
            row["failure"] = self.failure
        if not task.tools:
            return row
        return row | {
            "turns": self.turns,
            "tool_calls": self.tool_calls,
            "errors": dict(self.errors),
            "tools": self.tools,
            "notes": dict(self.notes),
            "sandbox": self.notes.get("sandbox"),  # the level that held, None: it never ran
            "wall_s": round(self.wall_s, 6),
            "tool_s": round(self.tool_s, 6),
        }

    @property
    def told(self) -> str:
        """What an endpoint told apart as thought before the last message."""
        last = self.messages[-1] if self.messages else {}
        return str(last.get("reasoning_content") or "") if last.get("role") == "assistant" else ""

    @property
    def sampled(self) -> int:
        """Tokens the model wrote (as an endpoint counts them, where there are no ids)."""
        return self.usage.get("completion_tokens", 0) if not self.ids else sum(self.loss_mask)

    @property
    def prompt_length(self) -> int:
        """Ids before the first sampled one."""
        return self.loss_mask.index(1) if 1 in self.loss_mask else len(self.ids)


def _known(logprobs: Sequence[float]) -> list[float | None]:
    """None for what a server did not tell."""
    return [None if math.isnan(x) else round(x, 6) for x in logprobs]


def retried(first: Trajectory, second: Trajectory) -> Trajectory:
    """The second attempt, with a note of what broke the first one, and of what it cost."""
    more: dict[str, Any] = {"retried_usage": dict(first.usage)} if first.usage else {}
    if "bug" in first.notes:
        more["bug"] = first.notes["bug"]
    return replace(second, notes={**more, **second.notes, "retried": first.failure})


def completion_ids(trajectory: Trajectory) -> tuple[list[int], list[int], list[int]]:
    """(prompt ids, ids from the first sampled to the last sampled, the mask of the latter)."""
    mask = trajectory.loss_mask
    start = trajectory.prompt_length
    end = max((i + 1 for i in range(start, len(mask)) if mask[i]), default=start)
    return trajectory.ids[:start], trajectory.ids[start:end], mask[start:end]
