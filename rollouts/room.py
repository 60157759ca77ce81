"""Room for an answer: how many tokens one message of a model may have, where nobody says it."""

from __future__ import annotations

from assay.family import family_of, gold_answer
from assay.task import Task
from rollouts.prompts import ChatTokenizer

LEAST = 96  # tokens of any answer
MESSAGE = 4096  # of a message in an episode with tools, and where the gold answer is no text
ANSWER_TOKENS = "answer_tokens"  # in a task's meta: room that its answer needs at least


def gold_text(task: Task) -> str:
    """The gold answer as a model would write it; "" where it is no text or cannot be had."""
    try:
        gold = gold_answer(family_of(task), task)
    except Exception:  # of an own family; whoever needs the gold itself is told
        return ""
    return "" if gold is None or gold.files else gold.text


def for_gold(tokens: int) -> int:
    """Room for a gold answer of `tokens`, its end among them: half as long again, at least 96."""
    return max(LEAST, tokens * 3 // 2)


def room_for(task: Task, tokenizer: ChatTokenizer | None = None, least: int = 0) -> int:
    """Tokens that one message of the model may have in this task, `least` or more.

    In the tokens of the model's own tokenizer it is `for_gold`, as a power of two above 96: a run
    has few kinds of tasks then, and a task has the same room beside any others. Without a tokenizer
    (an endpoint) it is 4,096 or the bytes of gold, of which no token has less than one. The same
    4,096 holds for tasks with tools or without a gold text.
    """
    text = "" if task.tools else gold_text(task)
    said = task.meta.get(ANSWER_TOKENS)
    wanted = said if isinstance(said, int) and not task.tools else 0
    if tokenizer is None:
        return max(MESSAGE, least, wanted, len(text.encode("utf-8", "replace")) + 1)
    if not text:
        return max(least, wanted or MESSAGE)
    need = for_gold(len(tokenizer.answer(text, plain=True)))
    return max(least, wanted, need if need == LEAST else 1 << (need - 1).bit_length())
