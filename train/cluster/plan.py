# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""PLAN.yaml: stages of a chain, and the `sbatch` calls they become. Pure: nothing is submitted.

    name: chain
    out: runs/chain
    stages:
      - {name: tasks, command: [tasks, demo, --out, "{out}/tasks"]}
      - {name: sft, script: sft, after: [tasks], args: ["data={out}/tasks/train_sft.jsonl"]}
      - name: rollouts
        array: {input: "{out}/tasks/train_rl.jsonl", shards: 8, align: 8, at_once: 4}
        after: [sft]
        command: [rollout, --tasks, "{in}", --out, "{shard}", --model, "{out}/sft/model"]
      - name: eval
        after: [sft]
        items:
          - {name: sft, argv: [eval, --model, "{out}/sft/model", --tracks, T, --out, "{item}"]}
      - name: served
        after: [sft]
        serve: {parts: 8}
        args: [--model, "{out}/sft/model", --tasks, T, "dare:D"]

Every stage gets the folder `{out}/NAME`; `after` waits for success, and for an array for the job
that merged it into `{out}/NAME.jsonl` (checked the items, for `items`). `sbatch:` of the plan or of
a stage holds options of sbatch (true: a flag). Relative paths start at the checkout.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from configs.loader import ConfigError
from train.cluster.serve import refuse_words
from train.cluster.settings import refuse_stage

# script: the command whose settings its arguments are
SCRIPTS = {"sft": "sft", "grpo_1node": "grpo", "grpo_multinode": "grpo_multinode"}
PLAN_KEYS = ("name", "out", "sbatch", "stages")
STAGE_KEYS = (
    *("name", "script", "command", "array", "items", "serve", "at_once", "after", "args", "sbatch"),
)
ARRAY_KEYS = ("input", "shards", "align", "at_once")
# A stage over GPUs asks for the cores and the memory it needs, unless its plan says how many.
SAID = {
    "cpus-per-task": ("cpus-per-task", "cpus-per-gpu", "exclusive"),
    "mem": ("mem", "mem-per-cpu", "mem-per-gpu"),
}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """One `sbatch` call: options, script, arguments; `after` names jobs that must succeed."""

    name: str
    script: str
    args: tuple[str, ...]
    options: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    items: tuple[Mapping[str, Any], ...] = ()  # written to {out}/NAME/items.jsonl at submission


@dataclass(frozen=True)
class Plan:
    """A chain of jobs in an order in which each comes after what it waits for."""

    name: str
    out: str
    jobs: list[Job] = field(default_factory=list[Job])


def read_plan(path: Path) -> Plan:
    """Raises `ConfigError` naming the file, the stage and what to write instead."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give a YAML plan") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    return make_plan(data, str(path))


def make_plan(data: Any, where: str) -> Plan:
    """The plan of parsed YAML; see the module's text for its form."""
    top = _mapping(data, where, PLAN_KEYS)
    for key in ("name", "out"):
        if not isinstance(top.get(key), str) or not top[key]:
            raise ConfigError(f"{where}: {key} is missing; give it as text")
    stages = top.get("stages")
    if not isinstance(stages, list) or not stages:
        raise ConfigError(f"{where}: no stages; give a list of them")
    common = _sbatch(top, where)
    plan, last = Plan(top["name"], top["out"].rstrip("/")), {}
    for number, raw in enumerate(stages, 1):
        stage = _mapping(raw, f"{where}: stage {number}", STAGE_KEYS)
        name = stage.get("name")
        if not isinstance(name, str) or not name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(f"{where}: stage {number}: name is {name!r}; give letters and digits")
        if name in last:
            raise ConfigError(f"{where}: two stages are called {name}; rename one")
        jobs = _jobs(stage, plan, last, common, f"{where}: stage {name}")
        plan.jobs.extend(jobs)
        last[name] = jobs[-1].name
    return plan


