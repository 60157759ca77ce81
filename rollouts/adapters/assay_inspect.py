"""An inspect_ai task over the tasks beside this file.

    inspect eval FOLDER/assay_inspect.py --model MODEL

The score's value is the outcome, so `accuracy` is what `assay eval` reports; reward, reason and
parts stand in its metadata.
"""

# The library is not installed where this project is checked.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from pathlib import Path

from inspect_ai import Task as InspectTask
from inspect_ai import task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageSystem, ChatMessageUser
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState, generate

from rewards.adapters.words import Words, load, score_text

HERE = Path(__file__).resolve().parent
_CHAT = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}


def _sample(words: Words) -> Sample:
    messages: list[ChatMessage] = [
        _CHAT.get(m["role"], ChatMessageUser)(content=m["content"]) for m in words.messages
    ]
    known = {"track": words.task.track, "family": words.task.family}
    return Sample(input=messages, target=words.gold, id=words.task.id, metadata=known)


@scorer(metrics=[mean(), stderr()], name="assay")
def assay_scorer(tasks: dict[str, Words]) -> Scorer:
    """Scores the model's last message by the task's family."""

    async def score(state: TaskState, target: Target) -> Score:
        del target  # the task itself carries gold
        text = state.output.completion
        cut = bool(state.output.choices) and state.output.stop_reason == "max_tokens"
        made = score_text(tasks[str(state.sample_id)].task, text, cut)
        if made.outcome is None:  # a sample with an error is left out of the mean
            raise RuntimeError(f"no outcome: {made.why}")
        more = {"reward": made.reward, "why": made.why, "parts": made.parts}
        return Score(value=made.outcome, answer=text, explanation=made.why, metadata=more)

    return score


@task
def assay() -> InspectTask:
    """Every task of the folder, one message each."""
    found = load(HERE)
    by_id = {w.task.id: w for w in found}
    return InspectTask(
        dataset=MemoryDataset([_sample(w) for w in found], name="assay"),
        solver=generate(),
        scorer=assay_scorer(by_id),
    )
