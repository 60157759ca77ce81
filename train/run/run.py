"""One run of a training command: its folder, settings, log, checkpoints and model."""

from __future__ import annotations

from pathlib import Path

from configs.loader import to_dict
from configs.schema import GrpoRunConfig, SftRunConfig
from train.run.checkpoint import require_disk
from train.run.data import training_tasks
from train.run.resume import Checkpoints
from train.run.stop import StopFlag


class Run:
    """What SFT and GRPO runs set up alike."""

    def __init__(self, config: SftRunConfig | GrpoRunConfig, stage: str) -> None:
        from rollouts.prompts import ChatTokenizer
        from train.model.source import resolve_model
        from train.run.log import RunLog
        from train.run.record import write_run_record
        from train.run.setup import load_checked, prepare, seed_globals

        self.tasks = training_tasks(config.data)
        self.out = Path(config.out)
        require_disk(self.out, 4_000_000_000, "checkpoints of this run")
        machine = prepare(config.engine)
        seed_globals(config.seed)
        source = resolve_model(config.model.path)
        calls = config.tools.calls if isinstance(config, GrpoRunConfig) else "hermes"
        self.tokenizer = ChatTokenizer(source, calls, config.model.chat_template_kwargs)
        self.policy = load_checked(source, config.engine, machine, True, config.model)
        self.reload = lambda: load_checked(source, config.engine, machine, train=False)
        write_run_record(self.out, config, {"data": Path(config.data), "model": source})
        self.log = RunLog(
            self.out,
            wandb=config.log.wandb,
            project=config.log.project,
            config=to_dict(config),
            keep_rollouts=config.log.rollouts,
        )
        self.checkpoints = Checkpoints(
            self.out / "checkpoints" / stage, config, config.checkpoint.keep, StopFlag().listen()
        )
        self.done = self.out / "DONE"  # tells a job script that there is nothing to go on with
        self.done.unlink(missing_ok=True)

    def finish(self) -> None:
        from rollouts.prompts import keep_template
        from train.run.setup import publish

        work = self.out / ".tmp-model"
        self.policy.save(work)
        keep_template(work, self.tokenizer.template)
        print(f"model: {publish(work, self.out / 'model')}")
        self.log.close()
        self.done.touch()
