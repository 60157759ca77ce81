"""Where a run on several devices runs, and how it is cut over them. None of it is `locked`: the
numbers depend on it only as rounding does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from configs.loader import OPEN


@dataclass(frozen=True)
class ClusterConfig:
    """Devices of a run with `--backend verl` or `deepspeed`; the embedded loops ignore it."""

    device: Literal["cuda", "cpu"] = "cuda"
    """cpu: for tests in a checkout, on a tiny model; all but the GPU's own parts runs."""

    nodes: int = 1
    """Machines."""

    gpus_per_node: int = 8
    """GPUs per machine."""

    gpu_memory_gb: float = 80.0
    """Of one GPU."""

    host_memory_gb: float = 0.0
    """Of one node; 0: not known, so never a reason to refuse."""

    tensor_parallel: int = 1
    """GPUs that one rollout server spreads over."""

    sequence_parallel: int = 1
    """GPUs that share one long sequence in training."""

    offload: bool = False
    """Parameters and optimiser to host memory between uses."""

    server_memory: float = 0.55
    """Share of a GPU that a rollout server may take."""

    attention: Literal["flash_attention_2", "sdpa"] = "flash_attention_2"
    """verl's. sdpa needs no flash-attn package, and cannot share a sequence out. DeepSpeed always
    takes torch's own (sdpa)."""

    micro_tokens: int = 32768
    """Tokens of one forward and backward, on each GPU of a sequence."""

    micro_batch: int = 0
    """Rollouts of one forward instead; 0: by tokens."""

    zero_stage: int = 3
    """DeepSpeed: what is cut over the devices."""

    val_data: str = ""
    """Held-out tasks for validation; empty: none."""

    val_every: int = 0
    """Steps between validations; 0: at the end only."""

    sandbox_workers: int = 8
    """Jails in each rollout worker."""

    rollout_workers: int = 8
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

    rollout_nodes: int = 1
    """separate_async: machines with GPUs for rollouts alone."""

    rollout_gpus_per_node: int = 0
    """separate_async: GPUs for rollouts alone, on each of them."""

    verl: dict[str, Any] = field(default_factory=dict[str, Any], metadata=OPEN)
    """verl's own keys, as they stand there:
    cluster.verl.actor_rollout_ref.rollout.nccl_timeout=1200."""

    def __post_init__(self) -> None:
        for name in (
            "nodes",
            "gpus_per_node",
            "tensor_parallel",
            "sequence_parallel",
            "micro_tokens",
            "sandbox_workers",
            "rollout_workers",
            "rollout_nodes",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} is too small; set 1 or more")
        for name in ("micro_batch", "val_every"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} is too small; set 0 or more")
        self._check_rollouts()
        if not 0 < self.server_memory < 1:
            raise ValueError(f"server_memory={self.server_memory}: set a share between 0 and 1")
        if self.host_memory_gb < 0:
            raise ValueError(f"host_memory_gb={self.host_memory_gb}: set a node's memory in GB")
        if self.gpu_memory_gb <= 0:
            raise ValueError(f"gpu_memory_gb={self.gpu_memory_gb}: set the GPU's memory in GB")
        if self.zero_stage not in (2, 3):
            raise ValueError(f"zero_stage={self.zero_stage}: set 2 or 3")
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

    def _check_rollouts(self) -> None:
        """Who draws tokens, and when."""
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