def _jobs(
    stage: Mapping[str, Any],
    plan: Plan,
    last: Mapping[str, str],
    common: dict[str, Any],
    where: str,
) -> list[Job]:
    """The job of a stage; an array brings a second one that merges or checks it."""
    name, out = str(stage["name"]), f"{plan.out}/{stage['name']}"
    after = tuple(last[before] for before in _names(stage, last, where))
    sbatch = common | _sbatch(stage, where)
    options = _options(sbatch, f"{plan.name}-{name}", plan.out)
    kind = _kind(stage, where)
    if kind != "script" and str(sbatch.get("nodes", 1)) != "1":
        raise ConfigError(
            f"{where}: sbatch: nodes={sbatch['nodes']}: {kind} runs on one node; set nodes: 1"
        )
    if kind == "items":
        return _item_jobs(stage, plan, options, after, where)
    if kind == "script":
        args = _words(stage.get("args") or (), {"{out}": plan.out}, where)
        asks = _refuse_script(stage["script"], args, sbatch, out, where)
        asks = {k: v for k, v in asks.items() if not any(name in sbatch for name in SAID[k])}
        options = _options(sbatch | asks, f"{plan.name}-{name}", plan.out)
        return [Job(name, f"{stage['script']}.sbatch", (*args, f"out={out}"), options, after)]
    if kind == "serve":
        return _serve_jobs(stage, plan, options, after, where)
    if kind == "array":
        return _array_jobs(stage, plan, options, after, where)
    words = _words(stage["command"], {"{out}": plan.out}, where)
    _refuse_command(words, where)
    return [Job(name, "command.sbatch", (f"out={out}", "--", *words), options, after)]


def _kind(stage: Mapping[str, Any], where: str) -> str:
    """Which of the four kinds of stage it is. Raises `ConfigError` for none, two, or stray keys."""
    kinds = [k for k in ("script", "items", "array", "serve") if k in stage] or ["command"]
    if len(kinds) > 1:
        raise ConfigError(f"{where}: has {' and '.join(kinds)}; keep one")
    kind = kinds[0]
    if kind in ("command", "array") and not stage.get("command"):
        raise ConfigError(f"{where}: needs a command, a script, an array, items or serve")
    belongs = {"command": ("command", "array"), "args": ("script", "serve"), "at_once": ("items",)}
    for key, kinds_with in belongs.items():
        if key in stage and kind not in kinds_with:
            raise ConfigError(f"{where}: {key} has no meaning beside {kind}; remove it")
    return kind


def _names(stage: Mapping[str, Any], last: Mapping[str, str], where: str) -> list[str]:
    after = stage.get("after") or []
    if not isinstance(after, list):
        raise ConfigError(f"{where}: after is {after!r}; wanted a list, [{after}]")
    for before in after:
        if before not in last:
            raise ConfigError(f"{where}: after names {before!r}, which is no earlier stage")
    return after


