"""`make test-matrix`: environments made from nothing, what is imported and tested in each, and the
table of docs/interop.md.

`python tests/support/matrix.py [NAME …]` (all without names) makes `.matrix/NAME` with uv, imports
what the row names, runs its tests, and puts the row into the page. Rows that were not asked for
stay as they are. torch is the release of `make setup` where a row names no other; a folder of
wheels (PIP_FIND_LINKS) is looked into first. `--ci`: one row, no page, and an environment that
cannot be made is said and is no failure.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from train.install import TORCH  # noqa: E402  (this checkout's, installed or not)

PLACE = ROOT / ".matrix"
PAGE = ROOT / "docs" / "interop.md"
SECONDS = 1800  # of one step
# What touches transformers, tokenizers and torch most: loading, both engines, both loops, TRL.
QUICK = (
    *(f"tests/train/model/test_{name}.py" for name in ("policy", "folder", "loss")),
    *(f"tests/rollouts/engines/torch/test_{name}.py" for name in ("engine", "load")),
    *("tests/train/test_examples.py", "tests/train/test_grpo.py"),
)
PEERS = ["tests/train/backends/test_trl.py", "-m", ""]
BACKENDS = ("tests/train/backends/verl", "tests/train/backends/test_deepspeed.py")


@dataclass(frozen=True)
class Row:
    """An environment: its Python, the words of `uv pip install`, and what it must do."""

    python: str
    words: tuple[str, ...]
    imports: tuple[str, ...] = ("train.cli.training", "transformers.models.qwen3.modeling_qwen3")
    tests: tuple[str, ...] = QUICK
    shown: tuple[str, ...] = ("torch", "transformers", "tokenizers", "huggingface-hub")
    resolve: bool = False  # whether it can be resolved is all that is asked: gigabytes, or a GPU


OURS = (f"torch=={TORCH}", "-e", ".[train,parquet,sandbox,client,build,test,lora]")
NEWEST = ("--upgrade", *OURS)
LOCKED = ("--require-hashes", "--no-deps", "-r")
GPU = ("transformers.models.qwen3.modeling_qwen3", "verl.trainer.main_ppo", "deepspeed")
ROWS = {
    "locked": Row("3.11", (*OURS, "-c", "requirements.lock")),
    "newest": Row("3.11", NEWEST),
    "newest-trl": Row(
        *("3.11", (*NEWEST, "trl"), ("trl", "train.cli.training"), tuple(PEERS)),
        shown=("torch", "transformers", "trl", "datasets"),
    ),
    "newest-3.12": Row("3.12", NEWEST),
    "newest-3.13": Row("3.13", NEWEST),
    "cluster": Row(
        *("3.11", (f"torch=={TORCH}", "-e", ".[train,sandbox,client,cluster,deepspeed,lora,test]")),
        *(GPU, BACKENDS),
        shown=("torch", "transformers", "verl", "ray", "deepspeed"),
    ),
    "gpu.lock": Row(
        *("3.11", (*LOCKED, "slurm/gpu.lock"), (*GPU, "sglang.srt.server_args"), ()),
        shown=("torch", "transformers", "verl", "sglang", "deepspeed"),
    ),
    "gpu-vllm.lock": Row(
        *("3.11", (*LOCKED, "slurm/gpu-vllm.lock"), (*GPU, "vllm.sampling_params"), ()),
        shown=("torch", "transformers", "verl", "vllm", "deepspeed"),
    ),
    "beside-vllm": Row(
        *("3.11", ("-e", ".[train,client]", "vllm>=0.33")),
        shown=("torch", "transformers", "vllm"),
        resolve=True,
    ),
    "beside-sglang": Row(
        *("3.11", ("-e", ".[train,client]", "sglang>=0.5.23")),
        shown=("torch", "transformers", "sglang"),
        resolve=True,
    ),
}


class NotMade(RuntimeError):
    """An environment that cannot be made or resolved; the last words of what was asked."""


def uv() -> str:
    """uv of the PATH, or one of our own."""
    if found := shutil.which("uv"):
        return found
    own = PLACE / "uv" / "bin"
    if not (own / "uv").exists():
        venv.create(own.parent, with_pip=True)
        said(str(own / "python"), "-m", "pip", "install", "-q", "uv")
    return str(own / "uv")


def said(*words: str, **environment: str) -> str:
    """What a command printed. Raises `NotMade` where it fails."""
    try:
        done = subprocess.run(
            words,
            cwd=ROOT,
            env={**os.environ, "DS_BUILD_OPS": "0", **environment},
            text=True,
            capture_output=True,
            check=False,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise NotMade(f"{words[0]} has not ended within {SECONDS} s") from None
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise NotMade(lines[-1].strip()[:200] if lines else f"exit status {done.returncode}")
    return done.stdout


def python_of(version: str) -> str:
    """The interpreter: of the PATH where it starts, of pyenv, or uv's own search."""
    for found in (
        shutil.which(f"python{version}"),
        *Path.home().glob(f".pyenv/versions/{version}.*/bin/python"),
    ):
        if (
            found
            and subprocess.run([found, "-V"], capture_output=True, check=False).returncode == 0
        ):
            return str(found)
    return version


