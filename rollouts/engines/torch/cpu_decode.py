# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Decoding on a CPU: samples that are alike are one row, and each row is fed its last token with a
guess of what may follow it.

Samples of a prompt that drew the same so far are one row; where they part, the row is copied. With
its last token a row is fed what may follow it (`Lookup`). A step reads every weight once for all
tokens, so one that is guessed costs less than a step of its own. After each token every sample
draws the next one as it would alone, from the same law by the same number: it goes on along the
guess while that is what it draws. So the ids are those of single steps, up to rounding, which
depends on how many tokens are computed at once.

Products run over the tokens of all rows at once. Attention has two parts: the prompt's keys and
values, which its rows share, and those of a row's own tokens. One softmax runs over both. Axis
letters: P prompts, R rows there is room for, F of them fed, N tokens a row, T tokens of all, K
key/value heads, H query heads, Q = H/K, C head size, L prompt length, S room for sampled tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor

from assay.task import derive_seed
from rollouts.engines.torch.kernels import Kernels
from rollouts.engines.torch.llama import (
    FEW,
    Chain,
    Layer,
    Llama,
    LlamaShape,
    Products,
    rope_tables,
    split_heads,
)
from rollouts.engines.torch.prefill import Past, Prompts, cut
from rollouts.engines.torch.sampling import completion, uniforms
from rollouts.trajectory import Completion

# --- the samples of a wave --------------------------------------------------------------------

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


# --- what follows, guessed --------------------------------------------------------------------

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


# --- the layers -------------------------------------------------------------------------------

ROOM = 32  # own keys grow by a half, and by so many columns at least


