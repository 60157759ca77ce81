"""The verl backend where verl need not be: overrides, rows, ports, logs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.task import Task, TaskError, write_jsonl
from configs.loader import ConfigError, dump, load
from configs.machine import ClusterConfig, ModelConfig
from configs.schema import GrpoRunConfig
from train.backends.verl import export
from train.backends.verl.data import prepare, reward_metrics
from train.backends.verl.settings import overrides, raw_settings, signed
from train.cluster.ray_cluster import address, base_port
from train.model.order import batch_of
from train.run.trained_on import read_trained


def run_of(*settings: str) -> GrpoRunConfig:
    return load(GrpoRunConfig, None, ["model.path=m", *settings])


def made(*settings: str) -> dict[str, Any]:
    return overrides(run_of(*settings), Path("/files"))


ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
# settings → verl's: each for a trap of verl, or a law of ours
SETTINGS = {
    "rl.max_new_tokens=96": {
        f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum-norm",
        f"{ACTOR}.loss_scale_factor": 96,  # never left to the longest answer
        f"{ACTOR}.clip_ratio_c": 1e9,  # no third clip
        f"{ACTOR}.use_kl_loss": False,
        "algorithm.norm_adv_by_std_in_grpo": False,
        "algorithm.use_kl_in_reward": False,
        "algorithm.rollout_correction.rollout_is": None,
        "data.shuffle": False,
        "trainer.v1.trainer_mode": "sync",
        "trainer.logger": ["console", "file"],
        f"{ROLLOUT}.agent.default_agent_loop": "assay_episode",
        f"{ROLLOUT}.top_k": -1,
        f"{ROLLOUT}.calculate_log_probs": True,
        "+ray_kwargs.ray_init.address": "local",  # left to itself it joins another's
    },
    "rl.preset=dare rl.max_new_tokens=8192": {
        f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean",
        "data.train_batch_size": 64,
        f"{ROLLOUT}.n": 8,
        f"{ACTOR}.ppo_mini_batch_size": 64,
        f"{ROLLOUT}.top_p": 0.95,
        f"{ROLLOUT}.top_k": 50,
        f"{ACTOR}.optim.lr": 1e-6,
        f"{ROLLOUT}.max_model_len": 32768,
    },
    "model.lora_rank=16 model.lora_alpha=8": {
        "actor_rollout_ref.model.lora_rank": 16,
        "actor_rollout_ref.model.lora_alpha": 8,
        "actor_rollout_ref.model.lora.merge": True,  # servers get plain weights
        "+actor_rollout_ref.actor.checkpoint.save_lora_only": True,
    },
    "cluster.trainer=colocate_async": {
        "trainer.v1.trainer_mode": "colocate_async",
        "algorithm.rollout_correction.rollout_is": "token",
    },
    "cluster.trainer=colocate_async cluster.async_correction=false": {
        "algorithm.rollout_correction.rollout_is": None
    },
    "cluster.trainer=separate_async cluster.rollout_gpus_per_node=4 rl.prompts_per_step=16 "
    "rl.mini_batch=8": {
        f"{ROLLOUT}.n_gpus_per_node": 4,
        f"{ROLLOUT}.checkpoint_engine.backend": "nccl",
        "trainer.v1.separate_async.parameter_sync_step": 2,
        "algorithm.rollout_correction.rollout_is": "token",
    },
    "rl.sampling_correction=token cluster.ray_address=10.0.0.1:20100": {
        "algorithm.rollout_correction.rollout_is": "token",
        "+ray_kwargs.ray_init.address": "10.0.0.1:20100",
    },
    "log.wandb=offline log.tensorboard=true": {
        "trainer.logger": ["console", "file", "wandb", "tensorboard"]
    },
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_our_settings_as_verls(settings: str) -> None:
    found = made(*settings.split())
    assert {key: found[key] for key in SETTINGS[settings]} == SETTINGS[settings]


def test_long_answers_and_adapters_are_told_where_they_are_asked_for() -> None:
    assert made("rl.overlong=soft") == made()
    assert not any("lora" in key for key in made())


def test_rollouts_can_be_counted_with_a_kl_term_too() -> None:
    """verl asks for the reference model's own number, and refuses the run without it."""
    found = made("cluster.micro_batch=2", "rl.kl_coef=0.01", "rl.max_new_tokens=96")
    name = "log_prob_micro_batch_size_per_gpu"
    assert {found[f"actor_rollout_ref.{part}.{name}"] for part in ("rollout", "ref")} == {2}
    pytest.importorskip("verl", reason="the extra `cluster` is not installed")
    from train.backends.verl.settings import check, compose

    check(compose(found, {}))


