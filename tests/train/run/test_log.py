"""The log of a run: fixed columns, nothing twice after a resume, names as the field has them, also
in trackers; a run that learned nothing says so."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

pytest.importorskip("torch")

from front import command
from safetensors.torch import load_file, save_file
from sft_runs import toy_tasks
from small_run import answers, line, refinement

from assay.files import file_hash
from assay.rows import read_rows
from assay.task import Score
from configs.loader import load
from configs.machine import LogConfig
from configs.schema import DemoConfig
from train.report.write import write_page
from train.run.log import (
    FOLDER,
    LOST,
    TABLE,
    Diverged,
    LogError,
    RunLog,
    live_note,
    lost,
    named_values,
    read_metrics,
    rollout_metrics,
    table_of,
    warnings_of,
)
from train.run.record import read_run_record, write_run_record


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


def test_non_finite_numbers_stay_valid_json(tmp_path: Path) -> None:
    RunLog(tmp_path).record("rl", 1, {"grad_norm": float("nan"), "kl": float("inf")})
    row = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=pytest.fail)
    assert row == {"stage": "rl", "step": 1, "grad_norm": None, "kl": None}


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


def test_run_record_holds_what_is_needed_to_repeat(tmp_path: Path) -> None:
    data = tmp_path / "tasks.jsonl"
    data.write_text("x\n")
    config = load(DemoConfig, None, ["seed=4"])
    for _ in range(2):
        write_run_record(tmp_path, config, {"tasks": data}, model="somewhere")
    record = read_run_record(tmp_path)
    assert record["seed"] == 4 and record["model"] == "somewhere" and len(record["starts"]) == 2
    assert record["inputs"]["tasks"] == file_hash(data) and len(file_hash(data)) == 64
    assert record["versions"]["python"].startswith("3.") and "torch" in record["versions"]
    assert load(DemoConfig, tmp_path / "config.yaml") == config


@pytest.mark.parametrize("line", ["{half", "[]", '{"stage": "rl"}'])
def test_a_damaged_line_is_said(tmp_path: Path, line: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(f'{line}\n{{"stage": "rl", "step": 1}}\n')
    with pytest.raises(LogError, match=r"metrics\.jsonl line 1: damaged; remove the line"):
        RunLog(tmp_path).resume("rl", 1)


def test_lost_steps_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"stage": "rl", "step": 1}\n{"stage": "rl", "st')
    RunLog(tmp_path).resume("rl", 3)
    assert "cut off; its last 2 steps are missing" in capsys.readouterr().err


METRICS = {"reward/mean": 0.5, "outcome/mean": 0.25, "loss": 0.1, "reward/said_drop/mean": 0.4}


def test_the_note_says_what_was_measured() -> None:
    assert live_note(METRICS) == "reward 0.50, outcome 0.25, DROP 40%"
    assert live_note({"loss": 1.5, "time/tokens_per_second": 99.6}) == "loss 1.500, tok/s 100"
    assert live_note({}) == ""


# --- Weights & Biases and TensorBoard ------------------------------------------------------------


WHY = "is not installed; `make test-interop`"


def rollouts() -> list[dict[str, Any]]:
    task = refinement(0)
    return [line(task, j, text) for j, text in enumerate(answers(task))]


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a run: name → (step, value)."""
    pytest.importorskip("tensorboard", reason=f"tensorboard {WHY}")
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    shown: Any = EventAccumulator(str(folder / FOLDER), size_guidance={SCALARS: 0}).Reload()
    return {
        tag: [(event.step, event.value) for event in shown.Scalars(tag)]
        for tag in shown.Tags()["scalars"]
    }


def test_the_names_of_rl_are_plain_and_what_was_not_measured_is_left_out() -> None:
    metrics = {"reward/mean": 1, "kl": None, "signs": {"why": 1.0}, "said": "no number"}
    assert named_values("rl", metrics) == {"reward/mean": 1.0}
    assert named_values("sft", metrics) == {"sft/reward/mean": 1.0}


def test_a_table_has_a_line_a_rollout_with_prompt_answer_and_parts() -> None:
    columns, rows = table_of(7, rollouts())
    assert columns[: len(TABLE)] == list(TABLE) and "reward/rs" in columns
    first = dict(zip(columns, rows[0], strict=True))
    assert len(rows) == 4 and (first["step"], first["task_id"], first["sample"]) == (7, "t/0", 0)
    assert first["outcome"] == 1.0 and first["why"] == "ok" and first["reward/rs"] == 1.0
    assert first["prompt"] == refinement(0).prompt[-1]["content"]
    assert first["answer"] == answers(refinement(0))[0]


@pytest.mark.parametrize("name", ["tensorboard=true", "wandb=offline"])
def test_a_tracker_that_is_not_there_is_said_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for module in ("wandb", "tensorboard", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, module, None)
    setting, _, value = name.partition("=")
    asked: dict[str, Any] = {setting: True if value == "true" else value}
    with pytest.raises(LogError, match=rf"log\.{name}: the package {setting} is not installed"):
        RunLog(tmp_path, LogConfig(**asked))


def test_a_resumed_run_has_every_step_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason=f"tensorboard {WHY}")
    log = RunLog(tmp_path, LogConfig(tensorboard=True))
    log.record("sft", 9, {"loss": 1.0})
    for step in (1, 2, 3):
        log.record("rl", step, {"reward/mean": float(step)})
    log.close()
    again = RunLog(tmp_path, LogConfig(tensorboard=True))
    again.resume("rl", 1)
    again.record("rl", 2, {"reward/mean": 20.0})
    again.close()
    assert scalars(tmp_path) == {"sft/loss": [(9, 1.0)], "reward/mean": [(1, 1.0), (2, 20.0)]}
    late = RunLog(tmp_path, LogConfig(tensorboard=True))  # and one that asks for it in the middle
    late.record("rl", 3, {"reward/mean": 30.0})
    late.close()
    assert [step for step, _ in scalars(tmp_path)["reward/mean"]] == [1, 2, 3]
    assert [row["step"] for row in read_metrics(tmp_path)] == [9, 1, 2, 3]


def test_wandb_gets_the_same_names_and_tables_of_rollouts(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason=f"wandb {WHY}")
    log = RunLog(tmp_path, LogConfig(wandb="offline", tables=2, rollouts=False))
    for step in (1, 2, 3):
        log.step("rl", step, 3, {"reward/mean": 0.5}, rollouts())
    log.record("sft", 1, {"loss": 2.5})
    log.close()
    tables = sorted(tmp_path.glob("wandb/offline-run-*/files/media/table/rollouts_*.table.json"))
    found = [json.loads(path.read_text()) for path in tables]
    assert sorted(table["data"][0][0] for table in found) == [2, 3]  # every second, and the last
    assert all(table["columns"][: len(TABLE)] == list(TABLE) for table in found)
    assert {len(table["data"]) for table in found} == {4}
    (stored,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    wanted = (b"reward/mean", b"sft/loss")
    for _ in range(300):  # a process of its own writes the file, and may end after `finish`
        names = stored.read_bytes()
        if all(name in names for name in wanted):
            break
        time.sleep(0.1)
    assert [name for name in wanted if name not in names] == []
    assert not (tmp_path / "rollouts").exists()


# --- a run that learned nothing says so ----------------------------------------------------------


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
    for row in [row for f in out.glob("rollouts/*.jsonl") for row in f.read_text().splitlines()]:
        assert "NaN" not in row.replace("logits are NaN", "")
        assert json.loads(row)["outcome"] is None
