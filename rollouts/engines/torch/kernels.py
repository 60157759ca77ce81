# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Compiled kernels for what lies between the matrix products, on a CPU (kernels.c).

They are compiled by the machine's own C compiler when a process first needs them, in about a
second, and kept in the cache folder. Without a compiler or AVX-512, on a GPU, with
`ASSAY_KERNELS=off`, or where they do not compute what torch does, torch's own operations are used:
the same arithmetic, with more roundings. `ASSAY_KERNELS=on` takes them without AVX-512 too.
"""

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
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rollouts.machine import cache_folder

SOURCE = Path(__file__).with_name("kernels.c")
BASE = ("-O3", "-fno-math-errno", "-fPIC", "-Wno-psabi")
TUNED = ("-march=native", "-mcpu=native")  # what compilers call it differs by processor
COMPILERS = ("cc", "gcc", "clang")
SECONDS = 120  # for a compiler; it needs about one
VECTOR = 16
LARGEST = 256  # head
PART = 256  # logits whose sum is kept
DEFINES = {torch.bfloat16: ("-DBF16=1",), torch.float32: ()}
_ADDRESS, _LONG, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float


class Unavailable(Exception):
    """Why there are no compiled kernels here."""


class Kernels:
    """The functions of a compiled library, on contiguous tensors of one number format."""

    def __init__(self, path: Path) -> None:
        library: Any = ctypes.CDLL(str(path))
        self._add_norm, self._silu_mul, self._attend, self._weigh, self._greatest = (
            getattr(library, name)
            for name in ("add_norm", "silu_mul", "attend", "weigh", "greatest")
        )
        self._add_norm.argtypes = [*[_ADDRESS] * 4, _LONG, _LONG, _FLOAT, _INT]
        self._add_norm.restype = None
        self._silu_mul.argtypes = [_ADDRESS, _ADDRESS, _LONG, _LONG, _INT]
        self._silu_mul.restype = None
        self._attend.argtypes = [*[_ADDRESS] * 12, *[_LONG] * 8, _FLOAT, _FLOAT, _INT]
        self._attend.restype = _INT
        self._weigh.argtypes = [_ADDRESS, _LONG, _LONG, _FLOAT, *[_ADDRESS] * 4, _INT]
        self._weigh.restype = None
        self._greatest.argtypes = [
            *[_ADDRESS, _LONG, _LONG, _ADDRESS, _ADDRESS, _LONG, _ADDRESS, _ADDRESS, _INT]
        ]
        self._greatest.restype = _INT

    def add_norm(self, x: Tensor, more: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        """x (N, D) becomes x + more, in place; returns its root-mean-square norm times `weight`."""
        normed = torch.empty_like(x)
        rows, size = x.shape
        other = None if more is None else more.data_ptr()
        places = (x.data_ptr(), other, weight.data_ptr(), normed.data_ptr())
        self._add_norm(*places, rows, size, eps, torch.get_num_threads())
        return normed

    def silu_mul(self, both: Tensor) -> Tensor:
        """silu(gate) · up (N, M) of both (N, 2M), gates first."""
        rows, size = both.shape[0], both.shape[1] // 2
        out = both.new_empty(rows, size)
        self._silu_mul(both.data_ptr(), out.data_ptr(), rows, size, torch.get_num_threads())
        return out

    def attend(
        self,
        heads: Tensor,
        out: Tensor,
        tables: tuple[Tensor, Tensor],
        norms: tuple[Tensor | None, Tensor | None],
        prompt: tuple[Tensor, Tensor],
        own: tuple[Tensor, Tensor],
        fed: Tensor | None,
        lengths: Tensor,
        used: int,
        eps: float,
    ) -> None:
        """Attention of one new token a fed row into `out` (F, H·C); see `attend` of kernels.c.

        heads (F, (H+2K)·C): queries, keys and values before their rotation; tables: cos and sin
        (F, C); prompt (P, K, L, C) and own (R, K, S, C) keys and values, of which column
        `used` - 1 of `own` is written. Axis letters as in decode.py.
        """
        groups, kv_heads, longest, size = prompt[0].shape
        places = [
            None if t is None else t.data_ptr()
            for t in (heads, out, *tables, *norms, *prompt, *own, fed, lengths)
        ]
        count, total = heads.shape[0], heads.shape[1] // size - 2 * kv_heads
        width, room = own[0].shape[0] // groups, own[0].shape[2]
        sizes = (count, width, total, kv_heads, size, longest, room, used)
        threads = torch.get_num_threads()
        if self._attend(*places, *sizes, eps, size**-0.5, threads):
            raise MemoryError("attention: no memory for the scores of a row")

    def weigh(self, logits: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of logits (R, V): the place of the greatest (R,), the greatest (R,), and of every PART
        columns the greatest and the sum of exp((x - greatest) / temperature), float64 (R, V/PART).
        """
        rows, size = logits.shape
        parts = -(-size // PART)
        best = torch.empty(rows, dtype=torch.int64)
        peaks, tops = torch.empty(rows), torch.empty(rows, parts)
        sums = torch.empty(rows, parts, dtype=torch.float64)
        places = [t.data_ptr() for t in (best, peaks, tops, sums)]
        self._weigh(logits.data_ptr(), rows, size, temperature, *places, torch.get_num_threads())
        return best, peaks, tops, sums

    def greatest(
        self, logits: Tensor, tops: Tensor, least: Tensor, count: int
    ) -> tuple[Tensor, Tensor]:
        """The `count` greatest logits of each row and their places (R, count), the greatest first.

        `tops` are those of `weigh`. `count` of a row must reach its `least` (R,).
        """
        rows, size = logits.shape
        values, places = torch.empty(rows, count), torch.empty(rows, count, dtype=torch.int64)
        given = (logits.data_ptr(), rows, size, tops.data_ptr(), least.data_ptr(), count)
        threads = torch.get_num_threads()
        if self._greatest(*given, values.data_ptr(), places.data_ptr(), threads):
            raise MemoryError("sampling: no memory for the best logits of a row")
        return values, places


def kernels_for(weight: Tensor, sizes: Sequence[int], head_dim: int) -> Kernels | None:
    """Kernels for weights like this one, of a model with these widths; None: use torch."""
    fits = all(size % VECTOR == 0 for size in sizes) and head_dim % (2 * VECTOR) == 0
    fits = fits and head_dim <= LARGEST
    if weight.device.type != "cpu" or not fits:
        return None
    found = compiled(weight.dtype)
    return found if isinstance(found, Kernels) else None


@cache
def compiled(dtype: torch.dtype) -> Kernels | str:
    """The kernels of a number format, or why there are none on this machine."""
    try:
        wish = os.environ.get("ASSAY_KERNELS", "").lower()
        if wish in ("off", "0", "no", "false"):
            raise Unavailable("switched off by ASSAY_KERNELS")
        if wish not in ("on", "1", "yes", "true") and "avx512f" not in _processor().split():
            raise Unavailable("no AVX-512, without which no gain was measured (ASSAY_KERNELS=on)")
        if dtype not in DEFINES:
            raise Unavailable(f"none for {str(dtype).removeprefix('torch.')}")
        found = _load(DEFINES[dtype])
        if not agrees(found, dtype):
            raise Unavailable("what they compute differs from torch")
    except Unavailable as reason:
        return str(reason)
    return found


def _load(defines: Sequence[str]) -> Kernels:
    compiler = os.environ.get("CC") or next(filter(shutil.which, COMPILERS), None)
    if compiler is None:
        raise Unavailable("no C compiler (cc) on the path")
    try:
        source = SOURCE.read_bytes()
    except OSError as error:
        raise Unavailable(f"{SOURCE}: {error.strerror}") from None
    last: Exception | None = None
    # Clang's OpenMP has a runtime of its own, which does not load here: without, then
    for parallel in (("-fopenmp",), ()) if _shares_threads() else ((),):
        said = repr((source, compiler, defines, parallel, platform.machine(), _processor()))
        name = f"kernels-{hashlib.sha256(said.encode()).hexdigest()[:20]}.so"
        for folder in _folders():
            kept = folder / name
            try:
                if not kept.is_file():
                    folder.mkdir(parents=True, exist_ok=True)
                    _compile(compiler, defines, parallel, kept)
                return Kernels(kept)
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


def _processor() -> str:
    """What instructions there are: a home may be shared by machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((x for x in lines if x.lower().startswith(("flags", "features"))), "")


def agrees(kernels: Kernels, dtype: torch.dtype) -> bool:
    """Whether the kernels compute what torch does, on a small case."""
    random = torch.Generator().manual_seed(0)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random).to(dtype)

    near = 1e-5 if dtype == torch.float32 else 3e-2
    x, more, weight = some(3, 64), some(3, 64), some(64)
    summed = x + more
    wanted = F.rms_norm(summed, (64,), weight, 1e-5)
    found = kernels.add_norm(x, more, weight, 1e-5)
    pairs = [(x, summed), (found, wanted)]
    pairs.append((kernels.silu_mul(x), F.silu(x[:, :32]) * x[:, 32:]))
    # one key head, two query heads, one token without rotation: two prompt keys and its own
    heads, out = some(1, 128), some(1, 64)
    tables = (torch.ones(1, 32, dtype=dtype), torch.zeros(1, 32, dtype=dtype))
    prompt, own = (some(1, 1, 2, 32), some(1, 1, 2, 32)), (some(1, 1, 1, 32), some(1, 1, 1, 32))
    lengths = torch.tensor([2])
    kernels.attend(heads, out, tables, (None, None), prompt, own, None, lengths, 1, 1e-5)
    query, key, value = heads.view(4, 32).split([2, 1, 1])
    keys, values = torch.cat([prompt[0][0, 0], key]), torch.cat([prompt[1][0, 0], value])
    shares = (query.float() @ keys.float().T * 32**-0.5).softmax(-1)
    pairs.append((out.view(2, 32), (shares @ values.float()).to(dtype)))
    return all(torch.allclose(a.float(), b.float(), near, near) for a, b in pairs)
