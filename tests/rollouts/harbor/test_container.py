"""Containers: what is read out of Dockerfiles, and files that go from command to command."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

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


def in_container(body: Callable[[Container], Awaitable[None]]) -> None:
    """Run a body with a container, where this machine's jail has a file system of its own."""

    async def run() -> None:
        async with Pool(container_config(workers=1)) as pool:
            await body(Container(pool, Image(workdir="/app")))

    try:
        asyncio.run(run())
    except SandboxError as error:
        pytest.skip(f"no jail here: {error}")


def test_files_stay_and_processes_do_not() -> None:
    async def body(container: Container) -> None:
        script = b"echo $WHO; cat /app/in.txt\n"
        container.put({"/app/in.txt": (b"hello", 0o644), "/tests/go.sh": (script, 0o755)})
        first = await container.run(
            "/bin/bash /tests/go.sh; sleep 300 & echo $! > /tmp/pid", 60, env={"WHO": "me"}
        )
        assert (first.exit_code, first.stdout) == (0, "me\nhello")
        second = await container.run(
            "cat /tmp/pid; ls /proc | grep -c '^[0-9]'; echo new > out; ln -s / l; ln out hard",
            60,
        )
        assert second.exit_code == 0
        assert int(second.stdout.split()[1]) < 8
        assert container.files("/app") == {"hard": b"new\n", "in.txt": b"hello", "out": b"new\n"}
        assert container.files("/app/out") == {"": b"new\n"}

    in_container(body)


def test_a_command_that_ends_the_jail_leaves_the_files_as_they_were() -> None:
    async def body(container: Container) -> None:
        await container.run("echo 1 > kept", 60)
        ran = await container.run("echo 2 > kept; kill -9 -1; sleep 9", 60)
        assert ran.exit_code == 137 and ran.why
        assert (await container.run("cat kept", 60)).stdout == "1\n"

    in_container(body)


def test_a_command_that_takes_too_long_ends_and_its_files_stay() -> None:
    async def body(container: Container) -> None:
        ran = await container.run("echo part > done; sleep 60", 1)
        assert ran.exit_code == 124 and "1 s" in ran.why
        assert container.files("/app") == {"done": b"part\n"}
        assert (await container.run("exit 3", 60)).exit_code == 3
        assert (await container.run("true", 60, cwd="/app/none")).exit_code == 126

    in_container(body)


def test_a_forged_state_reaches_no_file_out_of_the_container(tmp_path: Path) -> None:
    """The state is the command's own: names in it lead nowhere here."""

    async def body(container: Container) -> None:
        await container.run(
            "ln -s /etc/passwd /app/link; mkfifo /app/pipe; echo x > '/app/a b'", 60
        )
        assert container.files("/app") == {"a b": b"x\n"}
        await container.run(
            "echo over > /app/link; rm /app/link; ln -s /logs/verifier /app/there", 60
        )
        container.put({"/app/there/inner": (b"file", 0o644), "/app/a b": (b"new", 0o644)})
        ran = await container.run(
            "cat /app/there/inner '/app/a b'; ls /logs/verifier; rm -r /app/*", 60
        )
        assert ran.stdout == "filenew" and ran.exit_code == 0
        await container.run("mkdir -p /tests/vendor; echo evil > /tests/vendor/json.py", 60)
        container.put({"/tests/test.sh": (b"ls", 0o644)}, clear=("/tests",))
        assert set(container.files("/tests")) == {"test.sh"}

    in_container(body)


@pytest.mark.parametrize("path", ["/etc/passwd", "app/x", "/", "/app/../etc/x", "/proc/1/mem"])
def test_places_outside_of_the_container_are_refused(path: str) -> None:
    container = Container(Pool(container_config(workers=1)), Image())
    with pytest.raises(TaskError, match="no place in the jail"):
        container.put({path: (b"", 0o644)})


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
    made = image(
        tmp_path,
        "# a comment\nFROM python:3.11.4-slim@sha256:ab12\nENV PLACE=/app\nENV A=1 B='2 3'\n"
        "WORKDIR $PLACE\nRUN pip install --no-cache-dir numpy==1.26 \\\n  # more\n    'pandas>=2'\n"
        'COPY x .\nCOPY ["a b.txt", "c.txt", "/data/"]\nADD x y\nCOPY data/ ${PLACE}/in\n'
        'EXPOSE 80\nUSER root\nCMD ["bash"]\n',
    )
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


@pytest.mark.parametrize("line", CASES["steps of a Dockerfile that are refused"])
def test_what_cannot_be_honoured_is_said(tmp_path: Path, line: str) -> None:
    with pytest.raises(TaskError) as found:
        image(tmp_path, f"FROM python:3.11\n{line}\n")
    assert str(found.value).startswith(f"build_step: Dockerfile: {line}: ")


@pytest.mark.parametrize("text", CASES["images that are refused"])
def test_other_images_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(TaskError, match="base_image: Dockerfile: "):
        image(tmp_path, text)


def test_no_dockerfile_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"base_image: no .*Dockerfile"):
        read_image(tmp_path, {})


def test_a_python_must_be_the_images_and_have_its_packages() -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    refuse_lacking(Image(here, ["pytest>=1", "PyYAML"]), sys.executable)
    with pytest.raises(TaskError, match=r"python_version: Python 2\.0"):
        refuse_lacking(Image("2.0"), sys.executable)
    with pytest.raises(TaskError, match="no-such-thing==1: it is not installed"):
        refuse_lacking(Image(here, ["no-such-thing==1"]), sys.executable)
    with pytest.raises(TaskError, match=r"package: pip install pytest<1: here is"):
        refuse_lacking(Image(here, ["pytest<1"]), sys.executable)
