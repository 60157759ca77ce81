"""Prompts computed together, in pieces, with and without a known beginning, and over turns: the
same numbers."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from rollouts.engines.torch import llama, prefill
from rollouts.engines.torch.engine import TorchEngine
from rollouts.engines.torch.load import load_llama
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
    assert prefill.common_length([[1, 2]] * 2) == 1  # every prompt keeps a token
    plain = law(parts, [[]] * 4)
    # some prompts may know their beginning and others not
    assert torch.allclose(law(parts, [[], [shared], [], [shared]]), plain, atol=1e-4)
    for size in (prefill.PIECE, 1, 3, 8, 17):
        monkeypatch.setattr(prefill, "PIECE", size)
        assert torch.allclose(law(parts, [[]] * 4), plain, atol=1e-4)
        assert torch.allclose(law(parts, [[shared]] * 4), plain, atol=1e-4)


# --- what was computed in a turn is not computed again -------------------------------------------


TURNS = 4
SAID = Sampling(12, temperature=1.0)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def model(request: pytest.FixtureRequest, tiny_folder: Path) -> Any:
    return load_llama(tiny_folder, request.param)


def talk(engine: TorchEngine, first: int) -> list[list[Completion]]:
    """All messages of three tasks' episodes, two a task, in lockstep."""
    rows = [[7, 8, 9, first + i, *range(30, 40 + i)] for i in range(3)]
    groups = engine.generate_now(rows, SAID, 2, range(first, first + 3))
    said, rows = [[c for group in groups for c in group]], [row for row in rows for _ in range(2)]
    for turn in range(1, TURNS):
        heard = [50 + turn, 60 + turn]
        rows = [row + c.ids + heard for row, c in zip(rows, said[-1], strict=True)]
        said.append([g[0] for g in engine.generate_now(rows, SAID, 1, range(turn, turn + 6))])
    return said


def test_a_later_turn_runs_its_new_tokens_alone_and_says_the_same(model: Any) -> None:
    keeping, plain = TorchEngine(model, [2, 5], 6), TorchEngine(model, [2, 5], 6, keep_bytes=0)
    ours, theirs = talk(keeping, 70), talk(plain, 70)
    for a, b in zip(chain(*ours), chain(*theirs), strict=True):
        if model.embed.dtype == torch.float32:
            assert a.ids == b.ids and a.logprobs == pytest.approx(b.logprobs, abs=2e-4)
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
