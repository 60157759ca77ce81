"""`assay slurm submit`: a whole chain with arrays, a failed dependency, a cancelled array."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from front import command
from mini_slurm import MiniSlurm, wait_for
from places import ROOT
from slurm_runs import TINY, toy_tasks

from train.cluster.cli import SubmitError, submit
from train.cluster.plan import make_plan

main = command("slurm")

ROLLOUT = [
    "rollout",
    "--n",
    2,
    "--max-new-tokens",
    60,
    "--threads",
    1,
    "--slots",
    8,
    "--temperature",
    0.7,
]


def plan_of(out: Path, stages: list[dict[str, Any]]) -> Any:
    return make_plan({"name": "chain", "out": str(out), "stages": stages}, "plan")


@pytest.fixture
def submitting(slurm: MiniSlurm, monkeypatch: pytest.MonkeyPatch) -> MiniSlurm:
    for name, value in slurm.env.items():
        monkeypatch.setenv(name, value)
    return slurm


def test_what_follows_a_failure_is_cancelled_and_the_rest_runs(
    submitting: MiniSlurm, tmp_path: Path
) -> None:
    stages = [
        {"name": "bad", "command": ["tasks", "nonsense"]},
        {"name": "never", "after": ["bad"], "command": ["tasks", "--help"]},
        {"name": "good", "command": ["tasks", "--help"]},
    ]
    ids = submit(plan_of(tmp_path, stages))
    assert json.loads((tmp_path / "submitted.json").read_text())["jobs"] == ids
    assert submitting.wait(ids["bad"])["JobState"] == "FAILED"
    assert submitting.wait(ids["good"])["JobState"] == "COMPLETED"
    assert submitting.wait(ids["never"])["JobState"] == "CANCELLED"
    assert not list((tmp_path / "logs").glob("chain-never*"))


def test_a_cancelled_array_is_finished_by_submitting_it_again(
    submitting: MiniSlurm, tmp_path: Path
) -> None:
    rows = [{"id": f"r{i}", "input_text": f"mail me@x.org {i}", "recipe": []} for i in range(12)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    stage = {
        "name": "gold",
        "array": {"input": str(tmp_path / "in.jsonl"), "shards": 4, "at_once": 1},
        "command": ["execute", "{in}", "{shard}"],
    }
    ids = submit(plan_of(tmp_path / "run", [stage]))
    shards = tmp_path / "run" / "gold"
    wait_for("the first shard", lambda: list(shards.glob("shard-*.json")), 120)
    submitting.run("scancel", ids["gold"])
    assert submitting.wait(ids["gold-merge"])["JobState"] == "CANCELLED"
    wait_for("all of it to be gone", lambda: not submitting.run("squeue", "-h", "-j", ids["gold"]))
    first = {p.name: p.stat().st_mtime_ns for p in shards.glob("shard-*.jsonl")}
    assert 0 < len(first) < 4 and not (tmp_path / "run" / "gold.jsonl").exists()
    ids = submit(plan_of(tmp_path / "run", [stage]))
    assert submitting.wait(ids["gold-merge"])["JobState"] == "COMPLETED"
    kept = {p.name: p.stat().st_mtime_ns for p in shards.glob("shard-*.jsonl")}
    assert first.items() <= kept.items()  # finished shards were skipped
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    whole = tmp_path / "whole.jsonl"
    subprocess.run(
        [sys.executable, "-m", "assay", "execute", str(tmp_path / "in.jsonl"), str(whole)],
        cwd=ROOT,
        env=env,
        check=True,
    )
    assert (tmp_path / "run" / "gold.jsonl").read_bytes() == whole.read_bytes()


def test_a_refused_plan_and_a_dry_run(
    submitting: MiniSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.yaml"
    stage = {"name": "a", "command": ["tasks"], "sbatch": {"partition": "nowhere"}}
    path.write_text(yaml.safe_dump({"name": "p", "out": str(tmp_path), "stages": [stage]}))
    assert main(["submit", str(path)]) == 2
    assert "Invalid partition name specified" in capsys.readouterr().err
    assert main(["submit", str(path), "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("sbatch --parsable --job-name=p-a")
    path.write_text("name: p\nout: x\nstags: []\n")
    assert main(["submit", str(path)]) == 2
    assert "unknown key stags; did you mean stages?" in capsys.readouterr().err


def test_a_plan_is_not_submitted_twice_at_once(submitting: MiniSlurm, tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path, [{"name": "a", "command": ["tasks", "--help"], "sbatch": {"begin": "now+1hour"}}]
    )
    job = submit(plan)["a"]
    with pytest.raises(
        SubmitError, match=rf"still there: a {job}; wait for them, or: scancel {job}"
    ):
        submit(plan)
    submitting.run("scancel", job)
    wait_for("its end", lambda: submitting.state(job) == "CANCELLED")
    again = submit(plan)["a"]
    assert again != job
    submitting.run("scancel", again)


def chain_stages(data: Path, model: Path) -> list[dict[str, Any]]:
    """docs/clusters.md's chain on a tiny model: it learns its few tasks by heart, so that its
    rollouts have something to select."""
    rl = [
        "rl.steps=2",
        "rl.prompts_per_step=4",
        "rl.mini_batch=4",
        "rl.rollouts_per_prompt=4",
        "rl.max_new_tokens=12",
    ]
    warm = ["sft.batch_size=8", "sft.epochs=60", "sft.lr=3e-3"]
    return [
        {
            "name": "tasks",
            "command": [
                "tasks",
                "demo",
                "--out",
                "{out}/tasks",
                "train_sft=24",
                "train_rl=24",
                "heldout=8",
            ],
        },
        {
            "name": "warm",
            "script": "sft",
            "args": [f"data={data}", f"model.path={model}", *TINY, *warm],
        },
        {
            "name": "rollouts",
            "after": ["warm"],
            "array": {"input": str(data), "shards": 2, "align": 4},
            "command": [
                *ROLLOUT,
                "--model",
                "{out}/warm/model",
                "--tasks",
                "{in}",
                "--out",
                "{shard}",
            ],
        },
        {
            "name": "select",
            "after": ["rollouts"],
            "command": [
                "select",
                "--rollouts",
                "{out}/rollouts.jsonl",
                "--strategy",
                "av",
                "--out",
                "{out}/kept.parquet",
            ],
        },
        {
            "name": "sft",
            "script": "sft",
            "after": ["select"],
            "args": ["data={out}/kept.parquet", f"model.path={model}", *TINY, "sft.batch_size=8"],
        },
        {
            "name": "grpo",
            "script": "grpo_1node",
            "after": ["sft"],
            "args": [f"data={data}", "model.path={out}/sft/model", *TINY, *rl],
        },
        {
            "name": "eval",
            "after": ["tasks", "grpo"],
            "items": [
                {
                    "name": name,
                    "argv": [
                        "eval",
                        "--model",
                        "{out}/" + name + "/model",
                        "--tracks",
                        "{out}/tasks/heldout.jsonl",
                        "--out",
                        "{item}",
                        "--limit",
                        2,
                        "--max-new-tokens",
                        8,
                    ],
                }
                for name in ("sft", "grpo")
            ],
        },
    ]


@pytest.mark.slurm
@pytest.mark.slow
def test_tasks_rollouts_select_sft_grpo_and_evaluation_in_one_plan(
    submitting: MiniSlurm, tiny_folder: Path, tmp_path: Path
) -> None:
    data, out = toy_tasks(tmp_path / "t.jsonl"), tmp_path / "run"
    ids = submit(plan_of(out, chain_stages(data, tiny_folder)))
    states = {name: submitting.wait(job, seconds=500)["JobState"] for name, job in ids.items()}
    logs = "\n".join(p.read_text() for p in (out / "logs").iterdir())
    assert set(states.values()) == {"COMPLETED"}, (states, logs)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    whole = tmp_path / "whole.jsonl"
    words = [*map(str, ROLLOUT), "--model", str(out / "warm" / "model"), "--tasks", str(data)]
    subprocess.run(
        [sys.executable, "-m", "assay", *words, "--out", str(whole)],
        cwd=ROOT,
        env=env,
        check=True,
        capture_output=True,
    )
    assert (out / "rollouts.jsonl").read_bytes() == whole.read_bytes()
    kept = json.loads((out / "kept.parquet.manifest.json").read_text())["kept"]
    assert 0 < kept["tasks"] <= 24
    for name in ("sft", "grpo"):
        assert (out / "eval" / name / "results.json").is_file()


@pytest.mark.slurm
@pytest.mark.slow
def test_a_checkpoint_is_served_and_evaluated_in_parts(
    submitting: MiniSlurm, tiny_folder: Path, tmp_path: Path
) -> None:
    """Over two tracks, on nodes without a GPU: with the embedded engine."""
    data, out = toy_tasks(tmp_path / "t.jsonl"), tmp_path / "run"
    words = ["--model", str(tiny_folder), "--tasks", str(data), "--max-new-tokens", 4]
    stage = {"name": "eval", "serve": {"parts": 2}, "args": [*words, "--threads", 1]}
    ids = submit(plan_of(out, [stage]))
    done = {name: submitting.wait(job, seconds=900)["JobState"] for name, job in ids.items()}
    logs = "\n".join(p.read_text() for p in (out / "logs").iterdir())
    assert set(done.values()) == {"COMPLETED"}, (done, logs)
    parts = [json.loads((out / f"eval/part-{i}/results.json").read_text()) for i in range(2)]
    whole = json.loads((out / "eval" / "results.json").read_text())
    asked = [{row["task_id"] for row in part["rows"]} for part in parts]
    assert not asked[0] & asked[1] and len(whole["rows"]) == sum(map(len, asked)) > 0
    assert (out / "eval" / "report.html").is_file() and whole["meta"]["answered_by"]
