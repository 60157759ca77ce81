"""Servers end with the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from rollouts.engines.server.process import Launch

STARTER = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests may run under nohup
from rollouts.engines.server.process import Launch, servers
with servers(Launch("assay", "m", "m", python=sys.argv[1]), [""], Path(sys.argv[2])):
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_servers_too(number: signal.Signals, tmp_path: Path) -> None:
    served = tmp_path / "served"
    served.mkdir()
    (served / "health").write_text("ok")
    python = tmp_path / "python"  # stands in for a server: it writes its number, and is healthy
    python.write_text(
        f"""#!/bin/sh
echo $$ > "{tmp_path}/pid"
while [ "$1" != --port ]; do shift; done
exec "{sys.executable}" -m http.server --bind 127.0.0.1 --directory "{served}" "$2"
"""
    )
    python.chmod(0o755)
    words = [sys.executable, "-c", STARTER, str(python), str(tmp_path / "logs")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=env, text=True) as starter:
        assert starter.stdout is not None and starter.stdout.readline() == "ready\n"
        server = int((tmp_path / "pid").read_text())
        os.kill(server, 0)
        starter.send_signal(number)
        assert starter.wait(60) == 128 + number
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


def test_vllm_on_a_cpu_is_started_as_its_build_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LD_PRELOAD", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "lib").mkdir()
    threads = tmp_path / "lib" / "libiomp5.so"
    threads.touch()
    launch = Launch("vllm", "m", "m", str(tmp_path / "bin" / "python"))
    assert "--no-enable-chunked-prefill" in launch.command(1)
    assert "--no-enable-chunked-prefill" not in launch.command(1, "0")
    assert launch.environment()["LD_PRELOAD"] == str(threads)
    assert launch.environment()["KMP_BLOCKTIME"] == "1"
    assert launch.environment("0")["CUDA_VISIBLE_DEVICES"] == "0"
    assert not {"LD_PRELOAD", "KMP_BLOCKTIME"} & launch.environment("0").keys()
    monkeypatch.setenv("LD_PRELOAD", "mine.so")
    assert launch.environment()["LD_PRELOAD"] == "mine.so"
