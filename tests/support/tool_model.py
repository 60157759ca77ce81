"""A tiny model that calls the Python tool: whole messages are single tokens, learnt in seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rewards.task import Task, write_jsonl

CODE = "print(6 * 7)"
CALL = (
    '<tool_call>\n{"name": "python_executor", "arguments": '
    + json.dumps({"code": CODE, "files_to_load": [], "files_to_save": []})
    + "}\n</tool_call>"
)
ANSWERS = tuple(
    f"<status>KEEP</status><clean_text>{t}</clean_text>" for t in ("ab", "ac", "bc", "b")
)


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


def write_model(folder: Path, template: str, steps: int = 60) -> Path:
    """A random Llama of 60k parameters, taught to call first and then to pick an answer."""
    import torch
    from tiny_model import tiny_config, write_tiny_tokenizer
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    write_tiny_tokenizer(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([CALL, *ANSWERS])
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = tiny_config(
        len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
    )
    model: Any = AutoModelForCausalLM.from_config(config).float()
    _teach(model, folder, steps)
    model.save_pretrained(folder)
    return folder


def _teach(model: Any, folder: Path, steps: int) -> None:
    import torch

    from rollouts.prompts import ChatTokenizer
    from rollouts.python_executor import ExecutorSettings, tool_spec

    chat = ChatTokenizer(folder)
    spec = tool_spec(ExecutorSettings())
    end = chat.stop_ids[0]
    call, *answers = (chat.answer(text)[0] for text in (CALL, *ANSWERS))
    first = chat.prompt([{"role": "user", "content": "1 axb"}], [spec])
    tool = {"role": "tool", "name": "python_executor", "content": '{"stdout": "42"}'}
    second = [*first, call, end, *chat.follow([tool], ended=True)]
    plain = chat.prompt([{"role": "user", "content": "1 axb"}])
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        answer = answers[step % len(answers)]
        for ids in ([*first, call, end], [*second, answer, end], [*plain, answer, end]):
            logits = model(torch.tensor([ids[:-1]])).logits[0, -2:]
            torch.nn.functional.cross_entropy(logits, torch.tensor(ids[-2:])).backward()
        optimiser.step()
        optimiser.zero_grad()
