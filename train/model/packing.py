# torch ships partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Flat micro-batches: what several sequences begin with is laid down, and computed, once.

Prompts of a micro-batch often begin alike (the same system message), and so do the completions of a
group. A *stem* is what comes first: what all prompts of the micro-batch begin with, or one whole
prompt. A *branch* continues a stem: the rest of a prompt with all its completions as a tree, or one
completion. Of these layouts the one that costs least on a CPU is taken; on a GPU, which multiplies
fast and reads Python's masks slowly, each prompt is a stem and each completion a branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import Literal

import torch
from torch import Tensor

# Attention's work for one query and key, in positions of the matrix products: about 1 in 1.5 × the
# hidden size by count of operations, and dearer than that because its products are small.
PAIR = 1 / 500

Layout = Literal["tree", "apart", "padded"]
"""What a micro-batch takes: what sequences share once (CPU); each prompt once (GPU); one row of the
longest sequence's length for each completion (transformers' own models)."""


@dataclass(frozen=True)
class Segment:
    """One prompt and the completions that continue it; `rows` says which rollout each one is.

    `masks`, one a completion, are 1 on tokens the model wrote and 0 on what tools put between
    them: those are read, but carry no loss. None: the model wrote everything.
    """

    prompt: list[int]
    completions: list[list[int]]
    rows: list[int]
    masks: list[list[int]] | None = None

    @cached_property
    def tokens(self) -> int:
        """Positions this segment takes by itself: what its completions share counts once."""
        return _stem(self.prompt, [self]).positions

    @property
    def longest(self) -> int:
        """Tokens of the longest completion with its prompt."""
        return len(self.prompt) + max(map(len, self.completions))

    def positions(self, layout: Layout) -> int:
        """Positions this segment takes by itself in a layout."""
        if layout == "tree":
            return self.tokens
        if layout == "padded":
            return len(self.completions) * self.longest
        return len(self.prompt) + sum(map(len, {tuple(c) for c in self.completions}))

    def cut(self, most: int, layout: Layout) -> list[Segment]:
        """Itself where it takes `most` positions at most; else parts of it with some of its
        completions each, the prompt repeated. A completion is never cut."""
        if self.positions(layout) <= most:
            return [self]
        parts, held = [[0]], Segment(self.prompt, self.completions[:1], self.rows[:1])
        for i, completion in enumerate(self.completions[1:], 1):
            grown = replace(held, completions=[*held.completions, completion])
            apart = len(grown.prompt) + sum(map(len, grown.completions))
            if (grown.positions(layout) if layout == "padded" else apart) <= most:
                held = grown
                parts[-1].append(i)
            else:
                held = replace(held, completions=[completion])
                parts.append([i])
        return [self._part(part) for part in parts]

    def _part(self, places: Sequence[int]) -> Segment:
        masks = None if self.masks is None else [self.masks[i] for i in places]
        chosen = [self.completions[i] for i in places]
        return Segment(self.prompt, chosen, [self.rows[i] for i in places], masks)


@dataclass(frozen=True)
class Packed:
    """A flat micro-batch: T positions, U of them predicted, S stems, B branches.

    A branch looks at the whole stem and, within itself, at what a token continues: at the tokens
    between the stem and itself, never at another completion's. Rollouts that begin with the same
    tokens share them: N tokens of rollouts are U tokens here. Attention runs on padded blocks of
    stems (S, P) and branches (B, C):

    `ids`, `positions` (T,): a position counts the tokens that its token continues. `stems`: flat
    positions (S, P); `stem_mask` (S, P, P) additive, 0 or -inf. `branches` (B, C), `stem_of` (B,),
    `branch_mask` (B, C, P + C). `place` (T,): where each flat position sits in the stems' and
    branches' blocks laid out one after the other. `source` (U,): position whose hidden state
    predicts `target` (U,). `expand` (N,): which of the U each token of a rollout is; `row`,
    `column` (N,): which rollout, and which of the tokens that its model wrote. `paths`: rollout →
    flat positions of its prompt and its completion, in their order.
    """

    ids: Tensor
    positions: Tensor
    stems: Tensor
    stem_mask: Tensor
    branches: Tensor
    stem_of: Tensor
    branch_mask: Tensor
    place: Tensor
    source: Tensor
    target: Tensor
    expand: Tensor
    row: Tensor
    column: Tensor
    paths: dict[int, list[int]]


