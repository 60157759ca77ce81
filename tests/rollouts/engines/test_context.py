"""Answers end where the model's context does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rollouts.engines.engine import EmbeddedEngine, context_of
from rollouts.trajectory import Completion, Sampling


class Engine(EmbeddedEngine):
    """Writes its seed, and stops after five tokens."""

    def _all(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        size = min(5, sampling.max_new_tokens)
        stop = "eos" if size == 5 else "length"
        made = [Completion([seed] * size, [0.5] * size, [0.25] * size, stop) for seed in seeds]
        return [[one] * n for one in made]


@pytest.mark.parametrize(
    ("lengths", "answers"),
    [
        ((3, 4), [(5, "eos"), (5, "eos")]),
        ((3, 7, 10, 40), [(5, "eos"), (3, "length"), (0, "length"), (0, "length")]),
        ((8, 9), [(2, "length"), (1, "length")]),
        ((10, 12), [(0, "length"), (0, "length")]),
    ],
)
def test_what_goes_beyond_is_cut_and_only_that(
    lengths: tuple[int, ...], answers: list[tuple[int, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = [[1] * length for length in lengths]
    found = Engine(4, 10).generate_now(prompts, Sampling(6), 2, range(len(prompts)))
    assert [[(len(c.ids), c.stop) for c in group] for group in found] == [[a, a] for a in answers]
    assert all(set(c.ids) <= {i} for i, group in enumerate(found) for c in group)
    assert all(len(c.ids) == len(c.logprobs) == len(c.sampling_logprobs) for g in found for c in g)
    unanswered = sum(length >= 10 for length in lengths)
    said = capsys.readouterr().err
    assert (f"{unanswered} of {len(lengths)} prompts" in said) == (unanswered > 0)


def test_the_context_of_a_configuration() -> None:
    assert context_of({"max_position_embeddings": 2048}) == 2048
    assert context_of({"n_positions": 1024}) == 1024
    assert context_of({"text_config": {"max_position_embeddings": 512}}) == 512
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1000}
    assert context_of({"max_position_embeddings": 1000, "rope_scaling": yarn}) == 4000
    assert context_of({"model_type": "bloom"}) == 0
