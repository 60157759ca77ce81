"""Boxes: files that go from command to command, and nothing else that does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from assay.task import TaskError
from rollouts.harbor.box import Box, BoxLimits, box_config
from rollouts.sandbox.model import SandboxError
from rollouts.sandbox.pool import Pool


def in_box(body: Callable[[Box], Awaitable[None]], limits: BoxLimits | None = None) -> None:
    """Run a body with a box, where this machine's jail has a file system of its own."""

    async def run() -> None:
        async with Pool(box_config(workers=1)) as pool:
            if (await pool.report()).level != "full":
                pytest.skip("the jail has no namespaces here")
            await body(Box(pool, limits or BoxLimits(seconds=60)))

    try:
        asyncio.run(run())
    except SandboxError as error:
        pytest.skip(f"no jail here: {error}")


def test_files_stay_and_processes_do_not() -> None:
    async def body(box: Box) -> None:
        box.upload({"/app/in.txt": b"hello", "/tests/go.sh": b"echo $WHO; cat /app/in.txt\n"})
        first = await box.run(
            "bash /tests/go.sh; sleep 300 & echo $! > /tmp/pid", env={"WHO": "me"}
        )
        assert (first.status, first.stdout) == (0, "me\nhello")
        second = await box.run(
            "cat /tmp/pid; ls /proc | grep -c '^[0-9]'; echo new > out; ln -s / l"
        )
        assert second.status == 0
        assert int(second.stdout.split()[1]) < 8
        assert box.files("/app") == {"in.txt": b"hello", "out": b"new\n"}
        assert box.files("/app/out") == {"": b"new\n"}

    in_box(body)


def test_a_command_that_ends_the_jail_leaves_the_files_as_they_were() -> None:
    async def body(box: Box) -> None:
        await box.run("echo 1 > kept")
        ran = await box.run("echo 2 > kept; kill -9 -1; sleep 9")
        assert ran.status == 137 and ran.why
        assert (await box.run("cat kept")).stdout == "1\n"

    in_box(body)


def test_a_command_that_takes_too_long_ends_and_its_files_stay() -> None:
    async def body(box: Box) -> None:
        ran = await box.run("echo part > done; sleep 60", seconds=1)
        assert ran.status == 124 and "1 s" in ran.why
        assert box.files("/app") == {"done": b"part\n"}
        assert (await box.run("exit 3")).status == 3
        assert (await box.run("true", cwd="/app/none")).status == 126

    in_box(body)


def test_a_forged_state_reaches_no_file_out_of_the_box(tmp_path: Path) -> None:
    """The state is the command's own: names in it lead nowhere here."""

    async def body(box: Box) -> None:
        await box.run("ln -s /etc/passwd /app/link; mkfifo /app/pipe; echo x > '/app/a b'")
        assert box.files("/app") == {"a b": b"x\n"}
        await box.run("echo over > /app/link; rm /app/link; ln -s /logs/verifier /app/there")
        box.upload({"/app/there": b"file"})
        await box.run("true")
        assert box.files("/app")["there"] == b"file"

    in_box(body)


def test_what_lay_at_the_place_of_the_tests_goes_first() -> None:
    async def body(box: Box) -> None:
        await box.run("mkdir -p /tests/vendor; echo evil > /tests/vendor/json.py")
        box.clear("/tests")
        box.upload({"/tests/test.sh": b"ls -R /tests"})
        assert "json.py" not in (await box.run("bash /tests/test.sh")).stdout

    in_box(body)


@pytest.mark.parametrize("path", ["/etc/passwd", "app/x", "/", "/app/../etc/x", "/proc/1/mem"])
def test_places_outside_of_the_box_are_refused(path: str) -> None:
    box = Box(Pool(box_config(workers=1)))
    with pytest.raises(TaskError, match="no place in the jail"):
        box.upload({path: b""})


def test_a_tree_with_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "secret").write_text("s")
    (tmp_path / "tree" / "x").symlink_to(tmp_path / "secret")
    box = Box(Pool(box_config(workers=1)))
    with pytest.raises(TaskError, match="leads out"):
        box.upload_tree(tmp_path / "tree", "/app")
