"""Every setting of the demo, section by section. `configs/demo.yaml` explains each in place.

`locked` marks what a resumed run must not change, because it decides the numbers. The number of
threads and where results go are free to change.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from configs.cluster import ClusterConfig
from configs.loader import OPEN, locked


def _at_least(section: Any, least: float, *names: str) -> None:
    for name in names:
        value = getattr(section, name)
        if value < least:
            raise ValueError(f"{name}={value} is too small; set {least:g} or more")


def _share(section: Any, *names: str) -> None:
    for name in names:
        value = getattr(section, name)
        if not 0 <= value <= 1:
            raise ValueError(f"{name}={value} is not a share; set a number from 0 to 1")


@dataclass(frozen=True)
class ModelConfig:
    """`path`: a Hugging Face folder or a hub name; null finds SmolLM2-135M-Instruct."""

    path: str | None = locked(None)
    lora_rank: int = locked(0)  # 0: all weights are trained
    lora_alpha: int = locked(32)
    # arguments of the chat template: {enable_thinking: false} for Qwen3
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict[str, Any], metadata=OPEN)

    def __post_init__(self) -> None:
        _at_least(self, 0, "lora_rank")
        _at_least(self, 1, "lora_alpha")


@dataclass(frozen=True)
class EngineConfig:
    """How the embedded engine uses this machine; none of it changes what is being computed."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    # auto: bfloat16 on a GPU and on a CPU that is fast with it, else float32; a run that is resumed
    # keeps the one it began with
    dtype: Literal["auto", "bfloat16", "float32"] = locked("auto")
    threads: int = 0  # 0: all cores
    slots: int = 64  # answers decoded side by side
    micro_tokens: int = 4096  # tokens in one forward and backward; less needs less memory

    def __post_init__(self) -> None:
        _at_least(self, 0, "threads")
        _at_least(self, 1, "slots", "micro_tokens")


@dataclass(frozen=True)
class TasksConfig:
    """Which refinement tasks are built; held-out tasks come from other documents.

    `difficulty` names a preset of `data_gen.demo.settings`; null leaves a setting to it.
    """

    corpus: str | None = locked(None)  # JSONL of documents; null: the one that ships with Assay
    difficulty: Literal["easy", "medium", "hard"] = locked("medium")
    train_sft: int = locked(600)
    train_rl: int = locked(800)
    heldout: int = locked(420)
    heldout_documents: float | None = locked(None)
    min_chars: int | None = locked(None)
    max_chars: int | None = locked(None)
    operators: tuple[str, ...] | None = locked(None)
    filters: tuple[str, ...] | None = locked(None)
    directions: tuple[str, ...] | None = locked(None)
    polarities: tuple[str, ...] | None = locked(None)
    filter_share: float | None = locked(None)
    drop_share: float | None = locked(None)
    filter_place: Literal["any", "first", "last"] | None = locked(None)
    mappers: tuple[float, ...] | None = locked(None)
    sft_mappers: tuple[float, ...] | None = locked(None)
    forms: int | None = locked(None)
    low_margin: float | None = locked(None)
    high_margin: float | None = locked(None)
    steady: bool | None = locked(None)
    distractors: float | None = locked(None)
    wrapped: float | None = locked(None)

    def __post_init__(self) -> None:
        _at_least(self, 1, "train_sft", "train_rl", "heldout")
        shares = ("heldout_documents", "filter_share", "drop_share", "distractors", "wrapped")
        _share(self, *(name for name in shares if getattr(self, name) is not None))

    def changes(self) -> dict[str, Any]:
        """What is set, for `data_gen.demo.settings.preset(difficulty, **changes)`."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        del own["corpus"], own["difficulty"]
        return {name: value for name, value in own.items() if value is not None}


@dataclass(frozen=True)
class SftConfig:
    """Supervised fine-tuning on gold answers; AdamW, linear warm-up, then a cosine to 0."""

    epochs: int = locked(1)
    batch_size: int = locked(8)
    lr: float = locked(1.5e-4)
    warmup: int = locked(5)
    betas: tuple[float, float] = locked((0.9, 0.98))
    weight_decay: float = locked(0.0)
    grad_clip: float = locked(1.0)
    max_length: int = locked(512)

    def __post_init__(self) -> None:
        _at_least(self, 0, "warmup", "weight_decay", "lr")
        _at_least(self, 1, "epochs", "batch_size", "max_length")
        _check_optimiser(self.betas, self.grad_clip)


def _check_optimiser(betas: tuple[float, float], grad_clip: float) -> None:
    for i, beta in enumerate(betas):
        if not 0 <= beta < 1:
            raise ValueError(f"betas[{i}]={beta}: wanted 0 or more and below 1")
    if grad_clip <= 0:
        raise ValueError(f"grad_clip={grad_clip}: wanted a number above 0")


@dataclass(frozen=True)
class GrpoConfig:
    """Dr.GRPO. A preset sets the fields it names; what stands beside it in the same place wins.

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
    steps: int = 20
    prompts_per_step: int = locked(16)
    rollouts_per_prompt: int = locked(8)
    mini_batch: int = locked(16)  # prompts in one optimiser step
    balance: Literal["none", "status", "track", "group"] = locked("none")
    lr: float = locked(3e-5)
    schedule: Literal["constant", "linear", "cosine"] = locked("constant")
    warmup: int = locked(0)
    betas: tuple[float, float] = locked((0.9, 0.98))
    weight_decay: float = locked(0.0)
    grad_clip: float = locked(1.0)
    clip_low: float = locked(0.2)
    clip_high: float = locked(0.2)
    kl_coef: float = locked(0.0)
    divide_by_std: bool = locked(False)
    normaliser: Literal["constant", "sequence_mean"] = locked("constant")
    sampling_correction: Literal["none", "token"] = locked("none")
    correction_cap: float = locked(2.0)
    temperature: float = locked(1.0)
    top_p: float = locked(1.0)
    top_k: int = locked(0)
    max_new_tokens: int = locked(96)
    max_length: int = locked(512)
    turns: int = locked(5)  # model messages of an episode with tools
    tool_seconds: float = locked(1000.0)  # that its tools may run, all together
    save_every: int = 5

    def __post_init__(self) -> None:
        if self.rollouts_per_prompt == 1:
            raise ValueError(
                "rollouts_per_prompt=1: a group of one has no advantage; set 2 or more"
            )
        _at_least(
            self,
            1,
            "prompts_per_step",
            "mini_batch",
            "max_new_tokens",
            "save_every",
            "turns",
            "tool_seconds",
        )
        _at_least(self, 2, "rollouts_per_prompt")
        _at_least(
            self,
            0,
            "steps",
            "lr",
            "warmup",
            "weight_decay",
            "kl_coef",
            "clip_low",
            "clip_high",
            "top_k",
        )
        _at_least(self, 1, "correction_cap")
        _share(self, "top_p")
        _check_optimiser(self.betas, self.grad_clip)
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
        if self.max_new_tokens >= self.max_length:
            raise ValueError(
                f"max_new_tokens={self.max_new_tokens} leaves no room for a prompt in "
                f"max_length={self.max_length}; set it lower"
            )


