"""Token ids through a server: what each says, and a real one (our own) beside the engine in it."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")
from chat_server import serving

from assay.http_client import EndpointError, Patience, open_session
from assay.task import TaskError
from rollouts.engines.http_engine import DIALECTS, ServerEngine, with_fields
from rollouts.engines.server import Launch, servers
from rollouts.engines.torch.engine import TorchEngine
from rollouts.engines.torch.load import load_llama
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Completion, Sampling

SERVE = ("engine.dtype=float32", "engine.threads=1")
GREEDY = Sampling(10, 0.0)


def ask(address: str, folder: Path, prompts: list[list[int]], sampling: Sampling, n: int) -> Any:
    async def run() -> Any:
        stops = ChatTokenizer(folder).stop_ids
        async with ServerEngine([address], "assay", "tiny", stops) as engine:
            assert engine.length == 2048 and engine.version == metadata.version("assay")
            return await engine.generate(prompts, sampling, n, list(range(len(prompts))))

    return asyncio.run(run())


def test_ids_are_those_of_the_engine_itself_until_the_server_dies(
    tiny_folder: Path, tmp_path: Path
) -> None:
    launch, before = Launch("assay", str(tiny_folder), "tiny", more=SERVE), groups_below()
    with servers(launch, [""], tmp_path) as (address,):
        (server,) = groups_below() - before
        compare_with_engine(address, tiny_folder)

        async def run() -> Completion:
            patience = Patience(attempts=2, pause_s=0.01)
            engine = ServerEngine([address], "assay", "tiny", [2], patience=patience)
            async with engine as opened:
                assert (await opened.complete([5, 6], GREEDY, 0)).ids
                os.killpg(server, signal.SIGKILL)
                return await opened.complete([5, 6], GREEDY, 0)

        with pytest.raises(EndpointError):  # a failure, and no answer
            asyncio.run(run())


def compare_with_engine(address: str, tiny_folder: Path) -> None:
    tokenizer = ChatTokenizer(tiny_folder)
    prompts = [tokenizer.prompt([{"role": "user", "content": "x" * i}]) for i in (1, 5, 9)]
    here = TorchEngine(load_llama(tiny_folder, "float32"), tokenizer.stop_ids)
    own = here.generate_now(prompts, GREEDY, 1, [0, 1, 2])
    there = ask(address, tiny_folder, prompts, GREEDY, 1)
    assert [g[0].ids for g in there] == [g[0].ids for g in own]
    assert [g[0].stop for g in there] == [g[0].stop for g in own]
    for a, b in zip(there, own, strict=True):
        assert a[0].logprobs == pytest.approx(b[0].logprobs, abs=1e-4)
    first, again = (ask(address, tiny_folder, prompts[:1], Sampling(12), 3)[0] for _ in range(2))
    assert [c.ids for c in first] == [c.ids for c in again] and len({*map(str, first)}) == 3
    ((full,),) = ask(address, tiny_folder, [[5] * 2048], GREEDY, 1)  # without a request
    assert (full.ids, full.stop) == ([], "length")
    ((nearly,),) = ask(address, tiny_folder, [[5] * 2047], GREEDY, 1)
    assert len(nearly.ids) == 1


def groups_below() -> set[int]:
    """Our children that lead a process group of their own."""
    tasks = Path("/proc/self/task").iterdir()
    below = {int(pid) for task in tasks for pid in (task / "children").read_text().split()}
    return {pid for pid in below if os.getpgid(pid) == pid}


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    launch = Launch("assay", str(tmp_path / "no-model"), "tiny")
    said = r"ended with status 2; .*server-0\.log ends with: .*no-model"
    with pytest.raises(TaskError, match=said), servers(launch, [""], tmp_path):
        pass


VLLM = {
    "choices": [
        {
            "token_ids": [4, 5],
            "logprobs": {"token_logprobs": [-0.5, -1.5]},
            "finish_reason": "length",
        }
    ]
}
NOT_TOLD = pytest.approx([math.nan] * 2, nan_ok=True)  # 0 would be a certainty
SGLANG = {
    "text": "…",
    "meta_info": {
        "finish_reason": {"type": "stop", "matched": 2},
        "output_token_logprobs": [[-0.5, 4, None], [-1.5, 2, None]],
    },
}


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_every_way_to_sample_is_said_and_fields_have_the_last_word(kind: str) -> None:
    """What a request leaves open, the model's generation_config.json decides."""
    for top_k, said in ((0, -1), (5, 5)):
        body = DIALECTS[kind].ask("m", [1], Sampling(8, 0.7, top_k), 3, [2])
        fields = body.get("sampling_params", body)
        off = {"min_p": 0.0, "repetition_penalty": 1.0, "top_p": 1.0, "temperature": 0.7}
        off |= {"presence_penalty": 0.0, "frequency_penalty": 0.0, "top_k": said}
        assert off.items() <= fields.items()
    made = with_fields(body, {"min_p": 0.1, "top_k": None, "lora": "x"})
    fields = made.get("sampling_params", made)
    assert fields["min_p"] == 0.1 and "top_k" not in fields and made["lora"] == "x"
    assert with_fields(body, {}) == body


def test_an_answer_that_a_server_broke_off_is_asked_for_again(tiny_folder: Path) -> None:
    broken = {"choices": [VLLM["choices"][0] | {"finish_reason": "abort"}]}
    replies = iter([broken, VLLM])

    async def ask(url: str) -> Completion:
        engine = ServerEngine([url], "vllm", "m", [2], patience=Patience(pause_s=0.001))
        async with open_session("", 60) as engine._session:  # a server that tells nothing of itself
            return await engine.complete([1], Sampling(8), 0)

    with serving(lambda _: next(replies)) as (url, seen):
        assert asyncio.run(ask(url)).ids == [4, 5] and len(seen) == 2


def test_answers_of_both_kinds_are_read() -> None:
    whole, cut = Sampling(8), Sampling(8, top_p=0.9)
    assert DIALECTS["vllm"].read(VLLM, whole) == Completion(
        [4, 5], [-0.5, -1.5], [-0.5, -1.5], "length"
    )
    assert DIALECTS["sglang"].read(SGLANG, whole) == Completion(
        [4, 2], [-0.5, -1.5], [-0.5, -1.5], "eos"
    )
    # under truncation the law that was drawn from is not told, at other temperatures neither
    assert DIALECTS["sglang"].read(SGLANG, cut).sampling_logprobs == NOT_TOLD
    assert DIALECTS["vllm"].read(VLLM, Sampling(8, 0.7)).logprobs == NOT_TOLD


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("vllm", {}),
        ("vllm", {"choices": [{"text": "no ids"}]}),
        ("vllm", {"choices": [VLLM["choices"][0] | {"finish_reason": "abort"}]}),
        ("vllm", {"choices": [VLLM["choices"][0] | {"logprobs": None}]}),
        ("sglang", {"meta_info": {}}),
        ("sglang", {"meta_info": SGLANG["meta_info"] | {"finish_reason": {"type": "abort"}}}),  # type: ignore[operator]
    ],
)
def test_answers_without_ids_are_failures(kind: str, row: dict[str, Any]) -> None:
    with pytest.raises((EndpointError, LookupError)):
        DIALECTS[kind].read(row, Sampling(8))
