"""The verl backend where verl need not be: overrides, rows, ports, logs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from places import tables

from assay.task import Task, TaskError, write_jsonl
from configs.loader import ConfigError, dump, load
from configs.schema import GrpoRunConfig
from train.backends.verl import export
from train.backends.verl.data import prepare, reward_metrics
from train.backends.verl.main import _ray_cpus
from train.backends.verl.settings import overrides, raw_settings, signed
from train.cluster.ray_cluster import base_port
from train.model.order import batch_of
from train.run.trained_on import read_trained


def run_of(*settings: str) -> GrpoRunConfig:
    return load(GrpoRunConfig, None, ["model.path=m", *settings])


def made(*settings: str) -> dict[str, Any]:
    return overrides(run_of(*settings), Path("/files"))


# each for a trap of verl, or a law of ours: the normaliser is never left to the longest answer,
# there is no third clip, servers of adapters get plain weights, and Ray joins nobody else's
SETTINGS = tables("training")["our settings as verl's"]
REFUSED = tables("training")["what verl would do in silence"]
ROLLOUT = "actor_rollout_ref.rollout"


@pytest.mark.parametrize("settings", SETTINGS)
def test_our_settings_as_verls(settings: str) -> None:
    found = made(*settings.split())
    assert {key: found[key] for key in SETTINGS[settings]} == SETTINGS[settings]


def test_rollouts_can_be_counted_with_a_kl_term_too() -> None:
    """verl asks for the reference model's own number, and refuses the run without it."""
    found = made("cluster.micro_batch=2", "rl.kl_coef=0.01", "rl.max_new_tokens=96")
    name = "log_prob_micro_batch_size_per_gpu"
    assert {found[f"actor_rollout_ref.{part}.{name}"] for part in ("rollout", "ref")} == {2}
    pytest.importorskip("verl", reason="the extra `cluster` is not installed")
    from train.backends.verl.settings import check, compose

    check(compose(found, {}))
    with pytest.raises(ConfigError, match="verl refuses a setting"):
        compose(found | {"trainer.no_such_key": 1}, {})


def test_entropy_is_also_logged_in_nats() -> None:
    pytest.importorskip("verl", reason="the extra `cluster` is not installed")
    import torch

    from train.backends.verl.trainer import entropy_nats

    nested = (
        torch.nested.as_nested_tensor([torch.tensor(row) for row in part], layout=torch.jagged)
        for part in ([[1.0, 9.0, 2.0], [3.0]], [[1, 0, 1], [1]])
    )
    assert entropy_nats(*nested) == pytest.approx(2.0)


def test_what_verl_would_do_in_silence_is_refused() -> None:
    for settings, said in REFUSED.items():
        with pytest.raises(ConfigError, match=re.escape(said)):
            raw(*settings.split())


def test_ray_gets_the_cores_of_the_job_and_ports_that_are_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(6)))
    cpus = {"ray_kwargs.ray_init.num_cpus": 6}
    assert _ray_cpus(run_of("cluster.gpus_per_node=1", "cluster.rollout_workers=1")) == cpus
    assert _ray_cpus(run_of()) == {"ray_kwargs.ray_init.num_cpus": 34}  # what verl reserves
    assert _ray_cpus(run_of("cluster.ray_address=10.0.0.1:20100")) == {}
    first, next_start = (base_port(7, start, lambda port: True) for start in (0, 1))
    assert first == base_port(7, 0, lambda port: True) != next_start
    assert base_port(7, 0, lambda port: port != first + 3) == first + 20


def toy(i: int, **gold: Any) -> Task:
    prompt = [{"role": "user", "content": f"Clean {i}"}]
    found = {"input_text": f"text {i}", "status": "KEEP", "text": "x", **gold}
    return Task(f"t{i}", "refinement", "toy", "train", prompt, found)


def prepared(folder: Path, model: Path, tasks: list[Task], *settings: str) -> dict[str, int]:
    write_jsonl(folder / "t.jsonl", [task.to_json() for task in tasks])
    words = ["rl.prompts_per_step=4", "rl.mini_batch=4", f"data={folder / 't.jsonl'}", *settings]
    return prepare(run_of(*words, f"model.path={model}"), folder / "verl")


