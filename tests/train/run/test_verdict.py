"""A run that learned nothing says so, and one whose loss is no number leaves no model."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from front import command  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from sft_runs import toy_tasks  # noqa: E402

from train.report.write import write_page  # noqa: E402
from train.run.log import LOST, Diverged, RunLog, lost, read_metrics, warnings_of  # noqa: E402

NAN = float("nan")
FLAT = {"by_group/frac_flat": 1.0, "grad_norm": 0.0, "loss": 0.0}


@pytest.mark.parametrize("bad", [NAN, float("inf"), None])
@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_a_step_without_a_number_is_lost(name: str, bad: Any) -> None:
    row = {"loss": 1.0, "grad_norm": 1.0, "lr": 0.1}
    assert not lost(row) and lost(row | {name: bad})


def logged(folder: Path, losses: list[float], start: int = 0) -> RunLog:
    log = RunLog(folder)
    log.resume("sft", start)
    for step, loss in enumerate(losses[start:], start + 1):
        log.step("sft", step, len(losses), {"loss": loss, "grad_norm": loss, "lr": 1.0})
    return log


def test_several_lost_steps_in_a_row_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=f"last {LOST} steps up to step 7"):
        logged(tmp_path, [1.0, 1.0, *[NAN] * 9])
    assert len(read_metrics(tmp_path)) == 7
    # what was logged before a stop counts too, and what is trained again does not
    with pytest.raises(Diverged, match="up to step 7"):
        logged(tmp_path, [1.0, 1.0, *[NAN] * 9], 4)


def test_lost_steps_between_others_are_counted_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logged(tmp_path, [1.0, *[NAN] * (LOST - 1), 1.0, NAN, 1.0]).end("sft")
    assert f"warning: {LOST} of 8 steps were skipped" in capsys.readouterr().out
    assert f"{LOST} of 8 steps were skipped" in write_page(tmp_path, {}).read_text()
    logged(tmp_path / "good", [1.0, 1.0]).end("sft")
    assert "warning" not in capsys.readouterr().out
    with pytest.raises(Diverged, match="all 3 steps"):
        logged(tmp_path / "none", [NAN] * 3).end("sft")


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({}, {"flat"}),
        ({"response/empty": 1.0}, {"flat", "empty"}),
        ({"response_length/clip_ratio": 1.0, "by_group/frac_flat": 0.5}, {"cut"}),
        ({"response/out_of_turns": 1.0, "by_group/frac_flat": 0.5}, {"turns"}),
        ({"response/empty": 0.9, "by_group/frac_flat": 0.9}, set[str]()),
    ],
)
def test_what_never_changes_in_rl_is_named(change: dict[str, float], kinds: set[str]) -> None:
    rows = [FLAT | change] * 4
    found = warnings_of(rows, "rl")
    assert {*found} == kinds
    assert all("4 of 4 steps" in said for said in found.values())
    assert ("as it was" in found.get("flat", "")) == ("flat" in kinds)
    one_differs = [*rows, {"by_group/frac_flat": 0.0, "grad_norm": 1.0, "loss": 1.0}]
    assert not warnings_of(one_differs, "rl")


@pytest.fixture(scope="module")
def broken_model(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose logits are no numbers from finite weights."""
    folder = tmp_path_factory.mktemp("broken") / "model"
    copytree(tiny_folder, folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"].fill_(3e38)
    save_file(weights, str(folder / "model.safetensors"), {"format": "pt"})
    return folder


RL = "rl.steps=2 rl.prompts_per_step=2 rl.mini_batch=2 rl.audit=off rl.rollouts_per_prompt=2"


@pytest.mark.parametrize(
    ("name", "words", "status", "said"),
    [
        ("sft", "sft.epochs=3 sft.batch_size=4", 1, "no model was written"),
        ("grpo", f"{RL} rl.max_new_tokens=4", 1, "logits of all 2 steps are no numbers"),
        ("eval", "--no-baselines sampling.max_new_tokens=4", 3, "the model's logits are NaN"),
    ],
)
def test_logits_that_are_no_numbers_end_in_no_model_and_no_outcome(
    broken_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    words: str,
    status: int,
    said: str,
) -> None:
    out, data = tmp_path / "run", toy_tasks(tmp_path / "t.jsonl", 4)
    given = ["--tasks", str(data), "--model", str(broken_model), "--out", str(out), *words.split()]
    assert command(name)([*given, "engine.dtype=float32", "engine.threads=1"]) == status
    error = capsys.readouterr().err
    assert said in error and "cut by" not in error
    assert not (out / "model").exists()
    for line in [row for f in out.glob("rollouts/*.jsonl") for row in f.read_text().splitlines()]:
        assert "NaN" not in line.replace("logits are NaN", "")
        assert json.loads(line)["outcome"] is None
