"""Where the interpreter lies, whose fault it is when a jail could not be set up, and the level that
simulated machines get."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from harness import needs_root, on_machine, running, usable
from namespaces import is_root_without_namespaces
from places import tables

from rollouts.sandbox import jail
from rollouts.sandbox.model import LEVELS, Config, Level, Limits, SandboxError
from rollouts.sandbox.pool import check, placed

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


@pytest.mark.parametrize(
    ("place", "level"), [*(("/tmp", level) for level in LEVELS), ("/dev/shm", "full")]
)
def test_an_interpreter_in_a_folder_that_a_jail_covers(
    place: str, level: Level, reached: str
) -> None:
    """It works, cannot be spoiled, and once it is gone that is not the code's failure."""
    if not os.access(place, os.W_OK):
        pytest.skip(f"{place} cannot be written to")
    with tempfile.TemporaryDirectory(prefix="assay-test-", dir=place) as made:
        if is_root_without_namespaces():
            Path(made).chmod(0o755)  # a jail runs as another user there
        words = [sys.executable, "-m", "venv", "--without-pip", f"{made}/venv"]
        subprocess.run(words, check=True)
        python = Path(made, "venv", "bin", "python")
        known = {"level": usable(level, reached), "min_level": "limits", "python": str(python)}
        with running(Config(workers=1, stack=(), **known)) as (run, _):
            assert run("import sys; print(sys.prefix)").stdout == f"{made}/venv\n"
            again = run(NEW_ONE, limits=Limits(wall_s=60, work_files=1))
            assert (again.status, again.stdout) == ("ok", "42\n"), again
            if level != "limits" or jail.is_root():
                assert run(SPOIL).stdout == ""
            broken = run("x = (")
            assert (broken.status, "SyntaxError" in broken.stderr) == ("error", True), broken
            if level != "limits":
                python.unlink()
                lost = run("x = (")
                assert (lost.status, lost.exit_code) == ("sandbox_error", None), lost
                assert str(python) in lost.why and run("print(1)").stdout == "1\n"


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


@pytest.mark.parametrize(("kinds", "level", "why"), tables("rollouts")["machines and their levels"])
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


# --- Directories that calls see without a copy: read only, by name, the same at every level

LOOK = """
import glob, os
names = sorted(glob.glob('**/*.*', recursive=True))
print(open('data.csv').read(), open('deep/er/x.txt').read(), names)
print(sum(len(files) for _, _, files in os.walk('.')))
"""
SPOIL_FILES = """
import os
for path in {paths}:
    for step in (lambda: open(path, 'r+').write('changed'), lambda: os.truncate(path, 0),
                 lambda: os.chmod(path, 0o777), lambda: os.utime(path), lambda: os.remove(path),
                 lambda: open(os.path.dirname(os.path.realpath(path)) + '/new', 'w')):
        try: step()
        except OSError: pass
"""


@pytest.fixture
def lakes(tmp_path: Path) -> dict[str, str]:
    """Two directories anybody may read, beside a third that nobody was given."""
    above = tmp_path
    while above.stat().st_mode & 0o005 != 0o005 and above != Path("/"):
        above.chmod(0o755)
        above = above.parent
    for name in ("lake", "other", "gold"):
        (tmp_path / name / "deep" / "er").mkdir(parents=True)
        (tmp_path / name / "data.csv").write_text(f"{name} data")
        (tmp_path / name / "deep" / "er" / "x.txt").write_text(f"{name} x")
    for path in [tmp_path, *tmp_path.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return {name: str(tmp_path / name) for name in ("lake", "other")}


def state(lakes: dict[str, str]) -> dict[str, tuple[str, int, int]]:
    found = [p for top in lakes.values() for p in Path(top).rglob("*") if p.is_file()]
    return {str(p): (p.read_text(), p.stat().st_mode, p.stat().st_mtime_ns) for p in found}


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, reached: str) -> Level:
    return usable(request.param, reached)


def test_each_level_shows_the_same_files(level: Level, lakes: dict[str, str]) -> None:
    before = state(lakes)
    config = Config(workers=1, stack=(), level=level, min_level="limits", shared=lakes)
    with running(config) as (run, _):
        most = 3 if level == "confined" else 500  # links are not the code's own files
        few = Limits(wall_s=30, work_files=most)
        seen = run(LOOK + "import time; time.sleep(0.3)", limits=few, shared="lake")
        names = "['data.csv', 'deep/er/x.txt', 'main.py']"
        assert seen.stdout == f"lake data lake x {names}\n3\n", seen.stderr
        folder = run("import os; os.chdir('in/put')\n" + LOOK, shared={"in/put": "lake"})
        assert folder.stdout.splitlines()[1] == "2", folder.stderr
        two = run(
            "for d in 'ab': print(open(d + '/data.csv').read())\nopen('n', 'w').write('m')",
            fetch=["*"],
            shared={"a": "lake", "b": "other"},
        )
        assert (two.stdout, two.files) == ("lake data\nother data\n", {"n": b"m"}), two.stderr
        replaced = run("print(open('data.csv').read())", {"data.csv": "mine"}, shared="lake")
        assert replaced.stdout == "mine\n", replaced.stderr
        if level != "limits" or jail.is_root():  # `limits` leaves it to the file permissions
            run(SPOIL_FILES.format(paths=["data.csv", "deep/er/x.txt"]), shared="lake")
            run(SPOIL_FILES.format(paths=["d/data.csv", "d/deep/er/x.txt"]), shared={"d": "lake"})
            # Landlock does not cover chmod: `confined` leaves modes and times to the same user
            whole = level != "confined" or jail.is_root()
            kept = slice(None) if whole else slice(1)
            after = state(lakes)
            assert {p: after[p][kept] for p in after} == {p: before[p][kept] for p in before}
        beside = Path(lakes["lake"]).parent / "gold" / "data.csv"
        unasked = [str(beside), lakes["other"] + "/data.csv", "/.shared/other/data.csv"]
        for path in unasked if level != "limits" else []:
            assert run(f"open({path!r})", shared="lake").status == "error"
        assert run("import os; print(os.listdir())").stdout == "['main.py']\n"


def test_what_cannot_be_shared_is_said(lakes: dict[str, str]) -> None:
    for shared, files, word in (
        *(("none", {}, "sandbox.shared"), ({"../x": "lake"}, {}, "relative")),
        ({"a": "lake", "a/b": "lake"}, {}, "side by side"),
        ({"a": "lake"}, {"a/f": b""}, "read only"),
    ):
        with pytest.raises(ValueError, match=word):
            check("pass", files, (), placed(shared, Config(shared=lakes)))
