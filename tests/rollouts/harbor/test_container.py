"""Containers: what is read out of Dockerfiles, and files that go from command to command."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from places import tables

from assay.task import TaskError
from rollouts.harbor.container import (
    Container,
    Image,
    container_config,
    read_image,
    refuse_lacking,
    tree,
)
from rollouts.sandbox.model import SandboxError
from rollouts.sandbox.pool import Pool


async def life(container: Container) -> None:
    """Files stay and processes do not; a command that ends its jail leaves the files as they were,
    one that takes too long has its files kept."""
    run, script = container.run, b"echo $WHO; cat /app/in.txt\n"
    container.put({"/app/in.txt": (b"hello", 0o644), "/tests/go.sh": (script, 0o755)})
    first = await run("/bin/bash /tests/go.sh; sleep 300 &", 60, env={"WHO": "I"})
    assert (first.exit_code, first.stdout) == (0, "I\nhello")
    second = await run("ls /proc | grep -c '^[0-9]'; echo new > out; ln -s / l; ln out hard", 60)
    assert second.exit_code == 0 and int(second.stdout) < 8
    kept = {"hard": b"new\n", "in.txt": b"hello", "out": b"new\n"}
    assert container.files("/app") == kept and container.files("/app/out") == {"": b"new\n"}
    ran = await run("echo 2 > out; kill -9 -1; sleep 9", 60)
    assert ran.exit_code == 137 and ran.why and container.files("/app") == kept
    ran = await run("echo part > out; sleep 60", 1)
    assert ran.exit_code == 124 and "1 s" in ran.why
    assert container.files("/app/out") == {"": b"part\n"}
    assert (await run("exit 3", 60)).exit_code == 3
    assert (await run("true", 60, cwd="/app/none")).exit_code == 126


async def forged(container: Container) -> None:
    """The state is the command's own: names in it lead nowhere here."""
    run = container.run
    await run("ln -s /etc/passwd /app/link; mkfifo /app/pipe; echo x > '/app/a b'", 60)
    assert container.files("/app") == {"a b": b"x\n"}
    await run("echo over > /app/link; rm /app/link; ln -s /logs/verifier /app/there", 60)
    container.put({"/app/there/inner": (b"file", 0o644), "/app/a b": (b"new", 0o644)})
    ran = await run("cat /app/there/inner '/app/a b'; ls /logs/verifier; rm -r /app/*", 60)
    assert (ran.stdout, ran.exit_code) == ("filenew", 0)
    await run("mkdir -p /tests/vendor; echo evil > /tests/vendor/json.py", 60)
    container.put({"/tests/test.sh": (b"ls", 0o644)}, clear=("/tests",))
    assert set(container.files("/tests")) == {"test.sh"}
    for path in ("/etc/passwd", "app/x", "/", "/app/../etc/x", "/proc/1/mem"):
        with pytest.raises(TaskError, match="no place in the jail"):
            container.put({path: (b"", 0o644)})


@pytest.mark.parametrize("body", [life, forged])
def test_files_go_from_command_to_command_and_reach_nothing_else(body: Any) -> None:
    """Where this machine's jail has a file system of its own."""

    async def run() -> None:
        async with Pool(container_config(workers=1)) as pool:
            await body(Container(pool, Image(workdir="/app")))

    try:
        asyncio.run(run())
    except SandboxError as error:
        pytest.skip(f"no jail here: {error}")


def test_a_tree_with_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "secret").write_text("s")
    (tmp_path / "tree" / "x").symlink_to(tmp_path / "secret")
    with pytest.raises(TaskError, match="leads out"):
        tree(tmp_path / "tree", "/app")


CASES = tables("rollouts")


def image(folder: Path, text: str) -> Image:
    (folder / "Dockerfile").write_text(text)
    return read_image(folder, {})


def test_a_python_image_is_read(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("x", "a b.txt", "c.txt", "data/run.sh"):
        (tmp_path / name).write_text(name)
    (tmp_path / "data/run.sh").chmod(0o755)
    made = image(tmp_path, "\n".join(CASES["a Python image"]))
    assert made.python == "3.11" and made.workdir == "/app"
    assert made.requirements == ["numpy==1.26", "pandas>=2"]
    assert made.env == {"PLACE": "/app", "A": "1", "B": "2 3"}
    assert made.files == {
        "/app/x": (b"x", 0o644),
        "/data/a b.txt": (b"a b.txt", 0o644),
        "/data/c.txt": (b"c.txt", 0o644),
        "/app/y": (b"x", 0o644),
        "/app/in/run.sh": (b"data/run.sh", 0o755),
    }


REFUSED = [(f"FROM python:3.11\n{line}\n", line) for line in CASES["steps that are refused"]]
REFUSED += [(text, "") for text in CASES["images that are refused"]]


@pytest.mark.parametrize(("text", "line"), REFUSED)
def test_what_cannot_be_honoured_is_said(tmp_path: Path, text: str, line: str) -> None:
    said = f"build_step: Dockerfile: {line}: " if line else "base_image: Dockerfile: "
    with pytest.raises(TaskError, match=f"^{re.escape(said)}"):
        image(tmp_path, text)


def test_a_python_must_be_the_images_and_have_its_packages() -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    refuse_lacking(Image(here, ["pytest>=1", "PyYAML"]), sys.executable)
    with pytest.raises(TaskError, match=r"python_version: Python 2\.0"):
        refuse_lacking(Image("2.0"), sys.executable)
    with pytest.raises(TaskError, match="no-such-thing==1: it is not installed"):
        refuse_lacking(Image(here, ["no-such-thing==1"]), sys.executable)
    with pytest.raises(TaskError, match=r"package: pip install pytest<1: here is"):
        refuse_lacking(Image(here, ["pytest<1"]), sys.executable)
