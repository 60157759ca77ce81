"""vLLM servers of a run on the smoke device: processes of their own environment, over HTTP.

The driver starts and ends them; verl's actors get their addresses. Imports nothing of verl.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from configs.loader import ConfigError
from configs.schema import GrpoRunConfig
from rollouts.engines.server.process import Launch, servers

ADDRESSES = "ASSAY_ROLLOUT_SERVERS"  # one of each replica, with commas
WEIGHTS = "ASSAY_ROLLOUT_WEIGHTS"  # a folder: the weights that the servers read after an update
NAME = "policy"
HEADS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)  # of vLLM 0.32's CPU attention


def launch_of(config: GrpoRunConfig) -> Launch:
    """How a server is started: float32 like the trainer, and open to calls that change weights."""
    python = Path(config.cluster.server_python)
    if not os.access(python, os.X_OK):
        raise ConfigError(f"cluster.server_python={python}: no such program")
    _refuse_heads(Path(str(config.model.path)))
    environ = {
        "VLLM_SERVER_DEV_MODE": "1",  # opens /pause, /resume, /collective_rpc
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1"),
        "VLLM_NO_USAGE_STATS": "1",
        "KMP_BLOCKTIME": "1",  # else its threads spin while they wait
    }
    threads = python.parent.parent / "lib" / "libiomp5.so"  # vLLM's CPU build asks for it
    if threads.is_file():
        environ["LD_PRELOAD"] = str(threads)
    length = str(config.rl.max_length)
    more = ("--dtype", "float32", "--enforce-eager", "--max-model-len", length)
    return Launch("vllm", str(config.model.path), NAME, str(python), more, environ=environ)


def _refuse_heads(folder: Path) -> None:
    """Raises `ConfigError` for heads that would end the server at its first request."""
    try:
        about = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        width = about.get("head_dim") or about["hidden_size"] // about["num_attention_heads"]
    except (OSError, ValueError, LookupError):
        return  # said elsewhere, or a model of another shape
    if width not in HEADS:
        raise ConfigError(
            f"{folder}: attention heads of width {width}; vLLM on a CPU has "
            f"{', '.join(map(str, HEADS))}; take another model, or cluster.rollout=embedded"
        )


@contextmanager
def rollout_servers(config: GrpoRunConfig, folder: Path) -> Generator[dict[str, str]]:
    """Variables that verl's actors find the servers by; empty where the embedded engine draws."""
    if config.cluster.rollout != "vllm":
        yield {}
        return
    weights = folder / "weights"
    each = [""] * config.cluster.devices
    with servers(launch_of(config), each, folder / "servers") as addresses:
        try:
            yield {ADDRESSES: ",".join(addresses), WEIGHTS: str(weights)}
        finally:
            shutil.rmtree(weights, ignore_errors=True)
