"""`assay doctor`: what this machine can run, with `--for` whether a run can go on it, and with
`--attack` whether the sandbox holds.

Nothing here imports torch: what its build needs is read from its files, and CUDA is opened in a
process of its own.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

from assay import console
from assay.files import cache_folder
from assay.record import installed
from assay.rows import read_rows
from assay.workers import usable_cores
from configs.loader import ConfigError, read_yaml
from configs.schema import DemoConfig, GrpoRunConfig, SftRunConfig, load_run
from rollouts.engines.engine import Shape
from rollouts.sandbox.model import LEVELS
from rollouts.sandbox.model import Config as Sandbox
from train.backends.verl.compose import require_attention, require_verl
from train.backends.verl.ray_cluster import STEP, base_port
from train.cluster.preflight import Asked, needs
from train.memory import DEFAULT, available_memory, checkpoint_bytes, embedded, total_memory
from train.model.source import local_model, shape_of
from train.run.record import PACKAGES, cpu_name

Run = DemoConfig | SftRunConfig | GrpoRunConfig
BACKENDS = ("embedded", "deepspeed", "verl")
OVER_GPUS = {"sft": "deepspeed", "grpo": "verl"}
KINDS: dict[str, Any] = {"demo": DemoConfig, "sft": SftRunConfig, "grpo": GrpoRunConfig}
GLIBC = {"sglang": "2.34", "vllm": "2.28"}  # of the wheels: manylinux_2_34, manylinux_2_28
DRIVERS = {"13": 580, "12": 525, "11": 450}  # oldest that runs a CUDA of that number
SHM = Path("/dev/shm")
RAY_SHM = 160e6  # slurm/ray.sh ends below it: half is Ray's object store
NCCL_SHM = 1e9  # what NVIDIA's documents give a container with several GPUs
QUERY = "index,name,memory.total,driver_version,mig.mode.current"
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


def said(command: Sequence[str], seconds: float = 30.0) -> str:
    """What a command prints; "" where it is missing, fails or hangs."""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=seconds, errors="replace"
        ).stdout
    return ""


def version(distribution: str) -> str:
    """Of an installed distribution, "" where there is none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


# --- any machine -----------------------------------------------------------------------------


def report() -> list[Finding]:
    """All that is known of this machine; never raises on an odd one."""
    environ, (name, total) = os.environ, total_memory("cpu")
    free = available_memory()
    lines = [Finding("python", f"{platform.python_version()} at {sys.executable}")]
    found = {n: v for n, v in installed(PACKAGES).items() if n != "python"}
    lines += [Finding("package", f"{n} {v}") for n, v in found.items()]
    lines += [
        Finding("cpu", f"{cpu_name()}, {usable_cores()} cores usable"),
        Finding("memory", f"{(free or 0) / 1e9:.1f} of {total / 1e9:.1f} GB available, {name}"),
        Finding("kernels", _kernels()),
        Finding("slurm", "sbatch is there" if shutil.which("sbatch") else "not here"),
        model(None, environ),
        *(scratch(place) for place in (Path.cwd(), cache_folder(), scratch_folder(environ))),
        shared_memory(0),
        ports(environ),
    ]
    there, build = devices(environ), torch_build()
    lines += cards(there) or [Finding("gpu", "nvidia-smi finds no GPU", False)]
    lines += [driver(there, build[1]), cuda(*build), nvcc(environ, build[1]), glibc()]
    return [*lines, *sandbox_lines(sandbox())]


def _kernels() -> str:
    """What computes between the matrix products of the embedded engine, on a CPU."""
    code = (
        "import torch; from rollouts.engines.torch.kernels import compiled as c\n"
        'f = c(torch.float32); print(f"torch\'s own, slower: {f}" if isinstance(f, str) '
        "else 'compiled')"
    )
    return said([sys.executable, "-c", code], 120).strip() or "none: torch does not load"


