"""The embedded decoder on a GPU says what it says on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from rollouts.engines.torch.engine import TorchEngine  # noqa: E402
from rollouts.engines.torch.load import load_llama  # noqa: E402
from rollouts.trajectory import Completion, Sampling  # noqa: E402
from train.model.packing import Segment, pack  # noqa: E402
from train.model.policy import load_policy  # noqa: E402

GPU = "cuda"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]
# lengths that differ, a beginning that some share, and one prompt longer than a piece of prefill
PROMPTS = [[7, 9, 11, 30, 5], [7, 9, 11, 30, 8, 8], [44, 3, 17], list(range(3, 40)) * 60, [5]]
SEEDS = list(range(len(PROMPTS)))
LAWS = (
    Sampling(20, temperature=0),
    Sampling(20, temperature=1.0),
    Sampling(20, temperature=0.8, top_k=30),
    Sampling(20, temperature=1.2, top_k=40, top_p=0.9),
)


def engine(folder: Path, device: str, slots: int = 16, dtype: str = "float32") -> TorchEngine:
    return TorchEngine(load_llama(folder, dtype, device), [2, 5], slots=slots)


@pytest.mark.parametrize("slots", [4, 16])  # with few, prompts wait for rows that end
@pytest.mark.parametrize("law", LAWS, ids=["greedy", "plain", "top-k", "top-p"])
def test_tokens_and_log_probabilities_are_those_of_the_cpu(
    tiny_folder: Path, law: Sampling, slots: int
) -> None:
    here = engine(tiny_folder, "cpu").generate_now(PROMPTS, law, 2, SEEDS)
    compare(here, engine(tiny_folder, GPU, slots).generate_now(PROMPTS, law, 2, SEEDS))


def compare(here: list[list[Completion]], there: list[list[Completion]]) -> None:
    for ours, theirs in zip(flat(here), flat(there), strict=True):
        assert ours.ids == theirs.ids and ours.stop == theirs.stop
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=2e-4)
        assert ours.sampling_logprobs == pytest.approx(theirs.sampling_logprobs, abs=2e-4)


def flat(groups: list[list[Completion]]) -> list[Completion]:
    return [one for group in groups for one in group]


def test_a_later_turn_computes_its_new_tokens_alone(tiny_folder: Path) -> None:
    talks = engine(tiny_folder, GPU)
    law = Sampling(12, temperature=1.0, top_k=20)
    rows = [[7, 8, 9, 20 + i, *range(30, 60)] for i in range(4)]
    groups = talks.generate_now(rows, law, 2, range(4))
    rows = [p + c.ids + [50, 61] for p, g in zip(rows, groups, strict=True) for c in g]
    before = talks.prefilled
    later = talks.generate_now(rows, law, 1, range(8))
    new = sum(map(len, rows)) - 8 * 34  # all but the prompts' own tokens
    assert talks.prefilled - before <= new
    compare(engine(tiny_folder, "cpu").generate_now(rows, law, 1, range(8)), later)


def test_a_sample_has_the_probability_that_training_gives_it(tiny_folder: Path) -> None:
    """In bfloat16, where the two ways of computing it round differently."""
    policy = load_policy(tiny_folder, "bfloat16", GPU)
    groups = policy.engine([2], 16).generate_now(  # type: ignore[attr-defined]
        PROMPTS, Sampling(20, temperature=1.0), 4, SEEDS
    )
    drawn = [one for group in groups for one in group]
    segments = [
        Segment(p, [c.ids for c in g], list(range(4 * i, 4 * i + 4)))
        for i, (p, g) in enumerate(zip(PROMPTS, groups, strict=True))
    ]
    packed = pack(segments, GPU)
    with torch.no_grad():
        logp, _ = policy.logp(packed)
    for row, one in enumerate(drawn):
        mine = logp[packed.row == row].cpu()
        assert (mine - torch.tensor(one.logprobs)).abs().mean() < 0.05
