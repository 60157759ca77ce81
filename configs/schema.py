"""Every setting of the runs `assay demo`, `assay sft` and `assay grpo`, and reading them.

`locked` marks what a resumed run must not change, because it decides the numbers. The number of
threads and where results go are free to change. The meaning of a setting stands under its field;
sections about the machine and its model are in machine.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from assay.family import all_weights, use_families
from configs.loader import OPEN, ConfigError, Section, fitted, load, locked, read_section, within
from configs.machine import (
    CallsConfig,
    CheckpointConfig,
    ClusterConfig,
    EngineConfig,
    EvalConfig,
    LogConfig,
    ModelConfig,
    ToolsConfig,
    ValidationConfig,
)

# --- training


def check_optimiser(betas: tuple[float, float], grad_clip: float) -> None:
    for i, beta in enumerate(betas):
        if not 0 <= beta < 1:
            raise ValueError(f"betas[{i}]={beta}: wanted 0 or more and below 1")
    if grad_clip < 0:
        raise ValueError(f"grad_clip={grad_clip}: wanted a number above 0 (0: off)")


def check_warmup(warmup: float) -> None:
    if warmup < 0 or warmup != int(warmup) > 0:
        raise ValueError(f"warmup={warmup:g}: wanted whole steps, or a share of them below 1")


def warmup_steps(warmup: float, steps: int) -> int:
    """Steps of warm-up: the setting itself, or below 1 that share of all `steps`, rounded."""
    return round(warmup * steps) if warmup < 1 else int(warmup)


@dataclass(frozen=True)
class SftConfig(Section):
    """Supervised fine-tuning; AdamW, linear warm-up, then a cosine to 0."""

    epochs: int = locked(3, 1)
    """Times every example is seen. Steps follow: examples · epochs / batch_size, rounded up."""

    batch_size: int = locked(8, 1)
    """Examples in one optimiser step."""

    lr: float = locked(1.5e-4, 0)
    """Peak learning rate."""

    warmup: float = locked(0.1)
    """Steps of linear warm-up; below 1 a share of all steps."""

    betas: tuple[float, float] = locked((0.9, 0.98))
    """Of AdamW."""

    weight_decay: float = locked(0.0, 0)
    """Of AdamW; norms and biases have none."""

    grad_clip: float = locked(1.0)
    """Largest gradient norm; 0: no clipping."""

    save_every: int = within(20, 1)
    """Steps between checkpoints."""

    max_length: int = fitted()
    """Prompt and answer, in tokens; longer examples are left out. auto: the longest example, as far
    as the model's context and memory allow (`--dry-run` says what that is)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_warmup(self.warmup)
        check_optimiser(self.betas, self.grad_clip)


