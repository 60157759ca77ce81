"""Both loops on a GPU: gradients of the CPU, the same bits each time, and the commands from one end
to the other. A stopped run's bits are asked for by test_validation.py."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from qwen3 import write_qwen3  # noqa: E402
from tiny_model import tiny_config  # noqa: E402

from rollouts.engines.torch.engine import TorchEngine  # noqa: E402
from rollouts.engines.torch.load import load_llama  # noqa: E402
from rollouts.trajectory import Sampling  # noqa: E402
from train.model.optim import backward  # noqa: E402
from train.model.packing import Segment, pack  # noqa: E402
from train.model.policy import load_policy  # noqa: E402

GPU = "cuda"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]
# a group that shares its prompt, a long one, tokens that a tool wrote, and a prompt of one token
SEGMENTS = [
    Segment([7, 9, 11], [[5, 6, 7, 8], [5, 6, 9], [40]], [0, 1, 2]),
    Segment(list(range(3, 200)) * 3, [[8, 9] * 200, [9]], [3, 4]),
    Segment([9], [[3, 4, 5, 6]], [5], [[1, 0, 0, 1]]),
]


def gradients(policy: Any, device: str) -> tuple[Any, dict[str, Any]]:
    logp, _ = policy.logp(pack(SEGMENTS, device), 0.8)
    weights = torch.linspace(-1, 1, len(logp), device=device)
    backward((logp * weights).sum())
    return logp.detach().cpu(), {name: t.grad.cpu() for name, t in policy.named()}


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_probabilities_and_gradients_are_those_of_the_cpu(
    tiny_folder: Path, tmp_path: Path, kind: str
) -> None:
    folder = tiny_folder if kind == "llama" else write_qwen3(tmp_path)
    ours, here = gradients(load_policy(folder, "float32"), "cpu")
    theirs, there = gradients(load_policy(folder, "float32", GPU), GPU)
    assert torch.allclose(ours, theirs, atol=2e-4)
    for name, grad in here.items():
        assert float((grad - there[name]).norm()) <= 1e-3 * float(grad.norm()) + 1e-6, name


def test_long_rows_have_the_same_gradients_each_time(tmp_path: Path) -> None:
    """Of a size at which kernels that add up in any order do so."""
    shape = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9}
    config = tiny_config(num_key_value_heads=3, max_position_embeddings=4096, **shape)
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    policy: Any = load_policy(tmp_path, "bfloat16", GPU)

    def ids(count: int, seed: int) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(3, 259, (count,), generator=generator).tolist()

    alone = [Segment(ids(700, i), [ids(300 + i, 90 + i)], [i]) for i in range(8)]
    group = Segment(ids(700, 50), [ids(300, 60 + i) for i in range(8)], list(range(8)))
    for segments in (alone, [group]):
        found: list[list[Any]] = []
        for _ in range(3):
            logp, _ = policy.logp(pack(segments, GPU))
            backward(-logp.mean())
            found.append([tensor.grad for _, tensor in policy.named()])
            for _, tensor in policy.named():
                tensor.grad = None
        for again in found[1:]:
            assert all(map(torch.equal, found[0], again))


# --- the embedded decoder ------------------------------------------------------------------------


# lengths that differ, a beginning that some share, and one prompt longer than a piece of prefill
PROMPTS = [[7, 9, 11, 30, 5], [7, 9, 11, 30, 8, 8], [44, 3, 17], list(range(3, 40)) * 60, [5]]
SEEDS = list(range(len(PROMPTS)))
LAWS = (
    Sampling(20, temperature=0),
    Sampling(20, temperature=1.0),
    Sampling(20, temperature=0.8, top_k=30),
    Sampling(20, temperature=1.2, top_k=40, top_p=0.9),
)


def engine(folder: Path, device: str, slots: int = 16) -> TorchEngine:
    return TorchEngine(load_llama(folder, "float32", device), [2, 5], slots=slots)


@pytest.mark.parametrize("slots", [4, 16])  # with few, prompts wait for rows that end
@pytest.mark.parametrize("law", LAWS, ids=["greedy", "plain", "top-k", "top-p"])
def test_tokens_and_log_probabilities_are_those_of_the_cpu(
    tiny_folder: Path, law: Sampling, slots: int
) -> None:
    here = engine(tiny_folder, "cpu").generate_now(PROMPTS, law, 2, SEEDS)
    there = engine(tiny_folder, GPU, slots).generate_now(PROMPTS, law, 2, SEEDS)
    for ours, theirs in zip(chain(*here), chain(*there), strict=True):
        assert ours.ids == theirs.ids and ours.stop == theirs.stop
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=2e-4)
        assert ours.sampling_logprobs == pytest.approx(theirs.sampling_logprobs, abs=2e-4)
