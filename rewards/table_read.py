# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""Reading a prediction file that nobody vouches for, and the truth it will be held against.

The prediction is read first and by itself: capped in bytes, columns and field size, from memory or
from a plain file opened without following links. Nothing of the truth is loaded at that point.
"""

from __future__ import annotations

import io
import os
import stat
import warnings
from functools import lru_cache
from typing import Any

MAX_BYTES = 64 * 1024 * 1024
MAX_COLUMNS = 2_000
MAX_NUMBER = 5_000  # characters of one field in a column of numbers; longer ones are no number

Frame = Any  # a pandas DataFrame


class Unreadable(ValueError):
    """The prediction cannot be read as a table; the message says why."""


def prediction_bytes(path: str) -> bytes | None:
    """A file's bytes, or None if there is none. Raises `Unreadable` for links, devices, size."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        raise Unreadable("not a plain file that can be read") from None
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
            raise Unreadable("not a plain file with one name")
        if info.st_size > MAX_BYTES:
            raise Unreadable(f"larger than {MAX_BYTES} bytes")
        with os.fdopen(os.dup(handle), "rb") as file:
            return file.read(MAX_BYTES + 1)
    finally:
        os.close(handle)


def _check_shape(data: bytes) -> None:
    if len(data) > MAX_BYTES:
        raise Unreadable(f"larger than {MAX_BYTES} bytes")
    header = data.lstrip(b"\r\n\t \xef\xbb\xbf")[: 1 << 20].split(b"\n", 1)[0]
    if header.count(b",") >= MAX_COLUMNS or len(header) >= 1 << 20:
        raise Unreadable(f"more than {MAX_COLUMNS} columns")


def read_prediction(data: bytes) -> Frame:
    """The table as pandas' defaults read it: words such as NA are missing, digits are numbers.

    Raises `Unreadable` for whatever makes the reader raise, and for what is over a limit.
    """
    import pandas as pd

    _check_shape(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return pd.read_csv(io.BytesIO(data))
    except (ValueError, OverflowError, MemoryError, RecursionError) as error:
        raise Unreadable(f"{type(error).__name__}: {str(error)[:120]}") from None


@lru_cache(maxsize=64)
def read_truth(text: str) -> Frame:
    """A truth table from its CSV text; callers must not change it."""
    import pandas as pd

    return pd.read_csv(io.BytesIO(text.encode("utf-8", "surrogatepass")))