def test_rows_have_one_struct_whatever_the_tasks_carry(tmp_path: Path, tiny_folder: Path) -> None:
    pa = pytest.importorskip("pyarrow.parquet")
    tasks = [toy(i, **{f"odd{i}": {"deep": [i]}}) for i in range(6)]
    held = f"validation={tmp_path}/t.jsonl"
    counts = prepared(tmp_path, tiny_folder, tasks, "rl.steps=3", held)
    rows = pa.read_table(tmp_path / "verl" / "train.parquet").to_pylist()
    assert counts == {"tasks": 6, "train": 12, "val": 6} and len(rows) == 12
    back = [Task.from_json(json.loads(row["reward_model"]["ground_truth"])) for row in rows]
    order = [i for step in range(3) for i in batch_of(step, 6, 4, run_of().seed)]
    assert back == [tasks[i] for i in order]  # and in the embedded loop's order
    assert all(set(row["extra_info"]) == {"index", "split", "task_id"} for row in rows)
    gone = replace(toy(0), tools=("python_executor",), files={"t.csv": "gone.csv"})
    with pytest.raises(TaskError, match=r"task t0: file t.csv: .*gone.csv is not there"):
        prepared(tmp_path, tiny_folder, [gone], "rl.steps=3")
    found = reward_metrics([{"acc": 1.0, "part_rg": 0.5, "tool_calls": 2.0}, {"acc": 0.0}])
    assert found == {"outcome/mean": 0.5, "reward/rg/mean": 0.5, "rollout/tool_calls/mean": 2.0}


def test_the_exported_model_has_the_record_of_what_it_was_trained_on(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow.parquet")
    tasks = [toy(i) for i in range(6)]
    prepared(tmp_path, tiny_folder, tasks, "rl.steps=1")

    def merge(actor: Path, target: Path) -> None:
        target.mkdir()
        (target / "model.safetensors").write_text("weights")

    monkeypatch.setattr(export, "_merge", merge)
    (tmp_path / "global_step_1" / "actor" / "huggingface").mkdir(parents=True)
    found = read_trained(export.export(tmp_path, 1))
    assert found is not None and str(found).endswith("then rl on 4 rows")
    assert sum(map(found.saw, tasks)) == 4


# --- cluster.verl.<path>=value -----------------------------------------------------------------

KNOWN: dict[str, Any] = {
    "actor_rollout_ref": {"nccl_timeout": 600, "rollout": {"engine_kwargs": {"sglang": {}}}}
}


def raw(*settings: str) -> dict[str, Any]:
    config = run_of(*settings)
    return raw_settings(config.cluster.verl, overrides(config, Path("/files")))


def test_keys_are_handed_on_as_they_stand(tmp_path: Path) -> None:
    words = [
        "cluster.verl.actor_rollout_ref.nccl_timeout=1200",
        f"cluster.verl.{ROLLOUT}.engine_kwargs.sglang.mamba={{a: 1}}",
    ]
    found = raw(*words)
    assert found == {
        "actor_rollout_ref.nccl_timeout": 1200,
        f"{ROLLOUT}.engine_kwargs.sglang.mamba.a": 1,
    }
    added = f"+{ROLLOUT}.engine_kwargs.sglang.mamba.a"
    assert list(signed(found, KNOWN)) == ["actor_rollout_ref.nccl_timeout", added]
    dump(run_of(*words), tmp_path / "c.yaml")  # a file says the same
    assert load(GrpoRunConfig, tmp_path / "c.yaml").cluster.verl == run_of(*words).cluster.verl
    assert raw() == {}


def test_verl_itself_takes_them(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("verl", reason="the extra `cluster` is not installed")
    from train.backends.verl.settings import show

    fsdp = "actor_rollout_ref.actor.fsdp_config.fsdp_size"
    words = ["model.path=Qwen/Qwen3-4B", "rl.max_new_tokens=64", f"cluster.verl.{fsdp}=8"]
    more = f"cluster.verl.{ROLLOUT}.engine_kwargs.sglang.quantization=fp8"
    show(load(GrpoRunConfig, None, [*words, more]))
    said = capsys.readouterr().out
    assert f"no estimate knows of them):\n{fsdp}=8" in said
    assert "fsdp_size: 8" in said and "quantization: fp8" in said
    with pytest.raises(ConfigError, match="verl has no fsdp_sise there; did you mean 'fsdp_size"):
        wrong = f"cluster.verl.{fsdp.replace('size', 'sise')}=8"
        show(load(GrpoRunConfig, None, [*words[:2], wrong]))
