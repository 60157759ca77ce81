"""The embedded decoder against transformers: same ids, same log-probabilities; models without one
are answered side by side; no answer goes beyond a context."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import random_model

from rollouts.engines.engine import context_of
from rollouts.engines.torch import sampling as sampling_module
from rollouts.engines.torch.engine import TorchEngine, TransformersEngine
from rollouts.engines.torch.load import load_llama
from rollouts.engines.torch.sampling import pick, uniforms
from rollouts.trajectory import Completion, Sampling

PROMPTS = [[7, 9, 11, 30, 5], [8] * 9, [44, 3, 17], list(range(3, 40)), [6, 7] * 4, [5]]
SEEDS = list(range(len(PROMPTS)))


@pytest.fixture(scope="module")
def engine(tiny_folder: Path) -> TorchEngine:
    return TorchEngine(load_llama(tiny_folder, "float32"), [2], slots=16)


@pytest.mark.parametrize("top_k,top_p", [(0, 1.0), (20, 0.9), (5, 1.0), (0, 0.8)])
def test_both_log_probabilities_match_a_float32_forward(
    engine: TorchEngine, tiny_hf: Any, top_k: int, top_p: float
) -> None:
    sampling = Sampling(30, temperature=0.8, top_k=top_k, top_p=top_p)
    groups = engine.generate_now(PROMPTS, sampling, 3, SEEDS)
    for prompt, group in zip(PROMPTS, groups, strict=True):
        for c in group:
            logits = tiny_hf(torch.tensor([prompt + c.ids])).logits[0, len(prompt) - 1 : -1]
            scaled = logits.detach() / 0.8
            chosen = torch.tensor(c.ids)[:, None]
            full = scaled.log_softmax(-1).gather(1, chosen)[:, 0]
            assert torch.allclose(full, torch.tensor(c.logprobs), atol=2e-4)
            narrow = warp(scaled, top_k, top_p).log_softmax(-1).gather(1, chosen)[:, 0]
            assert torch.allclose(narrow, torch.tensor(c.sampling_logprobs), atol=2e-4)


def test_stop_ids_end_a_sample_and_compaction_loses_none(engine: TorchEngine) -> None:
    stops = list(range(0, 259, 9))  # many, so rows end at different times and get compacted
    small, again, large = (
        TorchEngine(engine.model, stops, slots).generate_now(PROMPTS, Sampling(60), 4, SEEDS)
        for slots in (4, 4, 64)
    )
    assert small == again
    assert [[c.ids for c in group] for group in small] == [[c.ids for c in g] for g in large]
    for c in chain(*small):
        assert (c.ids[-1] in stops) == (c.stop == "eos") and not set(c.ids[:-1]) & {*stops}


def warp(logits: Any, top_k: int, top_p: float) -> Any:
    """transformers' own warpers, the reference for what top-k and top-p mean."""
    from transformers import TopKLogitsWarper, TopPLogitsWarper

    if top_k:
        logits = TopKLogitsWarper(top_k)(None, logits)
    return TopPLogitsWarper(top_p)(None, logits) if top_p < 1 else logits


def test_fallback_engine_agrees_with_the_embedded_one(engine: TorchEngine, tiny_hf: Any) -> None:
    sampling = Sampling(16, temperature=1.0, top_k=30, top_p=0.95)
    ours = engine.generate_now(PROMPTS, sampling, 3, SEEDS)
    theirs = TransformersEngine(tiny_hf, [2]).generate_now(PROMPTS, sampling, 3, SEEDS)
    for a, b in zip(ours, theirs, strict=True):
        assert [c.ids for c in a] == [c.ids for c in b]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-30, 30), min_size=2, max_size=700),
    st.integers(0, 12),
    st.floats(0.05, 1.0),
    st.floats(0, 1, exclude_max=True),
)
def test_pick_draws_inside_the_kept_set(
    values: list[float], top_k: int, top_p: float, u: float
) -> None:
    logits = torch.tensor([values])
    sampling = Sampling(1, temperature=1.0, top_k=top_k, top_p=top_p)
    ids, full, narrow = pick(logits, sampling, torch.tensor([u], dtype=torch.float64))
    share = logits[0].double().softmax(-1)
    token = int(ids[0])
    if top_k:
        assert int((share > share[token]).sum()) < top_k
    assert float(share[share > share[token]].sum()) <= top_p + 1e-6
    assert abs(float(full[0]) - float(share[token].log())) < 1e-3
    assert float(narrow[0]) >= float(full[0]) - 1e-4


def test_pick_follows_the_distribution() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0] + [-40.0] * 500]).repeat(20_000, 1)
    u = uniforms([3], 20_000)[0]
    ids, _, _ = pick(logits, Sampling(1, temperature=1.0), u)
    seen = torch.bincount(ids, minlength=4)[:4] / 20_000
    assert torch.allclose(seen, logits[0, :4].softmax(-1), atol=0.012)


@pytest.mark.parametrize("temperature,top_k,top_p", [(0, 0, 1), (0.7, 0, 1), (1, 20, 0.9)])
def test_rows_in_slices_draw_what_they_draw_together(
    monkeypatch: pytest.MonkeyPatch, temperature: float, top_k: int, top_p: float
) -> None:
    logits = torch.randn(7, 600, generator=torch.Generator().manual_seed(1)).bfloat16()
    before, u = logits.clone(), uniforms([5], 7)[0]
    sampling = Sampling(1, temperature, top_k, top_p)
    together = pick(logits, sampling, u)
    monkeypatch.setattr(sampling_module, "_SLICE", 1200)  # two rows a thread
    sliced = pick(logits, sampling, u)
    assert torch.equal(sliced[0], together[0])
    assert all(torch.allclose(a, b) for a, b in zip(sliced[1:], together[1:], strict=True))
    assert torch.equal(logits, before)


