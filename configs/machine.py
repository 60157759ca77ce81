"""Sections that every run has: the model, the engine, logging, checkpoints, evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from configs.fields import OPEN, at_least, locked


@dataclass(frozen=True)
class ModelConfig:
    """The model a run starts from, and whether all of it is trained."""

    path: str | None = locked(None)
    """A Hugging Face folder or a hub name; null finds SmolLM2-135M-Instruct."""

    lora_rank: int = locked(0)
    """Train low-rank adapters of this rank; 0 trains all weights."""

    lora_alpha: int = locked(32)
    """Adapters count with the factor lora_alpha / lora_rank."""

    chat_template_kwargs: dict[str, Any] = field(default_factory=dict[str, Any], metadata=OPEN)
    """Arguments of the chat template: {enable_thinking: false} for Qwen3."""

    def __post_init__(self) -> None:
        at_least(self, 0, "lora_rank")
        at_least(self, 1, "lora_alpha")


@dataclass(frozen=True)
class EngineConfig:
    """How the embedded engine uses this machine; only `dtype` and `rounding` change what is
    computed."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: CUDA where there is a GPU, else the CPU."""

    dtype: Literal["auto", "bfloat16", "float32"] = locked("auto")
    """Format of the working weights. auto: bfloat16 on a GPU and on a CPU with instructions for it,
    else float32; a run that is resumed keeps the one it began with."""

    rounding: Literal["nearest", "spread"] = locked("spread")
    """How training copies float32 weights down to bfloat16. spread: by a threshold for each place,
    so that updates smaller than the spacing count from the first step on (docs/training.md)."""

    threads: int = 0
    """Threads of one operation; 0: one per core."""

    slots: int = 64
    """Answers decoded side by side (max_num_seqs elsewhere)."""

    micro_tokens: int = 4096
    """Tokens in one forward and backward pass. Less needs less memory; the result is the same, up
    to the order of sums. A group of rollouts that is longer is cut, and its prompt repeated."""

    gradient_checkpointing: bool = False
    """Keep the activations of one layer at a time and compute the others again for the gradients:
    less memory for about a third more time, and the same gradients."""

    def __post_init__(self) -> None:
        at_least(self, 0, "threads")
        at_least(self, 1, "slots", "micro_tokens")


@dataclass(frozen=True)
class CallsConfig:
    """How the model spells tool calls (rollouts/tool_calls.py)."""

    calls: Literal["hermes", "hermes_brief", "qwen_xml"] = locked("hermes")
    """How the model writes a tool call and is told of tools, where its chat template says
    neither."""


@dataclass(frozen=True)
class ToolsConfig:
    """The code tool of episodes, and how the model spells calls (rollouts/tool_calls.py)."""

    calls: Literal["hermes", "hermes_brief", "qwen_xml"] = locked("hermes")
    """How the model writes a tool call."""

    run_s: float = locked(200.0)
    """Seconds that one run of the tool may take."""

    file_mb: int = locked(200)
    """Largest file that the tool may write."""

    output_kb: int = locked(64)
    """How much of stdout, and of stderr, the model sees."""

    brief: bool = locked(False)
    """A short description of the tool, for small models."""

    snippet_tokens: int = locked(8000)
    """Tokens of a data lake's description in the first message; 0: all of it."""

    snippet_rows: int = locked(5)
    """Sample rows of each group of files in that description."""

    tries: int = locked(5)
    """Pipelines that the agent `ds_guru_few_shot` may run before it has failed."""

    workers: int = 0
    """Tool runs side by side; 0: one per core."""

    def __post_init__(self) -> None:
        at_least(self, 0.1, "run_s")
        at_least(self, 1, "file_mb", "output_kb")
        if self.snippet_tokens:
            at_least(self, 50, "snippet_tokens")
        at_least(self, 0, "workers", "snippet_rows", "snippet_tokens")
        at_least(self, 1, "tries")


@dataclass(frozen=True)
class EvalConfig:
    """Greedy evaluation of the demo on its held-out tasks, with bootstrap intervals."""

    tasks: int = locked(400)
    """Held-out tasks to answer."""

    untouched: int = locked(120)
    """How many of them the untouched model answers, from the first on. It gets hardly any right, so
    a part says as much. 0: all."""

    max_new_tokens: int = locked(96)
    """Longest answer, in tokens."""

    every: int = 0
    """RL steps between evaluations; 0: only at the end."""

    pass_k: int = 0
    """Also report pass@k from k samples at temperature 1; 0: no."""

    seed: int = 0
    """Of the bootstrap and of pass@k."""

    bootstrap: int = 2000
    """Resamples."""

    def __post_init__(self) -> None:
        at_least(self, 1, "tasks", "max_new_tokens")
        at_least(self, 0, "untouched", "every", "pass_k", "seed")
        at_least(self, 100, "bootstrap")


@dataclass(frozen=True)
class ValidationConfig:
    """Greedy evaluation on `validation` while a run trains; the best model is kept as `best/`."""

    every: int = locked(10)
    """Steps between evaluations; there is one more after the last step."""

    tasks: int = locked(0)
    """The first so many tasks of the file; 0: all."""

    max_new_tokens: int = locked(0)
    """Longest answer, in tokens. 0: rl.max_new_tokens; in SFT the longest answer learned from."""

    def __post_init__(self) -> None:
        at_least(self, 1, "every")
        at_least(self, 0, "tasks", "max_new_tokens")


@dataclass(frozen=True)
class LogConfig:
    """Metrics always go to metrics.jsonl; to Weights & Biases and TensorBoard when asked for."""

    wandb: Literal["off", "offline", "online"] = "off"
    """offline needs no account."""

    project: str = "assay"
    """Weights & Biases project."""

    tables: int = 10
    """RL steps between tables of rollouts at Weights & Biases; the last has one too. 0: none."""

    tensorboard: bool = False
    """Write event files to OUT/tensorboard, with the names that Weights & Biases gets."""

    rollouts: bool = True
    """Write every step's rollouts."""

    def __post_init__(self) -> None:
        at_least(self, 0, "tables")


@dataclass(frozen=True)
class CheckpointConfig:
    """Checkpoints from which an interrupted run goes on."""

    keep: int = 2
    """Newest checkpoints kept."""

    def __post_init__(self) -> None:
        at_least(self, 1, "keep")
