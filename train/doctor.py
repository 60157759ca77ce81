"""`assay doctor`: what this machine can run, with `--for` whether a run can go on it, and with
`--attack` whether the sandbox holds.

Nothing here imports torch: what it computes with, and the GPUs that it opens, are asked of a
process of its own.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from assay import console
from assay.files import cache_folder
from assay.machine import usable_cores
from assay.record import installed
from assay.rows import read_rows
from configs.loader import ConfigError, read_yaml
from configs.schema import DemoConfig, GrpoRunConfig, SftRunConfig, load_run
from rollouts.sandbox.model import LEVELS
from rollouts.sandbox.model import Config as Sandbox
from train.backends.verl.settings import lacking
from train.cluster.preflight import Asked, needs
from train.cluster.ray_cluster import STEP, base_port
from train.memory import DEFAULT, available_memory, checkpoint_bytes, embedded, total_memory
from train.model.source import local_model, shape_of
from train.run.record import PACKAGES, cpu_name

Run = DemoConfig | SftRunConfig | GrpoRunConfig
OVER_GPUS = {"sft": "deepspeed", "grpo": "verl"}
KINDS: dict[str, Any] = {"demo": DemoConfig, "sft": SftRunConfig, "grpo": GrpoRunConfig}
GLIBC = {"sglang": "2.34", "vllm": "2.28"}  # of the wheels: manylinux_2_34, manylinux_2_28
SHM = Path("/dev/shm")
RAY_SHM = 160e6  # slurm/ray.sh ends below it: half is Ray's object store
NCCL_SHM = 1e9  # what NVIDIA's documents give a container with several GPUs
ROWS = 2000  # of the tasks, when looking for tools


@dataclass(frozen=True)
class Finding:
    """One line. `text` says what is there; where not `ok`, a run that needs the line cannot go on
    here, and `text` says what to do."""

    topic: str
    text: str
    ok: bool = True


def check(topic: str, ok: object, text: str, cure: str = "") -> Finding:
    """A line, with what to do where it is not `ok`."""
    return Finding(topic, text if ok else f"{text}{cure}", bool(ok))


def said(command: Sequence[str], seconds: float = 120.0) -> tuple[str, str]:
    """What a command prints, and the last line of its errors; nothing where it is missing."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=seconds, errors="replace"
        )
    except (OSError, subprocess.SubprocessError) as error:
        return "", str(error)
    return done.stdout, done.stderr.strip().rpartition("\n")[2]


# --- any machine -----------------------------------------------------------------------------


def report() -> list[Finding]:
    """All that is known of this machine; never raises on an odd one."""
    environ, (name, total) = os.environ, total_memory("cpu")
    free, cards = available_memory(), opened()
    found = {n: v for n, v in installed(PACKAGES).items() if n != "python"}
    return [
        Finding("python", f"{platform.python_version()} at {sys.executable}"),
        *(Finding("package", f"{n} {v}") for n, v in found.items()),
        Finding("cpu", f"{cpu_name()}, {usable_cores()} cores usable"),
        Finding("memory", f"{(free or 0) / 1e9:.1f} of {total / 1e9:.1f} GB available, {name}"),
        Finding("kernels", said([sys.executable, "-c", _KERNELS])[0].strip() or "no torch"),
        model(None, environ),
        *(scratch(place) for place in (Path.cwd(), cache_folder(), scratch_folder(environ))),
        shared_memory(0),
        ports(environ),
        gpus(cards, 0),
        nvcc(environ, cards.build),
        glibc(),
        sandbox(None),
    ]


# what computes between the matrix products of the embedded engine, on a CPU
_KERNELS = """
import torch
from rollouts.engines.torch.kernels import compiled
found = compiled(torch.float32)
print(f"torch's own, slower: {found}" if isinstance(found, str) else "compiled")
"""


def model(path: str | None, environ: Mapping[str, str]) -> Finding:
    """Whether the model is on this machine, or can only be fetched."""
    name, found = path or DEFAULT, local_model(path)
    if found is not None:
        return Finding("model", f"{name}: {found}")
    hub = environ.get("HF_HOME", "~/.cache/huggingface")
    text = f"{name} is not here (model cache {cache_folder()}, Hugging Face's {hub})"
    cure = (
        f"; HF_HUB_OFFLINE is set, so where the hub can be reached: hf download {name} "
        "--local-dir DIR, and set model.path=DIR"
    )
    return check("model", environ.get("HF_HUB_OFFLINE", "0") in ("", "0"), text, cure)


