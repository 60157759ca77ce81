"""An inspect_ai task over the tasks beside this file.

    inspect eval FOLDER/assay_inspect.py --model MODEL

The score's value is the outcome, so `accuracy` is what `assay eval` reports; reward, reason and
parts stand in its metadata. Tools of one's own are offered in a fresh environment for each sample.
"""

# The library is not installed where this project is checked.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from pathlib import Path
from typing import Any

from inspect_ai import Task as InspectTask
from inspect_ai import task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageSystem, ChatMessageUser
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, ToolDef, ToolParams

from data_gen.exports.episodes import Episodes, ToolEpisode, fields_of, packed, unpacked
from rewards.adapters import Words, score_text
from rollouts.tools import Tool as OwnTool

HERE = Path(__file__).resolve().parent
LEFT = "assay_files"  # in a sample's store: what its episode left, in base64
_CHAT = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}


def _sample(words: Words) -> Sample:
    messages: list[ChatMessage] = [
        _CHAT.get(m["role"], ChatMessageUser)(content=m["content"]) for m in words.messages
    ]
    known = {"track": words.task.track, "family": words.task.family}
    return Sample(input=messages, target=words.gold, id=words.task.id, metadata=known)


def _offered(tool: OwnTool, episode: ToolEpisode) -> Tool:
    """One of our tools, in one episode."""

    async def execute(**kwargs: Any) -> str:
        return await episode.call(tool.name, kwargs)

    schema = {**tool.spec.parameters, "properties": fields_of(tool)}
    parameters = ToolParams.model_validate(schema)
    return ToolDef(execute, tool.name, tool.spec.description, parameters).as_tool()


@solver(name="assay")
def assay_solver(episodes: Episodes) -> Solver:
    """Lets the model answer; where the task has tools, it may call them first."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        task_id = str(state.sample_id)
        tools = episodes.tools(task_id)
        if not tools:
            return await generate(state)
        episode = await episodes.start(task_id)
        state.tools = [_offered(tool, episode) for tool in tools]
        try:
            return await generate(state)
        finally:
            state.store.set(LEFT, packed(await episode.close()))

    return solve


@scorer(metrics=[mean(), stderr()], name="assay")
def assay_scorer(episodes: Episodes) -> Scorer:
    """Scores the model's last message by the task's family, with what its tools left."""

    async def score(state: TaskState, target: Target) -> Score:
        del target  # the task itself carries gold
        text = state.output.completion
        cut = bool(state.output.choices) and state.output.stop_reason == "max_tokens"
        files = unpacked(state.store.get(LEFT, {}))
        made = score_text(episodes[str(state.sample_id)].task, text, cut, files)
        if made.outcome is None:  # a sample with an error is left out of the mean
            raise RuntimeError(f"no outcome: {made.why}")
        more = {"reward": made.reward, "why": made.why, "parts": made.parts}
        return Score(value=made.outcome, answer=text, explanation=made.why, metadata=more)

    return score


@task
def assay() -> InspectTask:
    """Every task of the folder: one message each, after as many calls of its tools as it takes."""
    episodes = Episodes(HERE)
    return InspectTask(
        dataset=MemoryDataset([_sample(w) for w in episodes.words], name="assay"),
        solver=assay_solver(episodes),
        scorer=assay_scorer(episodes),
    )
