"""A run's folder: one process at a time, what it was made of, how it stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from places import ROOT

torch = pytest.importorskip("torch")

from assay.console import status_of  # noqa: E402
from assay.record import revision  # noqa: E402
from configs.loader import ConfigError, to_dict  # noqa: E402
from configs.machine import EngineConfig, ModelConfig  # noqa: E402
from configs.schema import SftRunConfig  # noqa: E402
from rollouts.engines.engine import ModelError  # noqa: E402
from train.run.checkpoint import StopFlag, Stopped  # noqa: E402
from train.run.record import read_run_record  # noqa: E402
from train.run.run import Run, held, load_checked, publish, put_back  # noqa: E402

HOLD = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from train.run.run import held
with held(Path(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""


def config(out: Path) -> SftRunConfig:
    return SftRunConfig(out=str(out), engine=EngineConfig(dtype="float32", threads=1))


def test_a_folder_has_one_process_and_a_kill_frees_it(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLD, str(ROOT), str(tmp_path / "run")]
    other = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdout.readline() == "held\n"
    said = rf"process {other.pid} on .* is running in this folder; wait for it to end, or set"
    with pytest.raises(ConfigError, match=said), Run(config(tmp_path / "run")):
        pass
    assert not (tmp_path / "run" / "run.json").exists()  # nothing was written
    other.kill()
    other.communicate()
    with held(tmp_path / "run"), held(tmp_path / "another"):
        pass


def test_a_run_records_what_it_was_made_of(tmp_path: Path) -> None:
    with Run(config(tmp_path)) as run:
        run.record(times={"SFT": 1.0})
    record = read_run_record(tmp_path)
    assert record["config"] == to_dict(run.config) and record["times"] == {"SFT": 1.0}
    assert len(record["starts"]) == 1  # written twice, started once
    assert {"regex", "beautifulsoup4", "selectolax", "rapidfuzz"} <= set(record["versions"])
    assert record.get("code") == revision()


def test_the_revision_is_of_this_checkout_and_absent_elsewhere(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        name = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(tmp_path), *name, *words], check=True, capture_output=True)

    assert revision(tmp_path) is None
    git("init")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-m", "a")
    clean = revision(tmp_path)
    assert clean is not None and len(clean["revision"]) == 40 and clean["dirty"] is False
    (tmp_path / "a").write_text("2")
    assert revision(tmp_path) == {**clean, "dirty": True}
    (tmp_path / "inside").mkdir()
    assert revision(tmp_path / "inside") is None  # somebody else's checkout around it


def test_a_run_with_other_settings_is_refused_once_it_has_begun(tmp_path: Path) -> None:
    with Run(config(tmp_path)):
        pass
    changed = replace(config(tmp_path), seed=1)
    with Run(changed):  # nothing was done yet
        pass
    (tmp_path / "checkpoints" / "sft" / "step_000001").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"other settings \(seed\)"), Run(config(tmp_path)):
        pass


def test_a_signal_stops_between_stages_and_means_its_own_again_after(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(Stopped, match="asked to stop; SFT is done"), Run(config(tmp_path)) as run:
        run.between("SFT")
        os.kill(os.getpid(), signal.SIGUSR1)
        run.between("SFT")
    assert signal.getsignal(signal.SIGUSR1) == before
    assert not (tmp_path / "DONE").exists()


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
    assert (target / "a").read_text() == "2" and not aside.exists()


def test_a_run_that_has_begun_goes_on_with_the_same_inputs_alone(tmp_path: Path) -> None:
    data, base, out = tmp_path / "t.jsonl", tmp_path / "base", tmp_path / "run"
    data.write_text("one\n")
    base.mkdir()
    (base / "model.safetensors").write_bytes(b"weights")
    inputs = {"data": data, "model": base, "tokenizer": "abc"}

    def start(**more: Path | str) -> None:
        with Run(config(out), {**inputs, **more}):
            pass

    start()
    data.write_text("two\n")
    start()  # nothing was done yet
    (out / "checkpoints" / "sft" / "step_000001").mkdir(parents=True)
    start()
    (base / "README.md").write_text("a note changes nothing")
    start()
    before = read_run_record(out)["inputs"]
    data.write_text("three\n")
    with pytest.raises(ConfigError, match="the data changed"):
        start()
    data.write_text("two\n")
    (base / "model.safetensors").write_bytes(b"weighty")
    with pytest.raises(ConfigError, match=r"the weights of the model .* changed"):
        start()
    (base / "model.safetensors").write_bytes(b"weights")
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
    said, asked = Stopped(3, "SIGINT"), Stopped(3, "SIGTERM")
    assert [status_of(e, "assay sft") for e in (said, asked)] == [130, 75]
    assert "saved step 3, run the same command to go on" in str(said)


def test_out_of_gpu_memory_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
    assert status_of(error, "assay grpo") == 1
    assert capsys.readouterr().err.startswith("assay grpo: out of GPU memory; lower engine.micro")
    assert status_of(RuntimeError("a bug"), "assay grpo") is None


def test_a_model_that_a_gpu_cannot_train_is_refused(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = (tiny_folder / "model.safetensors").stat().st_size
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (size * 10, size * 10))
    with pytest.raises(ModelError, match=r"GPU memory needed.*spread it over GPUs with --backend"):
        load_checked(tiny_folder, EngineConfig(), "cuda", train=True)
    # adapters need a fraction: it goes on to the loading, for which there is no GPU here
    if not torch.cuda.is_available():
        with pytest.raises((RuntimeError, AssertionError)) as error:
            load_checked(tiny_folder, EngineConfig(), "cuda", True, ModelConfig(lora_rank=4))
        assert not isinstance(error.value, ModelError)
