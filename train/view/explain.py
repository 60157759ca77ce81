"""What is wrong with an answer, character by character and step by step, for people to read.

A task's work is its input, its gold and the steps between them. An answer is aligned with both, and
every difference is put down to the step that should have made, or not made, a change there. Nothing
here is a score.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

Code = tuple[str, int, int, int, int]  # tag, from and to in the old text, from and to in the new
INPUT, GOLD, ANSWER = 1, 2, 4  # bits of a segment: which of the three texts hold its characters
NO_STEP = -1
_WORD = re.compile(r"\w+|\s|[^\w\s]")
_ISLAND = 2  # equal characters between two longer differences that are read as one difference


@dataclass(frozen=True)
class Step:
    """One step of a task's work. `detail`: parameters or what it measured, in words. `changes`:
    gold's run of it changed the text, or it decides the status. `after`: the text behind it."""

    name: str
    kind: str
    detail: str = ""
    changes: bool = True
    after: str | None = None


@dataclass(frozen=True)
class Work:
    """What a task asks for. `label` is gold's class (a status), `unknown` says why there are no
    steps, in one sentence, and is "" where they are known."""

    input: str
    gold: str
    label: str = ""
    steps: tuple[Step, ...] = ()
    unknown: str = ""


@dataclass(frozen=True)
class Finding:
    """How an answer differs from gold. `segments` are (bits, length, step) in the order of the
    texts; `wrong` are the indices of the steps that went wrong, in the recipe's order; `said` says
    it in words; `spaces_only`: the texts differ in nothing that counts."""

    text: str
    label: str
    segments: tuple[tuple[int, int, int], ...]
    wrong: tuple[int, ...] = ()
    said: str = ""
    spaces_only: bool = False


@dataclass(frozen=True)
class Explanation:
    """What `Family.explain` returns: the task's side and the answer's side."""

    work: Work
    finding: Finding


@dataclass(frozen=True)
class Piece:
    """A run of characters on the way from input to gold: kept (both bits), removed by `step` (the
    input's alone) or made by `step` (gold's alone). `later`: a step behind the stop that would
    have removed kept characters."""

    bits: int
    length: int
    step: int = NO_STEP
    later: int = NO_STEP


def spine(states: Sequence[str], steps: Sequence[int], stop: int) -> tuple[Piece, ...]:
    """The pieces from `states[0]` to `states[stop]`; `steps[k]` is the number of the step between
    state k and state k + 1, also for the states behind the stop."""
    removed = [NO_STEP] * len(states[0])
    chars = [(i, NO_STEP) for i in range(len(states[0]))]  # (place in the input or -1, made by)
    for k in range(stop):
        chars = _next(chars, states[k], states[k + 1], steps[k], removed)
    ends = list(chars)
    later = [NO_STEP] * len(chars)
    places = [(i, NO_STEP) for i in range(len(chars))]
    for k in range(stop, len(states) - 1):
        places = _next(places, states[k], states[k + 1], steps[k], later)
    return tuple(_merged(_pieces(ends, removed, later)))


def _next(
    chars: list[tuple[int, int]], old: str, new: str, step: int, removed: list[int]
) -> list[tuple[int, int]]:
    """The origins of the characters of `new`; what goes is noted in `removed`."""
    found: list[tuple[int, int]] = []
    for tag, a, b, c, d in _opcodes(old, new):
        if tag == "equal":
            found += chars[a:b]
            continue
        for place, _ in chars[a:b]:
            if place >= 0:
                removed[place] = step
        found += [(-1, step)] * (d - c)
    return found


def _pieces(
    gold: Sequence[tuple[int, int]], removed: Sequence[int], later: Sequence[int]
) -> Iterator[Piece]:
    at = 0
    for number, (place, made) in enumerate(gold):
        if place < 0:
            yield Piece(GOLD, 1, made, later[number])
            continue
        for gone in removed[at:place]:
            yield Piece(INPUT, 1, gone)
        yield Piece(INPUT | GOLD, 1, NO_STEP, later[number])
        at = place + 1
    for gone in removed[at:]:
        yield Piece(INPUT, 1, gone)


def _merged(pieces: Iterator[Piece]) -> Iterator[Piece]:
    last: Piece | None = None
    for piece in pieces:
        if last and (last.bits, last.step, last.later) == (piece.bits, piece.step, piece.later):
            last = Piece(last.bits, last.length + piece.length, last.step, last.later)
            continue
        if last:
            yield last
        last = piece
    if last:
        yield last


def plain_spine(source: str, gold: str) -> tuple[Piece, ...]:
    """The pieces where no step is known."""
    return spine([source, gold], [NO_STEP], 1)


