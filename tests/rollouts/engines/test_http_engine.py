"""The chat endpoint engine against a local stub server over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("aiohttp")

import math
import os
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from chat_server import Body, Raw, serving
from mini_slurm import alive, wait_for
from places import ROOT, tables

from assay.http_client import EndpointError, Patience
from assay.task import TaskError
from rollouts.conversation import ChatConversation, ChatReply
from rollouts.engines.http_engine import DIALECTS, OpenAIEngine, ServerEngine, with_fields
from rollouts.engines.server import Launch, devices, servers
from rollouts.engines.torch.engine import TorchEngine
from rollouts.engines.torch.load import load_llama
from rollouts.environment import EpisodeStart
from rollouts.prompts import ChatTokenizer
from rollouts.sampler import CircuitBreaker
from rollouts.trajectory import Completion, Sampling

CASES = tables("rollouts")

ASK = [{"role": "user", "content": "hi"}]


def said(content: Any, finish: Any = "stop", **message: Any) -> Body:
    choice = {"message": {"role": "assistant", "content": content, **message}}
    return {"choices": [choice | {"finish_reason": finish}]}


def refusal(words: str, **more: Any) -> Raw:
    return Raw([json.dumps({"error": {"message": words, **more}}).encode()], "text/json", 400)


def asked(
    reply: Callable[[Body], Any], messages: Any = ASK, tools: Any = (), top_k: int = 0, **more: Any
) -> tuple[ChatReply, list[Body]]:
    async def ask(url: str) -> ChatReply:
        async with OpenAIEngine(url, "m", pause_s=0.001, **more) as engine:
            return await engine.chat(messages, tools, Sampling(50, 0.7, top_k, 0.8), 1 << 40)

    with serving(reply) as (url, seen):
        return asyncio.run(ask(url)), seen


def test_words_and_settings_go_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "abc")
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "details": {}}
    reply, (body,) = asked(
        lambda _: said("hey") | {"usage": usage}, tools=[{"type": "f"}], top_k=20, key_env="MY_KEY"
    )
    assert (reply.text, reply.calls, reply.stop) == ("hey", [], "eos")
    assert reply.usage == {"prompt_tokens": 9, "completion_tokens": 4}
    assert (body["top_k"], body["top_p"], body["max_tokens"]) == (20, 0.8, 50)
    assert body["key"] == "Bearer abc" and 0 <= body["seed"] < 1 << 31 and body["tools"]


def test_native_calls_and_spelled_ones_are_both_read() -> None:
    native = [
        {"id": "c1", "function": {"name": "t", "arguments": '{"a": 1}'}},
        {"id": "c2", "function": {"name": "t", "arguments": "{a"}},
    ]
    reply, _ = asked(lambda _: said(None, "tool_calls", tool_calls=native))
    assert [(c.id, c.arguments) for c in reply.calls] == [("c1", {"a": 1}), ("c2", {})]
    assert "not valid JSON" in reply.calls[1].error
    text = '<tool_call>\n{"name": "t", "arguments": {}}\n</tool_call>'
    reply, _ = asked(lambda _: said(text, "length"))
    assert reply.calls[0].name == "t" and reply.stop == "length"


@pytest.mark.parametrize(("content", "text", "reasoning"), CASES["contents of a chat answer"])
def test_content_may_come_in_parts(content: Any, text: str, reasoning: str) -> None:
    reply, _ = asked(lambda _: said(content))
    assert (reply.text, reply.reasoning, reply.stop) == (text, reasoning, "eos")


@pytest.mark.parametrize(("finish", "stop"), CASES["reasons to finish"])
def test_an_answer_is_ended_by_the_model_or_cut_by_a_limit(finish: Any, stop: str) -> None:
    assert asked(lambda _: said("x", finish))[0].stop == stop


@pytest.mark.parametrize("finish", ["error", "content_filter", "abort", "SAFETY", "odd", None])
def test_any_other_end_is_no_answer(finish: Any) -> None:
    with pytest.raises(EndpointError, match=str(finish) if finish else "empty"):
        asked(lambda _: said("" if finish is None else "half", finish), attempts=2)
    with pytest.raises(EndpointError, match="holds no message"):
        asked(lambda _: {"choices": []})


@pytest.mark.parametrize(("error", "tries"), CASES["errors in an answer"])
def test_an_error_in_an_answer_of_200_is_told_in_its_words(error: Any, tries: int) -> None:
    replies = iter([{"error": error}] * 2 + [said("x")] * 2)
    if tries > 1:
        found, seen = asked(lambda _: next(replies))
        assert found.text == "x" and len(seen) == tries
        return
    with pytest.raises(EndpointError, match=error if isinstance(error, str) else error["message"]):
        asked(lambda _: next(replies))
    assert "error" in next(replies)  # it was asked once


@pytest.mark.parametrize("code", ["content_filter", "content_policy_violation"])
def test_a_filter_is_no_sign_that_an_endpoint_is_gone(code: str) -> None:
    for reply in (refusal("no", code=code), said("", "content_filter")):
        with pytest.raises(EndpointError) as told:
            asked(lambda _, reply=reply: reply)
        breaker = CircuitBreaker("m", most=2)
        for _ in range(4):
            breaker.see(str(told.value), answered="no_answer" in told.value.notes)
    breaker.see("gone")
    with pytest.raises(TaskError, match="2 requests in a row failed, the last with gone"):
        breaker.see("gone")


def test_a_stream_is_read_where_only_streams_are_served() -> None:
    rows: list[Body] = [{"choices": [{"delta": {"content": w}}]} for w in ("é", "漢")]
    rows += [{"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 2}}]
    lines = [f"data: {json.dumps(row, ensure_ascii=False)}\n\n" for row in rows]
    data = "".join([*lines, "data: [DONE]\n\n"]).encode()

    def reply(body: Body) -> Any:
        if not body.get("stream"):
            return refusal("This model only support stream mode, please enable stream")
        assert body["stream_options"] == {"include_usage": True}
        return Raw([data[i : i + 7] for i in range(0, len(data), 7)])

    found, seen = asked(reply)
    assert (found.text, found.stop, found.usage) == ("é漢", "eos", {"prompt_tokens": 2})
    assert len(seen) == 2


def test_proxies_are_for_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda _: "proxy") as (proxy, seen):
        for name in ("http_proxy", "no_proxy", "HTTP_PROXY", "NO_PROXY"):
            monkeypatch.setenv(name, proxy.removesuffix("/v1") if "p_" in name.lower() else "")
        assert asked(lambda _: "direct")[0].text == "direct"

        async def ask() -> str:
            async with OpenAIEngine("http://llm.cluster.invalid/v1", "m", attempts=1) as engine:
                return (await engine.chat(ASK, [], Sampling(50), 1)).text

        assert asyncio.run(ask()) == "proxy"
        assert seen[0]["path"] == "http://llm.cluster.invalid/v1/chat/completions"
        monkeypatch.setenv("no_proxy", ".cluster.invalid")
        with pytest.raises(EndpointError):
            asyncio.run(ask())


CALL = {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}


def conversation(**message: Any) -> tuple[ChatConversation, ChatReply]:
    """After one answer with a call and what the tool said."""
    reply, _ = asked(lambda _: said(message.pop("content", None), "tool_calls", **message))
    talk = ChatConversation()
    talk.start(EpisodeStart(ASK))
    talk.hear(reply)
    talk.add([{"role": "tool", "content": "r"}])
    return talk, reply


def test_an_answer_goes_back_as_it_came() -> None:
    message: Body = {
        "reasoning_content": "because",
        "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}],
        "tool_calls": [{**CALL, "extra_content": {"google": {"thought_signature": "s"}}}],
    }
    talk, reply = conversation(refusal=None, **message)
    message |= {"role": "assistant", "content": None}
    assert talk.sent[1] == message and talk.sent[2]["tool_call_id"] == "c"
    assert talk.messages[1] == message | {"content": ""} and reply.reasoning == "because"
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}, "a"]
    talk, _ = conversation(content=parts, tool_calls=[CALL])
    assert talk.sent[1]["content"] == parts
    assert (talk.messages[1]["content"], talk.messages[1]["reasoning_content"]) == ("a", "t")
    older = {"name": "t", "arguments": "{}"}  # a call's older form
    talk, reply = conversation(function_call=older)
    assert [c.name for c in reply.calls] == ["t"] and talk.sent[1]["function_call"] == older
    assert talk.sent[2] == {"role": "function", "name": "t", "content": "r"}


def test_a_call_that_cannot_be_read_goes_back_as_it_came() -> None:
    broken = {**CALL, "function": {"name": "t", "arguments": '{"a": "1\n'}}
    talk, reply = conversation(tool_calls=[broken])
    assert reply.calls[0].error and talk.sent[1]["tool_calls"] == [broken]

    def arguments(body: Body) -> str:
        return body["messages"][1]["tool_calls"][0]["function"]["arguments"]

    refuses_once = iter([400, "x"])
    reply, seen = asked(lambda _: next(refuses_once), talk.sent)
    assert reply.text == "x" and arguments(seen[0]) == '{"a": "1\n'
    assert list(json.loads(arguments(seen[1])).values()) == ['{"a": "1\n']


def refusing(*names: str, words: str = "property {} is unsupported") -> Callable[[Body], Any]:
    """An endpoint that takes no request with one of these names in it."""

    def reply(body: Body) -> Any:
        flat = json.dumps({k: v for k, v in body.items() if k not in ("key", "path")})
        found = [name for name in names if f'"{name}"' in flat]
        return refusal(words.format(found[0])) if found else "x"

    return reply


def test_what_an_endpoint_refuses_and_can_do_without_is_left_out_from_then_on() -> None:
    beside = {**CALL, "extra_content": {"google": {"thought_signature": "s"}}}
    talk, _ = conversation(content="", reasoning="r", tool_calls=[beside])

    async def ask(url: str) -> dict[str, str]:
        async with OpenAIEngine(url, "m") as engine:
            for _ in range(2):
                assert (await engine.chat(talk.sent, [], Sampling(50), 1)).text == "x"
            return engine.about()

    with serving(refusing("presence_penalty", "reasoning")) as (url, seen):
        about = asyncio.run(ask(url))
    assert len(seen) == 4 and "presence_penalty" in about["left_to_the_endpoint"]
    assert "presence_penalty" not in seen[-1] and "reasoning" not in seen[-1]["messages"][1]
    # what stands beside a call may go, in whichever spelling it is refused
    _, seen = asked(refusing("extra_content", words="Unknown field extraContent"), talk.sent)
    assert seen[-1]["messages"][1]["tool_calls"] == [CALL]
    assert asked(refusing("seed"))[0].text == "x"
    old = refusing("max_tokens", words="'{}'. Use 'max_completion_tokens' instead.")
    assert asked(old)[1][1]["max_completion_tokens"] == 50
    # what decides how is drawn is never left out by itself, nor a field that the user gave
    for name, more in (
        *(("temperature", {}), ("seed", {"extra": {"seed": 3}}), ("top_k", {"top_k": 1})),
        ("max_tokens", {"extra": {"max_tokens": 9}}),
    ):
        with pytest.raises(EndpointError, match=f"{name} is unsupported"):
            asked(refusing(name), **more)


@pytest.mark.parametrize("shown", ["stop_reason", "matched_stop"])
def test_a_server_that_adds_defaults_is_told_every_way_to_sample(shown: str) -> None:
    def reply(body: Body) -> Body:
        row = said("plain" if body.get("repetition_penalty") == 1 else "changed")
        row["choices"][0][shown] = None
        return row

    found, seen = asked(reply)
    assert found.text == "plain" and len(seen) == 2
    assert {"top_k": -1, "min_p": 0.0}.items() <= seen[1].items()
    assert len(asked(lambda _: "x")[1]) == 1


# --- Servers end with the process that started them, and are asked without a proxy

STARTER = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests may run under nohup
from rollouts.engines.server import Launch, servers
with servers(Launch("assay", "m", "m", python=sys.argv[1]), [""], Path(sys.argv[2])):
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_ends_the_servers_too(number: signal.Signals, tmp_path: Path) -> None:
    served = tmp_path / "served"
    served.mkdir()
    (served / "health").write_text("ok")
    python = tmp_path / "python"  # stands in for a server: it writes its number, and is healthy
    python.write_text(
        f"""#!/bin/sh
