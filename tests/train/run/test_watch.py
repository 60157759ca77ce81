"""Signs of a farmed reward while a run trains: said, logged, shown, and never in the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from grpo_runs import each  # noqa: E402

from assay.task import Answer, Score, Task  # noqa: E402
from configs.schema import GrpoConfig, GrpoRunConfig  # noqa: E402
from rollouts.prompts import ChatTokenizer  # noqa: E402
from rollouts.trajectory import Trajectory  # noqa: E402
from train.grpo import train_grpo  # noqa: E402
from train.model.policy import load_policy  # noqa: E402
from train.report.write import write_page  # noqa: E402
from train.run.log import RunLog, read_metrics  # noqa: E402
from train.run.loop import Loop  # noqa: E402
from train.run.resume import Checkpoints  # noqa: E402
from train.run.watch import commonest, said, watch_of  # noqa: E402

RL = GrpoConfig(
    steps=22,
    prompts_per_step=4,
    rollouts_per_prompt=8,
    mini_batch=4,
    lr=1.5e-3,
    max_new_tokens=12,
    max_length=64,
    save_every=11,
)


def tasks() -> list[Task]:
    return [
        Task(f"t{i}", "toy", "x", "train", [{"role": "user", "content": f"{i}"}], {})
        for i in range(16)
    ]


def train(folder: Path, out: Path, honest: bool, steps: int = 22) -> list[dict[str, Any]]:
    """A run whose reward is the share of letters a to m; the outcome follows it, or never comes."""

    def score(task: Task, rollout: Trajectory) -> Score:
        share = sum(c in "abcdefghijklm" for c in rollout.text) / max(len(rollout.text), 1)
        return Score(share if honest else 0.0, share)

    config = replace(RL, steps=steps)
    policy = load_policy(folder, "float32")
    checkpoints = Checkpoints(out / "ck", GrpoRunConfig(rl=config))
    watch = watch_of(out, tasks())
    loop = Loop(1, RunLog(out), checkpoints, 800, 64, watch=watch)
    train_grpo(policy, tasks(), ChatTokenizer(folder), each(score), config, loop)
    return read_metrics(out)


def test_a_farmed_reward_is_warned_of_and_an_honest_one_is_not(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = train(tiny_folder, tmp_path / "honest", honest=True)
    assert "warning" not in capsys.readouterr().out
    assert len(honest) == 22 and not any("signs" in row for row in honest)
    assert "Warnings" not in write_page(tmp_path / "honest", {}).read_text()

    farmed = train(tiny_folder, tmp_path / "farmed", honest=False)
    warned = [x for x in capsys.readouterr().out.splitlines() if x.startswith("warning")]
    with_sign = [row["step"] for row in farmed if "signs" in row]
    assert with_sign and with_sign[0] >= 20 and len(farmed) == 22  # it ran to its end
    assert len(warned) == 1 and warned[0].startswith(f"warning: step {with_sign[0]}: ")
    said = farmed[with_sign[-1] - 1]["signs"]["diverging"]
    assert "the outcome by 0.000: the reward may be farmed" in said
    page = write_page(tmp_path / "farmed", {}).read_text()
    assert "<h2>Warnings</h2>" in page and said[:40] in page

    # a resumed run has seen the steps before it
    train(tiny_folder, tmp_path / "again", honest=False, steps=11)
    again = train(tiny_folder, tmp_path / "again", honest=False)
    assert [row.get("signs") for row in again] == [row.get("signs") for row in farmed]


def test_what_an_answer_is_told_apart_by() -> None:
    assert said(Answer("words")) == "words"
    one, two = (said(Answer("Done.", files={"a.csv": data})) for data in (b"1", b"2"))
    assert one != two and one.startswith("a.csv ")


def test_the_share_of_the_commonest_gold() -> None:
    def task(i: int, text: str) -> Task:
        gold = {"input_text": f"{i}", "status": "KEEP", "text": text}
        return Task(f"t{i}", "refinement", "x", "train", [], gold)

    assert commonest([task(0, "a"), task(1, "A"), task(2, "b"), task(3, "c")]) == 0.5
    assert commonest([]) == 0.0
    assert commonest([Task("t", "nobody's", "x", "train", [], {})]) == 0.0
