"""Sections that every run has: the model, the engine, logging, checkpoints, evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from configs.loader import OPEN, Section, locked, within


@dataclass(frozen=True)
class ModelConfig(Section):
    """The model a run starts from, and whether all of it is trained."""

    path: str | None = locked(None)
    """A Hugging Face folder or a hub name; null finds SmolLM2-135M-Instruct."""

    lora_rank: int = locked(0, 0)
    """Train low-rank adapters of this rank; 0 trains all weights."""

    lora_alpha: int = locked(32, 1)
    """Adapters count with the factor lora_alpha / lora_rank."""

    chat_template_kwargs: dict[str, Any] = field(default_factory=dict[str, Any], metadata=OPEN)
    """Arguments of the chat template: {enable_thinking: false} for Qwen3."""


@dataclass(frozen=True)
class EngineConfig(Section):
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

    threads: int = within(0, 0)
    """Threads of one operation; 0: one per core."""

    slots: int = within(64, 1)
    """Answers decoded side by side (max_num_seqs elsewhere)."""

    micro_tokens: int = within(4096, 1)
    """Tokens in one forward and backward pass. Less needs less memory; the result is the same, up
    to the order of sums. A group of rollouts that is longer is cut, and its prompt repeated."""

    gradient_checkpointing: bool = False
    """Keep the activations of one layer at a time and compute the others again for the gradients:
    less memory for about a third more time, and the same gradients."""


def check_snippet(tokens: int | None) -> None:
    if tokens and tokens < 50:
        raise ValueError(f"snippet_tokens={tokens} is too small; set 50 or more")


@dataclass(frozen=True)
class CallsConfig:
    """How the model spells tool calls (rollouts/tool_calls.py)."""

    calls: Literal["hermes", "hermes_brief", "qwen_xml"] = locked("hermes")
    """How the model writes a tool call and is told of tools, where its chat template says
    neither."""


@dataclass(frozen=True)
class ToolsConfig(Section):
    """The code tool of episodes, and how the model spells calls (rollouts/tool_calls.py)."""

    calls: Literal["hermes", "hermes_brief", "qwen_xml"] = locked("hermes")
    """How the model writes a tool call."""

    run_s: float = locked(200.0, 0.1)
    """Seconds that one run of the tool may take."""

    file_mb: int = locked(200, 1)
    """Largest file that the tool may write."""

    output_kb: int = locked(64, 1)
    """How much of stdout, and of stderr, the model sees."""

    brief: bool = locked(False)
    """A short description of the tool, for small models."""

    snippet_tokens: int = locked(8000, 0)
    """Tokens of a data lake's description in the first message; 0: all of it."""

    snippet_rows: int = locked(5, 0)
    """Sample rows of each group of files in that description."""

    tries: int = locked(5, 1)
    """Pipelines that the agent `ds_guru_few_shot` may run before it has failed."""

    workers: int = within(0, 0)
    """Tool runs side by side; 0: one per core."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_snippet(self.snippet_tokens)


@dataclass(frozen=True)
class EvalConfig(Section):
    """Greedy evaluation of the demo on its held-out tasks, with bootstrap intervals."""

    tasks: int = locked(400, 1)
    """Held-out tasks to answer."""

    untouched: int = locked(120, 0)
    """How many of them the untouched model answers, from the first on. It gets hardly any right, so
    a part says as much. 0: all."""

    max_new_tokens: int = locked(96, 1)
    """Longest answer, in tokens."""

    every: int = within(0, 0)
    """RL steps between evaluations; 0: only at the end."""

    pass_k: int = within(0, 0)
    """Also report pass@k from k samples at temperature 1; 0: no."""

    seed: int = within(0, 0)
    """Of the bootstrap and of pass@k."""

    bootstrap: int = within(2000, 100)
    """Resamples."""


@dataclass(frozen=True)
class ValidationConfig(Section):
    """Greedy evaluation on `validation` while a run trains; the best model is kept as `best/`."""

    every: int = locked(10, 1)
    """Steps between evaluations; there is one more after the last step."""

    tasks: int = locked(0, 0)
    """The first so many tasks of the file; 0: all."""

    max_new_tokens: int = locked(0, 0)
    """Longest answer, in tokens. 0: rl.max_new_tokens; in SFT the longest answer learned from."""


@dataclass(frozen=True)
class LogConfig(Section):
    """Metrics always go to metrics.jsonl; to Weights & Biases and TensorBoard when asked for."""

    wandb: Literal["off", "offline", "online"] = "off"
    """offline needs no account."""

    project: str = "assay"
    """Weights & Biases project."""

    tables: int = within(10, 0)
    """RL steps between tables of rollouts at Weights & Biases; the last has one too. 0: none."""

    tensorboard: bool = False
    """Write event files to OUT/tensorboard, with the names that Weights & Biases gets."""

    rollouts: bool = True
    """Write every step's rollouts."""


@dataclass(frozen=True)
class CheckpointConfig(Section):
    """Checkpoints from which an interrupted run goes on."""

    keep: int = within(2, 1)
    """Newest checkpoints kept."""