# --- models without a decoder of ours ------------------------------------------------------------


KINDS: dict[str, dict[str, Any]] = {
    "gemma3_text": {"head_dim": 8, "sliding_window": 8},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "mamba": {"state_size": 8},
    "rwkv": {},
}
UNEVEN = [[5, 6, 7], [9, 9, 8, 7, 6, 5, 4, 3, 11, 12, 13], [40], [5, 6, 7, 8, 9], [40, 41, 42]]


def model_of(kind: str) -> Any:
    few = {"vocab_size": 97, "max_position_embeddings": 64, "initializer_range": 0.3}
    return random_model(kind, **few | KINDS[kind])


@torch.no_grad()
def check(model: Any, prompt: list[int], done: Completion, sampling: Sampling) -> None:
    """The log-probabilities are those of one forward pass over the whole."""
    logits = model(torch.tensor([prompt + done.ids]), use_cache=False).logits[0].float()
    law = (logits[len(prompt) - 1 : -1] / (sampling.temperature or 1)).log_softmax(-1)
    wanted = law.gather(1, torch.tensor(done.ids)[:, None])[:, 0]
    assert torch.allclose(torch.tensor(done.logprobs), wanted, atol=1e-4)
    if sampling.temperature == 0:
        assert law.argmax(-1).tolist() == done.ids


@pytest.mark.parametrize("kind", [*KINDS, "blind"])
def test_answers_side_by_side_are_those_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no mask reaches the state: prompts of one length stay together, or none do."""
    model, stops = model_of(kind.replace("blind", "mamba")), [2, 30, 31, 60]
    one = TransformersEngine(model, stops, 1)
    if kind == "blind":
        forward = type(model).forward
        blind = lambda self, *args, attention_mask=None, **more: forward(self, *args, **more)  # noqa: E731
        monkeypatch.setattr(type(model), "forward", blind)
        model = model_of("mamba")
    many = TransformersEngine(model, stops, 6)
    assert many.together == {"rwkv": "alone", "blind": "equal"}.get(kind, "padded")
    for sampling, n in ((Sampling(12, 0.0), 1), (Sampling(12, 0.8, top_k=40, top_p=0.9), 3)):
        together = many.generate_now(UNEVEN, sampling, n, range(5))
        for i, prompt in enumerate(UNEVEN):
            (alone,) = one.generate_now([prompt], sampling, n, [i])
            assert [(c.ids, c.stop) for c in together[i]] == [(c.ids, c.stop) for c in alone]
            for c in alone:
                assert (c.ids[-1] in stops) == (c.stop == "eos") and not set(c.ids[:-1]) & {*stops}
                check(model, prompt, c, sampling)


def test_rows_near_the_end_of_learned_positions() -> None:
    """No place beyond them may be computed, not even for a row that has ended."""
    model = model_of("gpt2")
    prompts = [[3] * 60, [4] * 10, [5] * 63, [6] * 64, [7] * 80, [8] * 60]
    found = TransformersEngine(model, [], 8).generate_now(prompts, Sampling(9), 2, range(6))
    assert [len(group[0].ids) for group in found] == [4, 9, 1, 0, 0, 4]
    for prompt, group in zip(prompts[:3], found, strict=False):
        for one in group:
            check(model, prompt, one, Sampling(9))


def test_a_folder_with_a_law_of_its_own_is_sampled_by_ours() -> None:
    model = model_of("gpt2")
    plain = TransformersEngine(model, [2]).generate_now(UNEVEN, Sampling(8), 1, range(5))
    model.generation_config.update(
        repetition_penalty=1.5, top_k=3, eos_token_id=5, temperature=0.1, do_sample=True
    )
    assert TransformersEngine(model, [2]).generate_now(UNEVEN, Sampling(8), 1, range(5)) == plain


# --- answers end where the model's context does --------------------------------------------------


def test_answers_end_where_the_context_does(
    engine: TorchEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = [[1] * length for length in (3, 17, 20, 40)]
    free = engine.generate_now(prompts, Sampling(6), 2, range(4))
    bounded = TorchEngine(engine.model, [2], slots=16)
    bounded.context = 20
    found = bounded.generate_now(prompts, Sampling(6), 2, range(4))
    for one, other in zip(chain(*found), chain(*free), strict=True):
        assert one.ids == other.ids[: len(one.ids)]
    assert [[len(c.ids) for c in group] for group in found] == [[6, 6], [3, 3], [0, 0], [0, 0]]
    assert {c.stop for group in found[1:] for c in group} == {"length"}
    assert "2 of 4 prompts" in capsys.readouterr().err


def test_the_context_of_a_configuration() -> None:
    assert context_of({"max_position_embeddings": 2048}) == 2048
    assert context_of({"n_positions": 1024}) == 1024
    assert context_of({"text_config": {"max_position_embeddings": 512}}) == 512
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1000}
    assert context_of({"max_position_embeddings": 1000, "rope_scaling": yarn}) == 4000
    assert context_of({"model_type": "bloom"}) == 0
