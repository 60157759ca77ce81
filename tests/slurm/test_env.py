"""The container lines that slurm/env.sh shows, against stand-ins that do to a process what the real
ones do: Apptainer's --containall cleans the environment and gives namespaces, pyxis enters the
image's own folder unless told where."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from places import ROOT

APPTAINER = """#!/bin/bash
shift  # exec
keep=1
while [[ "$1" == -* ]]; do
  case "$1" in
    --containall|-C|--cleanenv|-e) keep=0; shift ;;
    --pid|-p|--ipc|-i) echo "separate processes" >&2; exit 9 ;;
    -B|--bind|--pwd) [ "$1" = --pwd ] && at=$2; shift 2 ;;
    *) shift ;;
  esac
done
shift  # the image
cd "${at:-$PWD}" || exit 8
[ "$keep" = 1 ] && exec "$@"
exec env -i PATH="$PATH" "$@"
"""
SRUN = """#!/bin/bash
cd /
while [[ "$1" == --* ]]; do
  case "$1" in --container-workdir=*) cd "${1#*=}" ;; esac
  shift
done
exec "$@"
"""


def shown(name: str) -> str:
    """The assignment of `name` that the comments of slurm/env.sh show, as a line of bash."""
    text = (ROOT / "slurm" / "env.sh").read_text("utf-8")
    found = re.search(rf"^#   ({name}=\([^)]*\))", text, re.MULTILINE)
    assert found is not None
    return re.sub(r"\n#\s*", " ", found.group(1))


@pytest.mark.parametrize(
    ("name", "start"),
    [("ASSAY_RUN", '"${ASSAY_RUN[@]}"'), ("ASSAY_SRUN", 'srun "${ASSAY_SRUN[@]}"')],
)
def test_a_process_keeps_its_environment_and_its_folder(
    tmp_path: Path, name: str, start: str
) -> None:
    bin_folder, root = tmp_path / "bin", tmp_path / "checkout"
    bin_folder.mkdir()
    root.mkdir()
    for program, text in (("apptainer", APPTAINER), ("srun", SRUN)):
        (bin_folder / program).write_text(text)
        (bin_folder / program).chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", f"{shown(name)}\n{start} bash -c 'echo \"$SLURM_JOB_ID in $PWD\"'"],
        env={
            **os.environ,
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "ASSAY_ROOT": str(root),
            "ASSAY_SCRATCH": str(tmp_path),
            "SLURM_JOB_ID": "17",
        },
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"17 in {root}"
