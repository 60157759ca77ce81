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


def test_a_control_has_its_own_epochs_whatever_every_run_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[object, ...]] = []

    def assay(*words: object, note: Path | None = None) -> None:
        given.append(words)

    monkeypatch.setattr(stages, "assay", assay)
    for extra, wanted in (("sft.epochs=3", "7"), ("sft.lr=1e-4", "2")):
        place = stages.Place(tmp_path / wanted, 0, "MODEL", (extra,))
        place.train("start", "sft", tmp_path / "data.jsonl", "MODEL", ("sft.epochs=1",))
        place = stages.lasting(place, 2.4)
        place.train("control", "sft", tmp_path / "data.jsonl", "MODEL", ("sft.epochs=1",))
        start, control = given[-2:]
        assert extra in start and extra in control
        # a command takes the last word of a setting
        assert [word for word in control if "epochs" in str(word)][-1] == f"sft.epochs={wanted}"
