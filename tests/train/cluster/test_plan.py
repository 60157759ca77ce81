"""PLAN.yaml → sbatch calls, and the sentences a wrong plan gets."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from front import command
from places import ROOT

import train.cluster.plan as plan_module
from configs.loader import ConfigError
from train.cluster.plan import make_plan, sbatch_call
from train.cluster.settings import asked, mismatches

slurm = command("slurm")

STAGES: list[dict[str, Any]] = [
    {"name": "tasks", "command": ["tasks", "demo", "--out", "{out}/tasks"]},
    {
        "name": "sft",
        "script": "sft",
        "after": ["tasks"],
        "args": ["data={out}/tasks/x.jsonl"],
        "sbatch": {"time": "1:00:00"},
    },
    {
        "name": "rollouts",
        "after": ["sft"],
        "command": ["rollout", "--tasks", "{in}", "--out", "{shard}"],
        "array": {"input": "{out}/t.jsonl", "shards": 4, "align": 8, "at_once": 2},
    },
    {
        "name": "eval",
        "after": ["sft", "rollouts"],
        "items": [{"name": "a", "argv": ["eval", "--out", "{item}"]}],
    },
]


def plan(stages: Any = None, **more: Any) -> Any:
    return make_plan({"name": "p", "out": "runs/p", "stages": stages or STAGES, **more}, "p.yaml")


def test_a_chain_becomes_calls_that_wait_for_each_other() -> None:
    jobs = plan(sbatch={"partition": "a"}).jobs
    names = ["tasks", "sft", "rollouts", "rollouts-merge", "eval", "eval-check"]
    assert [job.name for job in jobs] == names
    calls = [sbatch_call(job, {n: str(i) for i, n in enumerate(names)}) for job in jobs]
    assert calls[0] == [
        "sbatch",
        "--parsable",
        "--job-name=p-tasks",
        "--output=runs/p/logs/%x-%j.log",
        "--partition=a",
        "slurm/command.sbatch",
        "out=runs/p/tasks",
        "--",
        "tasks",
        "demo",
        "--out",
        "runs/p/tasks",
    ]
    assert "--dependency=afterok:0" in calls[1] and "--kill-on-invalid-dep=yes" in calls[1]
    assert "--time=1:00:00" in calls[1] and calls[1][-1] == "out=runs/p/sft"
    assert {"--array=0-3%2", "--output=runs/p/logs/%x-%A_%a.log"} <= set(calls[2])
    assert "--output=runs/p/logs/%x-%j.log" in calls[3]
    assert calls[2][calls[2].index("--") :] == [
        "--",
        "rollout",
        "--tasks",
        "{in}",
        "--out",
        "{out}",
    ]
    # who comes after an array comes after its merge
    assert "--dependency=afterok:2" in calls[3] and "--dependency=afterok:1:3" in calls[4]
    assert jobs[4].items[0] == {
        "name": "a",
        "out": "runs/p/eval/a",
        "argv": ["eval", "--out", "{out}"],
    }


X = ["tasks", "x"]


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        ({"comand": []}, "unknown key comand; did you mean command?"),
        ({"script": "grpo"}, "wanted one of sft, grpo_1node, grpo_multinode"),
        ({}, "needs a command, a script, an array, items or serve"),
        ({"command": "tasks demo"}, "is text; wanted a list of words"),
        ({"command": X, "after": ["b"]}, "'b', which is no earlier stage"),
        ({"command": X, "after": "b"}, "after is 'b'; wanted a list, [b]"),
        ({"command": ["tasks", True]}, "put it in quotes"),
        ({"command": ["rolout", "--n", 8]}, "no command 'rolout'; did you mean rollout?"),
        ({"command": ["tasks", "{outt}/x"]}, "{outt} is not known; has {out}"),
        ({"command": X, "args": ["y"]}, "args has no meaning beside command; remove it"),
        ({"command": X, "script": "sft"}, "command has no meaning beside script; remove it"),
        ({"name": "a b", "command": X}, "give letters and digits"),
        ({"command": X, "array": {"input": "i", "shards": 0}}, "shards=0; wanted a"),
        ({"command": X, "array": {"shards": 2}}, "input is missing; name the JSONL file"),
        ({"command": X, "array": {"input": "i", "shards": 2}}, "the command has no {in}"),
        ({"items": [{"name": "i", "argv": ["eval"]}]}, "no {item} to write to"),
        ({"items": [{"argv": ["eval", "{item}"]}]}, "each has a name and an argv"),
        ({"items": "x"}, "wanted a list of name and argv"),
        ({"command": X, "sbatch": {"time": 43200}}, 'put it in quotes, time: "12:00:00"'),
        ({"command": X, "sbatch": ["a"]}, "wanted `option: value` lines"),
        ({"command": X, "sbatch": {"exclusive": None}}, "wanted text, a number or true"),
        ({"command": X, "sbatch": {"array": "0-3"}}, "is what the plan itself sets"),
        ({"command": X, "sbatch": {"nodes": 4}}, "command runs on one node; set nodes: 1"),
        ({"script": "sft", "args": ["out=x"]}, "args has out=, which is always runs/p/a"),
        ({"script": "sft", "args": ["sft.epoch=2"]}, "did you mean"),
        ({"script": "sft", "args": ["--backend", "verl"]}, "wanted embedded or deepspeed here"),
        ({"script": "sft", "sbatch": {"nodes": 2}}, "the run uses one device; sbatch --nodes=1"),
        (
            {
                "script": "grpo_multinode",
                "sbatch": {"nodes": 2},
                "args": ["--config=configs/dare_qwen3_4b_4nodes.yaml"],
            },
            "cluster.nodes=4 and the job has 2",
        ),
        (
            {
                "script": "sft",
                "args": [
                    "--backend",
                    "deepspeed",
                    "model.path=Qwen/Qwen3-32B",
                    "sft.max_length=16384",
                    "cluster.zero_stage=2",
                ],
            },
            "needs at least",
        ),
    ],
)
def test_a_wrong_plan_is_refused_in_one_sentence(stage: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=r"p\.yaml") as error:
        plan([{"name": "a", **stage}])
    assert said in str(error.value) and "\n" not in str(error.value)


BIG = ["sft", "--backend", "deepspeed", "--config=configs/sft_qwen3_32b_zero3.yaml"]


def test_a_stage_over_gpus_asks_for_the_cores_and_the_memory_it_needs() -> None:
    def options(**sbatch: Any) -> set[str]:
        stage = {"name": "a", "script": "sft", "args": BIG[1:], "sbatch": {"nodes": 2, **sbatch}}
        return set(sbatch_call(plan([stage]).jobs[0], {}))

    assert {"--cpus-per-task=64", "--mem=415G"} <= options()
    assert {"--cpus-per-task=16", "--mem=415G"} <= options(**{"cpus-per-task": 16})
    assert not any(o.startswith("--mem=") for o in options(**{"mem-per-cpu": "8G"}))
    grpo = {
        "name": "a",
        "script": "grpo_1node",
        "args": ["--backend", "verl", "model.path=not/yet"],
    }
    assert {"--cpus-per-task=34", "--mem=0"} <= set(sbatch_call(plan([grpo]).jobs[0], {}))
    one = {"name": "a", "script": "sft"}  # the script's own lines hold
    assert not any(o.startswith("--cpus") for o in sbatch_call(plan([one]).jobs[0], {}))


def test_flags_and_a_model_that_an_earlier_stage_makes() -> None:
    grpo = {
        "name": "a",
        "script": "grpo_multinode",
        "args": ["model.path={out}/sft/model"],
        "sbatch": {"nodes": 4, "exclusive": True, "time": "1-00:00:00"},
    }
    call = sbatch_call(plan([grpo]).jobs[0], {})
    assert {"--nodes=4", "--exclusive", "--time=1-00:00:00"} <= set(call)


@pytest.mark.parametrize(
    ("words", "job", "said"),
    [
        (["sft"], {}, ""),
        (["sft"], {"SLURM_NNODES": "1", "SLURM_NTASKS": "8"}, "has 8 tasks on 1 node(s)"),
        (
            ["grpo"],
            {"SLURM_NNODES": "2"},
            "uses one device; sbatch --nodes=1, or add --backend verl",
        ),
        (
            ["grpo", "--backend=verl"],
            {},
            "the job has 0 GPU(s) on a node; sbatch --gpus-per-node=8",
        ),
        (["grpo", "--backend=verl"], {"SLURM_GPUS_ON_NODE": "8"}, ""),
        (
            ["grpo", "--backend=verl"],
            {"SLURM_GPUS_ON_NODE": "8", "SLURM_CPUS_ON_NODE": "1"},
            "the job has 1 cores on a node, and verl asks Ray for 34",
        ),
        (["grpo", "--backend=verl"], {"SLURM_GPUS_ON_NODE": "8", "SLURM_CPUS_ON_NODE": "34"}, ""),
        (["grpo", "--backend=verl", "cluster.device=cpu"], {"SLURM_CPUS_ON_NODE": "1"}, ""),
        (
            ["sft", "--backend", "deepspeed", "cluster.nodes=2"],
            {"SLURM_GPUS_ON_NODE": "8"},
            "cluster.nodes=2 and the job has 1; sbatch --nodes=2, or set cluster.nodes=1",
        ),
        (["grpo_multinode"], {"SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "8"}, ""),
        (
            ["grpo_multinode", "cluster.nodes=4"],
            {"SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "8"},
            "cluster.nodes=4 and the job has 2",
        ),
        (
            [*BIG, "cluster.nodes=2"],
            {"SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "8", "SLURM_CPUS_ON_NODE": "1"},
            "has 1 cores on a node, and DeepSpeed starts 8 processes on it; "
            "sbatch --cpus-per-task=64",
        ),
        (  # the GPUs of one node cannot be cut in two
            [
                "grpo_multinode",
                "cluster.nodes=2",
                "cluster.gpus_per_node=3",
                "cluster.tensor_parallel=2",
            ],
            {"SLURM_NNODES": "1", "SLURM_GPUS_ON_NODE": "3"},
            "cluster.nodes=2 and the job has 1",
        ),
        (
            BIG,
            {"SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "8", "SLURM_MEM_PER_NODE": "102400"},
            "has 107 GB of memory on a node, and the run needs about 415 GB",
        ),
        (
            BIG,
            {
                "SLURM_NNODES": "2",
                "SLURM_GPUS_ON_NODE": "8",
                "SLURM_CPUS_ON_NODE": "64",
                "SLURM_MEM_PER_CPU": "8000",
            },
            "",
        ),
        (
            ["grpo", "--backend=verl", "model.path=Qwen/Qwen3-4B"],
            {"SLURM_GPUS_ON_NODE": "8", "SLURM_MEM_PER_NODE": "65536"},
            "has 69 GB of memory on a node, and the run needs about 217 GB",
        ),
    ],
)
def test_a_job_compares_its_nodes_with_its_settings(
    words: list[str], job: dict[str, str], said: str
) -> None:
    found = mismatches(asked(words[0], words[1:]), job, 0)
    assert (found == []) if not said else any(said in sentence for sentence in found)


def test_the_plans_that_are_shown_are_plans() -> None:
    shown = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8").split("```yaml\n")[1]
    names = [job.name for job in make_plan(yaml.safe_load(shown.split("```")[0]), "docs").jobs]
    assert names == [
        "tasks",
        "warm",
        "rollouts",
        "rollouts-merge",
        "select",
        "sft",
        "grpo",
        "eval",
        "eval-check",
    ]
    text = textwrap.dedent(str(plan_module.__doc__).split("\n\n")[1])
    assert len(make_plan(yaml.safe_load(text), "plan.py").jobs) == 8


PLANS = sorted((ROOT / "slurm" / "plans").glob("*.yaml"))


@pytest.mark.parametrize("path", PLANS, ids=lambda p: p.stem)
def test_the_published_settings_are_plans(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert slurm(["submit", str(path), "--dry-run"]) == 0
    said = capsys.readouterr().out
    served = sum("serve" in stage for stage in yaml.safe_load(path.read_text("utf-8"))["stages"])
    assert said.count("serve_eval.sbatch") == served > 0 and "slurm gather" in said


# What the commands of a plan's comment write into their folder.
WRITTEN = {
    "cdr": {"train.jsonl", "heldout.jsonl"},
    "dare --tables": {"train.jsonl", "heldout.jsonl"},
    "dare --import": {"tasks.jsonl"},
}


@pytest.mark.parametrize("path", PLANS, ids=lambda p: p.stem)
def test_every_file_of_a_plan_is_written_by_a_command_of_its_comment(path: Path) -> None:
    text = path.read_text("utf-8")
    written: set[str] = set()
    for line in re.findall(r"^#   assay (.*)$", text, re.MULTILINE):
        words = shlex.split(line)
        out = words[words.index("--out") + 1] if "--out" in words else ""
        if words[0] == "tasks":
            kind = next(k for k in WRITTEN if set(k.split()) <= set(words))
            written |= {out, *(f"{out}/{name}" for name in WRITTEN[kind])}
        elif words[0] == "rollout":
            written.add(out)
    named = set(re.findall(r"tasks/[\w./]+", text.split("\nname:")[1]))
    assert named and named <= written
    assert [p for p in re.findall(r"configs/[\w./]+", text) if not (ROOT / p).is_file()] == []


@pytest.mark.parametrize("path", [p for p in (ROOT / "configs").glob("*_qwen3_4b*.yaml")])
def test_a_preset_names_data_that_a_command_writes(path: Path) -> None:
    data = yaml.safe_load(path.read_text("utf-8"))["data"]
    assert Path(data).name in {"train.jsonl", "heldout.jsonl", "tasks.jsonl", "sft.parquet"}
