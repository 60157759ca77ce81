"""`assay serve` as a process: it starts, answers, and ends when it is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from places import ROOT

pytest.importorskip("aiohttp")

from assay.task import TaskError
from train.cli.answers import bounds, serve


def test_it_answers_until_it_is_terminated(tiny_folder: Path) -> None:
    words = ["serve", "--model", str(tiny_folder), "--port", "0", "--name", "t", "engine.threads=1"]
    server = subprocess.Popen(
        [sys.executable, "-m", "assay", *words],
        cwd=ROOT,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        line = next(text for text in server.stderr if "http://" in text)
        url = next(word for word in line.split() if word.startswith("http://"))
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
        request = urllib.request.Request(
            f"{url}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as reply:
            said = json.loads(reply.read())
        assert said["model"] == "t"
        assert said["usage"]["completion_tokens"] in (1, 2, 3)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.wait()


def test_a_sequence_is_as_long_as_the_model_reads(tiny_folder: Path) -> None:
    assert bounds(tiny_folder, 0, 16) == (2048, 16)
    assert bounds(tiny_folder, 100, 16) == (100, 16)
    assert bounds(tiny_folder, 9999, 16)[0] == 2048


def test_a_model_that_says_no_length_needs_one(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="--max-length"):
        bounds(tmp_path, 0, 16)
    assert bounds(tmp_path, 64, 16) == (64, 16)


def test_an_empty_key_is_no_key(tiny_folder: Path) -> None:
    with pytest.raises(TaskError, match="NO_SUCH_KEY"):
        serve(["--model", str(tiny_folder), "--key-env", "NO_SUCH_KEY"])
