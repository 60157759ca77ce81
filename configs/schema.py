"""Every setting of the runs `assay demo`, `assay sft` and `assay grpo`.

`locked` marks what a resumed run must not change, because it decides the numbers. The number of
threads and where results go are free to change. The meaning of a setting stands under its field;
sections that several runs share are in machine.py and training.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from configs.cluster import ClusterConfig
from configs.fields import at_least, share
from configs.loader import OPEN, locked
from configs.machine import (
    CallsConfig,
    CheckpointConfig,
    EngineConfig,
    EvalConfig,
    LogConfig,
    ModelConfig,
    ToolsConfig,
    ValidationConfig,
)
from configs.training import GrpoConfig, SftConfig

__all__ = [
    "CallsConfig",
    "CheckpointConfig",
    "ClusterConfig",
    "DemoConfig",
    "EngineConfig",
    "EvalConfig",
    "GrpoConfig",
    "GrpoRunConfig",
    "LogConfig",
    "ModelConfig",
    "SftConfig",
    "SftRunConfig",
    "TasksConfig",
    "ToolsConfig",
    "ValidationConfig",
]


@dataclass(frozen=True)
class TasksConfig:
    """Which refinement tasks the demo builds; held-out tasks come from other documents. null leaves
    a setting to the preset that `difficulty` names; `assay tasks demo` has more of them."""

    corpus: str | None = locked(None)
    """JSONL of documents; null: the one that ships with Assay."""

    difficulty: Literal["easy", "medium", "hard"] = locked("medium")
    """Which preset fills in what is null below."""

    train_sft: int = locked(600)
    """Tasks with gold answers for SFT."""

    train_rl: int = locked(800)
    """Other tasks, for RL."""

    heldout: int = locked(420)
    """Held-out tasks."""

    heldout_documents: float | None = locked(None)
    """Share of the documents that is held out."""

    validation: int = locked(0)
    """Tasks of further documents, in `tasks/validation.jsonl`, to choose settings on; they take
    documents from training."""

    max_chars: int | None = locked(None)
    """Longest input."""

    directions: tuple[str, ...] | None = locked(None)
    """[min], [max] or both: which side a filter refuses."""

    drop_share: float | None = locked(None)
    """Of those, the share whose gold is DROP."""

    filter_place: Literal["any", "first", "last"] | None = locked(None)
    """Where among the steps the filter stands."""

    mappers: tuple[float, ...] | None = locked(None)
    """How often a recipe has 1, 2, 3… rewriting steps."""

    steady: bool | None = locked(None)
    """A filter's place changes only the text, never the status."""

    states: bool | None = locked(None)
    """Answers write the state after every step before the result; they are longer then, so raise
    `rl.max_new_tokens` and the lengths too."""

    def __post_init__(self) -> None:
        at_least(self, 1, "train_sft", "train_rl", "heldout")
        at_least(self, 0, "validation")
        for name in ("heldout_documents", "drop_share"):
            if getattr(self, name) is not None:
                share(self, name)

    def changes(self) -> dict[str, Any]:
        """What is set, for `data_gen.demo.settings.preset(difficulty, **changes)`."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        del own["corpus"], own["difficulty"]
        return {name: value for name, value in own.items() if value is not None}


@dataclass(frozen=True)
class DemoConfig:
    """The whole demo: tasks, SFT, Dr.GRPO, evaluation, report."""

    seed: int = locked(0)
    """Of the tasks, the order of examples, and sampling."""

    out: str = "runs/demo"
    """The run's folder; the same command with the same folder resumes."""

    model: ModelConfig = field(default_factory=ModelConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    tasks: TasksConfig = field(default_factory=TasksConfig)
    reward: dict[str, Any] = field(default_factory=dict[str, Any], metadata=OPEN)
    """reward.<family>.<setting>: the fields of the family's weights."""

    sft: SftConfig = field(default_factory=SftConfig)
    rl: GrpoConfig = field(default_factory=GrpoConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    log: LogConfig = field(default_factory=LogConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        at_least(self, 0, "seed")
        if self.eval.tasks > self.tasks.heldout:
            raise ValueError(
                f"eval.tasks={self.eval.tasks} is more than tasks.heldout={self.tasks.heldout}; "
                "raise the latter"
            )


# the settings that `assay demo --minutes N` decides
DEMO_SIZES = ("tasks.train_sft", "tasks.heldout", "rl.steps", "eval.tasks")


@dataclass(frozen=True)
class TrainingRun:
    """What `assay sft` and `assay grpo` have in common."""

    seed: int = locked(0)
    """Of the order of rows, and of sampling."""

    out: str = "runs/sft"
    """The run's folder; the same command with the same folder resumes."""

    data: str = locked("")
    """What to learn from. SFT: JSONL or parquet, whose rows are tasks (their gold text is the
    target), chats with `messages` or `conversations` (assistant turns are), or have `ids` and
    `loss_mask`, as `assay select` writes (docs/training.md). Dr.GRPO: tasks, as `assay tasks`
    writes."""

    validation: str | None = locked("auto")
    """Tasks (JSONL) to evaluate on while training; null: none. auto: the first 32 of
    `validation.jsonl` beside the data, where that is there. Settings are `eval.*`."""

    tracks: tuple[str, ...] = locked(())
    """Only rows of `data` of these tracks, names or patterns, as --track; (): all."""

    licences: tuple[str, ...] = locked(())
    """Only rows of `data` made from data of these licences alone, as --licence; (): all."""

    families: tuple[str, ...] = locked(())
    """Families of your own, FILE.py[:NAME] or pkg.module:NAME, as --family."""

    prompts: str = locked("")
    """The words that tasks are asked in: a YAML file, a folder of them, or release:DIR for those of
    a release's checkout (docs/extend.md); empty: Assay's."""

    model: ModelConfig = field(default_factory=ModelConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    eval: ValidationConfig = field(default_factory=ValidationConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    log: LogConfig = field(default_factory=LogConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        at_least(self, 0, "seed")


@dataclass(frozen=True)
class SftRunConfig(TrainingRun):
    """`assay sft`: a model, and texts to imitate."""

    tools: CallsConfig = field(default_factory=CallsConfig)
    sft: SftConfig = field(default_factory=SftConfig)


@dataclass(frozen=True)
class GrpoRunConfig(TrainingRun):
    """`assay grpo`: a model, and tasks to train on."""

    out: str = "runs/grpo"
    """The run's folder; the same command with the same folder resumes."""

    env: str | None = locked(None)
    """An environment of your own for tasks with tools, FILE.py:NAME, as --env."""

    reward: dict[str, Any] = field(default_factory=dict[str, Any], metadata=OPEN)
    """reward.<family>.<setting>: the fields of the family's weights."""

    tools: ToolsConfig = field(default_factory=ToolsConfig)
    rl: GrpoConfig = field(default_factory=GrpoConfig)
