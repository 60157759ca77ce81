"""Which of the doctor's lines a run needs: asked before its job waits in a queue, or on its node
before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from assay.rows import read_rows
from assay.workers import usable_cores
from configs.loader import ConfigError, read_yaml
from configs.schema import DemoConfig, GrpoRunConfig, SftRunConfig
from rollouts.sandbox.model import LEVELS
from rollouts.sandbox.model import Config as Sandbox
from train.backends.verl.compose import require_verl
from train.cluster.settings import Asked, needs
from train.doctor import gpu, machine, node
from train.doctor.finding import Finding, version
from train.memory import DEFAULT, checkpoint_bytes, embedded
from train.model.shape import Shape, shape_of
from train.run.settings import load_run

BACKENDS = ("embedded", "deepspeed", "verl")
OVER_GPUS = {"sft": "deepspeed", "grpo": "verl"}
ROWS = 2000  # of the tasks, when looking for tools


@dataclass(frozen=True)
class Wanted:
    """A run as its file and settings describe it."""

    command: str
    backend: str
    config: DemoConfig | SftRunConfig | GrpoRunConfig


def wanted(file: str, settings: Sequence[str], backend: str | None = None) -> Wanted:
    """The run that a file of settings is meant for: by its sections. Raises `ConfigError`."""
    named = {*read_yaml(Path(file)), *(text.partition("=")[0].split(".")[0] for text in settings)}
    sections = named & {"sft", "rl"}
    if not sections:
        raise ConfigError(
            f"{file}: it has no section `sft` or `rl`, so it is of no training run; give the file "
            "of one, or add a setting of one (rl.steps=…)"
        )
    command = "demo" if len(sections) == 2 else "grpo" if "rl" in sections else "sft"
    wide = OVER_GPUS.get(command)
    chosen = backend or (wide if wide and "cluster" in named else "embedded")
    if chosen not in ("embedded", wide):
        have = "embedded alone" if wide is None else f"embedded and {wide}"
        raise ConfigError(f"--backend {chosen}: `assay {command}` has {have}; set one of those")
    if command == "demo":
        return Wanted(command, chosen, load_run(DemoConfig, file, settings))
    if command == "sft":
        return Wanted(command, chosen, load_run(SftRunConfig, file, settings))
    return Wanted(command, chosen, load_run(GrpoRunConfig, file, settings))


def needs_of(want: Wanted, environ: Mapping[str, str]) -> list[Finding]:
    """The lines that this run needs, those that are missing among them."""
    config = want.config
    lines = _packages(want)
    if isinstance(config, DemoConfig) or want.backend == "embedded":
        lines += _embedded(want, environ)
    elif config.cluster.device == "cuda":
        lines += _gpus(want, config, environ)
    if want.backend == "verl" and isinstance(config, GrpoRunConfig):
        lines += _verl(config, environ)
    if want.backend == "deepspeed":
        lines.append(node.rendezvous())
    if want.command == "grpo":
        lines += _tools(want)
    return lines


def _packages(want: Wanted) -> list[Finding]:
    """Distributions, by name: what can be imported may be something else of that name."""
    config = want.config
    extras = [("torch", "train"), ("transformers", "train"), ("safetensors", "train")]
    if want.backend == "deepspeed":
        extras.append(("deepspeed", "deepspeed"))
    if want.backend == "verl":
        extras.append(("ray", "cluster"))
    if config.model.lora_rank:
        extras.append(("peft", "lora"))
    if config.log.wandb != "off":
        extras.append(("wandb", "wandb"))
    if config.log.tensorboard:
        extras.append(("tensorboard", "tensorboard"))
    if not isinstance(config, DemoConfig) and Path(config.data).suffix == ".parquet":
        extras.append(("pyarrow", "parquet"))
    lines = [_package(name, extra) for name, extra in extras]
    if want.backend == "verl":
        lines.append(_allowed("package", require_verl, f"verl {version('verl')}"))
    return lines


def _package(name: str, extra: str) -> Finding:
    have = version(name)
    if have:
        return Finding("package", f"{name} {have}")
    return Finding("package", f"{name} is not installed; install the extra `{extra}`", False)


def _allowed(topic: str, check: Callable[[], None], text: str) -> Finding:
    """A check that the run itself makes, and raises for."""
    try:
        check()
    except ConfigError as error:
        return Finding(topic, str(error), False)
    return Finding(topic, text)


def _embedded(want: Wanted, environ: Mapping[str, str]) -> list[Finding]:
    """One device: its driver where one is asked for, memory, and room for checkpoints."""
    config, there, lines = want.config, gpu.devices(environ), list[Finding]()
    if config.engine.device == "cuda":
        built, cuda = gpu.torch_build()
        lines += [
            gpu.driver(gpu.driver_version(there), cuda),
            gpu.cuda_line(built, cuda),
            gpu.opened(environ, 1),
        ]
    shape = _shape(config.model.path or DEFAULT)
    if shape is not None and not isinstance(config, DemoConfig):
        need = sum(embedded(config, shape).values())
        if there and config.engine.device != "cpu":
            lines.append(gpu.fits(there[0], need))
        else:
            lines.append(node.memory(_memory(), need))
    return [*lines, node.scratch(Path(config.out))]


def _gpus(
    want: Wanted, config: SftRunConfig | GrpoRunConfig, environ: Mapping[str, str]
) -> list[Finding]:
    """What a node of a run over GPUs has to have, whatever trains."""
    cluster, there = config.cluster, gpu.devices(environ)
    built, cuda = gpu.torch_build()
    count = cluster.gpus_per_node
    lines = [
        gpu.enough(there, count, cluster.gpu_memory_gb),
        *(line for line in gpu.device_lines(there[:count]) if there and not line.ok),
        gpu.driver(gpu.driver_version(there), cuda),
        gpu.cuda_line(built, cuda),
    ]
    if all(line.ok for line in lines):  # else it could only say the same, after seconds
        lines.append(gpu.opened(environ, count))
    if cluster.devices > 1:
        lines.append(gpu.nccl(cuda))
    if count > 1:
        lines.append(node.shared_memory(node.NCCL_SHM))
    asked = needs(Asked(want.command, want.backend, config), cluster.nodes)
    verl = want.backend == "verl"
    jails = cluster.rollout_workers * cluster.sandbox_workers // cluster.nodes if verl else 0
    lines.append(node.cores(usable_cores(), count, asked.cores if verl else count, jails))
    if asked.memory_gb:
        lines.append(node.memory(_memory(), asked.memory_gb * 1e9))
    shape = _shape(config.model.path)
    one = checkpoint_bytes(config, shape) if shape else 0.0
    lines.append(node.scratch(Path(config.out), one * (config.checkpoint.keep + 1)))
    return lines


def _verl(config: GrpoRunConfig, environ: Mapping[str, str]) -> list[Finding]:
    """Ray's, and on GPUs SGLang's and the training workers'."""
    lines = [node.ports(environ), node.scratch(node.scratch_folder(environ))]
    if config.cluster.gpus_per_node == 1 or config.cluster.device == "cpu":
        lines.append(node.shared_memory(node.RAY_SHM))
    if config.cluster.device == "cpu":
        return lines
    import platform

    _, cuda = gpu.torch_build()
    lines += [
        _sglang(),
        gpu.glibc(platform.libc_ver()[1]),
        gpu.nvcc(environ, cuda),
    ]
    if config.cluster.attention == "flash_attention_2":
        lines.append(gpu.flash_attention())
    return lines


