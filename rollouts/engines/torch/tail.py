# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""The last few rows of a call: several tokens a step, guessed from the text before them.

A decoding step of one row reads every weight, as one of eight rows does. So where few rows are
left, a row's next tokens are guessed by prompt lookup (Saxena 2023, "Prompt lookup decoding"): what
followed the last words when they stood in the text before. All guesses are fed at once. Each
position draws its token as it would alone, from the same law with the same uniform number; a guess
is kept where it is the token drawn before it, so the ids are those of single steps (up to rounding,
which differs with the number of rows anywhere in the engine).

R rows, T tokens a row and step, L columns of keys; other letters as in decode.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from rollouts.engines.torch.decode import Products
from rollouts.engines.torch.kept import Past
from rollouts.engines.torch.llama import Llama, positioned, rope_tables
from rollouts.engines.torch.sampling import pick
from rollouts.engines.torch.waves import Wave
from rollouts.trajectory import Sampling

ROWS = 4  # beyond, a guessed token costs about as much as a drawn one
GUESSES = 8  # tokens guessed at most
GRAMS = (3, 2)  # so many last tokens must have stood before, the longer first


@dataclass
class Lookup:
    """Where each run of `GRAMS` tokens of a text was last seen."""

    ids: list[int]
    width: int = 4
    _seen: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    _upto: int = 0

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
                return self.ids[at : at + self.width]
        return []

    def learn(self, guessed: int, kept: int) -> None:
        """Guess more where all was right, and little where much was wrong."""
        if guessed:
            wide = 2 * self.width if kept == guessed else kept + 1
            self.width = max(1, min(GUESSES, wide))


@dataclass
class Row:
    """A sample that goes on alone: its text, what decides its draws, and what was drawn."""

    wave: Wave
    sample: int
    prompt: int  # its length
    text: Lookup
    uniforms: list[float]
    limit: int
    full: list[float] = field(default_factory=list[float])
    narrow: list[float] = field(default_factory=list[float])
    ended: bool = False

    @property
    def drawn(self) -> int:
        return len(self.text.ids) - self.prompt

    @property
    def over(self) -> bool:
        return self.ended or self.drawn >= self.limit


def few(waves: Sequence[Wave]) -> bool:
    """Whether the rows that are left are so few that guessing pays, on a CPU."""
    if not waves or waves[0].cache.own_k[0].device.type != "cpu":
        return False
    return 0 < sum(wave.live for wave in waves if not wave.done) <= ROWS


