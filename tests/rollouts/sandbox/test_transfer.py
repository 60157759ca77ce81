"""The reader of results, the output on its way out, and the wire: all of it takes hostile input."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollouts.sandbox import transfer
from rollouts.sandbox.model import Limits
from rollouts.sandbox.transfer import Capture, collect, join, listing, neutral, remove_tree

# No deadline: a loaded machine must not fail a property.
FIXTURE = settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=50)


def read(top: Path, names: list[str], **limits: int) -> tuple[dict[str, bytes], dict[str, str]]:
    directory = os.open(top, os.O_RDONLY)
    try:
        found = collect(directory, names, Limits(**limits), {})
        files: dict[str, bytes] = {}
        for name, descriptor, size in found.files:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                sender = threading.Thread(target=found.stream, args=(theirs, descriptor, size))
                sender.start()
                files[name] = transfer.receive(ours, size)
                sender.join()
        return files, found.refused
    finally:
        os.close(directory)


@FIXTURE
@given(st.lists(st.text(max_size=20), max_size=5))
def test_any_name_gives_a_file_or_a_reason(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "a").write_bytes(b"1")
    files, refused = read(tmp_path, [*names, "a"])
    assert files == {"a": b"1"}
    assert set(refused) == set(names) - {"a", "*"}


def test_what_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"x" * 10)
    (tmp_path / "big").write_bytes(b"x" * ((1 << 20) + 1))
    (tmp_path / "one").write_bytes(b"x")
    os.link(tmp_path / "one", tmp_path / "two")
    os.symlink("plain", tmp_path / "link")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dir").mkdir()
    names = ["plain", "big", "one", "link", "fifo", "dir", "../x", "none", "", "."]
    files, refused = read(tmp_path, names, fetch_mb=1)
    assert files == {"plain": b"x" * 10}
    assert set(refused) == set(names) - {"plain"}
    assert "hard links" in refused["one"] and "link" in refused["link"]


def test_star_means_new_or_changed_and_all_together_stay_under_the_cap(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("1")
    directory = os.open(tmp_path, os.O_RDONLY)
    before = listing(directory)
    for name in "abc":
        (tmp_path / name).write_bytes(bytes(1 << 19))
    found = collect(directory, ["*"], Limits(fetch_total_mb=1), before)
    os.close(directory)
    assert [name for name, _, _ in found.files] == ["a", "b"] and list(found.refused) == ["c"]


def test_removing_a_hostile_tree(tmp_path: Path) -> None:
    top = tmp_path / "t"
    top.mkdir()
    here = os.getcwd()
    os.chdir(top)
    for _ in range(1100):  # deeper than a recursion may be
        os.mkdir("d")
        os.chdir("d")
    os.chdir(here)
    (tmp_path / "outside").write_text("kept")
    os.symlink(tmp_path, top / "link")
    (top / "shut").mkdir()
    (top / "shut" / "x").write_text("x")
    (top / "shut").chmod(0)
    remove_tree(str(top))
    assert not top.exists()
    assert (tmp_path / "outside").read_text() == "kept"


@FIXTURE
@given(st.lists(st.binary(max_size=50), max_size=30), st.integers(2, 64))
def test_capture_keeps_both_ends_in_bounds(parts: list[bytes], cap: int) -> None:
    capture, everything = Capture(cap), b"".join(parts)
    for part in parts:
        capture.add(part)
    half = max(1, cap // 2)
    assert capture.total == len(everything)
    assert capture.head == everything[:half]
    assert capture.tail() == everything[half:][-half:]
    assert (
        "left out" in join(capture.head, capture.tail(), capture.total)
        or len(everything) <= 2 * half
    )


def test_output_is_cut_in_the_middle_and_cannot_command_a_terminal() -> None:
    assert join(b"start", b"end", 1008) == "start\n[... 1000 bytes left out ...]\nend"
    assert neutral("a\x1b[2Jb\u202egnp\r\nc\rd") == "a\ufffd[2Jb\ufffdgnp\nc\nd"


@FIXTURE
@given(st.text())
def test_no_control_character_survives(text: str) -> None:
    kept = set(neutral(text))
    assert not {c for c in kept if ord(c) < 32 or 127 <= ord(c) < 160} - {"\n", "\t"}


@FIXTURE
@given(st.binary(max_size=200))
def test_any_bytes_from_a_jail_are_a_wire_error_or_an_object(data: bytes) -> None:
    try:
        assert isinstance(transfer.parse(data), dict)
    except transfer.FrameError as error:
        assert str(error)


@pytest.mark.parametrize("value", [-1, 1.0, True, "1", None, 1 << 60, [1]])
def test_lengths_are_whole_numbers_and_capped(value: object) -> None:
    with pytest.raises(transfer.FrameError):
        transfer.natural(value)
    with pytest.raises(transfer.FrameError):
        transfer.header_length((1 << 40).to_bytes(8, "big"))
