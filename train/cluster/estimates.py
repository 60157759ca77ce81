"""Memory and time of the stages of a plan that train over GPUs, for its dry run."""

from __future__ import annotations

from dataclasses import replace

from configs.loader import ConfigError
from configs.schema import SftRunConfig
from train.backends.estimate import grpo_report, sft_report
from train.cluster.plan import SCRIPTS, Job, Plan
from train.cluster.settings import Asked, asked

SHOWN = ("  at once", "  may not", "memory of each node", "disk", "time", "  a step", "  assumed")


def estimates(plan: Plan) -> list[str]:
    """Lines for every such stage. A model that an earlier stage makes has the shape of the one
    that stage begins with."""
    lines: list[str] = []
    begins: dict[str, str] = {}  # folder of a model that a stage makes: what it began with
    for job in plan.jobs:
        command = SCRIPTS.get(job.script.removesuffix(".sbatch"))
        if command is None:
            continue
        want = asked(command, job.args)
        first = begins.get(str(want.config.model.path), str(want.config.model.path))
        begins[f"{plan.out}/{job.name}/model"] = first
        if want.backend != "embedded":
            lines += [f"# {job.name}, {_nodes(job)} node(s):", *_report(want, first, _nodes(job))]
    return lines


def _nodes(job: Job) -> int:
    given = [o.removeprefix("--nodes=") for o in job.options if o.startswith("--nodes=")]
    nodes = given[-1] if given else "2" if job.script.startswith("grpo_multinode") else "1"
    return int(nodes) if nodes.isdigit() else 1


def _report(want: Asked, model: str, nodes: int) -> list[str]:
    config = want.config
    model_config = replace(config.model, path=model)
    cluster = replace(config.cluster, nodes=nodes)
    try:
        if isinstance(config, SftRunConfig):
            text = sft_report(replace(config, model=model_config, cluster=cluster))
        else:
            text = grpo_report(replace(config, model=model_config, cluster=cluster))
    except ConfigError as error:
        return [f"#   not estimated: {error}"]
    return [f"#   {line}" for line in text.splitlines() if line.startswith(SHOWN)]
