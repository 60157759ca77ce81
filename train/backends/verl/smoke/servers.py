# safetensors ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
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
MODEL = "ASSAY_ROLLOUT_MODEL"  # the folder that the servers were started from
HEAD, EMBED = "lm_head.weight", "model.embed_tokens.weight"
NAME = "policy"
HEADS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)  # of vLLM 0.32's CPU attention


def launch_of(config: GrpoRunConfig, model: Path) -> Launch:
    """How a server is started: float32 like the trainer, and open to calls that change weights."""
    python = Path(config.cluster.server_python)
    if not os.access(python, os.X_OK):
        raise ConfigError(f"cluster.server_python={python}: no such program")
    _refuse_heads(model)
    environ = {
        "VLLM_SERVER_DEV_MODE": "1",  # opens /pause, /resume, /collective_rpc
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1"),
        "VLLM_NO_USAGE_STATS": "1",
    }
    length = str(config.rl.max_length)
    more = ("--dtype", "float32", "--enforce-eager", "--max-model-len", length)
    return Launch("vllm", str(model), NAME, str(python), more, environ=environ)


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


def names_of(folder: Path) -> set[str]:
    """Names of all weights in a model folder."""
    from safetensors import safe_open

    found: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as weights:
            found |= set(weights.keys())
    return found


def untied(source: Path, folder: Path) -> Path:
    """The model with an output layer of its own; `source` itself where it has one.

    vLLM's CPU build keeps a packed copy of the output layer. Where that layer is tied to the
    embedding, `reload_weights` renews the embedding and not the copy.
    """
    if HEAD in names_of(source):
        return source
    from rollouts.engines.torch.llama import read_state
    from train.model.policy import save_folder

    state = read_state(source)
    save_folder(source, folder, state | {HEAD: state[EMBED].clone()})
    file = folder / "config.json"
    about = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(about | {"tie_word_embeddings": False}, indent=2), encoding="utf-8")
    return folder


@contextmanager
def rollout_servers(config: GrpoRunConfig, folder: Path) -> Generator[dict[str, str]]:
    """Variables that verl's actors find the servers by; empty where the embedded engine draws."""
    if config.cluster.rollout != "vllm":
        yield {}
        return
    weights, copy = folder / "weights", folder / "served"
    each = [""] * config.cluster.devices
    try:
        model = untied(Path(str(config.model.path)), copy)
        with servers(launch_of(config, model), each, folder / "servers") as addresses:
            yield {ADDRESSES: ",".join(addresses), WEIGHTS: str(weights), MODEL: str(model)}
    finally:
        for made in (weights, copy):
            shutil.rmtree(made, ignore_errors=True)