class Store:
    """Keys and values of a wave: of its prompts, and of what its rows sampled, (R, K, S, C) a
    layer."""

    def __init__(self, prompts: Prompts) -> None:
        prompt_rows, kv_heads, _, size = prompts.k[0].shape
        none = prompts.k[0].new_zeros(prompt_rows, kv_heads, 0, size)
        self.prompts, self.rows, self.columns = prompts, prompt_rows, 0
        self.lengths: list[int] = prompts.lengths.tolist()
        self.own_k, self.own_v = [none] * len(prompts.k), [none] * len(prompts.k)

    def make_room(self, rows: int, columns: int) -> None:
        """Have at least these rows and columns. What is new is zero: what is masked is multiplied
        all the same."""
        if rows <= self.rows and columns <= self.columns:
            return
        if columns > self.columns:
            least = max(columns, self.columns + max(ROOM, self.columns // 2))
            columns = -(-least // ROOM) * ROOM
        size = max(rows, self.rows), max(columns, self.columns)
        for side in (self.own_k, self.own_v):
            for index, old in enumerate(side):
                new = old.new_zeros(size[0], old.shape[1], size[1], old.shape[3])
                new[: self.rows, :, : self.columns] = old
                side[index] = new
        self.rows, self.columns = size

    def copy(self, sources: Sequence[int], targets: Sequence[int], columns: int) -> None:
        """Let rows have the first columns of others. No row is both a source and a target."""
        for side in (self.own_k, self.own_v):
            for tensor in side:
                tensor[targets, :, :columns] = tensor[sources, :, :columns]


@dataclass(frozen=True)
class Fed:
    """The rows of a wave that are fed: (prompt, row of the store, its columns so far, new tokens)
    each, a prompt's rows one after another; and all their tokens."""

    store: Store
    rows: list[tuple[int, int, int, int]]
    ids: list[int]

    def places(self) -> list[int]:
        """(T,) where each token stands in its text."""
        lengths = self.store.lengths
        starts = [(lengths[prompt] + filled, tokens) for prompt, _, filled, tokens in self.rows]
        return [start + t for start, tokens in starts for t in range(tokens)]


@torch.inference_mode()
def feed(model: Llama, run: Products, fed: Sequence[Fed]) -> Tensor:
    """Logits (T, V) after each token; their keys and values are stored."""
    shape = model.shape
    ids = torch.tensor([token for part in fed for token in part.ids])
    at = torch.tensor([place for part in fed for place in part.places()])
    tables = rope_tables(shape, at, model.embed.dtype)
    x, more = model.embed[ids], None
    if run.chain is not None and len(ids) <= FEW:
        return _chained(model, run, run.chain, fed, x, tables)
    plans = [torch.tensor(part.rows) for part in fed]
    blocks = [_block(part, x.dtype) for part in fed] if run.kernels is None else []
    for index, (layer, (qkv, o, gated, down)) in enumerate(
        zip(model.layers, run.layers, strict=True)
    ):
        x, normed = run.add_norm(x, more, layer.norm_attn, shape.eps)
        projected = qkv(normed)
        if run.kernels is None:
            mixed = attend(shape, layer, index, fed, blocks, projected, tables)
        else:
            mixed = projected.new_empty(len(x), shape.heads * shape.head_dim)
            for part in _waves(fed, plans, projected, mixed, *tables):
                _attend_compiled(run.kernels, layer, index, shape.eps, *part)
        x, normed = run.add_norm(x, o(mixed), layer.norm_mlp, shape.eps)
        more = down(gated(normed))
    return run.head(run.add_norm(x, more, model.norm, shape.eps)[1])


def _chained(
    model: Llama,
    run: Products,
    links: Chain,
    fed: Sequence[Fed],
    x: Tensor,
    tables: tuple[Tensor, Tensor],
) -> Tensor:
    """The layers for x (T, D), two calls a layer; logits (T, V)."""
    shape = model.shape
    _, normed = run.add_norm(x, None, model.layers[0].norm_attn, shape.eps)
    projected = run.layers[0][0](normed)
    mixed = x.new_empty(len(x), shape.heads * shape.head_dim)
    logits, scratch = x.new_empty(len(x), len(model.head)), links.scratch_for(x)
    plans = [torch.tensor(part.rows) for part in fed]
    waves = _waves(fed, plans, projected, mixed, *tables)
    for index, layer in enumerate(model.layers):
        for part in waves:
            _attend_compiled(links.kernels, layer, index, shape.eps, *part)
        last = index + 1 == len(model.layers)
        links.run(index, mixed, x, scratch, logits if last else projected)
    return logits


def _waves(
    fed: Sequence[Fed], plans: Sequence[Tensor], *sides: Tensor
) -> list[tuple[Store, Tensor, *tuple[Tensor, ...]]]:
    """Each wave's store, rows and part of the sides (T, …)."""
    parts = zip(*(side.split([len(part.ids) for part in fed]) for side in sides), strict=True)
    whole = zip(fed, plans, parts, strict=True)
    return [(part.store, plan, *sides) for part, plan, sides in whole]


def _attend_compiled(
    kernels: Kernels,
    layer: Layer,
    index: int,
    eps: float,
    store: Store,
    rows: Tensor,
    heads: Tensor,
    into: Tensor,
    cos: Tensor,
    sin: Tensor,
) -> None:
    kernels.attend(
        heads,
        into,
        (cos, sin),
        (layer.norm_q, layer.norm_k),
        (store.prompts.k[index], store.prompts.v[index]),
        (store.own_k[index], store.own_v[index]),
        rows,
        store.prompts.lengths,
        eps,
        store.prompts.shared,
    )


@dataclass(frozen=True)
class Block:
    """How the fed tokens of a wave lie in a block (P', W, N): the prompts that have fed rows, as
    many rows of each, as many tokens of each row. What is too much is computed and left."""

    sizes: tuple[int, int, int]
    prompts: Tensor  # (P',)
    rows: Tensor  # (P'·W,) rows of the store
    inside: Tensor  # (T,) the place of each token in the flat block
    row: Tensor  # (T,) where in the store a token's keys and values go
    column: Tensor  # (T,)
    reach: int  # columns of the store
    mask: Tensor  # (P', 1, W, N, 1, L + S), 0 or -inf


def _block(part: Fed, dtype: torch.dtype) -> Block:
    """The block of a wave's fed tokens."""
    groups = [(prompt, list(rows)) for prompt, rows in groupby(part.rows, lambda row: row[0])]
    wide, most = max(len(rows) for _, rows in groups), max(row[3] for row in part.rows)
    sizes = (len(groups), wide, most)
    longest = part.store.prompts.k[0].shape[2]
    reach = max(filled + tokens for *_, filled, tokens in part.rows)
    places = torch.zeros(len(groups), wide, dtype=torch.long)
    seen = torch.full(sizes, reach)
    inside: list[int] = []
    column: list[int] = []
    for at, (_, rows) in enumerate(groups):
        for w, (_, place, filled, tokens) in enumerate(rows):
            places[at, w] = place
            seen[at, w, :tokens] = filled + 1 + torch.arange(tokens)
            inside += range((at * wide + w) * most, (at * wide + w) * most + tokens)
            column += range(filled, filled + tokens)
    lengths = torch.tensor([part.store.lengths[prompt] for prompt, _ in groups])
    beyond = (torch.arange(longest) >= lengths[:, None])[:, None, None].expand(*sizes, -1)
    later = torch.arange(reach) >= seen[..., None]
    hidden = torch.cat([beyond, later], -1)
    mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))
    row = [place for _, place, _, tokens in part.rows for _ in range(tokens)]
    return Block(
        sizes,
        torch.tensor([prompt for prompt, _ in groups]),
        places.flatten(),
        torch.tensor(inside),
        torch.tensor(row),
        torch.tensor(column),
        reach,
        mask[:, None, :, :, None],
    )


def attend(
    shape: LlamaShape,
    layer: Layer,
    index: int,
    fed: Sequence[Fed],
    blocks: Sequence[Block],
    projected: Tensor,
    tables: tuple[Tensor, Tensor],
) -> Tensor:
    """Attention of a layer (T, H·C), in torch; the new keys and values are stored."""
    q, k, v = split_heads(projected, layer, shape, tables)
    sides = (q * shape.head_dim**-0.5, k, v)
    parts = zip(*(side.split([len(part.ids) for part in fed]) for side in sides), strict=True)
    mixed: list[Tensor] = []
    for part, block, (own_q, own_k, own_v) in zip(fed, blocks, parts, strict=True):
        part.store.own_k[index][block.row, :, block.column] = own_k
        part.store.own_v[index][block.row, :, block.column] = own_v
        mixed.append(_attend(shape, part.store, block, index, own_q))
    return torch.cat(mixed) if len(mixed) > 1 else mixed[0]


def _attend(shape: LlamaShape, store: Store, block: Block, index: int, q: Tensor) -> Tensor:
    """Attention of q (T, H, C), already scaled, over prompt and own keys."""
    (p, w, n), k, g, c = block.sizes, shape.kv_heads, shape.repeat, shape.head_dim
    padded = q.new_zeros(p * w * n, shape.heads, c).index_copy_(0, block.inside, q)
    asked = padded.view(p, w, n, k, g, c)
    prompt_k, prompt_v = (
        (t if p == len(t) else t.index_select(0, block.prompts)).flatten(0, 1)
        for t in (store.prompts.k[index], store.prompts.v[index])
    )
    own_k, own_v = (
        t[:, :, : block.reach].index_select(0, block.rows).flatten(0, 1)
        for t in (store.own_k[index], store.own_v[index])
    )
    size = prompt_k.shape[1]
    of_prompt = asked.permute(0, 3, 1, 2, 4, 5).reshape(p * k, w * n * g, c)
    of_row = asked.permute(0, 1, 3, 2, 4, 5).reshape(p * w * k, n * g, c)
    on_prompt = torch.bmm(of_prompt, prompt_k.transpose(1, 2)).view(p, k, w, n, g, size)
    on_own = torch.bmm(of_row, own_k.transpose(1, 2)).view(p, w, k, n, g, block.reach)
    scores = torch.cat([on_prompt, on_own.transpose(1, 2)], -1)
    share = scores.add_(block.mask).softmax(-1)
    from_prompt = torch.bmm(share[..., :size].reshape(p * k, w * n * g, size), prompt_v)
    own_share = share[..., size:].transpose(1, 2).reshape(p * w * k, n * g, block.reach)
    from_own = torch.bmm(own_share, own_v).view(p, w, k, n, g, c).transpose(2, 3)
    mixed = from_prompt.view(p, k, w, n, g, c).permute(0, 2, 3, 1, 4, 5) + from_own
    return mixed.reshape(p * w * n, k * g * c).index_select(0, block.inside)
