# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""A wave on a CPU: prompts that were taken up together, and what their samples have drawn so far.

Samples of a prompt that drew the same so far are one row; where they part, the row is copied. With
its last token a row is fed what may follow it (lookup.py). A step reads every weight once for all
tokens, so one that is guessed costs less than a step of its own. After each token every sample
draws the next one as it would alone, from the same law by the same number: it goes on along the
guess while that is what it draws. So the ids are those of single steps, up to rounding, which
depends on how many tokens are computed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from assay.seeds import derive_seed
from rollouts.engines.torch.decode import Products, Prompts
from rollouts.engines.torch.kept import Past
from rollouts.engines.torch.llama import Llama
from rollouts.engines.torch.lookup import Lookup, share_out
from rollouts.engines.torch.ragged import Fed, Store, feed
from rollouts.engines.torch.sampling import uniforms
from rollouts.engines.torch.waves import completion, cut
from rollouts.trajectory import Completion

BLOCK = 16  # tokens that the compiled products compute together
TOKENS = 256  # of a step with guesses: products of more are bound by arithmetic


@dataclass
class Row:
    """Samples that are alike so far: their prompt, row of the store, text, and what was guessed."""

    prompt: int
    place: int
    samples: list[int]
    text: Lookup
    guess: list[int] = field(default_factory=list[int])


Leaf = tuple[list[int], list[int]]  # what a row drew, and the samples that did and go on