@dataclass(frozen=True)
class GrpoConfig(Section):
    """Dr.GRPO. A preset sets the fields it names; a field set in the same file or command line
    overrides the preset.

    `dr_grpo`: group-mean baseline, no division by the spread, a constant length normaliser, the
    full distribution. `dare`: no division either, but the mean over each answer's tokens, and
    DARE-bench's numbers (`max_length` is its 32,768 tokens for prompt and answer together).
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "dr_grpo": {
            "divide_by_std": False,
            "normaliser": "constant",
            "kl_coef": 0.0,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": 0,
            "clip_low": 0.2,
            "clip_high": 0.2,
        },
        "dare": {
            "divide_by_std": False,
            "normaliser": "sequence_mean",
            "kl_coef": 0.0,
            "lr": 1e-6,
            "prompts_per_step": 64,
            "rollouts_per_prompt": 8,
            "mini_batch": 64,
            "temperature": 1.0,
            "top_p": 0.95,
            "top_k": 50,
            "max_length": 32768,
            "clip_low": 0.2,
            "clip_high": 0.2,  # not given in the paper; the usual value
        },
    }

    preset: Literal["dr_grpo", "dare"] = locked("dr_grpo")
    """Which fields start from which values."""

    steps: int = within(20, 0)
    """Batches of rollouts. Under `schedule: constant` it may be raised later to go on from the last
    checkpoint; the other schedules end at it, so there a resumed run must keep it."""

    prompts_per_step: int = locked(16, 1)
    """Prompts in a batch of rollouts."""

    rollouts_per_prompt: int = locked(8, 2)
    """Answers per prompt. Their mean reward is the baseline, so at least 2."""

    mini_batch: int = locked(16, 1)
    """Prompts in one optimiser step; a divisor of prompts_per_step."""

    balance: Literal["none", "status", "track"] = locked("none")
    """Equally many tasks of each status or track in a step."""

    lr: float = locked(3e-5, 0)
    """Peak learning rate."""

    schedule: Literal["constant", "linear", "cosine"] = locked("constant")
    """After the warm-up: constant, or linear or cosine down to 0 at `steps`."""

    warmup: float = locked(0)
    """Steps of linear warm-up; below 1 a share of `steps`."""

    betas: tuple[float, float] = locked((0.9, 0.98))
    """Of AdamW."""

    weight_decay: float = locked(0.0, 0)
    """Of AdamW; norms and biases have none."""

    grad_clip: float = locked(1.0)
    """Largest gradient norm; 0: no clipping."""

    clip_low: float = locked(0.2, 0)
    """The ratio new/old probability is clipped to [1 - clip_low, 1 + clip_high]."""

    clip_high: float = locked(0.2, 0)
    """See clip_low."""

    kl_coef: float = locked(0.0, 0)
    """Weight of the KL term to the model the run started from; 0: none."""

    divide_by_std: bool = locked(False)
    """GRPO's division of the advantage by the group's spread."""

    normaliser: Literal["constant", "sequence_mean"] = locked("constant")
    """Token terms are divided by: constant: max_new_tokens; sequence_mean: the answer's length."""

    sampling_correction: Literal["none", "token"] = locked("none")
    """token: weight each token by full / truncated probability (top_k, top_p)."""

    correction_cap: float = locked(2.0, 1)
    """Largest such weight."""

    temperature: float = locked(1.0)
    """Of sampling and of the loss; above 0."""

    top_p: float = locked(1.0, 0, 1)
    """Share of probability that sampling keeps; 1: off."""

    top_k: int = locked(0, 0)
    """Most probable tokens that sampling keeps; 0: off."""

    max_new_tokens: int = fitted()
    """Longest message; an answer cut off here earns 0. auto: half as long again as the longest gold
    answer, at least 96; 512 without gold texts, 1024 for episodes with tools."""

    max_length: int = fitted()
    """Prompt and answer, in tokens; longer prompts are left out. auto: room for an answer behind
    the longest prompt (with tools for all turns), as far as the model's context and memory
    allow."""

    turns: int = locked(5, 1)
    """Model messages of an episode with tools."""

    tool_seconds: float = locked(1000.0, 1)
    """Seconds that an episode's tools may run, all together."""

    save_every: int = within(5, 1)
    """Steps between checkpoints."""

    dynamic_sampling: int = locked(0, 0)
    """Rounds a step may add: prompts whose rewards are all equal give way to further ones (DAPO).
    0: off."""

    overlong: Literal["keep", "mask", "soft"] = locked("keep")
    """Answers that a token limit cut off. keep: as scored; mask: no advantage; soft: the reward
    falls by up to 1 over the last `overlong_buffer` tokens. The outcome stays as it is (DAPO)."""

    overlong_buffer: int = fitted()
    """Tokens before the limit in which `overlong: soft` begins. auto: a fifth of the limit."""

    audit: Literal["refuse", "warn", "off"] = "refuse"
    """Before the first step a sample of the tasks is audited under the run's own reward settings.
    refuse: a fault ends the run in one sentence; warn: it is said and noted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_warmup(self.warmup)
        check_optimiser(self.betas, self.grad_clip)
        if self.top_p == 0:
            raise ValueError("top_p=0.0 keeps no token; set a share above 0 (1: off)")
        if self.temperature <= 0:
            raise ValueError(
                f"temperature={self.temperature}: greedy answers of one prompt are all the same, "
                "so no group has an advantage; set a number above 0"
            )
        if self.clip_low >= 1:
            raise ValueError(f"clip_low={self.clip_low}: the ratio never falls to 0; set below 1")
        if self.prompts_per_step % self.mini_batch:
            raise ValueError(
                f"mini_batch={self.mini_batch} does not divide "
                f"prompts_per_step={self.prompts_per_step}; set a divisor"
            )
        if self.max_length and self.max_new_tokens >= self.max_length:
            raise ValueError(
                f"max_new_tokens={self.max_new_tokens} leaves no room for a prompt in "
                f"max_length={self.max_length}; set it lower"
            )
        if self.max_new_tokens and self.overlong_buffer > self.max_new_tokens:
            raise ValueError(
                f"overlong_buffer={self.overlong_buffer} is longer than an answer may be "
                f"(max_new_tokens={self.max_new_tokens}); set it lower"
            )

    def also_locked(self) -> tuple[str, ...]:
        """A schedule that goes by `steps` would jump if a resumed run had another number."""
        constant = self.schedule == "constant" and not 0 < self.warmup < 1
        return () if constant else ("steps",)


@dataclass(frozen=True)
class TasksConfig(Section):
    """Which refinement tasks the demo builds; held-out tasks come from other documents. null leaves
    a setting to the preset that `difficulty` names; `assay tasks demo` has more of them."""

    corpus: str | None = locked(None)
    """JSONL of documents; null: the one that ships with Assay."""

    difficulty: Literal["easy", "medium", "hard"] = locked("medium")
    """Which preset fills in what is null below."""

    train_sft: int = locked(600, 1)
    """Tasks with gold answers for SFT."""

    train_rl: int = locked(800, 1)
    """Other tasks, for RL."""

    heldout: int = locked(420, 1)
    """Held-out tasks."""

    heldout_documents: float | None = locked(None, 0, 1)
    """Share of the documents that is held out."""

    validation: int = locked(0, 0)
    """Tasks of further documents, in `tasks/validation.jsonl`, to choose settings on; they take
    documents from training."""

    max_chars: int | None = locked(None)
    """Longest input."""

    directions: tuple[str, ...] | None = locked(None)
    """[min], [max] or both: which side a filter refuses."""

    drop_share: float | None = locked(None, 0, 1)
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

    def changes(self) -> dict[str, Any]:
        """What is set, for `data_gen.demo.settings.preset(difficulty, **changes)`."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        del own["corpus"], own["difficulty"]
        return {name: value for name, value in own.items() if value is not None}