@dataclass(frozen=True)
class ToolsConfig:
    """The code tool of episodes, and how the model spells calls (rollouts/tools.py)."""

    calls: Literal["hermes", "hermes_brief", "qwen_xml"] = locked("hermes")
    run_s: float = locked(200.0)  # one run of the tool
    file_mb: int = locked(200)
    output_kb: int = locked(64)  # of stdout and of stderr that the model sees
    brief: bool = locked(False)  # a short description of the tool, for small models
    snippet_tokens: int = locked(8000)  # of a lake's description in the first message
    snippet_rows: int = locked(5)  # sample rows a group of files in it
    workers: int = 0  # runs side by side; 0: one a core

    def __post_init__(self) -> None:
        _at_least(self, 0.1, "run_s")
        _at_least(self, 1, "file_mb", "output_kb")
        _at_least(self, 50, "snippet_tokens")
        _at_least(self, 0, "workers", "snippet_rows")


@dataclass(frozen=True)
class EvalConfig:
    """Greedy evaluation on the held-out tasks, with bootstrap intervals."""

    tasks: int = locked(400)
    max_new_tokens: int = locked(96)
    every: int = 0  # RL steps between evaluations; 0: only at the end
    pass_k: int = 0  # 0: no pass@k
    seed: int = 0
    bootstrap: int = 2000

    def __post_init__(self) -> None:
        _at_least(self, 1, "tasks", "max_new_tokens")
        _at_least(self, 0, "every", "pass_k", "seed")
        _at_least(self, 100, "bootstrap")


@dataclass(frozen=True)
class LogConfig:
    """Metrics always go to metrics.jsonl; Weights & Biases when asked for."""

    wandb: Literal["off", "offline", "online"] = "off"
    project: str = "assay"
    rollouts: bool = True  # write every step's rollouts


@dataclass(frozen=True)
class CheckpointConfig:
    """Checkpoints from which an interrupted run goes on."""

    sft_every: int = 20
    keep: int = 2

    def __post_init__(self) -> None:
        _at_least(self, 1, "sft_every", "keep")


@dataclass(frozen=True)
class DemoConfig:
    """The whole demo: tasks, SFT, Dr.GRPO, evaluation, report."""

    seed: int = locked(0)
    out: str = "runs/demo"
    model: ModelConfig = field(default_factory=ModelConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    tasks: TasksConfig = field(default_factory=TasksConfig)
    reward: dict[str, Any] = field(default_factory=dict[str, Any], metadata=OPEN)
    # reward.<family>.<setting>
    sft: SftConfig = field(default_factory=SftConfig)
    rl: GrpoConfig = field(default_factory=GrpoConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    log: LogConfig = field(default_factory=LogConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        _at_least(self, 0, "seed")
        if self.eval.tasks > self.tasks.heldout:
            raise ValueError(
                f"eval.tasks={self.eval.tasks} is more than tasks.heldout={self.tasks.heldout}; "
                "raise the latter"
            )


@dataclass(frozen=True)
class SftRunConfig:
    """`assay sft`: a model, and `data`, tasks (JSONL) whose gold answers are the targets."""

    seed: int = locked(0)
    out: str = "runs/sft"
    data: str = locked("")
    families: tuple[str, ...] = locked(())  # FILE.py[:NAME] or pkg.module:NAME, as --family
    model: ModelConfig = field(default_factory=ModelConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    log: LogConfig = field(default_factory=LogConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        _at_least(self, 0, "seed")


@dataclass(frozen=True)
class GrpoRunConfig:
    """`assay grpo`: a model, and `data`, a JSONL file of tasks to train on."""

    seed: int = locked(0)
    out: str = "runs/grpo"
    data: str = locked("")
    families: tuple[str, ...] = locked(())  # FILE.py[:NAME] or pkg.module:NAME, as --family
    model: ModelConfig = field(default_factory=ModelConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    reward: dict[str, Any] = field(default_factory=dict[str, Any], metadata=OPEN)
    # reward.<family>.<setting>
    tools: ToolsConfig = field(default_factory=ToolsConfig)
    rl: GrpoConfig = field(default_factory=GrpoConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    log: LogConfig = field(default_factory=LogConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        _at_least(self, 0, "seed")
