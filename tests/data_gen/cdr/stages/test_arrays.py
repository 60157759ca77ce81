"""Arrays of a build on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from assay.task import TaskError
from data_gen.cdr.stages.arrays import OPEN, Arrays, OpenFiles, save_arrays


@pytest.mark.parametrize("kept", [0.02, 0.5, 0.9])
def test_a_file_that_is_cut_off_is_named(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "0.traces"
    save_arrays(path, {"a": np.arange(1000), "b": np.arange(1000.0)})
    assert Arrays(path)["b"][-1] == 999.0
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(TaskError, match=r"0\.traces: is cut off or damaged; remove it"):
        Arrays(path).load("b")


def test_files_stay_open_for_the_next_read_up_to_a_number(tmp_path: Path) -> None:
    files = OpenFiles()
    paths = [tmp_path / str(number) for number in range(OPEN + 5)]
    for number, path in enumerate(paths):
        path.write_bytes(b"%05d" % number)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(2):
        assert [files.read(path, 1, 4) for path in paths] == [b"%04d" % n for n in range(OPEN + 5)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before + OPEN
    del files
    assert len(list(Path("/proc/self/fd").iterdir())) == before