def scratch(folder: Path, need: float = 0.0) -> Finding:
    """What is free where a run writes. `need`: bytes that it will keep."""
    place = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    free = shutil.disk_usage(place).free
    text, writable = f"{folder}: {free / 1e9:.1f} GB free", os.access(place, os.W_OK)
    cure = (
        f", {'' if writable else 'not writable, '}and the run's checkpoints need {need / 1e9:.1f} "
        "GB; set out=DIR on another disk, or lower checkpoint.keep"
    )
    return check("scratch", writable and free >= need, text, cure)


def scratch_folder(environ: Mapping[str, str]) -> Path:
    """Where slurm/env.sh puts caches, Ray and the sandbox."""
    return Path(environ.get("ASSAY_SCRATCH") or environ.get("SLURM_TMPDIR") or "/tmp")


def shared_memory(least: float, folder: Path = SHM) -> Finding:
    """Free bytes of the memory that processes of a node share: Ray's objects and NCCL's buffers."""
    free = shutil.disk_usage(folder).free if folder.exists() else -1
    cure = (
        f", and the run needs {least / 1e9:.2f} GB there; give the container more (--shm-size), or "
        "remove what other jobs left in it"
    )
    return check("shm", free >= least, f"{max(0, free) / 1e9:.2f} GB free at {folder}", cure)


def ports(environ: Mapping[str, str]) -> Finding:
    """Whether this job's ports for Ray are free."""
    job = int(environ.get("SLURM_JOB_ID") or 0)
    try:
        base = base_port(job, int(environ.get("SLURM_RESTART_COUNT") or 0))
    except OSError as error:
        return Finding("ports", f"{error}; end what listens there, or take another node", False)
    return Finding("ports", f"{base} to {base + STEP - 1} are free, for Ray")


def sandbox(uses: bool | None) -> Finding:
    """The level that it can enforce here and its layers, by doing it. `uses`: whether a run's tasks
    have tools, None where that is not known."""
    found: dict[str, Any]
    try:
        from rollouts.sandbox.pool import machine_report

        found = machine_report()
    except (ImportError, OSError, AttributeError, KeyError) as error:
        why = f"needs Linux ({type(error).__name__}: {error})"
        found = {"level": "none", "layers": {}, "missing": {"sandbox": why}}
    level, least = str(found["level"]), Sandbox().min_level
    layers = ", ".join(f"{name}={held}" for name, held in found["layers"].items())
    missing = "".join(f"; no {name}: {why}" for name, why in found["missing"].items())
    unsure = "" if uses else " (whether its tasks have tools is not known here)"
    enough = level in LEVELS and LEVELS.index(level) <= LEVELS.index(least)
    text, cure = f"level: {level} ({layers}){missing}", f"; tools want {least} or better{unsure}"
    return check("sandbox", enough, text, cure)


# --- GPUs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opened:
    """The CUDA that torch was built for ("": none), name and GB of each GPU that it opens, and in
    its own words why there are no more: no driver, one that is too old, or whose fabric manager is
    not there."""

    build: str
    gpus: tuple[tuple[str, float], ...]
    why: str


_OPEN = """
import torch
print(torch.version.cuda or "", flush=True)
torch.cuda.init()
for i in range(torch.cuda.device_count()):
    one = torch.cuda.get_device_properties(i)
    print(one.name, one.total_memory, sep="\\t")
"""


def opened() -> Opened:
    """Asked of a process of its own, which lets go of the GPUs at once."""
    text, why = said([sys.executable, "-c", _OPEN])
    build, *lines = text.splitlines() or [""]
    cells = [line.rpartition("\t") for line in lines]
    return Opened(build, tuple((name, int(size) / 1e9) for name, _, size in cells), why)


