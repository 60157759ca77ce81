"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from rewards.files import replacing, write_bytes, write_text
from rewards.task import write_jsonl


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), replacing(path) as out:
        out.write(b"half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_rows_that_cannot_be_written_leave_no_file(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_jsonl(tmp_path / "rows.jsonl", [{"a": 1}, {"a": {1, 2}}])
    assert list(tmp_path.iterdir()) == []


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    """With one temporary name for both, the second rename finds nothing, or halves are mixed."""
    path = tmp_path / "a.txt"
    failures: list[BaseException] = []

    def work(letter: bytes) -> None:
        try:
            for _ in range(50):
                write_bytes(path, letter * 1000)
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert path.read_bytes() in (b"a" * 1000, b"b" * 1000, b"c" * 1000)
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_the_folder_is_made_and_permissions_are_the_usual_ones(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    write_text(path, "x")
    plain = tmp_path / "plain"
    plain.write_text("x")
    assert path.stat().st_mode == plain.stat().st_mode


def test_links_stay_links_and_devices_devices(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    write_text(link, "new")
    assert link.is_symlink() and real.read_text() == "new"
    write_text("/dev/null", "x")
    assert not os.path.isfile("/dev/null")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        write_text(tmp_path, "x")
    assert list(tmp_path.iterdir()) == []
