"""Servers end with the process that started them, and are asked without a proxy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from places import ROOT

from assay.task import TaskError
from rollouts.engines.server import Launch, devices

STARTER = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests may run under nohup
from rollouts.engines.server import Launch, servers
with servers(Launch("assay", "m", "m", python=sys.argv[1]), [""], Path(sys.argv[2])):
    print("ready", flush=True)
    time.sleep(600)
"""


def children(pid: int) -> list[int]:
    """The processes below one, with theirs."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    below = [int(child) for task in tasks for child in task.read_text().split()]
    return below + [one for child in below for one in children(child)]


def wait_for(true: Callable[[], object], what: str, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, what
        time.sleep(0.1)


def alive(pid: int) -> bool:
    """A zombie has ended: here nobody may be there to bury it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
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
    nowhere = dict.fromkeys(("http_proxy", "HTTP_PROXY"), "http://127.0.0.1:9")
    env = {**os.environ, **nowhere, "no_proxy": "", "NO_PROXY": "", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=env, text=True) as starter:
        assert starter.stdout is not None and starter.stdout.readline() == "ready\n"
        server = int((tmp_path / "pid").read_text())
        os.kill(server, 0)
        starter.send_signal(number)
        killed = number == signal.SIGKILL
        assert starter.wait(60) == (-number if killed else 128 + number)
    if killed:  # nothing told the server; its watcher sees it
        wait_for(lambda: not alive(server), "the server goes on")
    assert not alive(server)


@pytest.mark.slow
def test_a_killed_evaluation_leaves_no_server(tiny_folder: Path, tmp_path: Path) -> None:
    gold = {"input_text": "a", "status": "KEEP", "text": "a", "recipe": []}
    row = {"family": "refinement", "track": "x", "split": "heldout", "gold": gold}
    ask = [{"role": "user", "content": "tidy"}]
    rows = [row | {"id": f"t{i}", "prompt": ask} for i in range(4000)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    words = [sys.executable, "-m", "assay", "eval", "server.kind=assay", "--no-baselines"]
    words += ["--tasks", str(tmp_path / "t.jsonl"), "--model", str(tiny_folder)]
    words += ["--out", str(tmp_path / "e"), "server.args=engine.dtype=float32 engine.threads=1"]
    with subprocess.Popen(words, cwd=ROOT) as evaluation:
        journal = tmp_path / "e" / "rows.jsonl"
        wait_for(lambda: journal.is_file() and journal.stat().st_size, "no answer yet")
        servers = children(evaluation.pid)
        assert servers and evaluation.poll() is None
        evaluation.kill()
    wait_for(lambda: not any(map(alive, servers)), "a server goes on")


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


def test_a_server_is_cut_over_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '0\\n1\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert devices() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4")
    assert (devices(), devices(2)) == ([*"01234"], ["0,1", "2,3"])
    for kind, word in (("vllm", "--tensor-parallel-size 2"), ("sglang", "--tp-size 2")):
        assert word in " ".join(Launch(kind, "m", "m", gpus=2).command(1, "0,1"))
    # the longest request that there is room for; a CPU has the model's own
    assert "--max-model-len auto" in " ".join(Launch("vllm", "m", "m").command(1, "0"))
    assert "--max-model-len" not in Launch("vllm", "m", "m").command(1)
    with pytest.raises(TaskError, match=r"server\.gpus=6: 5 GPU"):
        devices(6)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert devices() == [""]
    with pytest.raises(TaskError, match=r"server\.gpus=2: 0 GPU"):
        devices(2)
