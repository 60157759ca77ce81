# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false
"""A library of kernels made by the machine's own C compiler, and where it is kept."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from assay.files import cache_folder

SOURCE = Path(__file__).with_name("c") / "kernels.c"
BASE = ("-O3", "-fno-math-errno", "-fPIC", "-Wno-psabi")
TUNED = ("-march=native", "-mcpu=native")  # what compilers call it differs by processor
COMPILERS = ("cc", "gcc", "clang")
SECONDS = 120  # for a compiler; it needs about eight


class Unavailable(Exception):
    """Why there are no compiled kernels here."""


def library(defines: Sequence[str]) -> ctypes.CDLL:
    """The kernels for some definitions, compiled if they are not kept. Raises `Unavailable`."""
    compiler = os.environ.get("CC") or next(filter(shutil.which, COMPILERS), None)
    if compiler is None:
        raise Unavailable("no C compiler (cc) on the path")
    try:
        source = [path.read_bytes() for path in sorted(SOURCE.parent.glob("*.[ch]"))]
    except OSError as error:
        raise Unavailable(f"{SOURCE}: {error.strerror}") from None
    last: Exception | None = None
    # Clang's OpenMP has a runtime of its own, which does not load here: without, then
    for parallel in (("-fopenmp",), ()) if _shares_threads() else ((),):
        said = repr((source, compiler, defines, parallel, platform.machine(), processor()))
        name = f"kernels-{hashlib.sha256(said.encode()).hexdigest()[:20]}.so"
        for folder in _folders():
            kept = folder / name
            try:
                if not kept.is_file():
                    folder.mkdir(parents=True, exist_ok=True)
                    _compile(compiler, defines, parallel, kept)
                return ctypes.CDLL(str(kept))
            except (OSError, Unavailable) as error:  # also where nothing may be written, or run
                last = error
                if "undefined symbol" in str(error):  # it would be in another folder too
                    break
    if isinstance(last, Unavailable):
        raise last
    raise Unavailable(f"they could not be stored or loaded: {last}")


def _folders() -> list[Path]:
    """Where a compiled library may lie; the last one is this process's alone."""
    own = Path(_own_folder().name)
    try:
        return [cache_folder() / "kernels", own]
    except RuntimeError:  # there is no home
        return [own]


@cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="assay-kernels-", ignore_cleanup_errors=True)


def _compile(compiler: str, defines: Sequence[str], parallel: Sequence[str], kept: Path) -> None:
    """Leaves the library at `kept`, whole. OpenMP's functions are left to torch's own runtime:
    a second one would have threads of its own."""
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        part, whole = f"{folder}/kernels.o", f"{folder}/kernels.so"
        said = ""
        for tuned in ((TUNED[0],), (TUNED[1],), ()):
            flags = (*BASE, *tuned, *parallel, *defines)
            said = _run(compiler, *flags, "-c", str(SOURCE), "-o", part)
            if not said:
                break
        said = said or _run(compiler, "-shared", part, "-o", whole)
        if said:
            raise Unavailable(f"{compiler} failed: {said}")
        os.replace(whole, kept)


def _run(*command: str) -> str:
    """What a compiler that failed said first; "" when it did not."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = run.stderr.strip() or f"exit status {run.returncode}"
    return said.splitlines()[0] if run.returncode else ""


def _shares_threads() -> bool:
    """Make torch's OpenMP runtime known to libraries that are loaded later; whether it has one."""
    found = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*"))
    try:
        for path in found:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return bool(found)


def processor() -> str:
    """What instructions there are: a home may be shared by machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((x for x in lines if x.lower().startswith(("flags", "features"))), "")