@dataclass(frozen=True)
class Branch:
    """A tree of tokens behind a stem. `parents`: the token that each one continues, which stands
    before it; −1 is the stem's last."""

    ids: list[int] = field(default_factory=list[int])
    parents: list[int] = field(default_factory=list[int])
    children: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

    def add(self, sequence: Sequence[int]) -> list[int]:
        """Where the tokens of a sequence stand; those that are not there yet are added."""
        path, node = list[int](), -1
        for token in sequence:
            key = (node, token)
            if key not in self.children:
                self.children[key] = len(self.ids)
                self.ids.append(token)
                self.parents.append(node)
            node = self.children[key]
            path.append(node)
        return path

    @property
    def straight(self) -> bool:
        """Whether nothing parts in it: it holds one sequence, and beginnings of that."""
        return self.parents == list(range(-1, len(self.ids) - 1))

    def depths(self) -> list[int]:
        """How many tokens of the branch each one continues."""
        found: list[int] = []
        for parent in self.parents:
            found.append(0 if parent < 0 else found[parent] + 1)
        return found

    def mask(self, width: int) -> Tensor:
        """(width, width): 0 where a token sees itself or what it continues, else -inf. Beyond its
        tokens all or nothing: that is never read."""
        if self.straight:
            return _causal(1, width)[0]
        seen = torch.zeros(width, width, dtype=torch.bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                seen[node] = seen[parent]
            seen[node, node] = True
        return torch.zeros(width, width).masked_fill(~seen, float("-inf"))


@dataclass(frozen=True)
class Route:
    """Where the tokens of a rollout stand: the first `held` of its stem, then `path` in a branch of
    the stem, or (None) further on in the stem itself."""

    held: int
    branch: int | None
    path: list[int]


@dataclass(frozen=True)
class Stem:
    """A beginning, the branches that continue it, and the way of each rollout."""

    ids: list[int]
    branches: list[Branch]
    routes: dict[int, Route]

    @property
    def positions(self) -> int:
        return len(self.ids) + sum(len(b.ids) for b in self.branches)

    @property
    def cost(self) -> float:
        """Of computing it, in positions."""
        size = len(self.ids)
        pairs = size * size + sum(len(b.ids) * (size + len(b.ids)) for b in self.branches)
        return self.positions + PAIR * pairs


def _stem(ids: list[int], segments: Sequence[Segment], share: bool = True) -> Stem:
    """What some segments hold, whose prompts all begin with `ids`. Each one's sequences are one
    tree, or, where they share little and are long or not `share`, branches of their own."""
    branches, routes, size = list[Branch](), dict[int, Route](), len(ids)
    for s in segments:
        sequences = [s.prompt[size:] + completion for completion in s.completions]
        whole = list(dict.fromkeys(map(tuple, sequences)))
        tree, apart = Branch(), [Branch() for _ in whole]
        for sequence, own in zip(whole, apart, strict=True):
            tree.add(sequence)
            own.add(sequence)
        kinds = ([tree], apart) if share else (apart,)
        chosen = min(kinds, key=lambda some: Stem(ids, some, {}).cost)
        for row, sequence in zip(s.rows, sequences, strict=True):
            number = 0 if len(chosen) == 1 else whole.index(tuple(sequence))
            routes[row] = Route(size, len(branches) + number, chosen[number].add(sequence))
        branches += chosen
    if len(branches) == 1 and branches[0].straight:
        onward = {row: Route(size, None, [size + i for i in r.path]) for row, r in routes.items()}
        return Stem(ids + branches[0].ids, [], onward)
    return Stem(ids, branches, routes)


def _stems(segments: Sequence[Segment], share: bool) -> list[Stem]:
    """The cheaper of two layouts: a stem for each prompt, or one of what all prompts begin with.
    Where nothing but prompts is to be shared, the first."""
    each = [_stem(s.prompt, [s], share) for s in segments]
    if not share:
        return each
    columns = zip(*(s.prompt for s in segments), strict=False)
    shared = [ids[0] for ids in takewhile(lambda ids: len(set(ids)) == 1, columns)]
    if len(segments) < 2 or not shared:
        return each
    return min(each, [_stem(shared, segments)], key=lambda some: sum(s.cost for s in some))


def pack(
    segments: Sequence[Segment], device: str | torch.device = "cpu", share: bool | None = None
) -> Packed:
    """Lay segments out one after another. Prompts must hold at least one token. `share`: what
    prompts begin with, and what completions do, is laid down once (None: on a CPU)."""
    share = torch.device(device).type == "cpu" if share is None else share
    ids, positions = list[int](), list[int]()
    paths = dict[int, list[int]]()
    stems, branches, stem_of = list[range](), list[range](), list[int]()
    trees = list[Branch]()
    for stem in _stems(segments, share):
        start, size = len(ids), len(stem.ids)
        ids += stem.ids
        positions += range(size)
        for tree in stem.branches:
            branches.append(range(len(ids), len(ids) + len(tree.ids)))
            stem_of.append(len(stems))
            ids += tree.ids
            positions += (size + depth for depth in tree.depths())
        for which, route in stem.routes.items():
            first = start if route.branch is None else branches[len(trees) + route.branch].start
            paths[which] = [*range(start, start + route.held), *(first + i for i in route.path)]
        stems.append(range(start, start + size))
        trees += stem.branches

    source, learned, row, column = _learned(segments, paths)
    unit = {place: u for u, place in enumerate(source)}

    def tensor(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=device)

    stem_block, stem_len, branch_block, branch_len = *_block(stems), *_block(branches)
    width = branch_block.shape[1]
    own = _own(trees, width, device)
    seen = _fill_mask(stem_len[stem_of].to(device), stem_block.shape[1])
    reach = seen[:, None, :].expand(-1, width, -1)
    return Packed(
        ids=tensor(ids),
        positions=tensor(positions),
        stems=stem_block.to(device),
        stem_mask=_causal(len(stems), stem_block.shape[1], device),
        branches=branch_block.to(device),
        stem_of=tensor(stem_of),
        branch_mask=torch.cat([reach, own], 2),
        place=_place(len(ids), stem_block, stem_len, branch_block, branch_len).to(device),
        source=tensor(list(source.values())),
        target=tensor([ids[place] for place in source]),
        expand=tensor([unit[place] for place in learned]),
        row=tensor(row),
        column=tensor(column),
        paths=paths,
    )


def _learned(
    segments: Sequence[Segment], paths: Mapping[int, Sequence[int]]
) -> tuple[dict[int, int], list[int], list[int], list[int]]:
    """Of the tokens with a loss: place → the position before it; then, for each token of a rollout,
    its place, which rollout it is of, and which of the tokens that its model wrote."""
    source: dict[int, int] = {}
    learned, row, column = list[int](), list[int](), list[int]()
    for segment in segments:
        masks = segment.masks or [[1] * len(c) for c in segment.completions]
        for which, mask in zip(segment.rows, masks, strict=True):
            path = paths[which]
            scored = [i for i, m in enumerate(mask, len(path) - len(mask)) if m]
            source |= {path[i]: path[i - 1] for i in scored}
            learned += [path[i] for i in scored]
            row += [which] * len(scored)
            column += range(len(scored))
    return source, learned, row, column


def _block(spans: Sequence[range]) -> tuple[Tensor, Tensor]:
    """(rows, width) flat positions padded with 0, and the lengths (rows,)."""
    lengths = torch.tensor([len(s) for s in spans], dtype=torch.long)
    block = torch.zeros(len(spans), max(map(len, spans), default=0), dtype=torch.long)
    for i, span in enumerate(spans):
        block[i, : len(span)] = torch.arange(span.start, span.stop)
    return block, lengths


def _fill_mask(lengths: Tensor, width: int) -> Tensor:
    """(rows, width): 0 inside each row's length, -inf beyond."""
    device = lengths.device
    beyond = torch.arange(width, device=device)[None, :] >= lengths[:, None]
    return torch.zeros(len(lengths), width, device=device).masked_fill(beyond, float("-inf"))


def _own(trees: Sequence[Branch], width: int, device: str | torch.device) -> Tensor:
    """(B, width, width): what the tokens of each branch see of it."""
    if all(tree.straight for tree in trees):
        return _causal(len(trees), width, device)
    return torch.stack([tree.mask(width) for tree in trees]).to(device)


def _causal(rows: int, width: int, device: str | torch.device = "cpu") -> Tensor:
    """(rows, width, width): a query sees itself and what came before it.

    Padded queries see their row's earlier positions too: their values are never read, and a row
    of nothing but -inf would turn into NaN.
    """
    future = torch.ones(width, width, dtype=torch.bool, device=device).triu(1)
    mask = torch.zeros(width, width, device=device).masked_fill(future, float("-inf"))
    return mask.expand(rows, width, width)


def _place(
    total: int, stems: Tensor, stem_len: Tensor, branches: Tensor, branch_len: Tensor
) -> Tensor:
    """(T,): index of each flat position in cat(stems.flatten(), branches.flatten())."""
    place = torch.zeros(total, dtype=torch.long)
    base = 0
    for block, lengths in ((stems, stem_len), (branches, branch_len)):
        inside = torch.arange(block.shape[1])[None, :] < lengths[:, None]
        place[block[inside]] = inside.flatten().nonzero()[:, 0] + base
        base += block.numel()
    return place


def micro_batches(
    segments: Sequence[Segment], max_tokens: int, layout: Layout = "tree"
) -> Iterator[list[Segment]]:
    """Consecutive segments up to `max_tokens` positions. A larger one is cut between its
    completions; one completion that is larger by itself goes alone."""
    held: list[Segment] = []
    used, rows, width = 0, 0, 0
    for segment in (part for whole in segments for part in whole.cut(max_tokens, layout)):
        used += segment.positions(layout)
        rows, width = rows + len(segment.completions), max(width, segment.longest)
        if held and (rows * width if layout == "padded" else used) > max_tokens:
            yield held
            held, used = [], segment.positions(layout)
            rows, width = len(segment.completions), segment.longest
        held.append(segment)
    if held:
        yield held
