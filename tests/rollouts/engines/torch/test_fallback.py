"""Models without a decoder of ours: many answers side by side, each what it is alone."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rollouts.engines.torch.engine import TransformersEngine  # noqa: E402
from rollouts.trajectory import Completion, Sampling  # noqa: E402

SMALL: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}
KINDS: dict[str, dict[str, Any]] = {
    "gemma3_text": {"head_dim": 8, "sliding_window": 8},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "mamba": {"state_size": 8},
    "rwkv": {},
}
PROMPTS = [[5, 6, 7], [9, 9, 8, 7, 6, 5, 4, 3, 11, 12, 13], [40], [5, 6, 7, 8, 9]]


def model_of(kind: str) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config: Any = AutoConfig.for_model(kind, **SMALL, **KINDS[kind])
    return AutoModelForCausalLM.from_config(config).float().eval()


@torch.no_grad()
def check(model: Any, prompt: list[int], done: Completion, sampling: Sampling) -> None:
    """The log-probabilities are those of one forward pass over the whole."""
    logits = model(torch.tensor([prompt + done.ids]), use_cache=False).logits[0].float()
    law = (logits[len(prompt) - 1 : -1] / (sampling.temperature or 1)).log_softmax(-1)
    wanted = law.gather(1, torch.tensor(done.ids)[:, None])[:, 0]
    assert torch.allclose(torch.tensor(done.logprobs), wanted, atol=1e-4)
    if sampling.temperature == 0:
        assert law.argmax(-1).tolist() == done.ids


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_answers_side_by_side_are_those_alone(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model, stops = model_of(kind), [2, 30, 31, 60]
    many, one = TransformersEngine(model, stops, 6), TransformersEngine(model, stops, 1)
    assert many.together == ("alone" if kind == "rwkv" else "padded")
    assert ("one prompt is answered at a time" in capsys.readouterr().err) == (kind == "rwkv")
    for sampling, n in ((Sampling(12, 0.0), 1), (Sampling(12, 0.8, top_k=40, top_p=0.9), 3)):
        together = many.generate_now(PROMPTS, sampling, n, [4, 5, 6, 7])
        alone = [
            one.generate_now([p], sampling, n, [s])[0]
            for p, s in zip(PROMPTS, (4, 5, 6, 7), strict=True)
        ]
        for prompt, a, b in zip(PROMPTS, together, alone, strict=True):
            assert [(c.ids, c.stop) for c in a] == [(c.ids, c.stop) for c in b]
            for c in a:
                assert (c.ids[-1] in stops) == (c.stop == "eos") and not set(c.ids[:-1]) & {*stops}
                check(model, prompt, c, sampling)


def test_without_padding_prompts_of_one_length_stay_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A state that no mask reaches: the answers are the same ones all the same."""
    model = model_of("mamba")
    prompts = [PROMPTS[0], PROMPTS[1], [40, 41, 42], [43, 44, 45]]
    padded = TransformersEngine(model, [2], 8)
    wanted = padded.generate_now(prompts, Sampling(8), 1, range(4))
    forward = type(model).forward

    def blind(self: Any, *args: Any, attention_mask: Any = None, **more: Any) -> Any:
        return forward(self, *args, **more)

    monkeypatch.setattr(type(model), "forward", blind)
    other = TransformersEngine(model_of("mamba"), [2], 8)
    assert (padded.together, other.together) == ("padded", "equal")
    found = other.generate_now(prompts, Sampling(8), 1, range(4))
    assert [g[0].ids for g in found] == [g[0].ids for g in wanted]


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
    plain = TransformersEngine(model, [2]).generate_now(PROMPTS, Sampling(8), 1, range(4))
    model.generation_config.update(
        repetition_penalty=1.5, top_k=3, eos_token_id=5, temperature=0.1, do_sample=True
    )
    assert TransformersEngine(model, [2]).generate_now(PROMPTS, Sampling(8), 1, range(4)) == plain
