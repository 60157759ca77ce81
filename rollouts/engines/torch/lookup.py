"""Guess what follows in a text from what followed before: prompt lookup (Saxena 2023, "Prompt
lookup decoding"). A language model that edits or quotes its prompt writes much that stands there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

GUESSES = 8  # tokens guessed at most
# So many last tokens must have stood before, the longer first; how often such a guess is right, to
# begin with.
GRAMS = {3: 0.7, 2: 0.5}
FORGETS = 0.8  # what a step leaves of the weight of those before it


@dataclass
class Lookup:
    """Where each run of `GRAMS` tokens of a text was last seen, and how sure guesses are."""

    ids: list[int]
    _seen: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    _upto: int = 0
    # by the length of the run: guesses that were right, and all that were settled
    _settled: dict[int, tuple[float, float]] = field(
        default_factory=lambda: {size: (3 * sure, 3.0) for size, sure in GRAMS.items()}
    )
    _by: int = 2

    @property
    def sure(self) -> float:
        """The probability that a token of the last `guess` is right where those before it are."""
        right, settled = self._settled[self._by]
        return right / settled

    def guess(self) -> list[int]:
        """What may follow the text; [] where its end never stood in it before."""
        for end in range(self._upto, len(self.ids)):  # of the runs that end before the last token
            for size in GRAMS:
                if end >= size:
                    self._seen[tuple(self.ids[end - size : end])] = end
        self._upto = len(self.ids)
        for size in GRAMS:
            at = self._seen.get(tuple(self.ids[-size:]))
            if at is not None:
                self._by = size
                return self.ids[at : at + GUESSES]
        return []

    def learn(self, guessed: int, kept: int) -> None:
        """`kept` of the guesses were right; those after the first wrong one tell nothing."""
        if guessed:
            right, settled = (FORGETS * count for count in self._settled[self._by])
            tried = min(kept + 1, guessed)
            self._settled[self._by] = (right + kept + 0.1, settled + tried + 0.2)

    def fork(self, more: list[int]) -> Lookup:
        """The text with these tokens after it, apart from the one it was."""
        known = dict(self._seen), self._upto, dict(self._settled), self._by
        return Lookup([*self.ids, *more], *known)


def share_out(rows: Sequence[tuple[float, int]], block: int, price: float, most: int) -> list[int]:
    """How many tokens are guessed for each row, given how sure its guesses are and how many it has.

    Tokens are computed in blocks; what is left of one is free. Another block is worth it where
    its guesses will be right, in sum, for a share `price` of it. At most `most` tokens in all,
    with one a row.
    """
    chances = ((sure**n, at) for at, (sure, known) in enumerate(rows) for n in range(1, known + 1))
    best = sorted(chances, key=lambda chance: -chance[0])
    counts, total = [0] * len(rows), len(rows)
    while best:
        free = -total % block
        part, best = best[: free or block], best[free or block :]
        if total + len(part) > most or (not free and sum(c for c, _ in part) < price * block):
            break
        for _, at in part:
            counts[at] += 1
        total += len(part)
    return counts
