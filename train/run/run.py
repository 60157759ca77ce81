"""One run: a folder that this process holds, its settings, record, log, checkpoints and stop flag.

`assay demo`, `assay sft` and `assay grpo` begin with `with Run(config) as run:`. Whatever has
`out`, `seed`, `engine`, `log` and `checkpoint` settings can.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Generic, cast

from assay import record as provenance
from configs.loader import ConfigError, locked_difference, to_dict
from configs.machine import ModelConfig
from rollouts.prompts import keep_template, template_arguments
from train.model.policy import LlamaPolicy, TransformersPolicy
from train.run.checkpoint import require_disk
from train.run.live import LiveLine
from train.run.lock import held
from train.run.log import RunLog
from train.run.loop import Loop, Validate, no_validation
from train.run.record import (
    has_begun,
    hashes_of,
    note_in_record,
    now,
    read_run_record,
    refuse_other_inputs,
    write_run_record,
)
from train.run.resume import Checkpoints
from train.run.setup import Config, load_checked, prepare, publish, put_back, seed_globals, settled
from train.run.stop import StopFlag, Stopped
from train.run.trained_on import Trained, write_trained

DONE = "DONE"  # a file: tells a job script that there is nothing to go on with


class Run(Generic[Config]):
    """Use as a context: entering takes the folder, leaving it gives it back.

    Entering raises `ConfigError` when another process holds the folder, when it holds a run with
    other locked settings, or when the disk has less than `disk` bytes; nothing is written then.
    """

    def __init__(
        self,
        config: Config,
        inputs: Mapping[str, Path | str] | None = None,
        disk: int = 4_000_000_000,
    ) -> None:
        self.out, self.disk = Path(config.out), disk
        self.inputs: Mapping[str, Path | str] = dict(inputs or {})
        self.started = now()
        self.config: Config = config
        self.stop = StopFlag()
        self.trained: Trained | None = None  # what goes beside the models that are saved
        self._leave = ExitStack()

    def __enter__(self) -> Run[Config]:
        with ExitStack() as entered:
            require_disk(self.out, self.disk, "checkpoints and models of this run")
            entered.enter_context(held(self.out))
            self.config = settled(self.config)
            refuse_other_run(self.config, self.out)
            self.bind(self.inputs)
            self.stop.listen()
            entered.callback(self.stop.deaf)
            self.machine = prepare(self.config.engine)
            seed_globals(self.config.seed)
            (self.out / DONE).unlink(missing_ok=True)
            provenance.made(self.out)
            self.record()
            log, live = self.config.log, LiveLine()
            entered.callback(live.close)
            self.log = RunLog(
                self.out,
                wandb=log.wandb,
                tables=log.tables,
                tensorboard=log.tensorboard,
                project=log.project,
                config=to_dict(self.config),
                keep_rollouts=log.rollouts,
                show=live.step,
            )
            entered.callback(self.log.close)
            self._leave = entered.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._leave.close()

    def bind(self, inputs: Mapping[str, Path | str]) -> None:
        """What the run works on, in run.json: paths by their content, texts as they are. Raises
        `ConfigError` where a run that has begun here worked on something else."""
        self.inputs = hashes_of(inputs)
        refuse_other_inputs(self.inputs, self.out)

    def record(self, **more: Any) -> None:
        """Write config.yaml and run.json; the inputs are hashed."""
        write_run_record(self.out, self.config, self.inputs, self.started, **more)

    def load(
        self, folder: Path, train: bool = False, adapters: ModelConfig | None = None
    ) -> LlamaPolicy | TransformersPolicy:
        """The model in `folder`, after asking whether it fits. run.json says by what it trains."""
        policy = load_checked(folder, self.config.engine, self.machine, train, adapters)
        if train:
            compiled = isinstance(policy, LlamaPolicy) and policy.kernels is not None
            note_in_record(self.out, kernels="compiled" if compiled else "torch")
        return policy

    def loop(self, stage: str, validate: Validate = no_validation) -> Loop:
        """What the training loop of a stage needs of this run."""
        checkpoints = Checkpoints(
            self.out / "checkpoints" / stage, self.config, self.config.checkpoint.keep, self.stop
        )
        engine = self.config.engine
        return Loop(
            self.config.seed,
            self.log,
            checkpoints,
            engine.micro_tokens,
            engine.slots,
            engine.rounding,
            validate,
        )

    def save(
        self,
        policy: LlamaPolicy | TransformersPolicy,
        name: str,
        notes: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write the model as `out/name`, whole or not at all; `notes` are JSON files in it."""
        work = self.out / f".tmp-{name}"
        shutil.rmtree(work, ignore_errors=True)
        policy.save(work)  # with the files beside the weights that it was loaded from
        keep_template(work, template_arguments(work, self.config.model.chat_template_kwargs))
        for file, value in (notes or {}).items():
            (work / file).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
        if self.trained is not None:
            write_trained(work, self.trained)
        return publish(work, self.out / name)

    def saved(self, name: str) -> Path | None:
        """`out/name`, if that model is there."""
        put_back(self.out / name)
        return self.out / name if (self.out / name).is_dir() else None

    def remove(self, name: str) -> None:
        """Delete the model `out/name`."""
        put_back(self.out / name)
        shutil.rmtree(self.out / name, ignore_errors=True)

    def between(self, stage: str) -> None:
        """Raise `Stopped` after a finished stage when that was asked for."""
        if self.stop():
            raise Stopped(stage, self.stop.asked)

    def finish(self) -> None:
        """There is nothing to go on with."""
        (self.out / DONE).touch()


def refuse_other_run(config: Any, out: Path) -> None:
    """Raise `ConfigError` naming the locked settings in which a run that has begun here differs."""
    old = read_run_record(out).get("config")
    before = cast("dict[str, Any]", old or {})
    rl, noise = (cast("dict[str, Any]", before.get(name) or {}) for name in ("rl", "noise"))
    by_rate = rl.get("curriculum", "none") != "none"
    if by_rate or noise.get("share"):
        raise ConfigError(
            f"{out} began with {'rl.curriculum' if by_rate else 'noise.share'}, which is gone; "
            "resume it with the revision that its run.json names, or set another out="
        )
    changed = locked_difference(old, config) if old and has_begun(out) else []
    if changed:
        raise ConfigError(
            f"{out} holds a run with other settings ({', '.join(changed)}); put them back to "
            "resume it, or set another out="
        )
