"""The dialects of the servers: how each is asked for token ids, and what its answer says.

vLLM and `assay serve` take ids at `/v1/completions` and give them back with `return_token_ids`.
SGLang takes them at `/generate`. Both report one log-probability a sampled token. vLLM reports it
under the model's raw distribution, SGLang under the one at the sampling temperature, our server
under the latter.

A server adds what its model's generation_config.json says to whatever a request leaves open (vLLM
and SGLang: top_k, min_p, penalties), so every way to sample is said, off where it is not wanted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from rollouts.trajectory import Completion, Sampling, Stop

Row = Mapping[str, Any]
UNKNOWN = math.nan  # a log-probability that the server does not tell
# ways to sample that a server's defaults may hold, beside temperature and top_p
NOTHING_ADDED = ("top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
_OFF: Mapping[str, float] = dict(zip(NOTHING_ADDED, (-1, 0.0, 1.0, 0.0, 0.0), strict=True))


class AnswerError(ValueError):
    """An answer of a server that is none; the message says what is wrong. `passes`: asking again
    may help."""

    def __init__(self, said: str, passes: bool = False) -> None:
        super().__init__(said)
        self.passes = passes


@dataclass(frozen=True)
class Dialect:
    """One server's language. `path` follows the server's address; `ask` makes a request's body,
    `read` a completion of an answer's; the JSON at `version` has the server's version under that
    name; `off` is what a request says of the ways to sample that are not wanted; a chat answer's
    choice has the member `shown_by`."""

    path: str
    ask: Callable[[str, Sequence[int], Sampling, int, Sequence[int]], dict[str, Any]]
    read: Callable[[Row, Sampling], Completion]
    version: str = "/version"
    off: Mapping[str, float] = field(default_factory=dict[str, float])
    shown_by: str = ""


def _openai_ask(
    model: str, ids: Sequence[int], sampling: Sampling, seed: int, stops: Sequence[int]
) -> dict[str, Any]:
    body = {
        "model": model,
        "prompt": list(ids),
        "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": seed % (1 << 31),
        "logprobs": 0,
        "return_token_ids": True,
    }
    return body | ({"top_k": sampling.top_k} if sampling.top_k else {})


def _vllm_ask(
    model: str, ids: Sequence[int], sampling: Sampling, seed: int, stops: Sequence[int]
) -> dict[str, Any]:
    body = _openai_ask(model, ids, sampling, seed, stops)
    return {**_OFF, **body} | {"stop_token_ids": list(stops), "skip_special_tokens": False}


def _vllm_read(row: Row, sampling: Sampling) -> Completion:
    """Its log-probabilities are of temperature 1; greedy answers have those, too."""
    found = _openai_read(row, sampling)
    if sampling.temperature in (0.0, 1.0):
        return found
    unknown = [UNKNOWN] * len(found.ids)
    return Completion(found.ids, unknown, unknown, found.stop)


def _openai_read(row: Row, sampling: Sampling) -> Completion:
    choice = _first(row.get("choices"), "choices")
    ids = _ids(choice.get("token_ids"), "token_ids")
    told: Any = _row(choice.get("logprobs")).get("token_logprobs")
    return completion(ids, _floats(told, len(ids)), choice.get("finish_reason"), sampling)


def _sglang_ask(
    model: str, ids: Sequence[int], sampling: Sampling, seed: int, stops: Sequence[int]
) -> dict[str, Any]:
    return {
        "input_ids": list(ids),
        "sampling_params": {
            **_OFF,
            "max_new_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "stop_token_ids": list(stops),
            "skip_special_tokens": False,
            "no_stop_trim": True,
            "sampling_seed": seed % (1 << 31),
        },
        "return_logprob": True,
    }


def _sglang_read(row: Row, sampling: Sampling) -> Completion:
    meta = _row(row.get("meta_info"))
    triples: Any = meta.get("output_token_logprobs")
    if not isinstance(triples, list):
        raise AnswerError("meta_info.output_token_logprobs is missing")
    pairs = cast("list[Sequence[Any]]", triples)
    ids = _ids([pair[1] for pair in pairs], "output_token_logprobs")
    reason = _row(meta.get("finish_reason")).get("type")
    return completion(ids, _floats([pair[0] for pair in pairs], len(ids)), reason, sampling)


def completion(
    ids: list[int], logprobs: list[float], reason: Any, sampling: Sampling
) -> Completion:
    """Raises `AnswerError` for an answer that the server broke off."""
    reasons: dict[Any, Stop] = {"stop": "eos", "length": "length"}
    if reason not in reasons:
        said = f"the answer ended with {reason!r}, neither stop nor length"
        raise AnswerError(said, passes=reason in ("abort", "error"))
    whole = sampling.top_p >= 1.0 and not sampling.top_k
    cut = list(logprobs) if whole else [UNKNOWN] * len(ids)
    return Completion(ids, logprobs, cut, reasons[reason])


def _row(value: Any) -> Row:
    return cast("Row", value) if isinstance(value, dict) else {}


def _first(value: Any, name: str) -> Row:
    if not isinstance(value, list) or not value:
        raise AnswerError(f"{name} is missing")
    return _row(cast("list[Any]", value)[0])


def _ids(value: Any, name: str) -> list[int]:
    listed = cast("list[Any]", value) if isinstance(value, list) else [None]
    if not all(isinstance(i, int) for i in listed):
        raise AnswerError(f"{name} holds no token ids; this server cannot return them")
    return cast("list[int]", listed)


def _floats(value: Any, count: int) -> list[float]:
    listed = cast("list[Any]", value) if isinstance(value, list) else []
    if len(listed) != count or not all(isinstance(v, int | float) for v in listed):
        raise AnswerError(f"{len(listed)} log-probabilities of {count} tokens")
    return [float(v) for v in listed]


def longest_sequence(models: Row) -> int:
    """What a server says at `/v1/models` of the longest sequence that it reads."""
    return int(_first(models.get("data"), "data").get("max_model_len") or 0)


DIALECTS: Mapping[str, Dialect] = {
    "vllm": Dialect("/v1/completions", _vllm_ask, _vllm_read, off=_OFF, shown_by="stop_reason"),
    "sglang": Dialect(
        "/generate", _sglang_ask, _sglang_read, "/get_server_info", _OFF, "matched_stop"
    ),
    "assay": Dialect("/v1/completions", _openai_ask, _openai_read),
}


def with_fields(body: Row, extra: Row) -> dict[str, Any]:
    """A request with more fields of one's own, or without those that are None. SGLang's ways to
    sample stand in an object of their own."""
    inner = _row(body.get("sampling_params"))
    ours = {k: v for k, v in {**inner, **extra}.items() if k in inner and v is not None}
    made = {**body, **{k: v for k, v in extra.items() if k not in inner}}
    made |= {"sampling_params": ours} if inner else {}
    return {k: v for k, v in made.items() if v is not None}


def dialect_of(choice: Row) -> str:
    """Which server a choice of a chat answer shows: the name of its dialect, or ""."""
    shown = (name for name, one in DIALECTS.items() if one.shown_by and one.shown_by in choice)
    return next(shown, "")
