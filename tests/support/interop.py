"""`make test-interop`: our exports against the real libraries, each in an environment of its own.

`python tests/support/interop.py [NAME …]` makes `.interop/NAME` where it is missing, with the
versions that `tests/interop/NAME.txt` pins, and runs the tests of that library there. Harbor,
verifiers, inspect and NeMo Gym need Python 3.12 ($PYTHON312); TRL, datasets, smolagents and the
trackers (Weights & Biases, TensorBoard) run on a copy of the project's own environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "interop"  # what each library is installed with
ADAPTERS = "tests/data_gen/exports/forms"
# tests/conftest.py needs more packages than these environments have
ALONE = ["--noconftest", "-p", "family_fixtures", "-p", "no:cacheprovider"]
PATHS = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "support")))
# installed on top of the project's own environment
OWN = ("trl", "datasets", "trackers", "agents")
# library: (its tests, with spaces; what is installed without its own requirements)
LIBRARIES = {  # library: its tests
    "harbor": "tests/rollouts/harbor/test_environment.py",
    "verifiers": f"{ADAPTERS}/test_assay_tasks.py",
    "inspect": f"{ADAPTERS}/test_assay_inspect.py tests/train/report/test_inspect_log.py",
    "gym": f"{ADAPTERS}/test_app.py",
    "trl": f"{ADAPTERS}/test_assay_trl.py",
    "trackers": "tests/train/run/test_log.py",
    "datasets": "tests/data_gen/test_sharing.py",
    "agents": "tests/rollouts/krama/test_agents.py",
}


def run(*words: str, **environment: str) -> int:
    env = {**os.environ, **environment}
    return subprocess.run(words, cwd=ROOT, env=env, check=False).returncode


def made(name: str) -> Path | None:
    """The environment of a library, made where it is missing; None when it cannot be."""
    folder = ROOT / ".interop" / name
    python = folder / "bin" / "python"
    if (folder / ".done").exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    if name in OWN:
        # its files, also where .venv is a link: pip must not reach the environment itself
        status = run("cp", "-al", str((ROOT / ".venv").resolve()), str(folder))
        files = [f"{name}.txt"]
    else:
        program = os.environ.get("PYTHON312") or shutil.which("python3.12")
        if program is None:
            print(f"{name}: needs Python 3.12; set PYTHON312", file=sys.stderr)
            return None
        status = run(program, "-m", "venv", str(folder))
        files = ["core.txt", f"{name}.txt"]
    listed = [word for file in files for word in ("-r", str(HERE / file))]
    install = (str(python), "-m", "pip", "install", "-q")
    status = status or run(*install, *listed)
    if name == "gym":  # without its own requirements
        status = status or run(*install, "--no-deps", "nemo-gym==0.4.0")
    if status:
        return None
    (folder / ".done").touch()
    return python


def main(names: list[str]) -> int:
    """1 when a library cannot be had or a test fails."""
    failed: list[str] = []
    for name in names or list(LIBRARIES):
        python = made(name)
        alone = [] if name in OWN else ALONE
        words = ["-m", "pytest", "-q", *alone, *LIBRARIES[name].split()]
        if python is None or run(str(python), *words, PYTHONPATH=PATHS):
            failed.append(name)
    print(f"interop: {len(names or LIBRARIES) - len(failed)} passed; failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