@dataclass(frozen=True)
class ClusterConfig(Section):
    """Devices of a run with `--backend verl` or `deepspeed`; the embedded loops ignore it. None of
    it is locked: the numbers depend on it only as rounding does."""

    device: Literal["cuda", "cpu"] = "cuda"
    """cpu: for tests in a checkout, on a tiny model; all but the GPU's own parts runs."""

    nodes: int = within(1, 1)
    """Machines."""

    gpus_per_node: int = within(8, 1)
    """GPUs per machine."""

    gpu_memory_gb: float = 80.0
    """Of one GPU."""

    host_memory_gb: float = within(0.0, 0)
    """Of one node; 0: not known, so never a reason to refuse."""

    tensor_parallel: int = within(1, 1)
    """GPUs that one rollout server spreads over."""

    sequence_parallel: int = within(1, 1)
    """GPUs that share one long sequence in training."""

    offload: bool = False
    """Parameters and optimiser to host memory between uses."""

    server_memory: float = 0.55
    """Share of a GPU that a rollout server may take."""

    attention: Literal["flash_attention_2", "sdpa"] = "flash_attention_2"
    """verl's. sdpa needs no flash-attn package, and cannot share a sequence out. DeepSpeed always
    takes torch's own (sdpa)."""

    micro_tokens: int = within(32768, 1)
    """Tokens of one forward and backward, on each GPU of a sequence."""

    micro_batch: int = within(0, 0)
    """Rollouts of one forward instead; 0: by tokens."""

    zero_stage: int = within(3, 2, 3)
    """DeepSpeed: what is cut over the devices."""

    sandbox_workers: int = within(8, 1)
    """Jails in each rollout worker."""

    rollout_workers: int = within(8, 1)
    """Processes that run episodes."""

    ray_address: str = ""
    """host:port of a running cluster; empty: start one on this machine."""

    rollout: Literal["sglang", "vllm"] = "sglang"
    """The servers that verl draws rollouts with. vLLM's wheels take an older C library (RHEL 8)."""

    trainer: Literal["sync", "colocate_async", "separate_async"] = "sync"
    """verl's trainer. Under the other two some rollouts come from older weights: colocate_async
    begins the next step's rollouts before a step is trained, separate_async draws them on GPUs of
    their own."""

    async_correction: bool = True
    """Asynchronous trainers: weight each token by min(π_old / q, rl.correction_cap)."""

    rollout_nodes: int = within(1, 1)
    """separate_async: machines with GPUs for rollouts alone."""

    rollout_gpus_per_node: int = 0
    """separate_async: GPUs for rollouts alone, on each of them."""

    verl: dict[str, Any] = field(default_factory=dict[str, Any], metadata=OPEN)
    """verl's own keys, as they stand there:
    cluster.verl.actor_rollout_ref.nccl_timeout=1200."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.server_memory < 1:
            raise ValueError(f"server_memory={self.server_memory}: set a share between 0 and 1")
        if self.gpu_memory_gb <= 0:
            raise ValueError(f"gpu_memory_gb={self.gpu_memory_gb}: set the GPU's memory in GB")
        for name in ("tensor_parallel", "sequence_parallel"):
            if self.devices % getattr(self, name):
                raise ValueError(
                    f"{name}={getattr(self, name)} does not divide the {self.devices} devices"
                )
        if self.sequence_parallel > 1 and (self.attention == "sdpa" or self.device == "cpu"):
            raise ValueError(
                f"sequence_parallel={self.sequence_parallel}: verl shares a sequence out inside "
                "flash attention alone; elsewhere each GPU would attend to its own piece, and "
                "nothing would say so; set sequence_parallel=1, or attention=flash_attention_2"
            )
        if self.tensor_parallel > self.gpus_per_node:
            raise ValueError(
                f"tensor_parallel={self.tensor_parallel}: a server stays on one node of "
                f"{self.gpus_per_node} GPUs; set that or less"
            )
        alone = self.trainer == "separate_async"
        if alone and self.device == "cpu":
            raise ValueError(
                "trainer=separate_async: verl sends weights to GPUs of their own over NCCL, and "
                "device=cpu has none; set trainer=colocate_async or sync"
            )
        if alone and self.rollout_gpus_per_node < 1:
            raise ValueError(
                "trainer=separate_async: set rollout_gpus_per_node (and rollout_nodes) to the GPUs "
                "that draw rollouts and do not train"
            )
        if self.rollout_gpus_per_node and not alone:
            raise ValueError(
                f"rollout_gpus_per_node={self.rollout_gpus_per_node}: only trainer=separate_async "
                "has GPUs for rollouts alone; set 0"
            )
        if alone and self.rollout_gpus_per_node % self.tensor_parallel:
            raise ValueError(
                f"tensor_parallel={self.tensor_parallel} does not divide "
                f"rollout_gpus_per_node={self.rollout_gpus_per_node}"
            )

    @property
    def devices(self) -> int:
        """GPUs that train."""
        return self.nodes * self.gpus_per_node

    @property
    def rollout_devices(self) -> int:
        """GPUs that only draw rollouts."""
        alone = self.trainer == "separate_async"
        return self.rollout_nodes * self.rollout_gpus_per_node if alone else 0
