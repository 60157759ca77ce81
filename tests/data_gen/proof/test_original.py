"""DuckDB, as the second way opens it."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from assay.task import TaskError
from data_gen.proof.original import connect


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ModuleNotFoundError("No module named 'duckdb'"), TaskError),
        (ImportError("failed to map segment from shared object"), ImportError),
    ],
)
def test_a_library_that_cannot_be_loaded_is_not_one_that_is_missing(
    error: ImportError, raised: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str) -> Any:
        raise error

    monkeypatch.setattr(importlib, "import_module", load)
    with pytest.raises(raised) as said:
        connect()
    assert ("not installed" in str(said.value)) == (raised is TaskError)