def _sglang() -> Finding:
    have = version("sglang")
    if have:
        return Finding("package", f"sglang {have}")
    return Finding(
        "package",
        "sglang is not installed; uv pip install --require-hashes --no-deps -r slurm/gpu.lock "
        "(docs/clusters.md)",
        False,
    )


def _tools(want: Wanted) -> list[Finding]:
    """The sandbox, where a task has tools. A file that is not there yet may have some."""
    config = want.config
    if not isinstance(config, GrpoRunConfig):
        return []
    uses = uses_tools(Path(config.data)) if config.data else None
    if uses is False:
        return []
    found = machine.sandbox()
    level, least = str(found["level"]), Sandbox().min_level
    if level in LEVELS and LEVELS.index(level) <= LEVELS.index(least):
        return [
            Finding("sandbox", f"level {level}"),
            Finding("userns", node.user_namespaces(found).text),
            Finding("landlock", node.landlock(found).text),
        ]
    why = "; ".join(f"{name}: {text}" for name, text in found.get("missing", {}).items())
    unsure = "" if uses else f" (whether its tasks have tools: {config.data or 'data'} is not here)"
    return [
        Finding(
            "sandbox",
            f"level {level}, and a run whose tasks have tools wants {least} or better{unsure}; "
            f"{why or 'run on Linux'}",
            False,
        ),
        *(line for line in (node.user_namespaces(found), node.landlock(found)) if not line.ok),
    ]


def uses_tools(data: Path) -> bool | None:
    """Whether one of the first tasks has tools; None for a file that cannot be read yet."""
    try:
        return any(row.get("tools") for _, row in islice(read_rows(data), ROWS))
    except (OSError, ValueError):
        return None


def _shape(path: str | None) -> Shape | None:
    try:
        return shape_of(path)
    except ConfigError:
        return None


def _memory() -> float | None:
    found = machine.memory_bytes()
    return None if found is None else found[2]
