"""Qwen3's conversations: thinking on and off, tools, added tokens, both ends of an answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from qwen3 import write_qwen3  # noqa: E402

from rollouts.engines.torch.engine import TorchEngine, load_engine  # noqa: E402
from rollouts.prompts import ChatTokenizer  # noqa: E402
from rollouts.tool_calls import ToolSpec  # noqa: E402
from rollouts.trajectory import Sampling  # noqa: E402

TOOL = ToolSpec(
    "look", "Look a word up.", {"type": "object", "properties": {"word": {"type": "string"}}}
)
ASK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is é?"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_qwen3(tmp_path_factory.mktemp("qwen3"))


def chat(folder: Path, thinking: bool | None) -> ChatTokenizer:
    return ChatTokenizer(folder, template={} if thinking is None else {"enable_thinking": thinking})


def rendered(folder: Path, messages: list[dict[str, Any]], **more: Any) -> list[int]:
    """The whole conversation by transformers' own hand."""
    from transformers import AutoTokenizer

    text = AutoTokenizer.from_pretrained(folder)
    return text.apply_chat_template(messages, tokenize=True, return_dict=False, **more)


def test_an_episode_has_the_ids_of_the_template_over_all_of_it(folder: Path) -> None:
    """With a thought before each call the template keeps it, so nothing of it may differ."""
    one = chat(folder, None)
    call = one.calls.write("look", {"word": "é"})
    said = f"<think>\nI look.\n</think>\n\n{call}"
    told = [{"role": "tool", "content": "a letter, <b> and all"}]
    ids = one.prompt(ASK, [TOOL]) + one.answer(said) + one.follow(told, True)
    whole = [
        *ASK,
        {
            "role": "assistant",
            "content": "<think>\nI look.\n</think>\n\n",
            "tool_calls": [
                {"type": "function", "function": {"name": "look", "arguments": {"word": "é"}}}
            ],
        },
        *told,
    ]
    wanted = rendered(folder, whole, tools=[TOOL.schema()], add_generation_prompt=True)
    assert one.raw(ids) == one.raw(wanted) and ids == wanted


def test_the_embedded_engine_ends_at_either(folder: Path, tmp_path: Path) -> None:
    """The second end is an id that the answer has: there it ends, the id with it."""
    one = chat(folder, False)
    prompt = one.prompt(ASK, [TOOL])
    free = load_engine(folder, [], 4, "float32")
    assert isinstance(free, TorchEngine)
    ids = free.generate_now([prompt], Sampling(24), 1, [0])[0][0].ids
    at = next(i for i in range(4, 24) if ids[i] not in ids[:i])
    other = write_qwen3(tmp_path / "other")
    config = json.loads((other / "generation_config.json").read_text())
    config["eos_token_id"] = [config["eos_token_id"][0], ids[at]]
    (other / "generation_config.json").write_text(json.dumps(config))
    engine = load_engine(other, chat(other, False).stop_ids, 4, "float32")
    found = engine.generate_now([prompt], Sampling(24), 1, [0])[0][0]
    assert (found.ids, found.stop) == (ids[: at + 1], "eos")
