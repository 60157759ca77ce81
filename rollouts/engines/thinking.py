"""A bound on the tokens of a thought, over any engine that continues token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assay.task import derive_seed
from rollouts.engines.engine import Engine
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Completion, Sampling


class ThinkingBudget:
    """An `Engine` that ends a thought after `most` tokens of a message: its closing mark is put
    there, as Qwen3's report and servers do it, and the model goes on with the tokens that are left.

    What is put there was not drawn: it has no log-probability, and no loss (`Completion.given`). A
    message that is no thought by then goes on as it is, in a second call that draws from a seed of
    its own.
    """

    def __init__(self, engine: Engine, tokenizer: ChatTokenizer, most: int) -> None:
        self._engine, self._tokenizer, self._most = engine, tokenizer, most

    async def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        """`n` completions a prompt; `sampling.max_new_tokens` bounds thought, mark and answer
        together."""
        limit = sampling.max_new_tokens
        if 0 < limit <= self._most:
            return await self._engine.generate(prompts, sampling, n, seeds)
        begin = replace(sampling, max_new_tokens=self._most, last=False)
        found = await self._engine.generate(prompts, begin, n, seeds)
        cut = [
            (i, j)
            for i, group in enumerate(found)
            for j, one in enumerate(group)
            if one.stop == "length" and len(one.ids) == self._most and one.failure is None
        ]
        ends = {(i, j): self._tokenizer.thought_end(found[i][j].ids) for i, j in cut}
        open_yet = [at for at in cut if not limit or limit - self._most - len(ends[at]) > 0]
        if not open_yet:
            return found
        rooms = {at: limit - self._most - len(ends[at]) for at in open_yet}
        after = await self._engine.generate(
            [[*prompts[i], *found[i][j].ids, *ends[i, j]] for i, j in open_yet],
            replace(sampling, max_new_tokens=max(rooms.values()) if limit else 0),
            1,
            [derive_seed(seeds[i], "after the thought", j) for i, j in open_yet],
        )
        for (i, j), (more,) in zip(open_yet, after, strict=True):
            room = rooms[i, j] if limit else len(more.ids)
            found[i][j] = _joined(found[i][j], ends[i, j], more, room)
        return found

    async def complete(self, ids: Sequence[int], sampling: Sampling, seed: int) -> Completion:
        """One completion, for what asks for one at a time."""
        return (await self.generate([ids], sampling, 1, [seed]))[0][0]


def _joined(first: Completion, mark: Sequence[int], more: Completion, room: int) -> Completion:
    """A thought, the mark that ends it, and the first `room` tokens of what follows."""
    nothing = [0.0] * len(mark)
    return Completion(
        [*first.ids, *mark, *more.ids[:room]],
        [*first.logprobs, *nothing, *more.logprobs[:room]],
        [*first.sampling_logprobs, *nothing, *more.sampling_logprobs[:room]],
        more.stop if len(more.ids) <= room else "length",
        more.failure,
        (len(first.ids), len(first.ids) + len(mark)),
    )