def gpus(found: Opened, count: int, memory_gb: float = 0.0) -> Finding:
    """Whether torch opens the GPUs of a run, and they are as large as it was cut for. A card holds
    a little more than its name says, and a tenth less is let through."""
    shown = ", ".join(f"{name} {size:.0f} GB" for name, size in found.gpus) or found.why
    text = f"torch for CUDA {found.build or 'none'} opens {len(found.gpus)} GPU(s): {shown}"
    if len(found.gpus) < count:
        cure = f"; the run needs {count}: sbatch --gpus-per-node={count}, cluster.gpus_per_node"
        return Finding("gpu", f"{text}{cure}, or a torch for the driver's CUDA", False)
    least = min((size for _, size in found.gpus[:count]), default=0.0)
    cure = f"; the smallest GPU here has {least:.0f} GB and cluster.gpu_memory_gb={memory_gb:g}: "
    cure += "set it to that, so that the run is cut for it"
    return check("gpu", least >= 0.9 * memory_gb, text, cure)


def nvcc(environ: Mapping[str, str], build: str) -> Finding:
    """The compiler, and whether it is of the CUDA that torch was built for."""
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH") or "/usr/local/cuda"
    found = shutil.which("nvcc", path=f"{environ.get('PATH', '')}:{home}/bin") or "nvcc"
    release = re.search(r"release (\d+)\.\d+", said([found, "--version"])[0])
    text = f"{found}: {release[0] if release else 'not found'}; torch is for CUDA {build or 'none'}"
    cure = "; SGLang compiles with it at its start: load the site's CUDA module or set CUDA_HOME"
    fits = release and (not build or release[1] == build.split(".")[0])
    return check("nvcc", fits, text, cure)


def glibc(found: str | None = None, servers: str = "sglang") -> Finding:
    text, least = platform.libc_ver()[1] if found is None else found, GLIBC[servers]
    have, need = ([int(n) for n in re.findall(r"\d+", t)[:2]] for t in (text, least))
    other = " set cluster.rollout=vllm (slurm/gpu-vllm.lock), or" if servers == "sglang" else ""
    cure = f": the wheels of {servers} need {least};{other} use a container (slurm/assay.def)"
    return check("glibc", have >= need, text or "none", cure)


# --- a run -----------------------------------------------------------------------------------


def wanted(file: str, settings: Sequence[str], backend: str | None = None) -> tuple[str, str, Run]:
    """(command, backend, settings) of the run that a file is meant for: by its sections. Raises
    `ConfigError`."""
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
    return command, chosen, load_run(KINDS[command], file, settings)


def needs_of(command: str, backend: str, config: Run, environ: Mapping[str, str]) -> list[Finding]:
    """The lines that this run needs, those that are missing among them."""
    lines = [*packages(backend, config), model(config.model.path, environ), *_tools(config)]
    if isinstance(config, DemoConfig) or backend == "embedded":
        return lines + _one_device(config)
    return lines + _many(command, backend, config, environ)


def packages(backend: str, config: Run) -> list[Finding]:
    """Distributions, by name: what can be imported may be something else of that name."""
    wants = {name: "train" for name in ("torch", "transformers", "safetensors")}
    wants |= {"deepspeed": "deepspeed"} if backend == "deepspeed" else {}
    if backend == "verl" and not isinstance(config, DemoConfig):
        served = config.cluster.device == "cuda"
        wants |= {"ray": "cluster"} | ({config.cluster.rollout: "cluster"} if served else {})
    wants |= {"peft": "lora"} if config.model.lora_rank else {}
    wants |= {"wandb": "wandb"} if config.log.wandb != "off" else {}
    wants |= {"tensorboard": "tensorboard"} if config.log.tensorboard else {}
    have = installed(wants)
    cure = " is not installed; install the extra `{}` (docs/clusters.md)"
    return [
        check("package", name in have, f"{name} {have.get(name, '')}".rstrip(), cure.format(extra))
        for name, extra in wants.items()
    ]


def _tools(config: Run) -> list[Finding]:
    """The sandbox, where one of the first tasks has tools, or its file cannot be read yet."""
    if not isinstance(config, GrpoRunConfig):
        return []
    try:
        uses = any(row.get("tools") for _, row in islice(read_rows(Path(config.data)), ROWS))
    except (OSError, ValueError):
        uses = None
    return [sandbox(uses)] if uses is not False else []


def _one_device(config: Run) -> list[Finding]:
    """Memory, of the GPU where one is used, and room for checkpoints."""
    found = opened() if config.engine.device != "cpu" else Opened("", (), "")
    lines = [gpus(found, 1)] if config.engine.device == "cuda" else []
    if not isinstance(config, DemoConfig):
        with suppress(ConfigError):  # of a model that an earlier job makes
            need = sum(embedded(config, shape_of(config.model.path or DEFAULT)).values())
            lines.append(_memory(need, found))
    return [*lines, scratch(Path(config.out))]


