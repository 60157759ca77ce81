"""Several environments that answer calls, as one: each call goes to the one that has the tool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from assay.task import TaskError
from rollouts.environment import Environment, EpisodeEnd, EpisodeStart, ModelTurn, Reply
from rollouts.tool_calls import ToolCall, ToolSpec


class Combined:
    """An `Environment` of others. The first one says how the conversation starts."""

    def __init__(self, parts: Sequence[Environment]) -> None:
        self._parts = list(parts)
        self._owner: dict[str, Environment] = {}

    async def open(self) -> EpisodeStart:
        openings = [await part.open() for part in self._parts]
        specs: list[ToolSpec] = []
        for part, opening in zip(self._parts, openings, strict=True):
            for spec in opening.tools:
                if spec.name in self._owner:
                    raise TaskError(f"two tools have the name {spec.name!r}; rename your own")
                self._owner[spec.name] = part
                specs.append(spec)
        return EpisodeStart(openings[0].messages, specs)

    async def reply(self, said: ModelTurn) -> Reply:
        """Answer the calls in order; one that ends the episode is the last."""
        messages: list[Any] = []
        records: list[dict[str, Any]] = []
        errors: Counter[str] = Counter()
        spent, done = 0.0, False
        for call in said.calls:
            part = self._owner.get(call.name)
            if call.error or part is None:
                found = self._refused(call)
            else:
                found = await part.reply(replace(said, calls=[call], seconds=said.seconds - spent))
            messages += found.messages
            records += found.records
            errors.update(found.errors)
            spent += found.seconds
            if found.done:
                done = True
                break
        return Reply(messages, done, records, errors, spent)

    def _refused(self, call: ToolCall) -> Reply:
        kind = "bad_call" if call.error else "unknown_tool"
        known = ", ".join(self._owner)
        text = f"error: {call.error or f'there is no tool {call.name!r}; use {known}'}"
        row = {"name": call.name, "arguments": call.arguments, "answer": text, "kind": kind}
        message = {"role": "tool", "name": call.name or "unknown", "content": text}
        return Reply([message], records=[row], errors={kind: 1})

    async def close(self) -> EpisodeEnd:
        """Close every part, also when one of them fails; the first failure is raised then."""
        files: dict[str, bytes] = {}
        notes: dict[str, Any] = {}
        failures: list[Exception] = []
        for part in self._parts:
            try:
                left = await part.close()
            except Exception as error:
                failures.append(error)
                continue
            files = {**left.files, **files}
            notes = {**left.notes, **notes}
        if failures:
            raise failures[0]
        return EpisodeEnd(files, notes)