def model(path: str | None, environ: Mapping[str, str]) -> Finding:
    """Whether the model is on this machine, or can only be fetched."""
    name, found = path or DEFAULT, local_model(path)
    if found is not None:
        return Finding("model", f"{name}: {found}")
    offline = environ.get("HF_HUB_OFFLINE", "0") not in ("", "0")
    return check(
        "model",
        not offline,
        f"{name} is not here (model cache {cache_folder()}, Hugging Face's "
        f"{environ.get('HF_HOME', '~/.cache/huggingface')}); ",
        f"HF_HUB_OFFLINE is set, so where the hub can be reached: hf download {name} --local-dir "
        "DIR, and set model.path=DIR",
    )


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
    if not folder.exists():
        return Finding("shm", f"{folder} is not here; run on Linux", least == 0)
    free = shutil.disk_usage(folder).free
    cure = (
        f", and the run needs {least / 1e9:.2f} GB there; give the container more (--shm-size), or "
        "remove what other jobs left in it"
    )
    return check("shm", free >= least, f"{free / 1e9:.2f} GB free at {folder}", cure)


def ports(environ: Mapping[str, str]) -> Finding:
    """Whether this job's ports for Ray are free."""
    job = int(environ.get("SLURM_JOB_ID") or 0)
    try:
        base = base_port(job, int(environ.get("SLURM_RESTART_COUNT") or 0))
    except OSError as error:
        return Finding("ports", f"{error}; end what listens there, or take another node", False)
    return Finding("ports", f"{base} to {base + STEP - 1} are free, for Ray")


def sandbox() -> dict[str, Any]:
    """What the sandbox can enforce here, by doing it."""
    try:
        from rollouts.sandbox.pool import machine_report

        return machine_report()
    except (ImportError, OSError, AttributeError, KeyError) as error:  # not Linux
        why = f"needs Linux ({type(error).__name__}: {error})"
        return {"level": "none", "missing": {"sandbox": why}}


def sandbox_lines(found: Mapping[str, Any], uses: bool | None = None) -> list[Finding]:
    """Its level, user namespaces and Landlock. `uses`: whether a run's tasks have tools, None where
    that is not known."""
    level, least = str(found["level"]), Sandbox().min_level
    layers, missing = found.get("layers", {}), found.get("missing", {})
    why = "; ".join(f"{name}: {text}" for name, text in missing.items())
    unsure = "" if uses else " (whether its tasks have tools is not known here)"
    cure = f", and tools want {least} or better{unsure}; {why or 'run on Linux'}"
    enough = level in LEVELS and LEVELS.index(level) <= LEVELS.index(least)
    user, lock = layers.get("user_ns"), layers.get("landlock_abi")
    return [
        check("sandbox", enough, f"level: {level}", cure),
        check("userns", enough or user, str(user), f": {missing.get('user_ns', '')}"),
        check("landlock", enough or lock, str(lock), f": {missing.get('landlock_abi', '')}"),
    ]


# --- GPUs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Device:
    """A GPU as the driver has it."""

    index: str
    name: str
    memory_gb: float
    driver: str
    mig: bool


def devices(environ: Mapping[str, str]) -> list[Device]:
    """The GPUs that a process started here may open; none without a driver."""
    found: list[Device] = []
    asked = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    for line in said(asked).splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 5 and re.fullmatch(r"[\d.]+", cells[2]):
            memory = float(cells[2]) * 2**20 / 1e9
            found.append(Device(cells[0], cells[1], memory, cells[3], cells[4] == "Enabled"))
    shown = environ.get("CUDA_VISIBLE_DEVICES")
    if shown is None:
        return found
    if "-" in shown.removeprefix("-1"):  # names (GPU-…): only their number is known
        return found[: shown.count(",") + 1]
    return [device for device in found if device.index in re.split(r"[,\s]+", shown)]


def cards(found: Sequence[Device]) -> list[Finding]:
    mig = ", MIG is on: a process sees one slice of it, and NCCL joins none; ask for whole GPUs"
    return [
        check("gpu", not d.mig, f"{d.index}: {d.name}, {d.memory_gb:.0f} GB", mig) for d in found
    ]


def enough(found: Sequence[Device], count: int, memory_gb: float) -> Finding:
    """Whether a node has the GPUs of a run. A card holds a little more than its name says, and a
    tenth less is let through."""
    if len(found) < count:
        cure = f"; sbatch --gpus-per-node={count}, or set cluster.gpus_per_node (it is {count})"
        return Finding("gpu", f"nvidia-smi finds {len(found)} GPU(s){cure}", False)
    least = min(device.memory_gb for device in found[:count])
    text = f"the smallest GPU here has {least:.0f} GB"
    cure = f"; cluster.gpu_memory_gb={memory_gb:g}: set it to that, so that the run is cut for it"
    return check("gpu", least >= 0.9 * memory_gb, text, cure)


