"""A run's folder: one process at a time, what it was made of, how it stops."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from assay.console import status_of
from assay.record import revision
from configs.loader import ConfigError, load, to_dict
from configs.machine import EngineConfig
from configs.schema import SftRunConfig
from train.run.checkpoint import StopFlag, Stopped
from train.run.record import read_run_record
from train.run.run import Run, held, publish, put_back


def config(out: Path) -> SftRunConfig:
    return SftRunConfig(out=str(out), engine=EngineConfig(dtype="float32", threads=1))


def test_a_folder_has_one_process(tmp_path: Path) -> None:
    said = rf"process {os.getpid()} on .* is running in this folder; wait for it to end, or set"
    with held(tmp_path / "run"), held(tmp_path / "another"):
        with pytest.raises(ConfigError, match=said), Run(config(tmp_path / "run")):
            pass
        assert not (tmp_path / "run" / "run.json").exists()  # nothing was written
    with held(tmp_path / "run"):
        pass


def test_a_run_records_what_it_was_made_of(tmp_path: Path) -> None:
    with Run(config(tmp_path)) as run:
        run.record(times={"SFT": 1.0})
    record = read_run_record(tmp_path)
    assert record["config"] == to_dict(run.config) and record["times"] == {"SFT": 1.0}
    assert len(record["starts"]) == 1  # written twice, started once
    assert {"python", "torch", "regex"} <= set(record["versions"])
    assert record.get("code") == revision()
    assert load(SftRunConfig, tmp_path / "config.yaml") == run.config


def test_a_kill_while_a_model_is_replaced_loses_neither(tmp_path: Path) -> None:
    target, aside = tmp_path / "best", tmp_path / ".old-best"
    for text in ("1", "2"):
        work = tmp_path / "work"
        work.mkdir()
        (work / "a").write_text(text)
        publish(work, target)
    assert (target / "a").read_text() == "2" and not aside.exists()
    target.rename(aside)  # where a kill between the two renames leaves it
    put_back(target)
    assert (target / "a").read_text() == "2"


def test_a_run_that_has_begun_goes_on_with_the_same_inputs_alone(tmp_path: Path) -> None:
    data, base, out = tmp_path / "t.jsonl", tmp_path / "base", tmp_path / "run"
    data.write_text("one\n")
    base.mkdir()
    (base / "model.safetensors").write_bytes(b"weights")
    inputs = {"data": data, "model": base, "tokenizer": "abc"}

    def start(seed: int = 0, **more: Path | str) -> None:
        with Run(replace(config(out), seed=seed), {**inputs, **more}):
            pass

    start(1)
    data.write_text("two\n")
    start()  # nothing was done yet
    (out / "checkpoints" / "sft" / "step_000001").mkdir(parents=True)
    (base / "README.md").write_text("a note changes nothing")
    start()
    with pytest.raises(ConfigError, match=r"other settings \(seed\)"):
        start(1)
    before = read_run_record(out)["inputs"]
    for path, said in ((data, "the data"), (base / "model.safetensors", "the weights of the mod")):
        kept = path.read_bytes()
        path.write_bytes(kept[::-1])
        with pytest.raises(ConfigError, match=f"{said}.* changed"):
            start()
        path.write_bytes(kept)
    with pytest.raises(ConfigError, match=r"the tokenizer .* changed"):
        start(tokenizer="other")
    assert read_run_record(out)["inputs"] == before
    start()


def test_the_first_interrupt_saves_and_the_second_ends_at_once() -> None:
    stop = StopFlag().listen()
    try:
        assert not stop()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop() and stop.asked == "SIGINT"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
    finally:
        stop.deaf()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ended = [status_of(Stopped(3, by), "assay sft") for by in ("SIGINT", "SIGTERM")]
    assert ended == [130, 75]
