"""How many threads the numeric libraries of a call use: one, unless its limits say otherwise.

The warm interpreter has loaded them with one thread, because threads do not survive a fork. More
are switched on in the user process, by the libraries' own functions.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

VARIABLES = tuple(
    f"{name}_NUM_THREADS"
    for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "BLIS", "VECLIB_MAXIMUM")
)
_FUNCTIONS = {
    "openblas": (
        "openblas_set_num_threads",
        "openblas_set_num_threads64_",
        "scipy_openblas_set_num_threads",
        "scipy_openblas_set_num_threads64_",
    ),
    "libgomp": ("omp_set_num_threads",),
    "libomp": ("omp_set_num_threads",),
    "libiomp": ("omp_set_num_threads",),
    "mkl_rt": ("MKL_Set_Num_Threads",),
}
_setters: list[Callable[[int], object]] = []


def note_libraries(maps: str) -> None:
    """Find the functions in the libraries that `maps`, a process's own table, says are loaded."""
    paths = {line.split(None, 5)[5].strip() for line in maps.splitlines() if ".so" in line}
    for path in sorted(paths):
        for part, names in _FUNCTIONS.items():
            if part in os.path.basename(path):
                library = ctypes.CDLL(path)
                found = [getattr(library, name, None) for name in names]
                _setters.extend(function for function in found if function is not None)


def variables(threads: int) -> dict[str, str]:
    """The environment that asks the libraries for so many."""
    return {name: str(threads) for name in (*VARIABLES, "LOKY_MAX_CPU_COUNT")}


def use(threads: int) -> None:
    """In the user process, for what is loaded and for what is yet to be started or loaded."""
    if threads > 1:
        for name, value in variables(threads).items():
            os.environ[name] = value
        for function in _setters:
            function(threads)