def driver(found: Sequence[Device], cuda: str) -> Finding:
    """`cuda`: what torch was built for, or ""."""
    if not found:
        return Finding("driver", "no NVIDIA driver; run on a GPU node", False)
    have, least = found[0].driver, DRIVERS.get(cuda.split(".")[0], 0)
    cure = (
        f" is too old for torch's CUDA {cuda}, which needs {least} or newer; update it, load "
        "NVIDIA's cuda-compat, or install a torch for an older CUDA"
    )
    return check("driver", int(have.split(".")[0]) >= least, have, cure)


def torch_build() -> tuple[str, str]:
    """(version, CUDA it was built for) of the installed torch, "" where there is none of either."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return "", ""
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return version("torch"), ""
    found = re.search(r"^cuda\b[^=\n]*= *'([^']*)'", text, re.MULTILINE)
    return version("torch"), found.group(1) if found else ""


def cuda(torch_version: str, build: str) -> Finding:
    if not torch_version:
        return Finding("cuda", "torch is not installed; install the extra `train`", False)
    cure = " is a CPU build; install one built for CUDA"
    return check("cuda", build, f"torch {torch_version}{f', CUDA {build}' * bool(build)}", cure)


def opened(environ: Mapping[str, str], wanted: int) -> Finding:
    """Whether CUDA itself starts: a driver may be there whose fabric manager, or whose device
    files in this job, are not. In a process of its own, which lets go of the GPUs at once."""
    code = "import torch; torch.cuda.init(); print(torch.cuda.device_count())"
    have = int(("0 " + said([sys.executable, "-c", code], 120)).split()[-1])
    shown = environ.get("CUDA_VISIBLE_DEVICES", "(unset)")
    cure = f"; see what `python -c '{code}'` says, and CUDA_VISIBLE_DEVICES={shown}"
    return check("cuda", have >= wanted, f"torch opens {have} of {wanted} GPU(s)", cure)


def nvcc(environ: Mapping[str, str], build: str) -> Finding:
    """The compiler, and whether it is of the CUDA that torch was built for."""
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH") or "/usr/local/cuda"
    found = shutil.which("nvcc", path=environ.get("PATH")) or shutil.which(f"{home}/bin/nvcc")
    release = re.search(r"release (\d+)(\.\d+)", said([found, "--version"]) if found else "")
    cure = "; SGLang compiles with it at its start: load the site's CUDA module or set CUDA_HOME"
    if release is None:
        text = f"{found} does not run" if found else "nvcc is not found"
        return Finding("nvcc", text + cure, False)
    text = f"{found} is of CUDA {release[1]}{release[2]} and torch of {build or 'none'}"
    return check("nvcc", not build or release[1] == build.split(".")[0], text, cure)


def glibc(found: str | None = None, servers: str = "sglang") -> Finding:
    text, least = platform.libc_ver()[1] if found is None else found, GLIBC[servers]
    have, need = ([int(n) for n in re.findall(r"\d+", t)[:2]] for t in (text, least))
    other = " set cluster.rollout=vllm (slurm/gpu-vllm.lock), or" if servers == "sglang" else ""
    cure = f": the wheels of {servers} need {least};{other} use a container (slurm/assay.def)"
    return check("glibc", have >= need, text or "none", cure)


def refused(topic: str, wish: Callable[[], None]) -> list[Finding]:
    """What a run would be refused for: the sentence of the `ConfigError` that `wish` raises."""
    try:
        wish()
    except ConfigError as error:
        return [Finding(topic, str(error), False)]
    return []


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
    lines = [*packages(backend, config), model(config.model.path, environ)]
    if isinstance(config, DemoConfig) or backend == "embedded":
        return [*lines, *_one_device(config, environ), *_tools(config)]
    return [*lines, *_many(command, backend, config, environ), *_tools(config)]


def _tools(config: Run) -> list[Finding]:
    """The sandbox, where one of the first tasks has tools, or its file cannot be read yet."""
    if not isinstance(config, GrpoRunConfig):
        return []
    try:
        uses = any(row.get("tools") for _, row in islice(read_rows(Path(config.data)), ROWS))
    except (OSError, ValueError):
        uses = None
    return sandbox_lines(sandbox(), uses) if uses is not False else []


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
    lines: list[Finding] = []
    for name, extra in wants.items():
        have, cure = version(name), f" is not installed; install the extra `{extra}`"
        lines.append(
            check("package", have, f"{name} {have}".rstrip(), f"{cure} (docs/clusters.md)")
        )
    return [*lines, *(refused("package", require_verl) if backend == "verl" else ())]


def _memory(have: float | None, need: float) -> Finding:
    """Bytes of the node's own memory."""
    text = f"{(have or 0) / 1e9:.0f} GB available here, and the run needs about {need / 1e9:.0f} GB"
    cure = f" (--dry-run says what for); sbatch --mem={need / 1e9:.0f}G or more, or more nodes"
    return check("memory", have is None or have >= need, text, cure)


