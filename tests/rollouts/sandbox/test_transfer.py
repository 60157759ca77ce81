"""The reader of results, the output on its way out, and the wire: all of it takes hostile input."""

from __future__ import annotations

import contextlib
import os
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
    found = collect(directory, names, Limits(**limits), {})
    files = {name: os.read(descriptor, size) for name, descriptor, size in found.files}
    for descriptor in (directory, *(descriptor for _, descriptor, _ in found.files)):
        os.close(descriptor)
    return files, found.refused


def test_a_plain_file_is_read_and_nothing_else(tmp_path: Path) -> None:
    for name, size in (("plain", 10), ("big", (1 << 20) + 1), ("one", 1)):
        (tmp_path / name).write_bytes(b"x" * size)
    os.link(tmp_path / "one", tmp_path / "two")
    os.symlink("plain", tmp_path / "link")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dir").mkdir()
    bad = ["big", "one", "link", "fifo", "dir", "../x", "none", "", ".", "/etc/passwd", "a\0"]
    files, refused = read(tmp_path, ["plain", *bad], fetch_mb=1)
    assert files == {"plain": b"x" * 10} and set(refused) == {*bad}
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
    top, here = tmp_path / "t", os.getcwd()
    top.mkdir()
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
    assert not top.exists() and (tmp_path / "outside").read_text() == "kept"


@FIXTURE
@given(st.lists(st.binary(max_size=50), max_size=30), st.integers(2, 64))
def test_capture_keeps_both_ends_in_bounds(parts: list[bytes], cap: int) -> None:
    capture, everything, half = Capture(cap), b"".join(parts), max(1, cap // 2)
    for part in parts:
        capture.add(part)
    assert (capture.total, capture.head) == (len(everything), everything[:half])
    assert capture.tail() == everything[half:][-half:]


@FIXTURE
@given(st.text(), st.binary(max_size=200))
def test_output_and_frames_are_held_to_their_forms(text: str, data: bytes) -> None:
    """Output keeps no control characters but \\n and \\t. A frame is an object, or is refused."""
    assert join(b"start", b"end", 1008) == "start\n[... 1000 bytes left out ...]\nend"
    assert neutral("a\x1b[2Jb\u202egnp\r\nc\rd") == "a\ufffd[2Jb\ufffdgnp\nc\nd"
    kept = set(neutral(text))
    assert not {c for c in kept if ord(c) < 32 or 127 <= ord(c) < 160} - {"\n", "\t"}
    with contextlib.suppress(transfer.FrameError):
        assert isinstance(transfer.parse(data), dict)
    for value in (-1, 1.0, True, "1", None, 1 << 60, [1]):
        with pytest.raises(transfer.FrameError):
            transfer.natural(value)
    with pytest.raises(transfer.FrameError):
        transfer.header_length((1 << 40).to_bytes(8, "big"))
