"""The chat endpoint engine against a local stub server over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from places import tables

pytest.importorskip("aiohttp")
from chat_server import Body, Raw, serving

from assay.task import TaskError
from rollouts.conversation import ChatConversation, ChatReply
from rollouts.engines.http_engine import EndpointError, OpenAIEngine
from rollouts.environment import EpisodeStart
from rollouts.sampler import CircuitBreaker
from rollouts.trajectory import Sampling

CASES = tables("rollouts")

SAMPLING = Sampling(max_new_tokens=50, temperature=0.7, top_p=0.8, top_k=20)
ASK = [{"role": "user", "content": "hi"}]


def answer(message: dict[str, Any], reason: str = "stop") -> dict[str, Any]:
    return {
        "choices": [{"message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 4, "details": {}},
    }


async def serve_and_ask(replies: list[Any], tools: list[Any], **options: Any) -> tuple[Any, list]:
    """Each request takes the next reply (a number is an HTTP status, the last one stays)."""
    left = iter(replies)

    def reply(_: Body) -> Any:
        return next(left, replies[-1])

    with serving(reply) as (url, seen):
        async with OpenAIEngine(url, "m", pause_s=0.001, **options) as engine:
            return await engine.chat(ASK, tools, SAMPLING, 1 << 40), seen


def test_words_and_settings_go_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "abc")
    reply, seen = asyncio.run(
        serve_and_ask([answer({"content": "hey"})], [{"type": "function"}], key_env="MY_KEY")
    )
    assert (reply.text, reply.calls, reply.stop) == ("hey", [], "eos")
    assert reply.usage == {"prompt_tokens": 9, "completion_tokens": 4}
    body = seen[0]
    assert (body["top_k"], body["top_p"], body["max_tokens"]) == (20, 0.8, 50)
    assert body["key"] == "Bearer abc" and 0 <= body["seed"] < 1 << 31 and body["tools"]


def test_native_calls_and_spelled_ones_are_both_read() -> None:
    native = {
        "content": None,
        "tool_calls": [
            {"id": "c1", "function": {"name": "t", "arguments": '{"a": 1}'}},
            {"id": "c2", "function": {"name": "t", "arguments": "{a"}},
        ],
    }
    reply, _ = asyncio.run(serve_and_ask([answer(native, "tool_calls")], []))
    assert [(c.id, c.arguments) for c in reply.calls] == [("c1", {"a": 1}), ("c2", {})]
    assert "not valid JSON" in reply.calls[1].error
    text = '<tool_call>\n{"name": "t", "arguments": {}}\n</tool_call>'
    reply, _ = asyncio.run(serve_and_ask([answer({"content": text}, "length")], []))
    assert reply.calls[0].name == "t" and reply.stop == "length"


def test_busy_servers_are_asked_again_and_refusals_are_not() -> None:
    reply, seen = asyncio.run(serve_and_ask([503, 429, answer({"content": "x"})], []))
    assert reply.text == "x" and len(seen) == 3
    for said, why in ((401, "HTTP 401"), ({"choices": []}, "holds no message")):
        with pytest.raises(EndpointError, match=why):
            asyncio.run(serve_and_ask([said], []))
    with pytest.raises(ValueError, match="http://"):
        OpenAIEngine("localhost:1", "m")


def said(content: Any, finish: Any = "stop", **message: Any) -> Body:
    choice = {"message": {"role": "assistant", "content": content, **message}}
    return {"choices": [choice | {"finish_reason": finish}]}


def asked(
    reply: Callable[[Body], Any], messages: Any = ASK, top_k: int = 0, **options: Any
) -> tuple[ChatReply, list[Body]]:
    async def ask(url: str) -> ChatReply:
        async with OpenAIEngine(url, "m", pause_s=0.001, **options) as engine:
            return await engine.chat(messages, [], Sampling(50, top_k=top_k), 1)

    with serving(reply) as (url, seen):
        return asyncio.run(ask(url)), seen


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


@pytest.mark.parametrize(("error", "tries"), CASES["errors in an answer"])
def test_an_error_in_an_answer_of_200_is_told_in_its_words(error: Any, tries: int) -> None:
    seen: list[Body] = []

    def reply(body: Body) -> Body:
        seen.append(body)
        return {"error": error} if len(seen) < 3 else said("x")

    if tries > 1:
        assert asked(reply)[0].text == "x" and len(seen) == tries
        return
    words = error if isinstance(error, str) else error["message"]
    with pytest.raises(EndpointError, match=words):
        asked(reply)
    assert len(seen) == 1


@pytest.mark.parametrize("code", ["content_filter", "content_policy_violation"])
def test_a_filter_is_no_sign_that_an_endpoint_is_gone(code: str) -> None:
    error = json.dumps({"error": {"message": "no", "code": code}}).encode()
    for reply in (Raw([error], "text/json", 400), said("", "content_filter")):
        with pytest.raises(EndpointError) as told:
            asked(lambda _, reply=reply: reply)
        breaker = CircuitBreaker("m", most=2)
        for _ in range(4):
            breaker.see(str(told.value), answered="no_answer" in told.value.notes)
    breaker.see("gone")
    with pytest.raises(TaskError, match="2 requests in a row failed, the last with gone"):
        breaker.see("gone")


def events(*rows: Any, done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(row, ensure_ascii=False)}\n\n" for row in rows]
    return "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode()


WORDS = [{"choices": [{"delta": {"content": w}, "finish_reason": None}]} for w in ("é", "漢")]
END = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"completion_tokens": 2}}


def test_a_stream_is_read_where_only_streams_are_served() -> None:
    def reply(body: Body) -> Any:
        if not body.get("stream"):
            said = "This model only support stream mode, please enable the stream parameter"
            return Raw([json.dumps({"error": {"message": said}}).encode()], "text/json", 400)
        assert body["stream_options"] == {"include_usage": True}
        data = events(*WORDS, END)
        return Raw([data[i : i + 7] for i in range(0, len(data), 7)])

    found, seen = asked(reply)
    assert (found.text, found.stop, found.usage) == ("é漢", "eos", {"completion_tokens": 2})
    assert len(seen) == 2


def test_proxies_are_for_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(url: str) -> str:
        async with OpenAIEngine(url, "m", attempts=1) as engine:
            return (await engine.chat(ASK, [], Sampling(50), 1)).text

    with serving(lambda _: "direct") as (here, _), serving(lambda _: "proxy") as (proxy, seen):
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, proxy.removesuffix("/v1"))
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.setenv(name, "")
        assert asyncio.run(ask(here)) == "direct"
        assert asyncio.run(ask("http://llm.cluster.invalid/v1")) == "proxy"
        assert seen[0]["path"] == "http://llm.cluster.invalid/v1/chat/completions"
        monkeypatch.setenv("no_proxy", ".cluster.invalid")
        with pytest.raises(EndpointError):
            asyncio.run(ask("http://llm.cluster.invalid/v1"))


CALL = {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}


def conversation(message: Body) -> tuple[ChatConversation, ChatReply]:
    """After one answer with a call and what the tool said."""
    reply, _ = asked(lambda _: {"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    talk = ChatConversation()
    talk.start(EpisodeStart(ASK))
    talk.hear(reply)
    talk.add([{"role": "tool", "content": "r"}])
    return talk, reply


def test_an_answer_goes_back_as_it_came() -> None:
    message = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "reasoning_content": "because",
        "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}],
        "tool_calls": [{**CALL, "extra_content": {"google": {"thought_signature": "s"}}}],
    }
    talk, reply = conversation(message)
    del message["refusal"]
    assert talk.sent[1] == message and talk.sent[2]["tool_call_id"] == "c"
    assert talk.messages[1] == message | {"content": ""} and reply.reasoning == "because"
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}, "a"]
    talk, _ = conversation({"content": parts, "tool_calls": [CALL]})
    assert talk.sent[1]["content"] == parts
    assert (talk.messages[1]["content"], talk.messages[1]["reasoning_content"]) == ("a", "t")


def test_a_call_that_cannot_be_read_goes_back_as_it_came() -> None:
    broken = {**CALL, "function": {"name": "t", "arguments": '{"a": "1\n'}}
    talk, reply = conversation({"content": None, "tool_calls": [broken]})
    assert reply.calls[0].error and talk.sent[1]["tool_calls"] == [broken]

    def reads_json(body: Body) -> Any:
        arguments = body["messages"][1]["tool_calls"][0]["function"]["arguments"]
        try:
            json.loads(arguments)
        except ValueError:
            return 400
        return "x"

    reply, seen = asked(reads_json, talk.sent)
    assert reply.text == "x" and len(seen) == 2
    sent = json.loads(seen[1]["messages"][1]["tool_calls"][0]["function"]["arguments"])
    assert list(sent.values()) == ['{"a": "1\n']


def test_the_older_form_of_a_call_is_answered_in_its_form() -> None:
    message = {"content": None, "function_call": {"name": "t", "arguments": "{}"}}
    talk, reply = conversation(message)
    assert [c.name for c in reply.calls] == ["t"]
    assert talk.sent[1]["function_call"] == message["function_call"]
    assert talk.sent[2] == {"role": "function", "name": "t", "content": "r"}


def refusing(*names: str) -> Callable[[Body], Any]:
    """An endpoint that takes no request with one of these names in it."""

    def reply(body: Body) -> Any:
        flat = json.dumps({k: v for k, v in body.items() if k not in ("key", "path")})
        found = [name for name in names if f'"{name}"' in flat]
        if not found:
            return "x"
        text = json.dumps({"error": {"message": f"property {found[0]} is unsupported"}})
        return Raw([text.encode()], "text/json", 400)

    return reply


def test_what_an_endpoint_refuses_and_can_do_without_is_left_out_from_then_on() -> None:
    talk, _ = conversation({"content": "", "reasoning": "r", "tool_calls": [CALL]})

    async def ask(url: str) -> dict[str, str]:
        async with OpenAIEngine(url, "m") as engine:
            for _ in range(2):
                assert (await engine.chat(talk.sent, [], Sampling(50), 1)).text == "x"
            return engine.about()

    with serving(refusing("presence_penalty", "reasoning")) as (url, seen):
        about = asyncio.run(ask(url))
    assert len(seen) == 4
    assert "presence_penalty" not in seen[-1] and "reasoning" not in seen[-1]["messages"][1]
    assert "presence_penalty" in about["left_to_the_endpoint"]
    # what decides how is drawn is never left out by itself
    with pytest.raises(EndpointError, match="temperature is unsupported"):
        asked(refusing("temperature"))
    # nor is a field that the user gave, or that is set
    assert asked(refusing("seed"))[0].text == "x"
    with pytest.raises(EndpointError, match="seed is unsupported"):
        asked(refusing("seed"), extra={"seed": 3})
    with pytest.raises(EndpointError, match="top_k is unsupported"):
        asked(refusing("top_k"), top_k=1)
    # what stands beside a call may go, in whichever spelling it is refused
    beside = {**CALL, "extra_content": {"google": {"thought_signature": "s"}}}
    talk, _ = conversation({"content": "", "tool_calls": [beside]})

    def no_extra(body: Body) -> Any:
        if '"extra_content"' not in json.dumps(body["messages"]):
            return "x"
        return Raw([b'{"error": {"message": "Unknown field extraContent"}}'], "text/json", 400)

    assert asked(no_extra, talk.sent)[1][-1]["messages"][1]["tool_calls"] == [CALL]


def test_the_limit_has_the_name_that_the_endpoint_wants() -> None:
    def reply(body: Body) -> Any:
        if "max_tokens" not in body:
            return str(body["max_completion_tokens"])
        text = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
        return Raw([json.dumps({"error": {"message": text}}).encode()], "text/json", 400)

    assert asked(reply)[0].text == "50"
    with pytest.raises(EndpointError, match="Unsupported parameter"):
        asked(reply, extra={"max_tokens": 9})


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
