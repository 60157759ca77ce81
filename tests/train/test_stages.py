"""Settings for every run of a benchmark reach the commands that have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import stages


def test_a_command_is_given_no_setting_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, tuple[object, ...]] = {}

    def assay(command: object, *words: object, note: Path | None = None) -> None:
        given[str(command)] = words

    monkeypatch.setattr(stages, "assay", assay)
    extra = ("rl.steps=24", "engine.rounding=spread", "sft.lr=1e-4", "reward.answer.subtasks=0.5")
    place = stages.Stages(tmp_path, 0, extra)
    place.train("sft", "sft", tmp_path / "data.jsonl", ())
    place.train("rl", "grpo", tmp_path / "data.jsonl", ())
    assert set(extra) & set(given["sft"]) == {"engine.rounding=spread", "sft.lr=1e-4"}
    assert set(extra) - set(given["grpo"]) == {"sft.lr=1e-4"}