@torch.inference_mode()
def finish(
    model: Llama,
    run: Products,
    waves: Sequence[tuple[Wave, Sequence[Sequence[int]]]],
    sampling: Sampling,
) -> None:
    """Draw the rest of every row of waves, each given with the prompts of its groups."""
    rows: list[Row] = []
    parts: list[Past] = []
    for wave, prompts in waves:
        for sample, ids, uniforms, past in wave.left():
            prompt = list(prompts[sample // wave.width])
            text = Lookup([*prompt, *ids])
            rows.append(Row(wave, sample, len(prompt), text, uniforms, wave.limit))
            parts.append(past)
    if not rows:
        return
    stops = set(rows[0].wave.stop_ids.tolist())
    room = max(row.prompt + row.limit for row in rows) + GUESSES + 1
    store = _store(parts, room)
    while any(not row.over for row in rows):
        going = [at for at, row in enumerate(rows) if not row.over]
        _step(model, run, [rows[at] for at in going], going, store, sampling, stops)
    for at, row in enumerate(rows):
        fed = len(row.text.ids) - 1
        own = Past(*(torch.stack([t[at, :, row.prompt : fed] for t in side]) for side in store))
        ids = row.text.ids[row.prompt :]
        row.wave.ended(row.sample, ids, row.full, row.narrow, own)


def _store(parts: Sequence[Past], room: int) -> tuple[list[Tensor], list[Tensor]]:
    """Keys and values of all rows, a layer each (R, K, room, C), from what is known of each."""
    made: list[list[Tensor]] = []
    for known in ([part.k for part in parts], [part.v for part in parts]):
        layers, heads, _, size = known[0].shape
        side = [known[0].new_zeros(len(parts), heads, room, size) for _ in range(layers)]
        for at, tensor in enumerate(known):
            for layer, target in enumerate(side):
                target[at, :, : tensor.shape[2]] = tensor[layer]
        made.append(side)
    return made[0], made[1]


def _step(
    model: Llama,
    run: Products,
    rows: Sequence[Row],
    places: Sequence[int],
    store: tuple[list[Tensor], list[Tensor]],
    sampling: Sampling,
    stops: set[int],
) -> None:
    """Feed each row its last token and its guesses, and keep what was drawn."""
    guesses = [row.text.guess()[: row.limit - row.drawn - 1] for row in rows]
    wide = 1 + max(map(len, guesses))
    fed = [
        [row.text.ids[-1], *g] + [0] * (wide - 1 - len(g))
        for row, g in zip(rows, guesses, strict=True)
    ]
    logits = _forward(model, run, torch.tensor(fed), _columns(rows, wide), places, store)
    draws = [[row.uniforms[min(row.drawn + j, row.limit - 1)] for j in range(wide)] for row in rows]
    u = torch.tensor(draws, dtype=torch.float64).flatten()
    ids, full, narrow = (
        column.view(len(rows), wide).tolist()
        for column in pick(logits, sampling, u, kernels=run.kernels)
    )
    for at, (row, guess) in enumerate(zip(rows, guesses, strict=True)):
        kept = 0
        while True:
            row.text.ids.append(ids[at][kept])
            row.full.append(full[at][kept])
            row.narrow.append(narrow[at][kept])
            row.ended = ids[at][kept] in stops
            if row.over or kept == len(guess) or guess[kept] != ids[at][kept]:
                break
            kept += 1
        row.text.learn(len(guess), kept)


def _columns(rows: Sequence[Row], wide: int) -> Tensor:
    """(R, T) the place of each fed token in its text."""
    first = torch.tensor([len(row.text.ids) - 1 for row in rows])
    return first[:, None] + torch.arange(wide)


def _forward(
    model: Llama,
    run: Products,
    ids_RT: Tensor,
    at_RT: Tensor,
    places: Sequence[int],
    store: tuple[list[Tensor], list[Tensor]],
) -> Tensor:
    """Logits (R·T, V); keys and values go into `store` at the columns `at_RT`."""
    shape = model.shape
    rows, wide = ids_RT.shape
    cos, sin = rope_tables(shape, at_RT.flatten(), model.embed.dtype)
    cos, sin = cos[:, None], sin[:, None]
    size = int(at_RT.max()) + 1
    mask = (torch.arange(size) <= at_RT[:, :, None])[:, None]  # (R, 1, T, L)
    chosen = torch.tensor(places)
    cut = shape.heads + shape.kv_heads
    x, more = model.embed[ids_RT.flatten()], None
    for index, (layer, (qkv, o, gated, down)) in enumerate(
        zip(model.layers, run.layers, strict=True)
    ):
        x, normed = run.add_norm(x, more, layer.norm_attn, shape.eps)
        heads = qkv(normed).view(len(x), -1, shape.head_dim)
        turned = positioned(heads[:, :cut], layer, shape, cos, sin)
        new = (turned[:, shape.heads :], heads[:, cut:])
        known: list[Tensor] = []
        for side, values in zip(store, new, strict=True):
            target = side[index]
            target[chosen[:, None], :, at_RT] = values.view(rows, wide, shape.kv_heads, -1)
            known.append(target[chosen, :, :size])
        q = turned[:, : shape.heads].view(rows, wide, shape.heads, -1).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(q, *known, attn_mask=mask, enable_gqa=True)
        mixed = mixed.transpose(1, 2).reshape(rows * wide, -1)
        x, normed = run.add_norm(x, o(mixed), layer.norm_mlp, shape.eps)
        more = down(gated(normed))
    return run.head(run.add_norm(x, more, model.norm, shape.eps)[1])
