"""Where the interpreter lies, whose fault it is when a jail could not be set up, and the level that
simulated machines get."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from harness import needs_root, on_machine, running, usable
from namespaces import is_root_without_namespaces

from rollouts.sandbox import jail, launcher
from rollouts.sandbox.model import LEVELS, Config, Level, Limits, SandboxError, closed_folder

NEW_ONE = (
    "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'print(6 * 7)'], check=True)"
)
SPOIL = """
import os, sys
bin = os.path.dirname(sys.executable)
inside = [bin, os.path.dirname(bin), os.path.dirname(os.path.dirname(bin))]
for top in inside:
    for step in (lambda: open(top + '/new', 'w'), lambda: os.rename(top, top + '.old'),
                 lambda: os.rmdir(top), lambda: os.remove(sys.executable),
                 lambda: os.symlink('/', top + '/link')):
        try: step()
        except OSError: continue
        print('OPEN', top)
"""


@pytest.fixture
def environment(request: pytest.FixtureRequest) -> Generator[Path]:
    """A virtual environment in a directory that every jail covers by one of its own."""
    if not os.access(request.param, os.W_OK):
        pytest.skip(f"{request.param} cannot be written to")
    top = Path(tempfile.mkdtemp(prefix="assay-test-", dir=request.param))
    if is_root_without_namespaces():
        top.chmod(0o755)  # a jail runs as another user there
    try:
        made = [sys.executable, "-m", "venv", "--without-pip", str(top / "venv")]
        subprocess.run(made, check=True)
        yield top / "venv"
    finally:
        shutil.rmtree(top)


@pytest.mark.parametrize(
    ("environment", "level"),
    [*(("/tmp", level) for level in LEVELS), ("/dev/shm", "full")],
    indirect=["environment"],
)
def test_an_interpreter_under_a_temporary_folder_works(
    environment: Path, level: Level, reached: str
) -> None:
    python = str(environment / "bin" / "python")
    config = Config(
        workers=1, stack=(), level=usable(level, reached), min_level="limits", python=python
    )
    with running(config) as (run, _):
        assert run("import sys; print(sys.prefix)").stdout == f"{environment}\n"
        broken = run("x = (")
        assert (broken.status, "SyntaxError" in broken.stderr) == ("error", True), broken
        again = run(NEW_ONE, limits=Limits(wall_s=60, work_files=1))
        assert (again.status, again.stdout) == ("ok", "42\n"), again
        if level != "limits" or jail.is_root():
            assert run(SPOIL).stdout == ""
        assert run(NEW_ONE).stdout == "42\n"


def test_a_path_that_no_jail_can_show_is_said(reached: str) -> None:
    usable("full", reached)
    assert launcher.covered(["/usr/lib", "/tmp/venv/bin", "/tmpfile", "/sandboxes/bin"]) == ""
    assert "/sandbox/venv/bin" in launcher.covered(["/usr/lib", "/sandbox/venv/bin"])
    config = Config(workers=1, stack=(), env={"LD_LIBRARY_PATH": "/tmp"})
    with pytest.raises(SandboxError, match="needs /tmp, where every call"), running(config):
        pass


@pytest.mark.parametrize("level", ["full", "confined"])
def test_an_interpreter_that_is_gone_is_not_the_code_s_failure(
    tmp_path: Path, level: Level, reached: str
) -> None:
    made = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")]
    subprocess.run(made, check=True)
    python = tmp_path / "venv" / "bin" / "python"
    config = Config(workers=1, stack=(), level=usable(level, reached), python=str(python))
    with running(config) as (run, _):
        assert run("x = (").status == "error"
        python.unlink()
        lost = run("x = (")
        assert lost.status == "sandbox_error" and str(python) in lost.why, lost
        assert lost.exit_code is None
        assert run("print(1)").stdout == "1\n"


def test_a_jail_that_cannot_start_the_interpreter_refuses(tmp_path: Path) -> None:
    """Its libraries may lie where a jail does not look; here the interpreter is a script."""
    program = tmp_path / "python"
    program.write_text(
        f'#!/bin/sh\n[ "$2" = "print(6 * 7)" ] && exit 3\nexec {sys.executable} "$@"'
    )
    program.chmod(0o755)
    patch = f"import sys; sys.executable = {str(program)!r}"
    (tmp_path / "sitecustomize.py").write_text(patch)
    env = {"PYTHONPATH": str(tmp_path), "LD_LIBRARY_PATH": str(tmp_path)}
    config = Config(workers=1, stack=(), min_level="limits", env=env)
    with pytest.raises(SandboxError, match="does not start inside the jail"), running(config):
        pass


def test_a_folder_that_other_users_cannot_enter_is_named() -> None:
    with tempfile.TemporaryDirectory() as made:  # pytest's own folders are closed
        top = Path(made).resolve()
        if shut := closed_folder(str(top)):
            pytest.skip(f"{shut} is closed")
        (top / "shut" / "bin").mkdir(parents=True, mode=0o755)
        top.chmod(0o755)
        (top / "python").symlink_to(top / "shut" / "bin" / "python")
        assert closed_folder(str(top / "python")) == ""
        (top / "shut").chmod(0o750)
        assert closed_folder(str(top / "python")) == str(top / "shut")


def test_inputs_that_cannot_be_written_are_not_the_code_s_failure(run) -> None:
    result = run("print(1)", {"a": b"", "a/b": b""})
    assert (result.status, result.exit_code) == ("sandbox_error", None), result
    full = run("print(1)", {"a": bytes(3 << 20)}, limits=Limits(work_mb=1))
    assert full.status == "disk", full


# --- the level of simulated machines -------------------------------------------------------------


AS = ["user"] if jail.is_root() else []
ASK = (
    "import json; from rollouts.sandbox import pool, model;"
    "print(json.dumps(pool.machine_report(model.Config(workers=1, min_level={!r}, stack=()))))"
)


def report_on(kinds: list[str], minimum: str = "limits") -> dict[str, object]:
    done = on_machine([*AS, *kinds], "-c", ASK.format(minimum))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("kinds", "level", "why"),
    [
        ([], "full", ""),
        (["called_root"], "full", ""),
        (["masked_proc"], "full", "own_proc"),
        (["no_landlock"], "full", "landlock"),
        (["no_userns"], "confined", "user_ns"),
        (["docker"], "confined", "user_ns"),
        (["no_userns", "no_landlock"], "limits", "landlock"),
    ],
)
def test_each_poorer_machine_gets_its_level(
    reached: str, kinds: list[str], level: str, why: str
) -> None:
    usable("full", reached)
    found = report_on(kinds)
    assert found["level"] == level
    assert why in found["missing"] if why else not found["missing"]  # type: ignore[operator]
    assert found["warm"] is True


@needs_root
def test_the_node_s_root_under_another_name_is_refused() -> None:
    """`unshare -r` as root: what it runs keeps root's id, which nothing binds."""
    if is_root_without_namespaces():
        pytest.skip("no user namespace can be made here")
    done = on_machine(["called_root"], "-c", ASK.format("limits"))
    found = json.loads(done.stdout)
    assert found["level"] == "none" and "run as another user" in found["missing"]["sandbox"]


def test_no_silent_downgrade(reached: str) -> None:
    usable("full", reached)
    found = report_on(["no_userns", "no_landlock"], minimum="confined")
    assert found["level"] == "none" and "min_level=limits" in str(found["missing"])
    config = Config(workers=1, level="confined", landlock_abi=0, stack=())
    with pytest.raises(SandboxError, match="confined"), running(config):
        pass


def test_an_older_landlock_still_confines() -> None:
    config = Config(workers=1, level="confined", landlock_abi=1, stack=())
    with running(config) as (run, _):
        result = run("import os\nos.kill(os.getppid(), 0)")
        assert "PermissionError" in result.stderr
        assert run("print(open('/etc/shadow').read())").status == "error"
        assert result.layers["landlock_abi"] == 1
