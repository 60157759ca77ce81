"""Hostile prediction files: read in a process that can do no harm, under limits, never raising."""

from __future__ import annotations

import base64
import gzip
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import tables

pd = pytest.importorskip("pandas")


from assay.confine import lock_down  # noqa: E402
from rewards.dare import read  # noqa: E402
from rewards.dare.read import (  # noqa: E402
    ReadLimits,
    Unreadable,
    read_here,
    read_prediction,
)
from rewards.dare.score import read_gold, score_table, score_table_row  # noqa: E402

TABLES = tables("dare")

GOLD = TABLES["read_gold"]
KINDS = ("class-IF", "class-MM", "reg-IF", "reg-MM", "time-XF", "time-CF")


def confined(attempt: Callable[[], object], **limits: Any) -> str:
    """What a confined child says of an attempt: `done`, or the exception's or signal's name."""
    mine, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            lock_down(theirs.fileno(), limits.get("memory_mb", 1024))
            signal.setitimer(signal.ITIMER_PROF, limits.get("cpu_s", 5))
            attempt()
            said = "done"
        except BaseException as error:
            said = type(error).__name__
        os.write(theirs.fileno(), said.encode())
        os._exit(0)
    theirs.close()
    _, status = os.waitpid(pid, 0)
    with mine:
        if os.WIFSIGNALED(status):
            return signal.Signals(os.WTERMSIG(status)).name
        return mine.recv(100).decode()


def test_a_confined_process_can_compute_and_nothing_else(tmp_path: Path) -> None:
    secret = tmp_path / "ground_truth.csv"
    secret.write_text("row_id,y\n1,a\n")
    inherited = os.open(secret, os.O_RDONLY)
    assert confined(lambda: sum(range(1000))) == "done"
    attempts: dict[str, Callable[[], object]] = {
        "open gold": secret.read_text,
        "an open descriptor of gold": lambda: os.read(inherited, 10),
        "standard input": lambda: os.read(0, 1),
        "list a folder": lambda: os.listdir(tmp_path),
        "a socket": lambda: socket.socket(),
        "fork": os.fork,
        "run": lambda: os.execv("/bin/true", ["true"]),
        "signal the parent": lambda: os.kill(os.getppid(), 0),
        "remove": lambda: os.unlink(secret),
        "become root again": lambda: os.setuid(0),
    }
    seen = {name: confined(attempt) for name, attempt in attempts.items()}
    os.close(inherited)
    assert {n: s for n, s in seen.items() if s not in ("OSError", "PermissionError")} == {}
    assert secret.exists()


def test_limits_hold() -> None:
    assert confined(lambda: bytearray(1 << 30), memory_mb=512) == "MemoryError"
    assert confined(lambda: [0 for _ in iter(int, 1) if _], cpu_s=0.2) == "SIGPROF"


def same_as_pandas(data: bytes) -> None:
    """The confined reader gives what pandas gives, or nothing where pandas cannot read."""
    try:
        whole = read_here(data)
    except Unreadable:
        with pytest.raises(Unreadable):
            read_prediction(data, ["row_id", "y"])
        return
    wanted = [c for c in ("row_id", "y") if c in whole.columns]
    found = read_prediction(data, ["row_id", "y"])
    assert found.columns.tolist() == wanted and len(found) == len(whole)
    for name in wanted:
        pd.testing.assert_series_equal(found[name], whole[name].reset_index(drop=True))


def test_the_confined_reader_gives_what_pandas_gives() -> None:
    """Files whose columns pandas reads as each of its kinds."""
    for text in (*TABLES["odd_tables"], "row_id,y\n" + "1,1\n" * 300_000 + "2,x\n"):
        read_here(text.encode())
        same_as_pandas(text.encode())


@settings(max_examples=30)
@given(st.text(alphabet="0123456789.-eE,\n\"'\t ;abNAnif\x00é", max_size=120))
def test_random_tables_too(text: str) -> None:
    same_as_pandas(f"row_id,y\n{text}".encode())


