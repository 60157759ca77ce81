"""A tiny model that calls the tools of the exported TRL environment: whole messages are tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tool_model import ANSWERS, calling

RUNS = calling("run_python", code="print(6 * 7)")
HANDS = tuple(calling("hand_in", answer=answer) for answer in ANSWERS)
DONE = "Done."


def write_model(
    folder: Path,
    template: str,
    prompt: Sequence[dict[str, str]],
    tools: Sequence[Callable[..., str]],
) -> Path:
    """A random Llama, taught on one prompt to run Python or to hand in one of four answers, one as
    often as the other; to hand in when it has seen output; and to stop when an answer was taken."""
    from tiny_model import small_llama, teach_endings, write_tiny_tokenizer
    from transformers import AutoTokenizer

    write_tiny_tokenizer(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    words = {"tools": list(tools), "add_generation_prompt": True, "tokenize": False}
    first = tokenizer.apply_chat_template(list(prompt), **words)
    # the tokenizer knows bytes: one token for the description of the tools keeps prompts short
    described = first.partition("<|im_start|>system\n")[2].partition("<|im_end|>")[0]
    tokenizer.add_tokens([RUNS, *HANDS, DONE, described])
    tokenizer.save_pretrained(folder)
    model: Any = small_llama(len(tokenizer))

    def after(call: str, output: str) -> str:
        said = f"<|im_end|>\n<|im_start|>user\n<tool_response>\n{output}\n</tool_response>"
        return f"{first}{call}{said}<|im_end|>\n<|im_start|>assistant\n"

    def shown(step: int) -> Iterator[list[int]]:
        hand = HANDS[step % 4]
        pairs = [(first, RUNS if step % 5 == 4 else hand), (after(RUNS, "42\n"), hand)]
        pairs.append((after(hand, "The answer was taken."), DONE))
        for before, answer in pairs:
            yield tokenizer(f"{before}{answer}<|im_end|>", add_special_tokens=False)["input_ids"]

    teach_endings(model, map(shown, range(80)))
    model.save_pretrained(folder)
    return folder