class Branches:
    """Groups of `width` samples, each as far as its guesses took it."""

    def __init__(
        self,
        prompts: Sequence[Sequence[int]],
        known: Prompts,
        seeds: Sequence[int],
        width: int,
        limit: int,
        stop_ids: Sequence[int],
        saving: bool,
    ) -> None:
        self.width, self.limit, self.saving = width, limit, saving
        self._stops, total = frozenset(stop_ids), width * len(prompts)
        self._store, self._free = Store(known), list[int]()
        self._u = uniforms([derive_seed(s, j) for s in seeds for j in range(width)], limit)
        self._ids: list[list[int]] = [[] for _ in range(total)]
        self._full: list[list[float]] = [[] for _ in range(total)]
        self._narrow: list[list[float]] = [[] for _ in range(total)]
        self._prompt: dict[int, Past] = {}
        self._own: dict[int, Past] = {}
        self._rows = [
            Row(at, at, list(range(at * width, (at + 1) * width)), Lookup(list(prompt)))
            for at, prompt in enumerate(prompts)
        ]

    @property
    def done(self) -> bool:
        return not self._rows

    @property
    def lines(self) -> int:
        """Rows of logits that it wants: one for each token that was fed."""
        return sum(1 + len(row.guess) for row in self._rows)

    @property
    def prompts(self) -> int:
        """Prompts that have rows which go on."""
        return len({row.prompt for row in self._rows})

    @property
    def drawn(self) -> int:
        """Samples that go on."""
        return sum(len(row.samples) for row in self._rows)

    def _length(self, row: Row) -> int:
        """Tokens that each sample of a row has drawn."""
        return len(self._ids[row.samples[0]])

    def asked(self) -> tuple[Tensor, Tensor]:
        """What decides each next token (B,), and which line of the logits it is from: of every
        row, after each of its tokens, one for each of its samples."""
        samples: list[int] = []
        steps: list[int] = []
        lines: list[int] = []
        line = 0
        for row in self._rows:
            drawn = self._length(row)
            for step in range(drawn, drawn + 1 + len(row.guess)):
                samples += row.samples
                steps += [step] * len(row.samples)
                lines += [line] * len(row.samples)
                line += 1
        return self._u[samples, steps], torch.tensor(lines)

    def take(self, token: Tensor, full: Tensor, narrow: Tensor) -> None:
        """What was drawn for `asked` (B,), with both log-probabilities."""
        drawn = list(zip(token.tolist(), full.tolist(), narrow.tolist(), strict=True))
        rows: list[Row] = []
        moves: list[tuple[int, int, int]] = []
        first = 0
        for row in self._rows:
            end = first + (1 + len(row.guess)) * len(row.samples)
            rows += self._part(row, self._follow(row, drawn[first:end]), moves)
            first = end
        self._rows = rows
        if moves:
            sources, targets, columns = zip(*moves, strict=True)
            self._store.copy(sources, targets, max(columns))

    def _follow(self, row: Row, drawn: list[tuple[int, float, float]]) -> list[Leaf]:
        """Give each sample of a row what it drew, as far as the guess was right for it."""
        leaves: list[Leaf] = []
        going, kept, size = list(range(len(row.samples))), 0, len(row.samples)
        for step in range(1 + len(row.guess)):
            apart: dict[int, list[int]] = {}
            for at in going:
                sample, (token, full, narrow) = row.samples[at], drawn[step * size + at]
                self._ids[sample].append(token)
                self._full[sample].append(full)
                self._narrow[sample].append(narrow)
                if token not in self._stops and len(self._ids[sample]) < self.limit:
                    apart.setdefault(token, []).append(at)
                elif self.saving:
                    self._save(sample, row)
            kept = step
            going = apart.pop(row.guess[step], []) if step < len(row.guess) else []
            for token, some in apart.items():
                leaves.append(([*row.guess[:step], token], [row.samples[at] for at in some]))
            if not going:
                break
        row.text.learn(len(row.guess), kept)
        return leaves

    def _part(self, row: Row, leaves: list[Leaf], moves: list[tuple[int, int, int]]) -> list[Row]:
        """A row for each leaf. The last keeps the place: its columns hold those of all others."""
        if not leaves:
            self._free.append(row.place)
            return []
        rows: list[Row] = []
        for drew, samples in leaves[:-1]:
            place = self._place()
            moves.append((row.place, place, len(self._ids[samples[0]]) - 1))
            rows.append(Row(row.prompt, place, samples, row.text.fork(drew)))
        drew, row.samples = leaves[-1]
        row.text.ids += drew
        return [*rows, row]

    def _place(self) -> int:
        """A row of the store that is free."""
        if not self._free:
            old, total = self._store.rows, len(self._ids)
            new = min(total, max(old + 1, 2 * old))
            self._store.make_room(new, self._store.columns)
            self._free = list(range(new - 1, old - 1, -1))
        return self._free.pop()

    def _save(self, sample: int, row: Row) -> None:
        """Copy the keys and values of a sample that has ended, before its row changes."""
        store, prompt = self._store, row.prompt
        if prompt not in self._prompt:
            known = store.prompts
            self._prompt[prompt] = cut(known.k, known.v, prompt, store.lengths[prompt])
        size = len(self._ids[sample]) - 1
        self._own[sample] = cut(store.own_k, store.own_v, row.place, size)

    def guess(self) -> list[Row]:
        """The rows, each with all that may follow it."""
        for row in self._rows:
            row.guess = row.text.guess()[: self.limit - self._length(row) - 1]
        return self._rows

    def fed(self) -> Fed:
        """What goes into the next step."""
        rows: list[tuple[int, int, int, int]] = []
        ids: list[int] = []
        for row in self._rows:
            filled = self._length(row) - 1
            rows.append((row.prompt, row.place, filled, 1 + len(row.guess)))
            ids += [row.text.ids[-1], *row.guess]
        self._store.make_room(0, max(filled + tokens for *_, filled, tokens in rows))
        return Fed(self._store, rows, ids)

    def saved(self) -> list[list[Past]]:
        """The keys and values of each sample, in (group, sample) order, once `done`: of its
        prompt, which its group shares, and of what it sampled, less the last token."""
        return [[self._prompt[i // self.width], self._own[i]] for i in range(len(self._ids))]

    def completions(self) -> list[list[Completion]]:
        """What the samples of each group are, in order, once `done`."""
        columns = zip(self._ids, self._full, self._narrow, strict=True)
        rows = [completion(*row, len(row[0]), row[0][-1] in self._stops) for row in columns]
        return [rows[at : at + self.width] for at in range(0, len(rows), self.width)]


def step(model: Llama, run: Products, waves: Sequence[Branches]) -> Tensor:
    """Feed the waves' rows their last tokens and guesses; logits for each token."""
    rows = [row for wave in waves for row in wave.guess()]
    tiles = run.chain is not None
    prompts = sum(wave.prompts for wave in waves)
    chances = [(row.text.sure, len(row.guess)) for row in rows]
    cost = price(len(rows), prompts, tiles)
    counts = share_out(chances, BLOCK if tiles else 1, cost, TOKENS)
    for row, count in zip(rows, counts, strict=True):
        del row.guess[count:]
    return feed(model, run, [wave.fed() for wave in waves])


def price(rows: int, prompts: int, tiles: bool) -> float:
    """What a guessed token costs beside one of `rows` that are drawn in a step: that needs the keys
    and values of its prompt and, once for all rows, the weights. Measured with SmolLM2-135M."""
    return 1 / (1.1 + (2.0 if tiles else 0.3) * prompts / rows + 8 / rows)
