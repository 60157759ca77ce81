"""Every way a job can be stopped, and the proof that nothing was lost: the same final bits."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

import pytest
from assay_command import assay
from mini_slurm import MiniSlurm
from places import ROOT
from slurm_runs import (
    final_hashes,
    grpo_words,
    model_hash,
    sft_words,
    steps,
    stop_in_every_way,
    toy_tasks,
    wait_progress,
)

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


@pytest.fixture(scope="module")
def warm_folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that solves some of its tasks: one that solves none has nothing to learn from."""
    folder = tmp_path_factory.mktemp("warm")
    data = toy_tasks(folder / "t.jsonl")
    more = ["sft.epochs=45", "sft.batch_size=8", "sft.lr=3e-3"]
    assay(ROOT, "sft", *sft_words(data, tiny_folder, folder), *more)
    return folder / "model"


def test_sft_ends_in_the_same_bits_whatever_stopped_it(
    slurm: MiniSlurm, tiny_folder: Path, tmp_path: Path
) -> None:
    data, out, log = toy_tasks(tmp_path / "t.jsonl"), tmp_path / "run", tmp_path / "log.txt"
    job = slurm.script(log, "sft", *sft_words(data, tiny_folder, out))
    stop_in_every_way(slurm, job, out, "sft")
    done, text = slurm.wait(job, seconds=240), log.read_text()
    assert (done["JobState"], done["Restarts"]) == ("COMPLETED", "4"), text
    assert text.count("assay sft: asked to stop; saved step") == 3 and "restart 4" in text
    assert (out / "DONE").exists()
    whole = tmp_path / "whole"
    assay(ROOT, "sft", *sft_words(data, tiny_folder, whole))
    assert final_hashes(out, "sft") == final_hashes(whole, "sft")
    assert steps(out) == steps(whole) == list(range(1, 601))


def test_grpo_ends_in_the_same_bits_and_samples_whatever_stopped_it(
    slurm: MiniSlurm, warm_folder: Path, tmp_path: Path
) -> None:
    data, out, log = toy_tasks(tmp_path / "t.jsonl"), tmp_path / "run", tmp_path / "log.txt"
    job = slurm.script(log, "grpo_1node", *grpo_words(data, warm_folder, out))
    stop_in_every_way(slurm, job, out, "rl")
    done = slurm.wait(job, seconds=240)
    assert (done["JobState"], done["Restarts"]) == ("COMPLETED", "4"), log.read_text()
    whole = tmp_path / "whole"
    assay(ROOT, "grpo", *grpo_words(data, warm_folder, whole))
    assert final_hashes(out, "rl") == final_hashes(whole, "rl")
    before = (warm_folder / "model.safetensors").read_bytes()
    assert model_hash(out) != hashlib.sha256(before).hexdigest()  # it did learn
    names = sorted(path.name for path in (whole / "rollouts").iterdir())
    assert names == sorted(path.name for path in (out / "rollouts").iterdir())
    for name in names:  # every sample once, and the same ones
        assert (out / "rollouts" / name).read_bytes() == (whole / "rollouts" / name).read_bytes()
    assert steps(out) == steps(whole) == list(range(1, 91))


@pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None,
    reason="deepspeed is not installed (extra `deepspeed`)",
)
def test_deepspeed_ends_in_the_same_bits_when_signalled_and_when_its_node_is_lost(
    slurm: MiniSlurm, tiny_folder: Path, tmp_path: Path
) -> None:
    """Two processes, ZeRO-3. Checkpoint files of DeepSpeed hold pickles: the model is compared."""
    data, out, log = toy_tasks(tmp_path / "t.jsonl"), tmp_path / "run", tmp_path / "log.txt"
    more = ["sft.epochs=8", "sft.save_every=5", "cluster.device=cpu", "cluster.gpus_per_node=2"]
    words = ["--backend", "deepspeed", *sft_words(data, tiny_folder, out), *more]
    job = slurm.script(log, "sft", *words, options="--mem=2000")
    wait_progress(slurm, job, out, "sft", 0, seconds=400)
    slurm.run("scancel", "--signal=USR1", "--batch", job)
    wait_progress(slurm, job, out, "sft", 1, seconds=400)
    node = slurm.job(job)["NodeList"]
    slurm.kill_node(node)
    wait_progress(slurm, job, out, "sft", 2, seconds=400)
    slurm.revive_node(node)
    done = slurm.wait(job, seconds=600)
    assert (done["JobState"], done["Restarts"]) == ("COMPLETED", "2"), log.read_text()
    whole = tmp_path / "whole"
    assay(ROOT, "sft", *words, f"out={whole}")
    assert model_hash(out) == model_hash(whole)
    assert steps(out) == steps(whole) == list(range(1, 97))


def test_a_real_time_limit_ends_in_the_same_bits(
    slurm: MiniSlurm, tiny_folder: Path, tmp_path: Path
) -> None:
    """Limits are whole minutes and the signal's time is coarse: asked for after 10 s, it comes
    after some 20. As many starts as it takes, those included that end in their imports."""
    data, out, log = toy_tasks(tmp_path / "t.jsonl"), tmp_path / "run", tmp_path / "log.txt"
    more = ["sft.epochs=100", "sft.save_every=1000"]  # only what the signal saves
    words = [*sft_words(data, tiny_folder, out), *more]
    limit = "--time=1 --signal=B:USR1@50"
    job = slurm.script(log, "sft", *words, options=limit, ASSAY_MAX_STALLS="20")
    done, text = slurm.wait(job, seconds=900), log.read_text()
    assert done["JobState"] == "COMPLETED" and int(done["Restarts"]) >= 1, text
    assert text.count("signal USR1: asking the run to save") >= int(done["Restarts"])
    whole = tmp_path / "whole"
    assay(ROOT, "sft", *sft_words(data, tiny_folder, whole), *more)
    assert final_hashes(out, "sft") == final_hashes(whole, "sft")
    assert steps(out) == list(range(1, 1201))
