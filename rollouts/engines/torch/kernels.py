# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Compiled kernels for what lies between the matrix products, on a CPU (c/kernels.c).

They are compiled by the machine's own C compiler when a process first needs them, in about two
seconds, and kept in the cache folder. Without a compiler or AVX-512, on a GPU, with
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

from assay.files import cache_folder

LARGEST = 256  # head
DEFINES = {torch.bfloat16: ("-DBF16=1",), torch.float32: ()}


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
        if wish not in ("on", "1", "yes", "true") and "avx512f" not in processor().split():
            raise Unavailable("no AVX-512, without which no gain was measured (ASSAY_KERNELS=on)")
        if dtype not in DEFINES:
            raise Unavailable(f"none for {str(dtype).removeprefix('torch.')}")
        tiles = dtype == torch.bfloat16 and "amx_bf16" in processor().split()
        found = Kernels(library(DEFINES[dtype]), tiles)
        if not sound(found, dtype):
            raise Unavailable("what they compute differs from torch")
    except Unavailable as reason:
        return str(reason)
    return found


def sound(kernels: Kernels, dtype: torch.dtype) -> bool:
    """Whether a norm, a gate and a law over logits are torch's numbers: a compiler that is wrong
    shows here. The first need of the kernels may come within an optimiser's step, so no gradient is
    asked for. The tests compare every function (tests/support/kernels_agree.py)."""
    random = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(*shape, generator=random).to(dtype) for shape in ((3, 64), (64,)))
    near = 1e-5 if dtype == torch.float32 else 3e-2
    peaks, sums = kernels.weigh(x, 0.7)[1::2]
    pairs = (
        (kernels.silu_mul(x), F.silu(x[:, :32]) * x[:, 32:]),
        (peaks / 0.7 + sums.sum(-1).log(), (x.float() / 0.7).logsumexp(-1)),
        (kernels.add_norm(x, None, weight, 1e-5), F.rms_norm(x, (64,), weight, 1e-5)),
    )
    return all(torch.allclose(a.float(), b.float(), near, near) for a, b in pairs)


# --- the functions of c/*.c, on tensors -------------------------------------------------------

VECTOR = 16
BLOCK = 32  # both sizes of a weight are multiples of it, where AMX multiplies
PART = 256  # logits whose sum is kept
# The parameters of each function but the last, the number of threads: p addresses (of tensors, or
# null), l whole numbers, f float32 numbers, b whether.
KINDS = {"p": ctypes.c_void_p, "l": ctypes.c_int64, "f": ctypes.c_float, "b": ctypes.c_int}
PARAMETERS = {
    "add_norm": "ppppppllf",
    "silu_mul": "ppll",
    "attend": "pppppppppppplllllllff",
    "read_prompts": "ppppppppplllllff",
    "weigh": "pllfpppp",
    "greatest": "pllpplpp",
    "norm_back": "pppppppll",
    "silu_back": "pppll",
    "to_blocks": "ppppppplllll",
    "from_blocks": "ppppppllplllll",
    "move_heads": "pppllllllll",
    "shares": "pppllllf",
    "shares_back": "pppllllf",
    "attend_blocks": "pppppppllllllf",
    "attend_blocks_back": "pppppppppppllllllf",
    "transpose": "ppll",
    "law": "pllfppp",
    "law_back": "ppppllf",
    "copy_down": "ppl",
    "multiplies": "",
    "pack_weight": "ppll",
    "product": "pppplllb",
    "between": "ppppplllllf",
}
MAY_FAIL = (  # for want of memory
    "attend",
    "read_prompts",
    "greatest",
    "shares",
    "attend_blocks",
    "attend_blocks_back",
    "product",
    "between",
)