echo $$ > "{tmp_path}/pid"
while [ "$1" != --port ]; do shift; done
exec "{sys.executable}" -m http.server --bind 127.0.0.1 --directory "{served}" "$2"
"""
    )
    python.chmod(0o755)
    words = [sys.executable, "-c", STARTER, str(python), str(tmp_path / "logs")]
    nowhere = dict.fromkeys(("http_proxy", "HTTP_PROXY"), "http://127.0.0.1:9")
    env = {**os.environ, **nowhere, "no_proxy": "", "NO_PROXY": "", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=env, text=True) as starter:
        assert starter.stdout is not None and starter.stdout.readline() == "ready\n"
        server = int((tmp_path / "pid").read_text())
        os.kill(server, 0)
        starter.send_signal(number)
        killed = number == signal.SIGKILL
        assert starter.wait(60) == (-number if killed else 128 + number)
    if killed:  # nothing told the server; its watcher sees it
        wait_for("the server to end", lambda: not alive(server))
    assert not alive(server)


def test_servers_are_started_as_their_builds_want_and_cut_over_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = Launch("vllm", "m", "m", str(tmp_path / "bin" / "python"))
    assert launch.environment("0")["CUDA_VISIBLE_DEVICES"] == "0"
    # the longest request that there is room for; a CPU has the model's own
    assert "--no-enable-chunked-prefill" in launch.command(1)
    assert "--max-model-len auto" in " ".join(launch.command(1, "0"))
    for kind, word in (("vllm", "--tensor-parallel-size 2"), ("sglang", "--tp-size 2")):
        assert word in " ".join(Launch(kind, "m", "m", gpus=2).command(1, "0,1"))
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '0\\n1\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert devices() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4")
    assert (devices(), devices(2)) == ([*"01234"], ["0,1", "2,3"])
    with pytest.raises(TaskError, match=r"server\.gpus=6: 5 GPU"):
        devices(6)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert devices() == [""]


# --- Token ids through a server: what each says, and a real one (our own) beside the engine in it

SERVE = ("engine.dtype=float32", "engine.threads=1")
GREEDY = Sampling(10, 0.0)


def test_ids_are_those_of_the_engine_itself_until_the_server_dies(
    tiny_folder: Path, tmp_path: Path
) -> None:
    launch, before = Launch("assay", str(tiny_folder), "tiny", more=SERVE), groups_below()
    with servers(launch, [""], tmp_path) as (address,):
        (server,) = groups_below() - before
        asyncio.run(compare_with_engine(address, tiny_folder))

        async def run() -> Completion:
            patience = Patience(attempts=2, pause_s=0.01)
            engine = ServerEngine([address], "assay", "tiny", [2], patience=patience)
            async with engine as opened:
                assert (await opened.complete([5, 6], GREEDY, 0)).ids
                os.killpg(server, signal.SIGKILL)
                return await opened.complete([5, 6], GREEDY, 0)

        with pytest.raises(EndpointError):  # a failure, and no answer
            asyncio.run(run())


async def compare_with_engine(address: str, tiny_folder: Path) -> None:
    tokenizer = ChatTokenizer(tiny_folder)
    prompts = [tokenizer.prompt([{"role": "user", "content": "x" * i}]) for i in (1, 5, 9)]
    here = TorchEngine(load_llama(tiny_folder, "float32"), tokenizer.stop_ids)
    own = here.generate_now(prompts, GREEDY, 1, [0, 1, 2])
    async with ServerEngine([address], "assay", "tiny", tokenizer.stop_ids) as engine:
        assert engine.length == 2048 and engine.version == metadata.version("assay")
        there = await engine.generate(prompts, GREEDY, 1, [0, 1, 2])
        for (a,), (b,) in zip(there, own, strict=True):
            assert (a.ids, a.stop) == (b.ids, b.stop)
            assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)
        first, again = [(await engine.generate(prompts[:1], Sampling(12), 3, [0]))[0] for _ in "12"]
        assert [c.ids for c in first] == [c.ids for c in again] and len({*map(str, first)}) == 3
        for length, left in ((2048, 0), (2047, 1)):
            cut = await engine.complete([5] * length, GREEDY, 0)
            assert len(cut.ids) == left and (cut.stop == "length" or left)


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


CHOICE: dict[str, Any] = {"token_ids": [4, 5], "finish_reason": "length"}
CHOICE["logprobs"] = {"token_logprobs": [-0.5, -1.5]}
VLLM = {"choices": [CHOICE]}
NOT_TOLD = pytest.approx([math.nan] * 2, nan_ok=True)  # 0 would be a certainty
META: dict[str, Any] = {"finish_reason": {"type": "stop", "matched": 2}}
META["output_token_logprobs"] = [[-0.5, 4, None], [-1.5, 2, None]]
SGLANG = {"text": "…", "meta_info": META}


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


def test_answers_of_both_kinds_are_read() -> None:
    whole, cut, said = Sampling(8), Sampling(8, top_p=0.9), [-0.5, -1.5]
    assert DIALECTS["vllm"].read(VLLM, whole) == Completion([4, 5], said, said, "length")
    assert DIALECTS["sglang"].read(SGLANG, whole) == Completion([4, 2], said, said, "eos")
    # under truncation the law that was drawn from is not told, at other temperatures neither
    assert DIALECTS["sglang"].read(SGLANG, cut).sampling_logprobs == NOT_TOLD
    assert DIALECTS["vllm"].read(VLLM, Sampling(8, 0.7)).logprobs == NOT_TOLD


UNREAD = [
    *(("vllm", {}), ("vllm", {"choices": [{"text": "no ids"}]}), ("sglang", {"meta_info": {}})),
    ("vllm", {"choices": [CHOICE | {"finish_reason": "abort"}]}),
    ("vllm", {"choices": [CHOICE | {"logprobs": None}]}),
    ("sglang", {"meta_info": META | {"finish_reason": {"type": "abort"}}}),
]


@pytest.mark.parametrize(("kind", "row"), UNREAD)
def test_answers_without_ids_are_failures(kind: str, row: dict[str, Any]) -> None:
    with pytest.raises((EndpointError, LookupError)):
        DIALECTS[kind].read(row, Sampling(8))