def test_ray_gets_the_cores_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    from train.backends.verl.main import _ray_cpus

    cpus = "ray_kwargs.ray_init.num_cpus"
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(6)))
    assert _ray_cpus(run_of("cluster.gpus_per_node=1", "cluster.rollout_workers=1"))[cpus] == 6
    assert _ray_cpus(run_of())[cpus] == 34  # what verl reserves on eight GPUs
    assert _ray_cpus(run_of("cluster.ray_address=10.0.0.1:20100")) == {}


def test_what_verl_would_do_in_silence_is_refused() -> None:
    for settings, said in [
        (("cluster.gpus_per_node=3",), "cannot be shared out evenly over 3"),
        (("cluster.micro_batch=5",), "does not divide the 16 rollouts of a rank"),
        (("rl.schedule=linear",), "verl has constant and cosine"),
        (("rl.kl_coef=0.1", "cluster.device=cpu"), "reference model does not run on the CPU"),
        (("rl.warmup=20",), "is not below rl.steps=20"),
        (("rl.dynamic_sampling=2",), "cluster.verl.algorithm.filter_groups.enable=true"),
        (("rl.overlong=mask",), "without knowing what was cut off"),
    ]:
        with pytest.raises(ConfigError) as error:
            made(*settings)
        assert said in str(error.value)
    with pytest.raises(ConfigError, match=r"model.path is empty"):
        overrides(load(GrpoRunConfig, None, []), Path("/files"))


def test_separate_async_asks_for_cupy_and_for_all_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    from train.backends.verl.settings import lacking
    from train.cluster.preflight import asked, mismatches

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "cupy" not in dict(lacking(run_of("cluster.trainer=colocate_async").cluster))
    words = ["cluster.trainer=separate_async", "cluster.rollout_gpus_per_node=4"]
    assert "pip install cupy-cuda13x==14.0.1" in dict(lacking(run_of(*words).cluster))["cupy"]
    job = ["--backend", "verl", "cluster.gpus_per_node=4", *words]
    environ = {"SLURM_NNODES": "1", "SLURM_CPUS_PER_TASK": "64", "SLURM_GPUS_ON_NODE": "4"}
    (said,) = mismatches(asked("grpo", job), environ, 0)
    assert said.startswith("4 GPUs train and 4 draw rollouts")
    assert mismatches(asked("grpo", job), environ | {"SLURM_GPUS_ON_NODE": "8"}, 0) == []


def test_a_cluster_that_cannot_be_is_refused() -> None:
    for changes, said in [
        ({"nodes": 0}, "set 1 or more"),
        ({"tensor_parallel": 3}, "does not divide"),
        ({"server_memory": 1.5}, "between 0 and 1"),
        ({"zero_stage": 1}, "set 2 to 3"),
        ({"nodes": 2, "tensor_parallel": 16}, "stays on one node"),
        ({"trainer": "separate_async"}, "set rollout_gpus_per_node"),
        ({"trainer": "separate_async", "device": "cpu"}, "device=cpu has none"),
        ({"rollout_gpus_per_node": 2}, "only trainer=separate_async has GPUs for rollouts alone"),
    ]:
        with pytest.raises(ValueError, match=said):
            ClusterConfig(**changes)


def test_ports_come_from_the_job_and_avoid_what_is_taken() -> None:
    assert base_port(7, 0, lambda port: True) == base_port(7, 0, lambda port: True)
    assert base_port(7, 0, lambda port: True) != base_port(7, 1, lambda port: True)
    taken = base_port(7, 0, lambda port: True)
    assert base_port(7, 0, lambda port: port != taken + 3) == taken + 20
    assert address().count(".") == 3


def toy(i: int, **gold: Any) -> Task:
    prompt = [{"role": "user", "content": f"Clean {i}"}]
    found = {"input_text": f"text {i}", "status": "KEEP", "text": "x", **gold}
    return Task(f"t{i}", "refinement", "toy", "train", prompt, found)


def prepared(folder: Path, model: Path, tasks: list[Task], *settings: str) -> dict[str, int]:
    write_jsonl(folder / "t.jsonl", [task.to_json() for task in tasks])
    words = ["rl.prompts_per_step=4", "rl.mini_batch=4", f"data={folder / 't.jsonl'}", *settings]
    return prepare(replace(run_of(*words), model=ModelConfig(path=str(model))), folder / "verl")


def test_rows_have_one_struct_whatever_the_tasks_carry(tmp_path: Path, tiny_folder: Path) -> None:
    pa = pytest.importorskip("pyarrow.parquet")
    tasks = [toy(i, **{f"odd{i}": {"deep": [i]}}) for i in range(6)]
    counts = prepared(tmp_path, tiny_folder, tasks, "rl.steps=3")
    rows = pa.read_table(tmp_path / "verl" / "train.parquet").to_pylist()
    assert counts == {"tasks": 6, "train": 12, "val": 0} and len(rows) == 12
    back = [Task.from_json(json.loads(row["reward_model"]["ground_truth"])) for row in rows]
    order = [i for step in range(3) for i in batch_of(step, 6, 4, run_of().seed)]
    assert back == [tasks[i] for i in order]  # and in the embedded loop's order
    assert all(set(row["extra_info"]) == {"index", "split", "task_id"} for row in rows)


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


