"""Looks like `python main.py`: a corpus run in the jail and by a plain interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import warm_pool
from places import tables

from rollouts.event_loop import asyncio_run
from rollouts.sandbox.model import Config
from rollouts.sandbox.pool import environment
from rollouts.sandbox.transfer import neutral

CORPUS: dict[str, str | bytes] = {
    **tables("same_as_python"),
    "null byte": "x = 1\x00",
    "encoding": "# -*- coding: latin-1 -*-\nprint(len('é'))",
    "bad utf-8": b"print('\xff')",
}
INPUTS = {"helper.py": b"VALUE = 11\n"}
SHADOW = {"fractions.py": b"MINE = 'local'\n"}


def plain(
    code: bytes, inputs: dict[str, bytes], top: Path
) -> tuple[str, str, int, dict[str, bytes]]:
    for name, data in {**inputs, "main.py": code}.items():
        (top / name).write_bytes(data)
    env = {**environment(Config()), "HOME": str(top), "TMPDIR": "/tmp"}
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=top, env=env, capture_output=True, stdin=subprocess.DEVNULL
    )
    found = {p.name: p.read_bytes() for p in top.iterdir() if p.is_file()}
    made = {n: d for n, d in found.items() if n not in inputs and n != "main.py"}
    place = os.path.realpath(top)
    out, err = (
        s.decode("utf-8", "replace").replace(place, "/sandbox") for s in (done.stdout, done.stderr)
    )
    return neutral(out), neutral(err), done.returncode, made


@pytest.mark.parametrize("name", CORPUS)
def test_corpus(run, reached: str, name: str, tmp_path: Path) -> None:
    if reached != "full":
        pytest.skip("paths and semaphores differ without namespaces")
    code = CORPUS[name]
    source = (
        code if isinstance(code, bytes) else code.encode("latin-1" if "latin" in code else "utf-8")
    )
    inputs = {**INPUTS, **(SHADOW if name == "shadow stdlib" else {})}
    out, err, status, made = plain(source, inputs, tmp_path)
    if name == "learning":  # bit for bit also where the libraries are there already
        pytest.importorskip("sklearn")
        run = lambda *call: asyncio_run(warm_pool().run(*call))  # noqa: E731
    result = run(source, inputs, ["*"])
    assert (result.stdout, result.exit_code) == (out, status), result.stderr
    assert result.stderr == err
    if name != "sqlite":  # the database file carries a change counter and a version
        assert result.files == made
