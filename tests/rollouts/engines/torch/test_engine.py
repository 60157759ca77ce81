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
from places import tables
from tiny_model import random_model

from rollouts.engines.engine import context_of
from rollouts.engines.torch import cpu_decode, llama, prefill
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


KINDS = tables("rollouts")["models without a decoder of ours"]
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


# --- samples that drew the same so far are computed once; guesses change no answer

TREES = [[7, 8, 9, i, *range(30, 31 + 3 * i)] for i in range(5)]


def assert_same(
    ours: list[list[Completion]], theirs: list[list[Completion]], near: float = 2e-4
) -> None:
    for one, other in zip(chain(*ours), chain(*theirs), strict=True):
        assert (one.ids, one.stop) == (other.ids, other.stop)
        assert one.logprobs == pytest.approx(other.logprobs, abs=near)
        assert one.sampling_logprobs == pytest.approx(other.sampling_logprobs, abs=near)


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from([0.0, 0.01, 0.03, 0.1, 1.0]),
    st.sampled_from([(0, 1.0), (5, 1.0), (20, 0.8)]),
    st.integers(1, 6),
    st.sampled_from([3, 8, 64]),
    st.integers(3, 40),
)
def test_merged_samples_draw_what_they_draw_apart(
    engine: TorchEngine, heat: float, narrow: tuple[int, float], n: int, slots: int, every: int
) -> None:
    found: list[list[list[Completion]]] = []
    for merges in (True, False):
        one = TorchEngine(engine.model, list(range(0, 259, every)), slots)
        one.merges = merges
        found.append(one.generate_now(TREES, Sampling(14, heat, *narrow), n, range(5)))
    assert_same(*found, max(2e-4, 1e-5 / (heat or 1)))


# texts that repeat themselves, one that does not, and one token alone
REPEATING = [[6, 7, 8] * 5, list(range(3, 30)), [9], [44, 3, 17, 44, 3]]


LAWS = [(40, 0.0), (40, 0.3), (25, 1.0, 20, 0.9), (1, 0.0)]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: str(law[:2]))
def test_answers_with_every_guess_are_those_of_single_steps(
    engine: TorchEngine, law: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[list[Completion]]] = []
    for share in (lambda rows, *_: [0] * len(rows), lambda rows, *_: [known for _, known in rows]):
        monkeypatch.setattr(cpu_decode, "share_out", share)
        one = TorchEngine(engine.model, [2], slots=16)
        found.append(one.generate_now(REPEATING, Sampling(*law), 2, [3, 1, 4, 1]))
    assert_same(*found)


# --- prompts together, in pieces, with a known beginning, over turns: the same numbers

HEAD = [9, 8, 7, 6, 5, 4]
ALIKE = [[*HEAD, 11], [*HEAD, 12, 13, 14], [*HEAD, *range(40, 70)], [*HEAD, 11, 3, 3]]


@pytest.fixture(scope="module")
def parts(tiny_folder: Path) -> tuple[Any, Any]:
    model = load_llama(tiny_folder, "float32")
    return model, llama.products(model, 8, packed=False)


def law(parts: tuple[Any, Any], past: list[Any], prompts: list[list[int]] = ALIKE) -> Any:
    logits, _ = prefill.prefill(*parts, prompts, past)
    return logits.log_softmax(-1)


def test_a_common_beginning_and_pieces_change_nothing(
    parts: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is shared is computed once, and what runs together is bounded."""
    shared = prefill.trunk(*parts, ALIKE)
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