def _sbatch(holder: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Options of sbatch by name. Raises `ConfigError` for what YAML has made something else of."""
    options = holder.get("sbatch") or {}
    if not isinstance(options, dict):
        raise ConfigError(f"{where}: sbatch is {options!r}; wanted `option: value` lines")
    for key, value in options.items():
        if str(key) == "time" and not isinstance(value, str):
            raise ConfigError(
                f"{where}: sbatch: time is {value}: YAML reads 12:00:00 as a number; put it in "
                'quotes, time: "12:00:00"'
            )
        if not isinstance(value, str | int) or value is False:
            raise ConfigError(f"{where}: sbatch: {key} is {value!r}; wanted text, a number or true")
        if str(key) in ("array", "dependency", "parsable", "wrap"):
            raise ConfigError(f"{where}: sbatch: {key} is what the plan itself sets; remove it")
    return options


def _refuse_script(
    script: str, args: Sequence[str], sbatch: Mapping[str, Any], out: str, where: str
) -> dict[str, str]:
    """What the job has to ask for, as options of sbatch.

    Raises `ConfigError` for settings that the job itself would refuse, hours from now.
    """
    if script not in SCRIPTS:
        raise ConfigError(f"{where}: script={script}; wanted one of {', '.join(SCRIPTS)}")
    if any(word.startswith("out=") for word in args):
        raise ConfigError(f"{where}: args has out=, which is always {out}; remove it")
    nodes = str(sbatch.get("nodes", 2 if script == "grpo_multinode" else 1))
    try:
        return refuse_stage(SCRIPTS[script], [*args, f"out={out}"], nodes)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _refuse_command(words: Sequence[str], where: str) -> None:
    from assay import COMMANDS

    if words[0] not in COMMANDS:
        near = difflib.get_close_matches(words[0], COMMANDS, 1, cutoff=0.0)
        raise ConfigError(f"{where}: assay has no command {words[0]!r}; did you mean {near[0]}?")


def _array_jobs(
    stage: Mapping[str, Any],
    plan: Plan,
    options: tuple[str, ...],
    after: tuple[str, ...],
    where: str,
) -> list[Job]:
    spec = _mapping(stage["array"], f"{where}: array", ARRAY_KEYS)
    name, out, fill = str(stage["name"]), f"{plan.out}/{stage['name']}", {"{out}": plan.out}
    shards, align = _count(spec, "shards", where), _count(spec, "align", where, 1)
    cut = (
        f"out={out}",
        "--input",
        _words([spec.get("input", "")], fill, where)[0],
        "--shards",
        str(shards),
        "--align",
        str(align),
    )
    if not isinstance(spec.get("input"), str):
        raise ConfigError(f"{where}: array: input is missing; name the JSONL file to cut")
    words = _words(stage["command"], fill | {"{in}": "{in}", "{shard}": "{out}"}, where)
    _refuse_command(words, where)
    for mark in ("{in}", "{shard}"):
        if not any(mark in str(word) for word in stage["command"]):
            raise ConfigError(
                f"{where}: the command has no {mark}; it reads {{in}} and writes {{shard}}"
            )
    limit = _count(spec, "at_once", where, shards)
    array = Job(
        name,
        "data_array.sbatch",
        (*cut, "--", *words),
        _as_array(options, shards - 1, limit),
        after,
    )
    merge = Job(
        f"{name}-merge",
        "command.sbatch",
        (f"out={out}", "--", "slurm", "merge", *cut, "--to", f"{out}.jsonl"),
        _renamed(options, f"{plan.name}-{name}-merge"),
        (name,),
    )
    return [array, merge]


def _item_jobs(
    stage: Mapping[str, Any],
    plan: Plan,
    options: tuple[str, ...],
    after: tuple[str, ...],
    where: str,
) -> list[Job]:
    name, out, rows = str(stage["name"]), f"{plan.out}/{stage['name']}", []
    if not isinstance(stage["items"], list):
        raise ConfigError(f"{where}: items is {stage['items']!r}; wanted a list of name and argv")
    for item in stage["items"]:
        _mapping(item, f"{where}: items", ("name", "argv"))
        if not isinstance(item.get("name"), str) or not item.get("argv"):
            raise ConfigError(f"{where}: items: each has a name and an argv; got {item!r}")
        fill = {"{out}": plan.out, "{item}": "{out}"}
        argv = _words(item["argv"], fill, where)
        _refuse_command(argv, where)
        if not any("{out}" in word for word in argv):
            raise ConfigError(f"{where}: item {item.get('name')}: argv has no {{item}} to write to")
        rows.append({"name": str(item["name"]), "out": f"{out}/{item['name']}", "argv": argv})
    if not rows or len({row["name"] for row in rows}) != len(rows):
        raise ConfigError(f"{where}: items: give at least one, and each a name of its own")
    limit = _count(stage, "at_once", where, len(rows))
    listed = f"{out}/items.jsonl"
    array = Job(
        name,
        "eval_array.sbatch",
        (f"out={out}", "--items", listed),
        _as_array(options, len(rows) - 1, limit),
        after,
        tuple(rows),
    )
    check = Job(
        f"{name}-check",
        "command.sbatch",
        (f"out={out}", "--", "slurm", "check", "--items", listed),
        _renamed(options, f"{plan.name}-{name}-check"),
        (name,),
    )
    return [array, check]


def _serve_jobs(
    stage: Mapping[str, Any],
    plan: Plan,
    options: tuple[str, ...],
    after: tuple[str, ...],
    where: str,
) -> list[Job]:
    spec = _mapping(stage["serve"], f"{where}: serve", ("parts", "at_once"))
    name, out = str(stage["name"]), f"{plan.out}/{stage['name']}"
    parts = _count(spec, "parts", where)
    words = _words(stage.get("args") or (), {"{out}": plan.out}, where)
    try:
        refuse_words(words)
    except ConfigError as error:
        raise ConfigError(f"{where}: args: {error}") from None
    cut = (f"out={out}", "--parts", str(parts))
    array = Job(
        name,
        "serve_eval.sbatch",
        (*cut, "--", *words),
        _as_array(options, parts - 1, _count(spec, "at_once", where, parts)),
        after,
    )
    together = Job(
        f"{name}-gather",
        "command.sbatch",
        (f"out={out}", "--", "slurm", "gather", *cut),
        _renamed(options, f"{plan.name}-{name}-gather"),
        (name,),
    )
    return [array, together]


def sbatch_call(job: Job, ids: Mapping[str, str], slurm_dir: str = "slurm") -> list[str]:
    """The whole command; `ids` maps the jobs submitted before to their Slurm ids.

    A job whose predecessor fails would wait for ever without --kill-on-invalid-dep.
    """
    call = ["sbatch", "--parsable", *job.options]
    if job.after:
        waits = ":".join(ids[name] for name in job.after)
        call += [f"--dependency=afterok:{waits}", "--kill-on-invalid-dep=yes"]
    return [*call, f"{slurm_dir}/{job.script}", *job.args]


def _options(sbatch: Mapping[str, Any], job_name: str, out: str) -> tuple[str, ...]:
    made = {"job-name": job_name, "output": f"{out}/logs/%x-%j.log", **sbatch}
    return tuple(f"--{k}" if v is True else f"--{k}={v}" for k, v in made.items())


def _as_array(options: Sequence[str], last: int, limit: int) -> tuple[str, ...]:
    """Of an array's tasks: logs by array and index."""
    named = (o.replace("%x-%j.log", "%x-%A_%a.log") for o in options)
    return (*named, f"--array=0-{last}%{limit}")


def _renamed(options: Sequence[str], name: str) -> tuple[str, ...]:
    """Options of a small follow-up job: its own name, and none of the array's resources."""
    kept = ("--partition=", "--account=", "--qos=", "--output=", "--mem=")
    return (f"--job-name={name}", *(o for o in options if o.startswith(kept)))


def _words(words: Sequence[Any], fill: Mapping[str, str], where: str) -> list[str]:
    if not isinstance(words, list | tuple):
        raise ConfigError(f"{where}: {words!r} is text; wanted a list of words")
    made: list[str] = []
    for word in words:
        if not isinstance(word, str | int | float) or isinstance(word, bool):
            raise ConfigError(f"{where}: {word!r} is no word; put it in quotes")
        text = str(word)
        for mark in re.findall(r"\{[a-z_]+\}", text):
            if mark not in fill:
                raise ConfigError(f"{where}: {text!r}: {mark} is not known; has {', '.join(fill)}")
        for mark, value in fill.items():
            text = text.replace(mark, value)
        made.append(text)
    return made


def _count(spec: Mapping[str, Any], key: str, where: str, default: int | None = None) -> int:
    value = spec.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{where}: {key}={value!r}; wanted a whole number of 1 or more")
    return value


def _mapping(data: Any, where: str, known: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: wanted `key: value` lines, got {type(data).__name__}")
    for key in data:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1, cutoff=0.0)
            raise ConfigError(f"{where}: unknown key {key}; did you mean {near[0]}?")
    return data
