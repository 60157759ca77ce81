"""An interpreter whose variables stay from cell to cell."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace

import pytest
from places import tables

from rollouts.krama.notebook import Interpreter
from rollouts.sandbox.model import Config, Limits, Result
from rollouts.sandbox.pool import Pool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux only")
PLAIN = Config(workers=2, min_level="limits", stack=())
SMALL = Limits(
    wall_s=20, memory_mb=128, total_mb=384, work_mb=8, tmp_mb=8, file_mb=4, fetch_mb=4, output_kb=8
)


def cells(
    *codes: str,
    files: Mapping[str, bytes] | None = None,
    limits: Limits = SMALL,
    fetch: tuple[str, ...] = (),
) -> list[Result]:
    """What each cell gave, until one ended the interpreter."""

    async def run() -> list[Result]:
        found: list[Result] = []
        async with Pool(PLAIN) as pool:
            interpreter = Interpreter(pool, files or {}, limits, 7, None, "given = 5")
            for code in codes:
                assert not interpreter.ended
                found.append(await interpreter.run(code, fetch))
            if not interpreter.ended:
                interpreter.close()
            return found

    return asyncio.run(run())


def test_variables_stay_and_errors_are_told_as_an_interpreter_tells_them() -> None:
    first, second, third, broken, last = cells(
        "x = open('f').read()\nimport sys, os; os.chdir('/')",
        "print(x, given, __name__); print('e', file=sys.stderr)",
        "def f(): return 1 / 0\nf()",
        "y = (",
        "import pickle; print(pickle.loads(pickle.dumps(f)) is f, x)",
        files={"f": b"in"},
    )
    assert (first.status, first.stdout, first.why) == ("ok", "", "")
    assert (second.stdout, second.stderr) == ("in 5 __main__\n", "e\n")
    assert (third.status, third.exit_code, third.why) == ("error", 1, "exit status 1")
    assert third.stderr.splitlines() == [
        "Traceback (most recent call last):",
        '  File "<cell 4>", line 2, in <module>',
        '  File "<cell 4>", line 1, in f',
        "ZeroDivisionError: division by zero",
    ]
    assert broken.stderr.startswith('  File "<cell 5>", line 1') and "SyntaxError" in broken.stderr
    assert last.stdout == "True in\n"


def test_output_is_cut_in_the_middle_and_files_come_back() -> None:
    code = (
        "print('a' * 6000, 'b' * 6000)\nopen('made', 'w').write('1')\n"
        "for n, z in ('full', 0), ('large', 1): open(n, 'wb').write(b'f' * (z + (1 << 20)))"
    )
    limits = replace(SMALL, fetch_mb=1)
    many, none = cells(code, "pass", limits=limits, fetch=("made", "full", "large", "missing"))
    cut = "[... 3810 bytes left out ...]"
    assert many.stdout.splitlines() == ["a" * 4096, cut, "b" * 4095]
    assert many.files == {"made": b"1", "full": b"f" * (1 << 20)} and none.stdout == ""


ENDS = tables("rollouts")["cells that end an interpreter"]


@pytest.mark.parametrize(("code", "status", "exit_code"), ENDS)
def test_what_ends_the_interpreter(code: str, status: str, exit_code: int | None) -> None:
    """Its output and its files are kept."""
    limits = Limits(wall_s=2 if status == "timeout" else 60, memory_mb=256, total_mb=384)
    code = f"open('prediction.csv', 'w').write('1')\nprint('out', flush=True)\n{code}"
    *_, last = cells("x = 1", code, limits=limits, fetch=("prediction.csv",))
    assert (last.status, last.stdout) == (status, "out\n"), last
    assert last.files["prediction.csv"] == b"1" and exit_code in (None, last.exit_code)


@pytest.mark.parametrize("said", ["b'{}\\n'", "b'x' * (9 << 20)", "b'[' * 100000 + b'\\n'"])
def test_a_cell_that_answers_in_the_loop_s_place_harms_only_itself(said: str) -> None:
    code = (
        "import os\nfor n in range(3, 64):\n    try:\n"
        "        if os.readlink(f'/proc/self/fd/{n}').startswith('socket'):\n"
        f"            os.write(n, {said})\n"
        "    except OSError: pass\nimport time; time.sleep(60)"
    )
    limits = Limits(wall_s=1.5, fetch_total_mb=1)
    (result,) = cells(code, limits=limits)
    assert result.status == "timeout"


def test_more_interpreters_than_workers_take_turns() -> None:
    async def all_of_them() -> list[str]:
        async with Pool(Config(workers=1, min_level="limits", stack=())) as pool:
            some = [Interpreter(pool, {}, SMALL, n) for n in range(3)]
            for number, one in enumerate(some):
                await one.run(f"x = {number}")
            found = await asyncio.gather(*(one.run("print(x)") for one in some))
            for one in some:
                one.close()
            return [result.stdout for result in found]

    assert asyncio.run(all_of_them()) == ["0\n", "1\n", "2\n"]