def _memory(need: float, found: Opened | None = None) -> Finding:
    """Bytes of the GPU that a run uses, or of the node's own memory."""
    if found and found.gpus:
        text = f"{found.gpus[0][0]}, and the run needs about {need / 1e9:.1f} GB"
        cure = "; lower engine.micro_tokens or engine.slots, set model.lora_rank, or --backend"
        return check("gpu", found.gpus[0][1] * 1e9 >= need, text, cure)
    have = available_memory()
    text = f"{(have or 0) / 1e9:.0f} GB available here, and the run needs about {need / 1e9:.0f} GB"
    cure = f" (--dry-run says what for); sbatch --mem={need / 1e9:.0f}G or more, or more nodes"
    return check("memory", have is None or have >= need, text, cure)


def _many(
    command: str, backend: str, config: SftRunConfig | GrpoRunConfig, environ: Mapping[str, str]
) -> list[Finding]:
    """What a node of a run over processes has to have: GPUs, and for verl what Ray and SGLang
    need."""
    cluster, verl, lines = config.cluster, backend == "verl", list[Finding]()
    count, served = cluster.gpus_per_node, cluster.device == "cuda"
    if served:
        found = opened()
        lines.append(gpus(found, count, cluster.gpu_memory_gb))
        asked, cores = needs(Asked(command, backend, config), cluster.nodes), usable_cores()
        least = asked.cores if verl else count
        cure = f", and the run needs {least}; sbatch --cpus-per-task={least}, or fewer GPUs"
        lines.append(check("cores", cores >= least, f"{cores} usable", cure))
        lines.append(_memory(asked.memory_gb * 1e9))
        kept = 0.0
        with suppress(ConfigError):
            one = checkpoint_bytes(config, shape_of(config.model.path))
            kept = one * (config.checkpoint.keep + 1)
        lines.append(scratch(Path(config.out), kept))
        if verl:
            lines.append(glibc(None, cluster.rollout))
            lines += [nvcc(environ, found.build)] if cluster.rollout == "sglang" else []
    if verl:
        lines += [ports(environ), scratch(scratch_folder(environ))]
        lines += [Finding(topic, sentence, False) for topic, sentence in lacking(cluster)]
    return [*lines, shared_memory(NCCL_SHM if count > 1 and served else RAY_SHM * verl)]


# --- the command -----------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report; 2 when `--for` finds something missing; with `--attack` 1 when an attack
    on the sandbox got through."""
    parser = console.parser("doctor", __doc__, settings="settings of the run that --for names")
    parser.add_argument(
        "--for",
        dest="run",
        metavar="FILE.yaml",
        help="only what this run needs, with a sentence for each thing that is missing",
    )
    parser.add_argument(
        "--backend",
        choices=("embedded", *OVER_GPUS.values()),
        help="of that run; default: verl or deepspeed where the file has a section `cluster`",
    )
    parser.add_argument(
        "--attack", action="store_true", help="try ten attacks on the sandbox and say what held"
    )
    parser.add_argument(
        "--level", help="at this sandbox level; default: the best one here", choices=LEVELS
    )
    options = parser.parse_intermixed_args(argv)
    if options.run is None and (options.settings or options.backend):
        parser.error("settings and --backend belong to a run; name its file with --for")
    found = []
    if options.run is not None:
        want = wanted(options.run, options.settings, options.backend)
        print(f"{'for':<10} assay {want[0]} --backend {want[1]}, {options.run}")
        found = needs_of(*want, os.environ)
    missing = [line for line in found if not line.ok]
    for line in [one for one in found if one.ok] if found else report():
        print(f"{line.topic:<10} {line.text}")
    sys.stdout.flush()
    for line in missing:
        print(f"assay doctor: {line.topic}: {line.text}", file=sys.stderr)
    status = console.UNUSABLE if missing else console.DONE
    if not options.attack:
        return status
    from rollouts.sandbox.canaries import run_all

    outcomes = run_all(options.level)
    through = [outcome for outcome in outcomes if not outcome.stopped]
    for outcome in through:
        print(f"open: {outcome.name}: {outcome.detail}")
    stopped = len(outcomes) - len(through)
    print(f"{'attacks':<10} level {outcomes[0].level}: {stopped} of {len(outcomes)} stopped")
    return 1 if through else status
