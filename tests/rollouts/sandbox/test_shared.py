"""Directories that calls see without a copy: read only, by name, the same at every level."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import running, usable

from rollouts.sandbox import jail
from rollouts.sandbox.model import LEVELS, Config, Level, Limits
from rollouts.sandbox.pool import check, placed

LOOK = """
import glob, os
names = sorted(glob.glob('**/*.*', recursive=True))
print(open('data.csv').read(), open('deep/er/x.txt').read(), names)
print(sum(len(files) for _, _, files in os.walk('.')))
"""
SPOIL = """
import os
import socket
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
        seen = run(LOOK, shared="lake")
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
            run(SPOIL.format(paths=["data.csv", "deep/er/x.txt"]), shared="lake")
            run(SPOIL.format(paths=["d/data.csv", "d/deep/er/x.txt"]), shared={"d": "lake"})
            # Landlock does not cover chmod: `confined` leaves modes and times to the same user
            whole = level != "confined" or jail.is_root()
            kept = slice(None) if whole else slice(1)
            assert {p: s[kept] for p, s in state(lakes).items()} == {
                p: s[kept] for p, s in before.items()
            }
        beside = Path(lakes["lake"]).parent / "gold" / "data.csv"
        unasked = [str(beside), lakes["other"] + "/data.csv", "/.shared/other/data.csv"]
        for path in unasked if level != "limits" else []:
            assert run(f"open({path!r})", shared="lake").status == "error"
        assert run("import os; print(os.listdir())").stdout == "['main.py']\n"


def test_a_directory_can_be_shared_later(lakes: dict[str, str]) -> None:
    with running(Config(workers=1, stack=(), min_level="limits")) as (run, pool):
        pool.share("lake", lakes["lake"])
        assert run("print(open('data.csv').read())", shared="lake").stdout == "lake data\n"


def test_links_do_not_count_as_the_code_s_own_files(lakes: dict[str, str], reached: str) -> None:
    if reached == "limits":
        pytest.skip("needs Landlock")
    limits = Limits(wall_s=30, work_files=3)
    with running(Config(workers=1, stack=(), level="confined", shared=lakes)) as (run, _):
        result = run("import time; open('a', 'w'); time.sleep(0.3)", limits=limits, shared="lake")
    assert result.status == "ok", result


@pytest.mark.parametrize(
    ("shared", "files", "word"),
    [
        ("none", {}, "sandbox.shared"),
        ({"../x": "lake"}, {}, "relative"),
        ({"a": "lake", "a/b": "lake"}, {}, "side by side"),
        ({"a": "lake"}, {"a/f": b""}, "read only"),
    ],
)
def test_what_cannot_be_shared_is_said(
    lakes: dict[str, str], shared: str | dict[str, str], files: dict[str, bytes], word: str
) -> None:
    config = Config(shared=lakes)
    with pytest.raises(ValueError, match=word):
        check("pass", files, (), placed(shared, config))