@lru_cache(maxsize=512)
def _opcodes(old: str, new: str) -> tuple[Code, ...]:
    """Edits in characters, found word by word first: of all shortest edits between characters most
    tear words apart."""
    out: list[Code] = []
    from rapidfuzz.distance import Levenshtein  # scorers that travel do without it

    olds, news = _WORD.findall(old), _WORD.findall(new)
    at_old, at_new = [0, *accumulate(map(len, olds))], [0, *accumulate(map(len, news))]
    for op in Levenshtein.opcodes(olds, news):
        a, b = at_old[op.src_start], at_old[op.src_end]
        c, d = at_new[op.dest_start], at_new[op.dest_end]
        if op.tag != "replace":
            out.append((op.tag, a, b, c, d))
            continue
        inner = Levenshtein.opcodes(old[a:b], new[c:d])
        out += [
            (o.tag, a + o.src_start, a + o.src_end, c + o.dest_start, c + o.dest_end) for o in inner
        ]
    return tuple(out)


@dataclass
class _Region:
    """What stands between two stretches in which answer and gold agree."""

    pieces: list[Piece]
    extra: str = ""


class _Cursor:
    """The spine, taken from the front."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._left = list(reversed(pieces))

    def removed(self) -> Iterator[Piece]:
        """The removed characters before the next one of gold."""
        while self._left and not self._left[-1].bits & GOLD:
            yield self._left.pop()

    def take(self, count: int) -> Iterator[Piece]:
        """Pieces until `count` characters of gold are through."""
        while count:
            piece = self._left.pop()
            if not piece.bits & GOLD:
                yield piece
                continue
            used = min(count, piece.length)
            count -= used
            yield Piece(piece.bits, used, piece.step, piece.later)
            if used < piece.length:
                rest = piece.length - used
                self._left.append(Piece(piece.bits, rest, piece.step, piece.later))


def align(
    pieces: Sequence[Piece], source: str, gold: str, answer: str
) -> tuple[tuple[int, int, int], ...]:
    """Segments (bits, length, step) of input, gold and answer. `step` names who removed or made
    the characters, or for gold's characters that the answer lacks who would have removed them."""
    out: list[tuple[int, int, int]] = []
    cursor, region, at = _Cursor(pieces), _Region([]), 0

    def close() -> None:
        nonlocal at, region
        at = _close(region, source, at, out)
        region = _Region([])

    for tag, a, b, c, d in _readable(_opcodes(gold, answer)):
        if tag != "equal":
            region.pieces += cursor.take(b - a)
            region.extra += answer[c:d]
            continue
        region.pieces += cursor.removed()
        close()
        for piece in cursor.take(b - a):
            _put(out, piece.bits | (ANSWER if piece.bits & GOLD else 0), piece.length, piece.step)
            at += piece.length if piece.bits & INPUT else 0
    region.pieces += cursor.removed()
    close()
    return tuple(out)


def _readable(codes: Sequence[Code]) -> list[Code]:
    """Without islands of a character or two inside a difference: nobody reads those."""

    def size(code: Code) -> int:
        return max(code[2] - code[1], code[4] - code[3])

    out: list[Code] = []
    for number, code in enumerate(codes):
        inside = 0 < number < len(codes) - 1
        island = code[0] == "equal" and inside and size(code) <= _ISLAND
        if island and min(size(codes[number - 1]), size(codes[number + 1])) > _ISLAND:
            code = ("replace", *code[1:])
        out.append(code)
    return out


def _close(region: _Region, source: str, at: int, out: list[tuple[int, int, int]]) -> int:
    """Put a region's pieces into `out`; returns the place in the input behind it. Characters that
    the answer has and gold has not are left over where they match removed ones, else invented."""
    length = sum(p.length for p in region.pieces if p.bits & INPUT)
    matched: dict[int, int] = {}
    for tag, a, b, c, _ in _opcodes(source[at : at + length], region.extra) if region.extra else ():
        if tag == "equal":
            matched |= {a + k: c + k for k in range(b - a)}
    place = used = 0
    for piece in region.pieces:
        for _ in range(piece.length):
            bits, here = piece.bits, None
            if piece.bits & INPUT:
                here, place = matched.get(place), place + 1
            if here is not None and not piece.bits & GOLD:
                _put(out, ANSWER, here - used, NO_STEP)
                bits, used = bits | ANSWER, here + 1
            _put(out, bits, 1, piece.later if bits == INPUT | GOLD else piece.step)
    _put(out, ANSWER, len(region.extra) - used, NO_STEP)
    return at + place


def _put(out: list[tuple[int, int, int]], bits: int, length: int, step: int) -> None:
    if length <= 0:
        return
    if out and out[-1][0] == bits and out[-1][2] == step:
        out[-1] = (bits, out[-1][1] + length, step)
    else:
        out.append((bits, length, step))
