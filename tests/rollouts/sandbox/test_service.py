"""The command line and the server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from places import tables

from rollouts.sandbox.cli import main, parse, start
from rollouts.sandbox.model import Config
from rollouts.sandbox.pool import Pool

aiohttp = pytest.importorskip("aiohttp")

CASES = tables("rollouts")

PLAIN = Config(workers=1, min_level="limits", stack=())


def test_run_prints_fetches_and_passes_the_status_on(tmp_path: Path, capfd: Any) -> None:
    (tmp_path / "p.py").write_text(
        "import sys; print(open('in').read()); open('out','w').write('o'); sys.exit(3)"
    )
    (tmp_path / "data").write_text("hello")
    args = [str(tmp_path / "p.py"), "--files", f"in={tmp_path / 'data'}", "--fetch", "out"]
    common = ["--cold", "--out", str(tmp_path), "--min-level", "limits"]
    assert main(["run", *args, *common]) == 3
    assert capfd.readouterr().out == "hello\n"
    assert (tmp_path / "out").read_text() == "o"
    assert main(["run", *args, *common]) == 3
    assert "is there already" in capfd.readouterr().err
    assert main(["run", "/nonexistent.py"]) == 2
    assert "no file" in capfd.readouterr().err


def serving(ask: Any) -> Any:
    async def both() -> Any:
        async with Pool(PLAIN) as pool:
            runner, port = await start(pool, "127.0.0.1", 0)
            try:
                return await ask(f"http://127.0.0.1:{port}")
            finally:
                await runner.cleanup()

    return asyncio.run(both())


def test_the_protocol() -> None:
    async def ask(url: str) -> Any:
        code = "print(input()); open('o','wb').write(open('i','rb').read())"
        body = {"code": code, "language": "python", "stdin": "hey\n", "files": {"i": "/w=="}}
        body |= {"fetch_files": ["o", "x"], "run_timeout": 30}
        async with aiohttp.ClientSession() as http:
            async with http.post(url + "/run_code", json=body) as got:
                found = await got.json()
            headers = {"Content-Type": "text/plain"}  # a page in a browser may send that
            text = json.dumps({"code": "print(1)"})
            async with http.post(url + "/run_code", data=text, headers=headers) as got:
                return found, got.status

    found, status = serving(ask)
    assert status == 415 and found["status"] == "Success"
    assert found["run_result"]["stdout"] == "hey\n" and found["run_result"]["return_code"] == 0
    assert found["files"] == {"o": "/w=="}


@pytest.mark.parametrize("body", CASES["requests that the sandbox refuses"])
def test_bad_requests_get_one_sentence(body: Any) -> None:
    with pytest.raises(ValueError):
        parse(body)
