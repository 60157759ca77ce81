"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from assay.files import (
    UNFINISHED,
    atomic_write,
    atomic_write_set,
    mark_unfinished,
    write_text,
)
from assay.task import TaskError, refuse_unfinished


def test_links_stay_links_and_devices_devices(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    write_text(link, "new")
    assert link.is_symlink() and real.read_text() == "new"
    write_text("/dev/null", "x")
    assert not os.path.isfile("/dev/null")


def a_set(folder: Path, word: str, names: tuple[str, ...]) -> None:
    with atomic_write_set(folder, stale=("a.txt", "b/c.txt", "d.txt")) as new:
        for name in names:
            write_text(new / name, word)


def held(folder: Path) -> dict[str, str]:
    return {
        p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()
    }


KILLED = """
import os, signal, sys
from pathlib import Path
from assay import files

calls, at = 0, int(sys.argv[2])

def dying(real):
    def call(*args, **more):
        global calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **more)
    return call

Path.replace, Path.unlink = dying(Path.replace), dying(Path.unlink)
with files.atomic_write_set(sys.argv[1], stale=("a.txt", "b/c.txt", "d.txt")) as new:
    for name in ("a.txt", "b/c.txt", "e.txt"):
        (new / name).parent.mkdir(exist_ok=True)
        (new / name).write_text("new")
"""


def test_a_kill_at_any_moment_never_leaves_a_mixture_that_reads_as_whole(tmp_path: Path) -> None:
    mixtures = 0
    for at in range(1, 40):
        folder = tmp_path / str(at)
        a_set(folder, "old", ("a.txt", "b/c.txt", "d.txt"))
        done = subprocess.run([sys.executable, "-c", KILLED, folder, str(at)], cwd=ROOT)
        seen = {n: text for n, text in held(folder).items() if not n.startswith(".")}
        whole = set(seen.values()) == {"old"} and len(seen) == 3
        whole |= set(seen.values()) == {"new"} and len(seen) == 3
        if done.returncode == 0:
            assert set(seen.values()) == {"new"}
            break
        assert done.returncode == -signal.SIGKILL
        if (folder / UNFINISHED).exists():
            mixtures += not whole
            with pytest.raises(TaskError, match="was killed while it put its files"):
                refuse_unfinished(folder / "b" / "c.txt")
        else:
            assert whole, seen
        a_set(folder, "again", ("a.txt",))  # heals, and clears what the killed one left
        assert held(folder) == {"a.txt": "again"} | ({"e.txt": "new"} if "e.txt" in seen else {})
        refuse_unfinished(folder / "a.txt")
    else:
        raise AssertionError("the writer never came to its end")
    assert mixtures > 2


def test_writers_of_one_file_never_share_a_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with atomic_write(path) as one:
        one.write(b"one" * 1000)
        with atomic_write(path) as two:
            two.write(b"two")
        assert path.read_bytes() == b"two"
    assert path.read_bytes() == b"one" * 1000 and list(tmp_path.iterdir()) == [path]


def test_what_was_said_of_an_older_set_goes_with_it(tmp_path: Path) -> None:
    for name in ("a.jsonl", "provenance.json", "refused.jsonl", "mine.txt"):
        (tmp_path / name).write_text("old")
    with atomic_write_set(tmp_path) as new:
        (new / "a.jsonl").write_text("new")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {
        "a.jsonl": "new",
        "mine.txt": "old",
    }


def test_a_set_that_did_not_end_well_stays_marked(tmp_path: Path) -> None:
    with pytest.raises(ValueError), mark_unfinished(tmp_path):
        (tmp_path / "tasks.jsonl").write_text("half")
        raise ValueError
    with pytest.raises(TaskError, match="run the same `assay tasks` command again"):
        refuse_unfinished(tmp_path / "tasks.jsonl")
    held = pytest.raises(OSError, match="another build")
    with mark_unfinished(tmp_path), held, mark_unfinished(tmp_path):
        pass
    refuse_unfinished(tmp_path / "tasks.jsonl")
