# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""Run verl's trainer: one entry point, in the driver's process. Needs verl.

`run` composes and checks the settings, writes the data, starts Ray (or joins the cluster that the
job script started) and fits. The trainer is verl's (`cluster.trainer`), with the reward's parts and
tool counts added to every step's metrics: verl itself logs them for validation only.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.family import VARIABLE
from assay.task import TaskError
from configs.schema import GrpoRunConfig
from train.backends.verl.data import prepare
from train.backends.verl.export import STOP, export, last_step, settle
from train.backends.verl.settings import (
    check,
    compose,
    cpu_device,
    overrides,
    raw_settings,
    require_verl,
)
from train.run.checkpoint import EXIT_STOPPED, SIGNALS
from train.run.log import FOLDER as EVENTS

STARTS = 4
NOTHING = "no materializable trajectories"  # verl's words for a step in which all was lost
NOISY = ("verl.workers.engine", "torchdata.stateful_dataloader.stateful_dataloader")
QUIET = ",".join(f"ignore::UserWarning:{name}" for name in NOISY)
DONE = "DONE"


def environment(config: GrpoRunConfig, folder: Path) -> dict[str, str]:
    """Variables of every process of the run; Ray's workers get them too."""
    root, before = Path(__file__).resolve().parents[3], os.environ.get("PYTHONPATH", "")
    made = {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(root), before])),
        "VERL_FILE_LOGGER_PATH": str(_next_log(folder)),
        "RAY_USAGE_STATS_ENABLED": "0",
        "TOKENIZERS_PARALLELISM": "false",
        # each process would name the five training engines that are not installed
        "PYTHONWARNINGS": os.environ.get("PYTHONWARNINGS", QUIET),
    }
    if config.cluster.device == "cpu":
        made = cpu_device()["environment"](made)
    if config.log.wandb != "off":
        made["WANDB_MODE"] = config.log.wandb
    if config.log.tensorboard:
        made["TENSORBOARD_DIR"] = str(Path(config.out).resolve() / EVENTS)
    return made


def _next_log(folder: Path) -> Path:
    """A metrics file for each start: verl truncates the one it is given, also on a resume."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"metrics_start_{len(list(folder.glob('metrics_start_*.jsonl'))):03d}.jsonl"


def run(config: GrpoRunConfig) -> int:
    """Train to the end, or until a stop is asked for; returns the exit status."""
    folder = (Path(config.out) / "verl").resolve()
    for name in (DONE, STOP):
        (Path(config.out) / name).unlink(missing_ok=True)
    require_verl()
    settle(Path(config.out))
    before = last_step(Path(config.out))
    if before < config.rl.steps:
        if before:
            print(f"{config.out}: going on after step {before} of {config.rl.steps}", flush=True)
        _train(config, folder)
    if last_step(Path(config.out)) < config.rl.steps:
        print(f"stopped after step {last_step(Path(config.out))}; run the same command to go on")
        return EXIT_STOPPED
    print(f"model: {export(Path(config.out))}")
    (Path(config.out) / DONE).touch()
    return 0


def _train(config: GrpoRunConfig, folder: Path) -> None:
    """From the newest checkpoint to the last step, or to the one in which a stop is asked for."""
    variables = environment(config, folder)
    os.environ.update(variables)
    # for this process, which has read its own already
    sys.path += [p for p in variables["PYTHONPATH"].split(os.pathsep) if p not in sys.path]
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    for name in NOISY:  # this process has read its environment already
        warnings.filterwarnings("ignore", category=UserWarning, module=name)
    counts = prepare(config, folder)
    print(
        f"{counts['tasks']} tasks, {counts['train']} prompts, {counts['val']} held out", flush=True
    )
    made = overrides(config, folder)
    raw = raw_settings(config.cluster.verl, made)
    if VARIABLE in os.environ:  # families from outside reach Ray's workers too
        variables[VARIABLE] = os.environ[VARIABLE]
    # verl forwards few variables to its workers; ours go through Ray's runtime environment
    passed = {f"+ray_kwargs.ray_init.runtime_env.env_vars.{k}": v for k, v in variables.items()}
    composed = compose(made | passed | _ray_cpus(config), raw)
    check(composed)
    import ray
    from verl.trainer.main_ppo import run_ppo

    from train.backends.verl.trainer import Runner

    _listen(Path(config.out) / STOP)
    try:
        _start(lambda: run_ppo(composed, task_runner_class=ray.remote(num_cpus=1)(Runner)))
    finally:
        ray.shutdown()


def _ray_cpus(config: GrpoRunConfig) -> dict[str, Any]:
    """Ray's CPUs on this machine: those that this process may use, and not all of the host's; no
    fewer than verl reserves, for which it would wait for ever."""
    cluster = config.cluster
    if cluster.ray_address or cluster.device == "cpu":
        return {}
    gpus = cluster.gpus_per_node + cluster.rollout_gpus_per_node
    reserved = 3 * gpus + cluster.rollout_workers + 2
    return {"ray_kwargs.ray_init.num_cpus": max(len(os.sched_getaffinity(0)), reserved)}


def _start(fit: Callable[[], None]) -> None:
    """Ray gives a node 30 s to come up, which a busy machine may miss: then it is tried again."""
    for attempt in range(1, STARTS + 1):
        try:
            return fit()
        except Exception as error:
            if NOTHING in str(error):
                raise TaskError(
                    "every rollout of a step was left out; the reasons stand above, one a rollout. "
                    "Put right what they name and run the same command again"
                ) from None
            if "timed out during startup" not in str(error) or attempt == STARTS:
                raise
            print(f"Ray did not start in time (attempt {attempt} of {STARTS})", flush=True)


def _listen(flag: Path) -> None:
    """USR1 and TERM ask the trainer to save after the step it is in."""

    def ask(number: int, frame: object) -> None:
        flag.touch()
        print(f"{signal.Signals(number).name}: saving after this step", flush=True)

    for number in SIGNALS:
        signal.signal(number, ask)
