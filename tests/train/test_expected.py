"""What training says beforehand of its length."""

from __future__ import annotations

from typing import Any, cast

import pytest

pytest.importorskip("torch")

from configs.sft import SftConfig
from train.examples import Example
from train.expected import sft_line


@pytest.mark.parametrize(("count", "epochs", "tokens"), [(8, 1, 80), (9, 1, 160), (9, 2, 240)])
def test_a_last_batch_that_runs_on_is_counted(
    monkeypatch: pytest.MonkeyPatch, count: int, epochs: int, tokens: int
) -> None:
    monkeypatch.setattr("train.expected.learning_speed", lambda *_: 10.0)
    kept = [Example([1] * 6, [2] * 4) for _ in range(count)]
    line = sft_line(cast("Any", None), kept, SftConfig(epochs=epochs), cast("Any", None))
    assert line == (
        f"{tokens // 80} steps over {tokens} tokens: "
        f"about {tokens // 10} seconds at 10 tokens a second"
    )