def _one_device(config: Run, environ: Mapping[str, str]) -> list[Finding]:
    """Its driver where one is asked for, memory, and room for checkpoints."""
    there, lines = devices(environ), list[Finding]()
    if config.engine.device == "cuda":
        build = torch_build()
        lines += [driver(there, build[1]), cuda(*build), opened(environ, 1)]
    shape = _shape(config.model.path or DEFAULT)
    if shape is not None and not isinstance(config, DemoConfig):
        need = sum(embedded(config, shape).values())
        if there and config.engine.device != "cpu":
            text = f"{there[0].name}, and the run needs about {need / 1e9:.1f} GB"
            cure = "; lower engine.micro_tokens or engine.slots, set model.lora_rank, or --backend"
            lines.append(check("gpu", there[0].memory_gb * 1e9 >= need, text, cure))
        else:
            lines.append(_memory(available_memory(), need))
    return [*lines, scratch(Path(config.out))]


def _many(
    command: str, backend: str, config: SftRunConfig | GrpoRunConfig, environ: Mapping[str, str]
) -> list[Finding]:
    """What a node of a run over processes has to have: GPUs, and for verl what Ray and SGLang
    need."""
    cluster, there, build = config.cluster, devices(environ), torch_build()
    count, verl, lines = cluster.gpus_per_node, backend == "verl", list[Finding]()
    if cluster.device == "cuda":
        lines += [
            enough(there, count, cluster.gpu_memory_gb),
            *(line for line in cards(there[:count]) if not line.ok),
            driver(there, build[1]),
            cuda(*build),
        ]
        if all(line.ok for line in lines):  # else it could only say the same, after seconds
            lines.append(opened(environ, count))
        asked, cores = needs(Asked(command, backend, config), cluster.nodes), usable_cores()
        least = asked.cores if verl else count
        cure = f", and the run needs {least}; sbatch --cpus-per-task={least}, or fewer GPUs"
        lines.append(check("cores", cores >= least, f"{cores} usable", cure))
        lines.append(_memory(available_memory(), asked.memory_gb * 1e9))
        shape = _shape(config.model.path)
        one = checkpoint_bytes(config, shape) if shape else 0.0
        lines.append(scratch(Path(config.out), one * (config.checkpoint.keep + 1)))
    if count > 1 and cluster.device == "cuda":
        lines.append(shared_memory(NCCL_SHM))
    elif verl:
        lines.append(shared_memory(RAY_SHM))
    if verl:
        lines += [ports(environ), scratch(scratch_folder(environ))]
    if verl and cluster.device == "cuda":
        lines.append(glibc(None, cluster.rollout))
        if cluster.rollout == "sglang":
            lines.append(nvcc(environ, build[1]))
        lines += refused("flash-attn", lambda: require_attention(cluster))
    return lines


def _shape(path: str | None) -> Shape | None:
    try:
        return shape_of(path)
    except ConfigError:
        return None


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
        choices=BACKENDS,
        help="of that run; default: verl or deepspeed where the file has a section `cluster`",
    )
    parser.add_argument(
        "--attack", action="store_true", help="try ten attacks on the sandbox and say what held"
    )
    parser.add_argument(
        "--level",
        help="at this sandbox level; default: the best one here",
        choices=("full", "confined", "limits"),
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