class Kernels:
    """The functions of a compiled library, on contiguous tensors of one number format."""

    def __init__(self, library: ctypes.CDLL, tiles: bool = False) -> None:
        """`tiles`: the processor multiplies this format by AMX. `multiplies`: this library does,
        too, and the system lets it."""
        self.tiles = tiles
        self._functions: dict[str, Any] = {}
        for name, kinds in PARAMETERS.items():
            found = self._functions[name] = getattr(library, name)
            found.argtypes = [*(KINDS[kind] for kind in kinds), ctypes.c_int]
            found.restype = ctypes.c_int if name in (*MAY_FAIL, "multiplies") else None
        self.multiplies = bool(self._functions["multiplies"](1))

    def run(self, name: str, *values: Tensor | float | None) -> None:
        """A function of c/*.c, which says what it does, with torch's number of threads."""
        given = [v.data_ptr() if isinstance(v, Tensor) else v for v in values]
        if self._functions[name](*given, torch.get_num_threads()):
            raise MemoryError(f"no memory for the scratch of the kernel {name}")

    def add_norm(self, x: Tensor, more: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        """x (N, D) becomes x + more, in place; returns its root-mean-square norm times `weight`."""
        normed = torch.empty_like(x)
        self.run("add_norm", x, more, weight, x, normed, None, *x.shape, eps)
        return normed

    def silu_mul(self, both: Tensor) -> Tensor:
        """silu(gate) · up (N, M) of both (N, 2M), gates first."""
        rows, size = both.shape[0], both.shape[1] // 2
        out = both.new_empty(rows, size)
        self.run("silu_mul", both, out, rows, size)
        return out

    def transposed(self, x: Tensor) -> Tensor:
        """x (N, M) as (M, N), written out where that makes products of it faster."""
        if not self.tiles:
            return x.t()
        out = x.new_empty(x.shape[1], x.shape[0])
        self.run("transpose", x.contiguous(), out, *x.shape)
        return out

    def packed(self, weight: Tensor) -> Tensor | None:
        """A copy of a weight (N, D) for `product`; None where that is not for this weight, or not
        for this processor."""
        if not self.multiplies or any(size % BLOCK for size in weight.shape):
            return None
        copy = torch.empty(weight.shape, dtype=weight.dtype)
        self.run("pack_weight", weight.contiguous(), copy, *weight.shape)
        return copy

    def packed_gates(self, weight: Tensor) -> Tensor | None:
        """The same of gates and then what they open (2M, D), for a gated product."""
        if len(weight) % BLOCK:
            return None
        turns = weight.unflatten(0, (2, -1, VECTOR)).transpose(0, 1)
        return self.packed(turns.reshape(weight.shape))

    def product(
        self, x: Tensor, packed: Tensor, bias: Tensor | None, gates: bool = False
    ) -> Tensor:
        """x · Wᵀ + bias (R, N) of x (R, D), the weight as `packed` made it. With `gates`, of the
        weight as `packed_gates` made it, silu(gate) · up (R, N/2)."""
        out = x.new_empty(len(x), len(packed) // 2 if gates else len(packed))
        self.run("product", x.contiguous(), packed, bias, out, len(x), *packed.shape, gates)
        return out

    def attend(
        self,
        heads: Tensor,
        out: Tensor,
        tables: tuple[Tensor, Tensor],
        norms: tuple[Tensor | None, Tensor | None],
        prompt: tuple[Tensor, Tensor],
        own: tuple[Tensor, Tensor],
        rows: Tensor,
        lengths: Tensor,
        eps: float,
        shared: int = 0,
    ) -> None:
        """Attention of the new tokens of each fed row into `out` (T, H·C); see c/attention.c.

        heads (T, (H+2K)·C): queries, keys and values before their rotation; tables: cos and sin
        (T, C); prompt (P, K, L, C), the first `shared` of L the same in all of P, and own
        (R, K, S, C) keys and values, which the new ones join. `rows` (F, 4), int64, a prompt's
        together: prompt, row of `own`, its columns so far, new tokens (16 at most). Axis letters
        as in cpu_decode.py.
        """
        kv_heads, longest, size = prompt[0].shape[1:]
        tensors = (heads, out, *tables, *norms, *prompt, *own, rows, lengths)
        total = heads.shape[1] // size - 2 * kv_heads
        sizes = (len(rows), total, kv_heads, size, longest, own[0].shape[2], shared)
        self.run("attend", *tensors, *sizes, eps, size**-0.5)

    def read_prompts(
        self,
        heads: Tensor,
        tables: tuple[Tensor, Tensor],
        norms: tuple[Tensor | None, Tensor | None],
        keys: Tensor,
        values: Tensor,
        spans: Tensor,
        eps: float,
    ) -> Tensor:
        """Attention (T, H·C) of the tokens spans[p, 0] to before spans[p, 1] of each prompt, one
        prompt after another, where `multiplies` and C is a multiple of 32; see c/prompts.c.

        heads (T, (H+2K)·C): queries, keys and values before their rotation; tables: cos and sin
        (T, C); keys, values (P, K, L, C): those before each span are read, those in it written.
        """
        groups, kv_heads, longest, size = keys.shape
        total = heads.shape[1] // size - 2 * kv_heads
        out = heads.new_empty(len(heads), total * size)
        tensors = (heads, out, *tables, *norms, keys, values, spans)
        sizes = (groups, total, kv_heads, size, longest)
        self.run("read_prompts", *tensors, *sizes, eps, size**-0.5)
        return out

    def weigh(self, logits: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of logits (R, V): the place of the greatest (R,), the greatest (R,), and of every PART
        columns the greatest and the sum of exp((x - greatest) / temperature), float64 (R, V/PART).
        """
        rows, size = logits.shape
        parts = -(-size // PART)
        best = torch.empty(rows, dtype=torch.int64)
        peaks, tops = torch.empty(rows), torch.empty(rows, parts)
        sums = torch.empty(rows, parts, dtype=torch.float64)
        self.run("weigh", logits, rows, size, temperature, best, peaks, tops, sums)
        return best, peaks, tops, sums

    def greatest(
        self, logits: Tensor, tops: Tensor, least: Tensor, count: int
    ) -> tuple[Tensor, Tensor]:
        """The `count` greatest logits of each row and their places (R, count), the greatest first.

        `tops` are those of `weigh`. `count` of a row must reach its `least` (R,).
        """
        rows, size = logits.shape
        values, places = torch.empty(rows, count), torch.empty(rows, count, dtype=torch.int64)
        self.run("greatest", logits, rows, size, tops, least, count, values, places)
        return values, places


# --- a library of them, compiled --------------------------------------------------------------

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