@dataclass(frozen=True)
class DemoConfig(Section):
    """The whole demo: tasks, SFT, Dr.GRPO, evaluation, report."""

    seed: int = locked(0, 0)
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
        super().__post_init__()
        if self.eval.tasks > self.tasks.heldout:
            raise ValueError(
                f"eval.tasks={self.eval.tasks} is more than tasks.heldout={self.tasks.heldout}; "
                "raise the latter"
            )


# the settings that `assay demo --minutes N` decides
DEMO_SIZES = ("tasks.train_sft", "tasks.heldout", "rl.steps", "eval.tasks")


@dataclass(frozen=True)
class TrainingRun(Section):
    """What `assay sft` and `assay grpo` have in common."""

    seed: int = locked(0, 0)
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


# --- a run's settings, and the rewards of the families that it uses

Config = TypeVar("Config", DemoConfig, SftRunConfig, GrpoRunConfig)


def load_run(
    cls: type[Config],
    path: str | Path | None = None,
    overrides: Sequence[str] = (),
    families: Sequence[str] = (),
) -> Config:
    """A run's config with every reward setting resolved, its families loaded.

    `families` come on top of those the settings name. Raises `ConfigError` for a setting that
    cannot be used and `TaskError` for a family that cannot be loaded.
    """
    config = load(cls, path, overrides)
    if isinstance(config, SftRunConfig | GrpoRunConfig):
        loaded = use_families([*config.families, *families])
        config = replace(config, families=tuple(dict.fromkeys(f.origin for f in loaded)))
    if isinstance(config, SftRunConfig):
        return config
    where = " + ".join([*([str(path)] if path else []), "settings"])
    resolved = {name: asdict(w) for name, w in weights_of(config.reward, where).items()}
    return replace(config, reward=resolved)


def weights_of(reward: Mapping[str, Any], where: str = "settings") -> dict[str, Any]:
    """Family name → its weights, for every family known. Raises `ConfigError`."""
    known = all_weights()
    for name in reward:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean reward.{near[0]}?" if near else f"it has {', '.join(known)}"
            raise ConfigError(f"{where}: reward.{name}: no such family; {hint}")
        if not isinstance(reward[name], Mapping):
            raise ConfigError(f"{where}: reward.{name} is a value, not a section; set a key in it")
    return {
        name: read_section(kind, reward.get(name) or {}, where, f"reward.{name}.")
        for name, kind in known.items()
    }
