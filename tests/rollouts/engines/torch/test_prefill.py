"""Prompts computed together, in pieces, with and without a known beginning, and over turns: the
same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollouts.engines.torch import llama, prefill
from rollouts.engines.torch.engine import TorchEngine
from rollouts.engines.torch.load import load_llama
from rollouts.engines.torch.prefill import Kept, Past
from rollouts.trajectory import Completion, Sampling

HEAD = [9, 8, 7, 6, 5, 4]
PROMPTS = [[*HEAD, 11], [*HEAD, 12, 13, 14], [*HEAD, *range(40, 70)], [*HEAD, 11, 3, 3]]


@pytest.fixture(scope="module")
def parts(tiny_folder: Path) -> tuple[Any, Any]:
    model = load_llama(tiny_folder, "float32")
    return model, llama.products(model, 8, packed=False)


def law(parts: tuple[Any, Any], past: list[Any], prompts: list[list[int]] = PROMPTS) -> Any:
    logits, _ = prefill.prefill(*parts, prompts, past)
    return logits.log_softmax(-1)


def test_a_common_beginning_and_pieces_change_nothing(
    parts: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is shared is computed once, and what runs together is bounded."""
    shared = prefill.trunk(*parts, PROMPTS)
    assert shared is not None and shared.length == len(HEAD)
    plain = law(parts, [[]] * 4)
    # some prompts may know their beginning and others not
    assert torch.allclose(law(parts, [[], [shared], [], [shared]]), plain, atol=1e-4)
    for size in (prefill.PIECE, 1, 3, 8, 17):
        monkeypatch.setattr(prefill, "PIECE", size)
        assert torch.allclose(law(parts, [[]] * 4), plain, atol=1e-4)
        assert torch.allclose(law(parts, [[shared]] * 4), plain, atol=1e-4)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), min_size=1), st.integers(1, 9))
def test_pieces_cover_every_token_once_in_order(spans: list[tuple[int, int]], size: int) -> None:
    pieces = list(prefill._pieces([a for a, _ in spans], [a + n for a, n in spans], size))
    seen: dict[int, list[int]] = {i: [] for i in range(len(spans))}
    for piece in pieces:
        assert sum(b - a for a, b in zip(piece.begin, piece.end, strict=True)) <= size
        for i, a, b in zip(range(piece.first, piece.last), piece.begin, piece.end, strict=True):
            seen[i] += range(a, b)
    assert seen == {i: list(range(a, a + n)) for i, (a, n) in enumerate(spans)}


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=5))
def test_the_common_beginning_leaves_every_prompt_a_token(prompts: list[list[int]]) -> None:
    size = prefill.common_length(prompts)
    assert all(p[:size] == prompts[0][:size] and len(p) > size for p in prompts)
    longer = {tuple(p[: size + 1]) for p in prompts}
    assert len(longer) > 1 or min(map(len, prompts)) == size + 1


# --- what was computed in a turn is not computed again -------------------------------------------


TURNS = 4
SAID = Sampling(12, temperature=1.0)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def model(request: pytest.FixtureRequest, tiny_folder: Path) -> Any:
    return load_llama(tiny_folder, request.param)


def talk(engine: TorchEngine, first: int, tasks: int = 3) -> list[list[Completion]]:
    """All messages of some tasks' episodes, two a task, in lockstep."""
    prompts = [[7, 8, 9, first + i, *range(30, 40 + i)] for i in range(tasks)]
    seeds = [first + i for i in range(tasks)]
    groups = engine.generate_now(prompts, SAID, 2, seeds)
    rows = [prompt for prompt in prompts for _ in range(2)]
    said = [[c for group in groups for c in group]]
    for turn in range(1, TURNS):
        heard = [[50 + turn, 60 + turn]] * len(rows)
        rows = [r + c.ids + t for r, c, t in zip(rows, said[-1], heard, strict=True)]
        keys = [100 * turn + i for i in range(len(rows))]
        said.append([g[0] for g in engine.generate_now(rows, SAID, 1, keys)])
    return said


def test_a_later_turn_runs_its_new_tokens_alone_and_says_the_same(model: Any) -> None:
    keeping, plain = TorchEngine(model, [2, 5], 6), TorchEngine(model, [2, 5], 6, keep_bytes=0)
    ours, theirs = talk(keeping, 70), talk(plain, 70)
    exact = model.embed.dtype == torch.float32
    for turn, plainly in zip(ours, theirs, strict=True):
        for a, b in zip(turn, plainly, strict=True):
            if exact:
                assert a.ids == b.ids
                assert a.logprobs == pytest.approx(b.logprobs, abs=2e-4)
    tokens = sum(2 * (14 + i) for i in range(3)) + 6 * 2 * (TURNS - 1)
    tokens += sum(len(c.ids) for turn in ours for c in turn)
    assert keeping.prefilled <= 1.1 * tokens
    assert keeping.prefilled < plain.prefilled / 2


def test_bits_do_not_depend_on_what_the_engine_did_before(model: Any) -> None:
    engine = TorchEngine(model, [2, 5], 6)
    talk(engine, 70), talk(engine, 80)
    after = talk(engine, 90)
    assert after == talk(TorchEngine(model, [2, 5], 6), 90)
    assert after == talk(engine, 90)  # a retry, too
    small = TorchEngine(model, [2, 5], 6, keep_bytes=40_000)
    talk(small, 70)
    assert talk(small, 90) == talk(TorchEngine(model, [2, 5], 6, keep_bytes=40_000), 90)
    assert small._kept.size <= 40_000


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_new_weights_forget_the_old_ones_keys_and_packed_copies(
    tiny_folder: Path, dtype: str
) -> None:
    model = load_llama(tiny_folder, dtype)
    engine = TorchEngine(model, [], 4)
    first = engine.generate_now([[5, 6, 7]], SAID, 1, [0])[0][0]
    assert engine._kept.size > 0 and engine._products is not None
    engine.release()  # for the backward pass
    assert engine._kept.size == 0 and engine._products is None
    assert engine.generate_now([[5, 6, 7]], SAID, 1, [0])[0][0] == first
    with torch.no_grad():
        model.layers[0].down.mul_(-3)
    engine.update_weights()
    prompt = [5, 6, 7, *first.ids, 9]
    again = engine.generate_now([prompt], SAID, 1, [1])
    assert again == TorchEngine(model, [], 4).generate_now([prompt], SAID, 1, [1])


def test_the_longest_row_is_found_once_and_the_oldest_go_first() -> None:
    one = Past(torch.zeros(1, 1, 2, 1), torch.zeros(1, 1, 2, 1))
    assert one.length == 2 and one.size == 16
    kept = Kept(48)
    kept.put([1, 2, 3], [one], 16)
    kept.put([1, 2, 3, 4, 5], [one, one], 32)
    assert kept.take([[1, 2], [1, 2, 9], [3, 1, 2, 3]]) == [[], [], []]
    assert kept.take([[1, 2, 3, 4, 5, 6], [1, 2, 3, 4]]) == [[one, one], [one]]
    assert kept.take([[1, 2, 3, 4, 5, 6]]) == [[]] and kept.size == 0
    for first in range(5):
        kept.put([first, 0], [one], 16)
    assert kept.take([[i, 0] for i in range(5)]) == [[], [], [one], [one], [one]]
    kept.put([1, 2], [one], 49)
    assert kept.size == 0