def wheels() -> list[str]:
    return [
        word
        for link in os.environ.get("PIP_FIND_LINKS", "").split()
        for word in ("--find-links", link)
    ]


def resolved(row: Row) -> dict[str, str]:
    """Versions that would be installed."""
    asked = [word for word in row.words if word != "-e"]
    made = PLACE / "asked.in"
    made.write_text("\n".join(asked).replace(".[", f"{ROOT}[") + "\n")
    text = said(
        *(uv(), "pip", "compile", "-q", "--no-header", "--no-annotate", str(made)),
        *("--python-version", row.python, "--python-platform", "x86_64-manylinux_2_34"),
    )
    return dict(re.findall(r"^([\w-]+)==(\S+)", text, re.MULTILINE))


def made(name: str, row: Row) -> tuple[str, dict[str, str]]:
    """The environment's Python and its versions."""
    folder = PLACE / name
    python = str(folder / "bin" / "python")
    said(uv(), "venv", "-q", "--clear", "--python", python_of(row.python), str(folder))
    said(uv(), "pip", "install", "-q", "--python", python, *wheels(), *row.words)
    listed = said(uv(), "pip", "freeze", "--python", python)
    return python, dict(re.findall(r"^([\w-]+)==(\S+)", listed, re.MULTILINE))


def tried(python: str, row: Row) -> str:
    """What the environment did: imports, then tests."""
    env = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    said(python, "-c", "; ".join(f"import {name}" for name in row.imports), **env)
    if not row.tests:
        return "imported: " + ", ".join(f"`{name.partition('.')[0]}`" for name in row.imports)
    print(f"  {' '.join(row.tests)}", flush=True)
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *row.tests],
        cwd=ROOT,
        env={**os.environ, **env},
        text=True,
        stdout=subprocess.PIPE,
        check=False,
    )
    print(done.stdout[-3000:], flush=True)
    last = done.stdout.strip().splitlines()[-1].strip("= ")
    return re.sub(r" in .*", "", last) + ("" if done.returncode == 0 else " **failed**")


def entry(name: str, row: Row) -> str:
    """The row's line in the table."""
    try:
        if row.resolve:
            versions, result = resolved(row), "resolves"
        else:
            python, versions = made(name, row)
            result = tried(python, row)
    except NotMade as error:
        versions, result = {}, f"**not made**: {error}"
    shown = ", ".join(f"{p} {versions[p]}" for p in row.shown if p in versions)
    day = datetime.datetime.now(datetime.UTC).date()
    return f"| {name} | {row.python} | {shown} | {result.replace('|', '/')} | {day} |"


def write(entries: dict[str, str]) -> None:
    """Put lines into the page's table; other rows stay, those of no environment go."""
    text = PAGE.read_text("utf-8")
    head, rule, rest = text.partition("|---|---|---|---|---|\n")
    old = {line.split("|")[1].strip(): line for line in rest.splitlines() if line.startswith("|")}
    lines = [
        {**old, **entries}.get(name) or f"| {name} | {row.python} | | not run | |"
        for name, row in ROWS.items()
    ]
    below = "\n".join(line for line in rest.splitlines() if not line.startswith("|"))
    page = head + rule + "\n".join(lines) + "\n" + below
    PAGE.write_text(page.rstrip() + "\n", "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="environments made from nothing, and their tests")
    parser.add_argument("names", nargs="*", choices=[[], *ROWS], metavar="NAME")
    parser.add_argument("--ci", action="store_true", help="no page; not made is no failure")
    args = parser.parse_args()
    PLACE.mkdir(exist_ok=True)
    failed = False
    for name in args.names or ROWS:
        print(f"matrix: {name}", flush=True)
        line = entry(name, ROWS[name])
        print(line, flush=True)
        bad = "**" in line
        if args.ci:
            if "**not made**" in line:
                print(f"not run: tests in the environment {name!r} (it could not be made)")
                bad = False
        else:
            write({name: line})
        failed = failed or bad
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
