"""The log of a run: fixed columns, nothing twice after a resume, names as the field has them, also
in trackers; a run that learned nothing says so."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

pytest.importorskip("torch")

from front import command
from safetensors.torch import load_file, save_file
from sft_runs import toy_tasks

from assay.rows import read_rows
from assay.task import Score
from configs.machine import LogConfig
from train.run.log import (
    FOLDER,
    LOST,
    Diverged,
    LogError,
    RunLog,
    named_values,
    read_metrics,
    rollout_metrics,
    warnings_of,
)


def test_resume_drops_what_came_after_and_a_torn_line(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    for step in (1, 2):
        log.record("sft", step, {"loss": step})
    for step in (1, 2, 3, 4):
        log.step("rl", step, 5, {"reward/mean": 0.1 * step}, [{"id": f"t{step}"}])
    with open(tmp_path / "metrics.jsonl", "a") as out:
        out.write('{"stage": "rl", "st')
    assert len(read_metrics(tmp_path)) == 6
    again = RunLog(tmp_path)
    again.resume("rl", 2)
    again.step("rl", 3, 5, {"reward/mean": 0.9}, [{"id": "new"}])
    rows = [(r["stage"], r["step"]) for r in read_metrics(tmp_path)]
    assert rows == [("sft", 1), ("sft", 2), ("rl", 1), ("rl", 2), ("rl", 3)]
    assert read_metrics(tmp_path)[-1]["reward/mean"] == 0.9
    names = sorted(p.name for p in (tmp_path / "rollouts").iterdir())
    assert names == [f"step_{n:06d}.jsonl" for n in (1, 2, 3)]
    assert [row for _, row in read_rows(tmp_path / "rollouts" / names[-1])] == [{"id": "new"}]
    again.resume("sft", 1)  # an earlier stage: the later one goes
    assert [(r["stage"], r["step"]) for r in read_metrics(tmp_path)] == [("sft", 1)]
    (tmp_path / "metrics.jsonl").write_text('{half\n{"stage": "rl", "step": 1}\n')
    with pytest.raises(LogError, match=r"metrics\.jsonl line 1: damaged"):
        again.resume("rl", 1)


def test_non_finite_numbers_stay_valid_json_and_out_of_trackers(tmp_path: Path) -> None:
    RunLog(tmp_path).record("rl", 1, {"grad_norm": float("nan"), "kl": float("inf")})
    row = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=pytest.fail)
    assert row == {"stage": "rl", "step": 1, "grad_norm": None, "kl": None}
    measured = row | {"reward/mean": 1, "signs": {"why": 1.0}, "said": "no number"}
    assert named_values("rl", measured) == {"reward/mean": 1.0, "step": 1.0}
    assert named_values("sft", {"lr": 1}) == {"sft/lr": 1.0}


def test_rollout_metrics_are_the_means_by_hand() -> None:
    good = Score(1.0, 1.0, {"rg": 1.0})
    bad = Score(0.0, 0.2, {"rg": 0.5})
    none = Score(0.0, 0.0, {}, "no_answer")
    lost = Score(None, None, {}, "timeout")
    got = rollout_metrics(
        [[good, bad], [bad, bad], [none, lost]],
        [[10, 20], [30, 40], [50, 900]],  # a failed rollout's length says nothing
        [[False, False], [False, False], [True, True]],
    )
    assert got["reward/mean"] == pytest.approx((1.0 + 0.2 * 3) / 5)
    assert got["outcome/mean"] == pytest.approx(1 / 5)
    assert got["reward/rg/mean"] == pytest.approx((1.0 + 0.5 * 3) / 4)
    assert got["response_length/mean"] == 30 and got["response_length/max"] == 50
    assert got["response_length/clip_ratio"] == pytest.approx(1 / 5)
    assert got["by_group/frac_mixed"] == pytest.approx(1 / 3)
    assert got["by_group/frac_flat"] == pytest.approx(2 / 3)
    assert got["why/no_answer"] == got["why/timeout"] == pytest.approx(1 / 6)


# --- Weights & Biases and TensorBoard ------------------------------------------------------------


WHY = "is not installed; `make test-interop`"


def test_a_resumed_run_has_every_step_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason=f"tensorboard {WHY}")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = RunLog(tmp_path, LogConfig(tensorboard=True))
    log.record("sft", 9, {"loss": 1.0})
    for step in (1, 2, 3):
        log.record("rl", step, {"reward/mean": float(step)})
    log.close()
    for start in (1, 2):
        again = RunLog(tmp_path, LogConfig(tensorboard=start == 1))
        again.resume("rl", start)
        again.record("rl", start + 1, {"reward/mean": 20.0})
        again.close()
    late = RunLog(tmp_path, LogConfig(tensorboard=True))  # and one that asks for it in the middle
    late.record("rl", 4, {"reward/mean": 30.0})
    late.close()
    shown: Any = EventAccumulator(str(tmp_path / FOLDER)).Reload()
    values = [(event.step, event.value) for event in shown.Scalars("reward/mean")]
    assert values == [(1, 1.0), (2, 20.0), (3, 20.0), (4, 30.0)]
    assert [event.step for event in shown.Scalars("sft/loss")] == [9]


# --- a run that learned nothing says so ----------------------------------------------------------


NAN = float("nan")


def logged(folder: Path, losses: list[float], start: int = 0) -> RunLog:
    log = RunLog(folder)
    log.resume("sft", start)
    for step, loss in enumerate(losses[start:], start + 1):
        log.step("sft", step, len(losses), {"loss": loss, "grad_norm": loss, "lr": 1.0})
    return log


def test_lost_steps_end_the_run_or_are_counted_at_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = [1.0, 1.0, *[NAN, float("inf")] * 5]
    with pytest.raises(Diverged, match=f"last {LOST} steps up to step 7"):
        logged(tmp_path, losses)
    assert len(read_metrics(tmp_path)) == 7
    # what was logged before a stop counts too, and what is trained again does not
    with pytest.raises(Diverged, match="up to step 7"):
        logged(tmp_path, losses, 4)
    logged(tmp_path / "few", [1.0, *[NAN] * (LOST - 1), 1.0, NAN, 1.0]).end("sft")
    assert f"warning: {LOST} of 8 steps were skipped" in capsys.readouterr().out
    with pytest.raises(Diverged, match="all 3 steps"):
        logged(tmp_path / "none", [NAN] * 3).end("sft")


def test_what_never_changes_in_rl_is_named() -> None:
    less = {"by_group/frac_flat": 0.5}
    cases: list[tuple[dict[str, float], set[str]]] = [
        ({"response/empty": 1.0}, {"flat", "empty"}),
        ({"response_length/clip_ratio": 1.0, **less}, {"cut"}),
        ({"response/out_of_turns": 1.0, **less}, {"turns"}),
        ({"response/empty": 0.9, **less}, set()),
    ]
    for change, found in cases:
        rows = [{"by_group/frac_flat": 1.0, "grad_norm": 0.0, "loss": 0.0, **change}] * 4
        assert {*warnings_of(rows, "rl")} == found
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
# command: words, exit status, what is said
BROKEN = {
    "sft": ("sft.epochs=3 sft.batch_size=4", 1, "no model was written"),
    "grpo": (f"{RL} rl.max_new_tokens=4", 1, "logits of all 2 steps are no numbers"),
    "eval": ("--no-baselines sampling.max_new_tokens=4", 3, "the model's logits are NaN"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_logits_that_are_no_numbers_end_in_no_model_and_no_outcome(
    broken_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    words, status, said = BROKEN[name]
    out, data = tmp_path / "run", toy_tasks(tmp_path / "t.jsonl", 4)
    given = ["--tasks", str(data), "--model", str(broken_model), "--out", str(out), *words.split()]
    assert command(name)([*given, "engine.dtype=float32", "engine.threads=1"]) == status
    error = capsys.readouterr().err
    assert said in error and "cut by" not in error
    assert not (out / "model").exists()
    for row in [row for f in out.glob("rollouts/*.jsonl") for row in f.read_text().splitlines()]:
        assert "NaN" not in row.replace("logits are NaN", "")
        assert json.loads(row)["outcome"] is None
