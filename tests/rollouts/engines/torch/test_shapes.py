"""Every shape that the embedded decoder and trainer compute, against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import json

import torch
from places import tables
from tiny_model import random_model, small_llama, write_tiny_tokenizer

from rollouts.engines.engine import ModelError
from rollouts.engines.torch.engine import TorchEngine, TransformersEngine, load_engine
from rollouts.engines.torch.kernels import Kernels, compiled
from rollouts.engines.torch.llama import to_state
from rollouts.engines.torch.load import read_weights, write_weights
from rollouts.trajectory import Sampling
from train.model.packing import Segment, pack
from train.model.policy import LlamaPolicy, TransformersPolicy, load_policy

# by name: an architecture of transformers, and what differs from the tiny configuration
CASES = tables("rollouts")
PROMPTS = [[7, 9, 11, 30, 5], [8] * 9, list(range(3, 40)), [6, 7] * 4, [5]]


def made_of(kind: str, changes: dict[str, Any], folder: Path) -> tuple[Path, Any]:
    """A random model and its folder."""
    vocab = write_tiny_tokenizer(folder)
    model = random_model(kind, **{"vocab_size": vocab, "tie_word_embeddings": True} | changes)
    model.save_pretrained(folder)
    return folder, type(model).from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module", params=CASES["shapes of models"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return made_of(*CASES["shapes of models"][request.param], tmp_path_factory.mktemp("shape"))


def greedy(module: Any, prompt: list[int], limit: int) -> list[int]:
    stops: dict[str, Any] = {"do_sample": False, "eos_token_id": 2, "pad_token_id": 2}
    mask = torch.ones(1, len(prompt), dtype=torch.long)
    ids = torch.tensor([prompt])
    out = module.generate(ids, max_new_tokens=limit, attention_mask=mask, **stops)
    return out[0, len(prompt) :].tolist()


def test_log_probabilities_are_those_of_transformers(made: tuple[Path, Any]) -> None:
    """Also over turns: the second prompts go on from keys that were kept."""
    folder, module = made
    engine = load_engine(folder, [2], 16, "float32")
    assert isinstance(engine, TorchEngine)
    fits = engine.model.shape.hidden == 192 and isinstance(compiled(torch.float32), Kernels)
    assert engine.about()["kernels"] == ("compiled" if fits else "torch")
    prompts = PROMPTS
    for _ in range(2):
        groups = engine.generate_now(prompts, Sampling(12), 2, list(range(5)))
        for prompt, group in zip(prompts, groups, strict=True):
            for c in group:
                logits = module(torch.tensor([prompt + c.ids])).logits[0]
                law = logits[len(prompt) - 1 : -1].detach().log_softmax(-1)
                wanted = law.gather(1, torch.tensor(c.ids)[:, None])[:, 0]
                assert torch.allclose(torch.tensor(c.logprobs), wanted, atol=1e-4)
        prompts = [[*p, *group[0].ids, 9, 4] for p, group in zip(prompts, groups, strict=True)]
    greedily = engine.generate_now(PROMPTS, Sampling(16, temperature=0), 2, list(range(5)))
    for prompt, group in zip(PROMPTS, greedily, strict=True):
        assert [c.ids for c in group] == [greedy(module, prompt, 16)] * 2


def segments() -> list[Segment]:
    generator = torch.Generator().manual_seed(1)

    def ids(n: int) -> list[int]:
        return torch.randint(3, 259, (n,), generator=generator).tolist()

    return [Segment(ids(9), [ids(4), ids(7), ids(1)], [0, 1, 2]), Segment(ids(5), [ids(6)], [3])]


def test_training_has_the_gradients_of_transformers(made: tuple[Path, Any]) -> None:
    folder, module = made
    policy = load_policy(folder, "float32")
    assert isinstance(policy, LlamaPolicy)
    logp, _ = policy.logp(pack(segments()))
    found: list[Any] = []
    for prompt, said in [(s.prompt, c) for s in segments() for c in s.completions]:
        law = module(torch.tensor([prompt + said])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        found.append(law.gather(1, torch.tensor(said)[:, None])[:, 0])
    wanted = torch.cat(found)
    assert torch.allclose(logp, wanted, atol=1e-4)
    weights = torch.randn(len(logp), generator=torch.Generator().manual_seed(2))
    (logp * weights).sum().backward()
    module.zero_grad()
    (wanted * weights).sum().backward()
    with torch.no_grad():
        for _, tensor in policy.model.named():
            tensor.copy_(tensor.grad)
    ours, theirs = to_state(policy.model), dict(module.named_parameters())
    assert set(ours) == set(theirs)
    for name, parameter in theirs.items():
        scale = float(parameter.grad.abs().max())
        # a bias of all keys turns every score of a token alike: its gradient is rounding
        assert torch.allclose(ours[name], parameter.grad, atol=max(1e-4 * scale, 1e-5)), name


@pytest.mark.parametrize(("kind", "changes", "reason"), CASES["models of other shapes"])
def test_other_models_fall_back_and_say_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, changes: Any, reason: str
) -> None:
    folder, module = made_of(kind, changes, tmp_path)
    engine = load_engine(folder, [2], 16, "float32")
    assert isinstance(engine, TransformersEngine)
    said = [line for line in capsys.readouterr().err.splitlines() if str(folder) in line]
    assert len(said) == 1 and reason in said[0]
    assert isinstance(load_policy(folder, "float32"), TransformersPolicy)
    groups = engine.generate_now(PROMPTS, Sampling(20, temperature=0), 1, list(range(5)))
    assert [g[0].ids for g in groups] == [greedy(module, p, 20) for p in PROMPTS]


# --- folders that cannot be loaded; weights files; which device and dtype are taken


@pytest.mark.parametrize(("changes", "said"), CASES["folders that do not fit"])
def test_what_does_not_fit_is_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    small_llama(259).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(ModelError) as found:
        load_engine(tmp_path, [2], 4, "float32")
    assert said in str(found.value)


@pytest.mark.parametrize("keep", [0, 5, 60, -3])
def test_a_file_that_is_cut_off_is_named(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "model.safetensors"
    write_weights(path, {"a": torch.ones(100)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"model\.safetensors: damaged"):
        read_weights(path)
