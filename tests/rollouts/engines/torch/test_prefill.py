"""Prompts computed together, in pieces, with and without a known beginning: the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from rollouts.engines.torch import llama, prefill  # noqa: E402
from rollouts.engines.torch.load import load_llama  # noqa: E402

HEAD = [9, 8, 7, 6, 5, 4]
PROMPTS = [[*HEAD, 11], [*HEAD, 12, 13, 14], [*HEAD, *range(40, 70)], [*HEAD, 11, 3, 3]]


@pytest.fixture(scope="module")
def parts(tiny_folder: Path) -> tuple[Any, Any]:
    model = load_llama(tiny_folder, "float32")
    return model, llama.products(model, 8, packed=False)


def law(parts: tuple[Any, Any], past: list[Any], prompts: list[list[int]] = PROMPTS) -> Any:
    logits, _ = prefill.prefill(*parts, prompts, past)
    return logits.log_softmax(-1)


def test_a_common_beginning_is_computed_once_and_changes_nothing(parts: tuple[Any, Any]) -> None:
    shared = prefill.trunk(*parts, PROMPTS)
    assert shared is not None and shared.length == len(HEAD)
    plain = law(parts, [[]] * 4)
    assert torch.allclose(law(parts, [[shared]] * 4), plain, atol=1e-4)
    # some prompts may know their beginning and others not
    assert torch.allclose(law(parts, [[], [shared], [], [shared]]), plain, atol=1e-4)


def test_pieces_bound_what_runs_together_and_change_nothing(
    parts: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = law(parts, [[]] * 4)
    shared = prefill.trunk(*parts, PROMPTS)
    for size in (1, 3, 8, 17):
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
