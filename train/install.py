"""`make setup`: a `.venv` in the checkout with everything `make demo` and `make test` need.

Runs before anything is installed, so it uses the standard library only, and old enough syntax
that an old Python gets a sentence instead of a traceback.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
OLDEST = (3, 11)
TORCH = "2.13.0"
NEED_GB = {"cpu": 3.0, "cuda": 9.0}
DEFAULT = "train,parquet,sandbox,client,build,dj,agents,test"
LOCK = ROOT / "requirements.lock"  # versions and hashes for DEFAULT, but for torch


class SetupError(RuntimeError):
    """Setup cannot go on; the message says what to do."""


def find_python() -> str:
    """This interpreter, or a newer one on the PATH when this one is too old."""
    if sys.version_info >= OLDEST:
        return sys.executable
    for minor in (13, 12, 11):
        found = shutil.which(f"python3.{minor}")
        if found:
            return found
    have = ".".join(map(str, sys.version_info[:2]))
    raise SetupError(
        f"Python {have} is too old; install Python 3.11 or newer, or name one: "
        "make setup PYTHON=/path/to/python3.11"
    )


def has_gpu() -> bool:
    """True when nvidia-smi is there and finds a driver that works."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return False
    done = subprocess.run([command, "-L"], capture_output=True, text=True, check=False)
    return done.returncode == 0 and "GPU" in done.stdout


def stamp_text(extras: str, kind: str, python: str, locked: bool = True) -> str:
    """Changes when the environment has to be made again."""
    files = [ROOT / "pyproject.toml", LOCK]
    digest = hashlib.sha256(b"".join(p.read_bytes() for p in files if p.is_file())).hexdigest()
    versions = "locked" if locked else "ranges"
    return f"{digest} {extras} {versions} {kind} torch-{TORCH} {python} {ROOT}\n"


def pip(*arguments: str, env: dict[str, str] | None = None) -> None:
    """Run the environment's pip; its last words become the error."""
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    command = [str(VENV / "bin" / "python"), "-m", "pip", *arguments, *quiet]
    command += ["--disable-pip-version-check", "--no-input"]
    merged = {**os.environ, **(env or {})}
    done = subprocess.run(
        command, check=False, cwd=ROOT, env=merged, stderr=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line]
        said = lines[-1].replace("ERROR: ", "") if lines else "none given"
        raise SetupError(
            f"pip {' '.join(arguments)} failed ({said}); is the package index reachable?"
        )


def make_venv(python: str) -> None:
    if (VENV / "bin" / "python").exists():
        return
    say(f"creating {VENV} with {python}")
    done = subprocess.run(
        [python, "-m", "venv", str(VENV)], check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        shutil.rmtree(VENV, ignore_errors=True)
        raise SetupError(
            f"{python} cannot make a virtual environment "
            f"({(done.stdout + done.stderr).strip().splitlines()[0]}); "
            "on Debian and Ubuntu install the package python3-venv"
        )


def torch_cuda() -> str:
    """The CUDA version of the installed torch, '' for a CPU build."""
    code = "import torch; print(torch.version.cuda or '')"
    done = subprocess.run(
        [str(VENV / "bin" / "python"), "-c", code], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def install_torch(kind: str) -> None:
    """torch for this machine; a GPU machine must not end up with a wheel built for CPUs."""
    index = os.environ.get("ASSAY_TORCH_INDEX")
    where = {"PIP_INDEX_URL": index} if index else None
    say(f"installing torch {TORCH} for {'this GPU' if kind == 'cuda' else 'the CPU'}")
    pip("install", f"torch=={TORCH}", env=where)
    built_for = torch_cuda()
    if kind == "cpu" and built_for:
        say(
            "the package index gave a CUDA build of torch, which works and takes 4 GB more; "
            "set ASSAY_TORCH_INDEX to an index that has CPU builds to avoid that"
        )
    if kind == "cuda" and not built_for:
        say("that was a CPU build from a configured wheel folder; taking the default index's")
        with tempfile.TemporaryDirectory() as empty:
            # `===` excludes builds with a local label such as +cpu
            pip("install", "--force-reinstall", f"torch==={TORCH}", env={"PIP_FIND_LINKS": empty})
        if not torch_cuda():
            raise SetupError(
                "nvidia-smi finds a GPU, but only a CPU build of torch is to be had; "
                "set ASSAY_TORCH_INDEX to an index that has CUDA builds"
            )


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def setup(extras: str, locked: bool = True) -> None:
    """Make or renew the environment.

    `locked`: take the versions of the lock file, which holds those of the default extras. torch is
    not in it, because its build depends on the machine; it is pinned by version.
    """
    start, python = time.time(), find_python()
    kind = "cuda" if has_gpu() else "cpu"
    stamp = VENV / f".assay-{extras.replace(',', '-')}"
    text = stamp_text(extras, kind, python, locked)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == text:
        say(f"{VENV} is up to date")
        return
    if (free := shutil.disk_usage(ROOT).free / 1e9) < NEED_GB[kind]:
        need = f"{NEED_GB[kind]:.0f} GB"
        raise SetupError(f"{free:.1f} GB free in {ROOT}, setup needs {need}; free some")
    make_venv(python)
    by_lock = locked and extras == DEFAULT
    if by_lock:  # nothing else is fetched, but for torch
        say(f"installing the packages of {LOCK.name}")
        pip("install", "--require-hashes", "--no-deps", "--requirement", str(LOCK))
    if "train" in extras.split(","):
        install_torch(kind)
    say(f"installing Assay with its extras {extras}")
    pip("install", *(["--no-deps"] if by_lock else []), "--editable", f".[{extras}]")
    stamp.write_text(text, encoding="utf-8")
    say(f"done in {time.time() - start:.0f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description="make the checkout's .venv")
    parser.add_argument("--extras", default=DEFAULT)
    parser.add_argument(
        "--unlocked",
        action="store_true",
        help="newest versions in the ranges of pyproject.toml, not those of requirements.lock",
    )
    args = parser.parse_args()
    try:
        setup(args.extras, locked=not args.unlocked)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
