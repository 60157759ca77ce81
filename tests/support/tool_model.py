"""A tiny model that calls the Python tool: whole messages are single tokens, learnt in seconds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.task import Task, write_jsonl

CODE = "print(6 * 7)"
ANSWERS = tuple(
    f"<status>KEEP</status><clean_text>{t}</clean_text>" for t in ("ab", "ac", "bc", "b")
)


def calling(name: str, **arguments: Any) -> str:
    said = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{said}\n</tool_call>"


CALL = calling("python_executor", code=CODE, files_to_load=[], files_to_save=[])


def tasks(count: int, path: Path, tools: bool = True) -> Path:
    """Delete the x's; the answer is always the first of the four that the model knows."""
    made = []
    for i in range(count):
        gold = {"input_text": f"axb{'x' * (i % 3)}", "status": "KEEP", "text": "ab"}
        prompt = [{"role": "user", "content": f"{i} {gold['input_text']}"}]
        track = ("atomic_m", "order_m")[i % 2]
        names = ("python_executor",) if tools else ()
        made.append(Task(f"t{i}", "refinement", track, "train", prompt, gold, tools=names))
    write_jsonl(path, [t.to_json() for t in made])
    return path


def write_model(
    folder: Path,
    template: str,
    steps: int = 60,
    thought: str = "",
    answers: Sequence[str] = ANSWERS,
    **changes: Any,
) -> Path:
    """A random Llama of 60k parameters, taught to call first and then to pick an answer.
    `thought`: what it writes before each message; `answers`: those it learns to pick from;
    `changes`: of its configuration."""
    from tiny_model import small_llama, write_tiny_tokenizer
    from transformers import AutoTokenizer

    write_tiny_tokenizer(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    messages = [thought + text for text in (CALL, *answers)]
    tokenizer.add_tokens(messages)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    model: Any = small_llama(len(tokenizer), **changes)
    _teach(model, folder, steps, tokenizer.convert_tokens_to_ids(messages))
    model.save_pretrained(folder)
    return folder


def _teach(model: Any, folder: Path, steps: int, said: list[int]) -> None:
    from tiny_model import teach_endings

    from rollouts.environments import ToolSettings
    from rollouts.prompts import ChatTokenizer
    from rollouts.python_tool import tool_spec

    chat = ChatTokenizer(folder)
    spec = tool_spec(ToolSettings())
    end = chat.stop_ids[0]
    call, *answers = said
    first = chat.prompt([{"role": "user", "content": "1 axb"}], [spec])
    tool = {"role": "tool", "name": "python_executor", "content": '{"stdout": "42"}'}
    second = [*first, call, end, *chat.follow([tool], ended=True)]
    plain = chat.prompt([{"role": "user", "content": "1 axb"}])
    turns = (answers[step % len(answers)] for step in range(steps))
    teach_endings(
        model, ([[*first, call, end], [*second, a, end], [*plain, a, end]] for a in turns)
    )
