# safetensors ships partial types.
# pyright: reportUnknownVariableType=false
"""Safetensors files, whose library's errors name neither the file nor their kind."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollouts.engines.engine import ModelError

_NUMBER = re.compile(r"os error (\d+)")


def read_weights(path: Path) -> dict[str, Any]:
    """The tensors of a file. Raises `ModelError` for one that is damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(str(path))
    except SafetensorError as error:
        raise ModelError(f"{path}: damaged ({error}); get or make the file again") from None


def write_weights(path: Path, tensors: Mapping[str, Any]) -> None:
    """Write a file, not atomically, which others may read as they may any file of this process: the
    library's own are private. Raises `OSError` naming it for a disk that is full."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(dict(tensors), str(path), {"format": "pt"})
        path.chmod(mode)
    except SafetensorError as error:
        number = _NUMBER.search(str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None
