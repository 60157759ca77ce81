"""Where a run on several devices runs, and how it is cut over them. None of it is `locked`: the
numbers depend on it only as rounding does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from configs.loader import OPEN


@dataclass(frozen=True)
class ClusterConfig:
    """Devices of a run with `--backend verl` or `deepspeed`; the embedded loops ignore it.

    `device: cpu` is the smoke device: everything but the GPU's own parts runs, on a tiny model.
    """

    device: Literal["cuda", "cpu"] = "cuda"
    """cpu: the smoke device."""

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
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} is too small; set 1 or more")
        for name in ("micro_batch", "val_every"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} is too small; set 0 or more")
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

    @property
    def devices(self) -> int:
        return self.nodes * self.gpus_per_node
