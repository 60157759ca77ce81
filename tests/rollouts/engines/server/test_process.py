"""Servers end with the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

STARTER = """
import sys, time
from pathlib import Path
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
