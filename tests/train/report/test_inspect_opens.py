"""The logs of `assay report --inspect`, opened by the real inspect_ai and by its viewer."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

pytest.importorskip("inspect_ai", reason="inspect_ai is not installed; `make test-interop`")

from evaluations import in_words, results, with_tools
from inspect_ai.log import (
    EvalLog,
    list_eval_logs,
    read_eval_log,
    read_eval_log_sample,
    read_eval_log_sample_summaries,
    write_eval_log,
)

import assay

pytestmark = pytest.mark.usefixtures("no_family_of_another_test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`words/out` and `tools/out` are evaluations, `logs` holds a log of each."""
    place = tmp_path_factory.mktemp("inspect")
    runs = {"words": (in_words, "sums.py"), "tools": (with_tools, "own_tools.py")}
    for name, (make, family) in runs.items():
        run = make(place / name)
        words = ["--inspect", str(place / "logs"), "--family", str(place / name / family)]
        assert assay.main(["report", str(run), "--no-view", *words]) == 0
        (made,) = (place / "logs").glob("out_*.eval")
        made.rename(place / "logs" / f"{name}.eval")
    return place


def opened(folder: Path, name: str) -> EvalLog:
    return read_eval_log(str(folder / "logs" / f"{name}.eval"))


def test_every_sample_opens_with_both_scores_and_the_evaluations_numbers(folder: Path) -> None:
    log, found = opened(folder, "words"), results(folder / "words" / "out")
    assert log.status == "success" and log.samples is not None and len(log.samples) == 20
    samples = {(s.id, s.epoch): s for s in log.samples}
    for row in found["rows"]:
        sample = samples[row["task_id"], row["sample"] + 1]
        assert sample.messages[-1].role == "assistant" and sample.target
        if row["outcome"] is None:
            assert sample.error is not None and "no ruler" in sample.error.message
            assert not sample.scores
            continue
        assert sample.scores is not None and list(sample.scores) == ["outcome", "reward"]
        values = [sample.scores[name].value for name in ("outcome", "reward")]
        assert values == [row["outcome"], row["reward"]]
        assert sample.output.completion == row["output"].replace("\ud83d", "?")
    cell = found["tables"]["overall"]
    assert log.results is not None and log.eval.config.epochs == 2
    outcome, reward = log.results.scores
    assert [outcome.metrics[n].value for n in ("mean", "low_95", "high_95")] == [
        *(cell["mean_outcome"], *cell["interval"])
    ]
    assert reward.metrics["mean"].value == cell["mean_reward"]
    assert log.eval.model == found["meta"]["model"] and log.eval.model_generate_config.seed == 7
    assert log.eval.revision is not None
    assert log.eval.revision.commit == found["meta"]["code"]["revision"]


def test_tool_calls_open_with_their_answers(folder: Path) -> None:
    samples = opened(folder, "tools").samples or []
    assert len(samples) == 3
    for sample in samples:
        called, came = sample.messages[-3:-1]
        assert called.role == "assistant" and came.role == "tool" and called.tool_calls
        (call,) = called.tool_calls
        assert call.function == "query" and call.arguments["sql"].startswith("SELECT boxes")
        assert came.tool_call_id == call.id and str(sample.target) in came.text


def test_parts_of_a_log_are_read_alone_and_it_can_be_written_again(
    folder: Path, tmp_path: Path
) -> None:
    path = str(folder / "logs" / "words.eval")
    assert len(list_eval_logs(str(folder / "logs"))) == 2
    summaries = read_eval_log_sample_summaries(path)
    assert len(summaries) == 20 and {s.id for s in summaries} >= {"r0", "sums/3"}
    assert sum(s.error is not None for s in summaries) == 2
    assert read_eval_log_sample(path, "sums/3", 2).target == "6"
    assert read_eval_log(path, header_only=True).samples is None
    again = str(tmp_path / "again.eval")
    write_eval_log(read_eval_log(path), again)
    first, second = (read_eval_log(p).model_dump() for p in (path, again))
    assert first == second


@pytest.fixture
def viewer(folder: Path) -> Iterator[str]:
    """The address of a running `inspect view`."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    program = str(Path(sys.executable).with_name("inspect"))
    words = ["view", "start", "--port", str(port), "--log-dir", str(folder / "logs")]
    with subprocess.Popen([program, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as p:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            p.terminate()


def asked(address: str, seconds: float = 60) -> bytes:
    end = time.monotonic() + seconds
    while True:
        try:
            with urlopen(address, timeout=30) as reply:
                return reply.read()
        except (URLError, ConnectionError):
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def test_inspect_view_lists_and_serves_them(folder: Path, viewer: str) -> None:
    assert b"<!doctype html" in asked(viewer).lower()[:100]
    listed: Any = json.loads(asked(f"{viewer}/api/log-files"))
    names = [file["name"] for file in listed["files"]]
    assert len(names) == 2
    path = (folder / "logs" / "tools.eval").as_posix()
    log = json.loads(asked(f"{viewer}/api/logs/{path}"))
    assert len(log["samples"]) == 3 and log["samples"][0]["messages"][-2]["role"] == "tool"
