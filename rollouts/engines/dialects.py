"""How each server is asked for token ids, and what its answer says.

vLLM and `assay serve` take ids at `/v1/completions` and give them back with `return_token_ids`.
SGLang takes them at `/generate`. Both report one log-probability a sampled token. vLLM reports it
under the model's raw distribution, SGLang under the one at the sampling temperature, our server
under the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from rollouts.trajectory import Completion, Sampling, Stop

Row = Mapping[str, Any]
UNKNOWN = 0.0  # a log-probability that the server does not tell


class AnswerError(ValueError):
    """An answer of a server that is none; the message says what is wrong."""


@dataclass(frozen=True)
class Words:
    """One server's language. `path` follows the server's address; `ask` makes a request's body,
    `read` a completion of an answer's; `length` finds the longest sequence in what `about` says;
    the JSON at `version` has the server's version under that name."""

    path: str
    about: str
    ask: Callable[[str, Sequence[int], Sampling, int, Sequence[int]], dict[str, Any]]
    read: Callable[[Row, Sampling], Completion]
    length: Callable[[Row], int]
    version: str = "/version"


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
    return body | {"stop_token_ids": list(stops), "skip_special_tokens": False}


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
        raise AnswerError(f"the answer ended with {reason!r}, neither stop nor length")
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


def _listed_length(row: Row) -> int:
    return int(_first(row.get("data"), "data").get("max_model_len") or 0)


WORDS: Mapping[str, Words] = {
    "vllm": Words("/v1/completions", "/v1/models", _vllm_ask, _vllm_read, _listed_length),
    "sglang": Words(
        "/generate", "/v1/models", _sglang_ask, _sglang_read, _listed_length, "/get_server_info"
    ),
    "assay": Words("/v1/completions", "/v1/models", _openai_ask, _openai_read, _listed_length),
}
