"""What an embedded run (one device) keeps in memory, for `--dry-run`. Arithmetic, without torch.

Bytes follow train.model.optim and train.model.policy: working weights and their gradients, float32
masters with gradients and two moments, the decoder's packed copy; activations of one micro-batch
without recomputation; the keys and values of all answers being decoded.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from configs.loader import ConfigError
from configs.schema import GrpoRunConfig, SftRunConfig
from train.model.shape import Shape, shape_of

GB = 1e9
DEFAULT = "HuggingFaceTB/SmolLM2-135M-Instruct"


def local_memory(config: SftRunConfig | GrpoRunConfig, shape: Shape) -> dict[str, float]:
    """Bytes by what they are for. `engine.micro_tokens` and `engine.slots` decide the last two.
    `engine.dtype=auto` counts as bfloat16: `train.run.setup.settled` says what it is here."""
    width = 4 if config.engine.dtype == "float32" else 2
    trained = shape.adapters(config.model.lora_rank) or shape.parameters
    heads = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    layer = 8 * shape.hidden + 3 * heads + 5 * shape.mlp
    saved = shape.layers * layer
    if config.engine.gradient_checkpointing:
        saved = shape.layers * shape.hidden + layer
    parts = {
        "weights": width * shape.parameters,
        "gradients, masters, moments": (width + 16) * trained,
        "activations of a micro-batch": width * saved * config.engine.micro_tokens,
    }
    if isinstance(config, GrpoRunConfig):
        answers = min(
            config.engine.slots, config.rl.prompts_per_step * config.rl.rollouts_per_prompt
        )
        kept = width / 2 * shape.kv_bytes * answers * config.rl.max_length
        parts |= {"decoding: weights": width * shape.parameters, "decoding: keys and values": kept}
    return {name: float(value) for name, value in parts.items()}


def here() -> tuple[str, float] | None:
    """(what, bytes) of the device an embedded run would use; None where it cannot be told."""
    try:
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        ).stdout
        return "this GPU", float(said.split()[0]) * 2**20
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        pass
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines)
    return "this machine", int(fields["MemTotal"].split()[0]) * 1024.0


def local_report(config: SftRunConfig | GrpoRunConfig) -> str:
    """Lines for the dry run of an embedded run. Never refuses: it may be meant for another
    machine, and loading the model asks again."""
    try:
        shape = shape_of(config.model.path or DEFAULT)
    except ConfigError as error:
        return f"memory: not estimated ({error})"
    parts = local_memory(config, shape)
    lines = [f"memory on one device (estimate), {shape.parameters / 1e9:.2f}e9 parameters:"]
    lines += [f"  {name:<34}{value / GB:8.2f} GB" for name, value in parts.items()]
    total, device = sum(parts.values()), here()
    lines.append(f"  {'together':<34}{total / GB:8.2f} GB")
    if device is not None and total > device[1]:
        backend = "verl" if isinstance(config, GrpoRunConfig) else "deepspeed"
        lines.append(
            f"does not fit: {device[0]} has {device[1] / GB:.0f} GB; lower engine.micro_tokens "
            "or engine.slots, set engine.gradient_checkpointing=true or model.lora_rank, or spread "
            f"it over GPUs with --backend {backend}"
        )
    return "\n".join(lines)