def test_training_and_held_out_tasks_may_lie_in_two_folders(
    tmp_path: Path, tiny_folder: Path
) -> None:
    pa = pytest.importorskip("pyarrow.parquet")
    words = [f"validation={tmp_path / 'b' / 't.jsonl'}", f"data={tmp_path / 'a' / 't.jsonl'}"]
    words += ["rl.steps=1", "rl.prompts_per_step=1", "rl.mini_batch=1"]
    config = replace(run_of(*words), model=ModelConfig(path=str(tiny_folder)))

    def write(tool: str) -> None:
        for name in "ab":
            (tmp_path / name).mkdir(exist_ok=True)
            task = replace(toy(0), id=name, tools=(tool,), files={"t.csv": f"{name}.csv"})
            write_jsonl(tmp_path / name / "t.jsonl", [task.to_json()])

    write("python_executor")
    (tmp_path / "a" / "a.csv").touch()
    with pytest.raises(TaskError, match=r"task b: file t.csv: .*b.csv is not there"):
        prepare(config, tmp_path / "verl")
    (tmp_path / "b" / "b.csv").touch()
    prepare(config, tmp_path / "verl")
    for name, split in (("a", "train"), ("b", "val")):
        (row,) = pa.read_table(tmp_path / "verl" / f"{split}.parquet").to_pylist()
        task = Task.from_json(json.loads(row["reward_model"]["ground_truth"]))
        assert task.files == {"t.csv": str(tmp_path / name / f"{name}.csv")}
    write("hammer")
    with pytest.raises(TaskError, match="no environment has hammer"):
        prepare(config, tmp_path / "verl")


def test_each_start_has_a_metrics_file_of_its_own(tmp_path: Path) -> None:
    from train.backends.verl.main import _next_log

    first = _next_log(tmp_path)
    first.touch()
    assert _next_log(tmp_path) != first
    found = reward_metrics([{"acc": 1.0, "part_rg": 0.5, "tool_calls": 2.0}, {"acc": 0.0}])
    assert found == {"outcome/mean": 0.5, "reward/rg/mean": 0.5, "rollout/tool_calls/mean": 2.0}


# --- cluster.verl.<path>=value -----------------------------------------------------------------

KNOWN: dict[str, Any] = {
    "actor_rollout_ref": {
        "nccl_timeout": 600,
        "rollout": {"engine_kwargs": {"sglang": {}}, "name": None, "ratio": 0.5, "eager": True},
        "ref": "${actor_rollout_ref.actor}",
    }
}


def raw(*settings: str) -> dict[str, Any]:
    config = run_of(*settings)
    return raw_settings(config.cluster.verl, overrides(config, Path("/files")))


def test_keys_are_handed_on_as_they_stand(tmp_path: Path) -> None:
    words = [
        "cluster.verl.actor_rollout_ref.nccl_timeout=1200",
        f"cluster.verl.{ROLLOUT}.engine_kwargs.sglang.mamba={{a: 1}}",
        f"cluster.verl.{ROLLOUT}.engine_kwargs.sglang.quantization=fp8",
    ]
    found = raw(*words)
    assert found == {
        "actor_rollout_ref.nccl_timeout": 1200,
        f"{ROLLOUT}.engine_kwargs.sglang.mamba.a": 1,
        f"{ROLLOUT}.engine_kwargs.sglang.quantization": "fp8",
    }
    assert list(signed(found, KNOWN)) == [
        "actor_rollout_ref.nccl_timeout",
        f"+{ROLLOUT}.engine_kwargs.sglang.mamba.a",
        f"+{ROLLOUT}.engine_kwargs.sglang.quantization",
    ]
    dump(run_of(*words), tmp_path / "c.yaml")  # a file says the same
    assert load(GrpoRunConfig, tmp_path / "c.yaml").cluster.verl == run_of(*words).cluster.verl
    assert raw() == {}


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("trainer.nnodes=4", "Assay sets trainer.nnodes=1 from its own settings"),
        ("data=null", "Assay sets data.train_files="),
        ("actor_rollout_ref.model.override_config.attn_implementation=eager", "Assay sets"),
    ],
)
def test_what_assay_sets_is_not_set_twice(key: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        raw(f"cluster.verl.{key}")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("actor_rollout_ref.nccl_timeot", 1, "verl has no nccl_timeot there; did you mean 'nccl_t"),
        ("actor_rollout_ref.nccl_timeout.x", 1, "verl has no x there"),
    ],
)
def test_what_verl_does_not_have_is_refused(key: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        signed({key: value}, KNOWN)
    assert said in str(error.value) and str(error.value).startswith(f"cluster.verl.{key}")


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