def hostile() -> dict[str, bytes]:
    rows = b"row_id,y\n"
    return {
        "gzip bomb": gzip.compress(b"0" * 4_000_000),
        "a line of 3 MB": rows + b"1," + b"a" * 3_000_000,
        "too large": rows + b"x" * read.MAX_BYTES,
        "NUL": b"\x00" * 10_000,
        "one quote": rows + b'1,"' + b"a\n" * 100_000,
        "huge integers": rows + b"".join(b"%d,%s\n" % (i, b"9" * 5000) for i in range(1, 4)),
        "nan and inf": rows + b"1,nan\n2,inf\n3,-inf\n",
        "keys that are nan": rows + b"nan,a\n,b\ninf,a\n",
        "the same column often": (b"row_id" + b",y" * 1500 + b"\n") * 3,
        "wide rows": rows + b"1" + b"," * 1_000_000 + b"\n",
        "UTF-16": "row_id,y\n1,a\n2,b\n3,a\n".encode("utf-16"),
        "lone surrogate": "row_id,y\n1,\ud800\n".encode("utf-8", "surrogatepass"),
        "one key many times": rows + b"1,a\n" * 300_000,
        "many keys": rows + b"".join(b"%d,a\n" % i for i in range(9, 300_009)),
        "deep": b"[" * 1_000_000,
        "only separators": b",\n" * 200_000,
    }


@pytest.mark.parametrize("name", sorted(hostile()))
def test_hostile_files_score_nothing_and_never_raise(name: str) -> None:
    data = hostile()[name]
    for kind in KINDS:
        found = score_table(read_gold(GOLD | {"task_type": kind}), data)
        assert found.outcome == 0.0 and (found.reward or 0.0) <= 0.1, (kind, found)
        if len(data) > 1 << 20:
            break  # what is large is slow, and the metric comes after the reading


def test_rows_of_the_command_take_hostile_predictions(tmp_path: Path) -> None:
    bomb = base64.b64encode(hostile()["gzip bomb"]).decode()
    assert score_table_row(GOLD, {"prediction_b64": bomb}).why.startswith("unreadable")
    sparse = tmp_path / "sparse.csv"
    with open(sparse, "wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "fifo.csv")
    os.link(sparse, tmp_path / "second_name.csv")
    os.symlink("/etc/passwd", tmp_path / "link.csv")
    for name in ("sparse", "folder", "fifo", "second_name", "link"):
        found = score_table_row(GOLD, {"prediction_path": str(tmp_path / f"{name}.csv")})
        assert (found.outcome, found.parts["exists"]) == (0.0, 0.0) and "unreadable" in found.why
    found = score_table_row(GOLD, {"prediction_path": "a\x00b"})
    assert found.outcome == 0.0


def test_a_joined_explosion_is_counted_not_made() -> None:
    """CF truths may repeat a key; a prediction of that key alone would join to n times m rows."""
    truth = "d,y\n" + "x,1\n" * 3000
    gold = read_gold(GOLD | {"truth_csv": truth, "key_columns": ["d"], "task_type": "time-CF"})
    found = score_table(gold, b"d,y\n" + b"x,1\n" * 200_000, "release")
    assert found.outcome == 0.0 and found.why == "row_mismatch: 600000000 of 3000"


def test_without_a_reader_there_is_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr(read, "READER", read.reader(ReadLimits()))
    found = score_table(read_gold(GOLD), b"row_id,y\n1,a\n2,b\n3,a\n")
    assert found.outcome is None and found.reward is None and "failure" in found.why


def test_a_reader_over_its_limits_is_no_infrastructure_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read, "READER", read.reader(ReadLimits(memory_mb=64, rows=1000)))
    for rows, why in ((b"1,a\n" * 2000, "more than 1000 rows"), (b"1.5,x\n" * 5_000_000, "unread")):
        found = score_table(read_gold(GOLD), b"row_id,y\n" + rows)
        assert found.outcome == 0.0 and why in found.why
    read.READER.stop()


@pytest.mark.parametrize("reply", TABLES["a_reader_that_was_taken_over_cannot_say_anything_odd"])
def test_a_reader_that_was_taken_over_cannot_say_anything_odd(reply: bytes) -> None:
    with pytest.raises(Unreadable):
        read._decoded(reply)
        raise Unreadable  # an empty table is no harm


def test_a_process_short_of_memory_finds_nothing_unreadable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bound on our own memory is the machine's fault, not the prediction's."""
    ragged = b"a,b\n1,2,3\n4\n5,6,7,8,9\n"
    assert not read.short_of_memory(64)
    with pytest.raises(Unreadable):
        read_prediction(ragged, ["a"])
    monkeypatch.setattr(read.resource, "getrlimit", lambda _: (1 << 29, -1))
    assert read.short_of_memory(1536)
    with pytest.raises(read.ReaderLost, match="less memory may be had"):
        read_prediction(ragged, ["a"])
