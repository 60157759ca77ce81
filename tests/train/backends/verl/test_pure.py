"""The verl backend where verl need not be: overrides, rows, ports, logs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from configs.cluster import ClusterConfig
from configs.loader import ConfigError, load
from configs.schema import GrpoRunConfig, ModelConfig
from train.backends.verl.overrides import overrides
from train.backends.verl.ray_cluster import address, base_port


def run_of(*settings: str) -> GrpoRunConfig:
    return load(GrpoRunConfig, None, ["model.path=m", *settings])


def made(*settings: str) -> dict[str, Any]:
    return overrides(run_of(*settings), Path("/files"))


def test_the_presets_as_verl_settings() -> None:
    dr = made("rl.max_new_tokens=96")
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    assert dr[f"{actor}.loss_agg_mode"] == "seq-mean-token-sum-norm"
    assert dr[f"{actor}.loss_scale_factor"] == 96  # never left to the longest answer
    assert dr[f"{actor}.clip_ratio_c"] >= 1e6  # no third clip
    assert dr["algorithm.norm_adv_by_std_in_grpo"] is False
    assert dr[f"{actor}.use_kl_loss"] is False and dr["algorithm.use_kl_in_reward"] is False
    dare = made("rl.preset=dare", "rl.max_new_tokens=8192")
    assert dare[f"{actor}.loss_agg_mode"] == "seq-mean-token-mean"
    assert (dare["data.train_batch_size"], dare[f"{rollout}.n"]) == (64, 8)
    assert dare[f"{actor}.ppo_mini_batch_size"] == 64
    assert (dare[f"{rollout}.top_p"], dare[f"{rollout}.top_k"]) == (0.95, 50)
    assert dare[f"{actor}.optim.lr"] == 1e-6 and dare[f"{rollout}.max_model_len"] == 32768
    assert dr[f"{rollout}.top_k"] == -1 and dr[f"{rollout}.calculate_log_probs"] is True


def test_rollouts_can_be_counted_with_a_kl_term_too() -> None:
    """verl asks for the reference model's own number, and refuses the run without it."""
    found = made("cluster.micro_batch=2", "rl.kl_coef=0.01", "rl.max_new_tokens=96")
    name = "log_prob_micro_batch_size_per_gpu"
    assert {found[f"actor_rollout_ref.{part}.{name}"] for part in ("rollout", "ref")} == {2}
    pytest.importorskip("verl", reason="the extra `cluster` is not installed")
    from train.backends.verl.compose import check, compose

    check(compose(found, {}))


def test_ray_is_one_that_was_named_or_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left to itself it joins what /tmp/ray/ray_current_cluster names."""
    from train.backends.verl.main import _ray_cpus

    key, cpus = "+ray_kwargs.ray_init.address", "ray_kwargs.ray_init.num_cpus"
    assert made()[key] == made("cluster.device=cpu")[key] == "local"
    assert made("cluster.ray_address=10.0.0.1:20100")[key] == "10.0.0.1:20100"
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(6)))
    assert _ray_cpus(run_of("cluster.gpus_per_node=1", "cluster.rollout_workers=1"))[cpus] == 6
    assert _ray_cpus(run_of())[cpus] == 34  # what verl reserves on eight GPUs
    assert _ray_cpus(run_of("cluster.ray_address=10.0.0.1:20100")) == {}


def test_what_verl_would_do_in_silence_is_set_or_refused() -> None:
    plain = made()
    assert plain["data.shuffle"] is False and plain["trainer.v1.trainer_mode"] == "sync"
    assert plain["actor_rollout_ref.rollout.agent.default_agent_loop"] == "assay_episode"
    assert (
        made("rl.sampling_correction=token")["algorithm.rollout_correction.rollout_is"] == "token"
    )
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


def test_adapters_as_verl_settings() -> None:
    found = made("model.lora_rank=16", "model.lora_alpha=8")
    model = "actor_rollout_ref.model"
    assert (found[f"{model}.lora_rank"], found[f"{model}.lora_alpha"]) == (16, 8)
    assert found[f"{model}.lora.merge"] is True  # servers get plain weights
    assert found["+actor_rollout_ref.actor.checkpoint.save_lora_only"] is True
    assert not any("lora" in key for key in made())


def test_rollouts_from_older_weights_are_corrected() -> None:
    actor, correction = "actor_rollout_ref", "algorithm.rollout_correction.rollout_is"
    colocated = made("cluster.trainer=colocate_async")
    assert colocated["trainer.v1.trainer_mode"] == "colocate_async"
    assert colocated[correction] == "token" and made()[correction] is None
    plain = made("cluster.trainer=colocate_async", "cluster.async_correction=false")
    assert plain[correction] is None
    apart = made(
        "cluster.trainer=separate_async",
        "cluster.rollout_gpus_per_node=4",
        "rl.prompts_per_step=16",
        "rl.mini_batch=8",
    )
    assert apart[f"{actor}.rollout.n_gpus_per_node"] == 4
    assert apart[f"{actor}.rollout.checkpoint_engine.backend"] == "nccl"
    assert apart["trainer.v1.separate_async.parameter_sync_step"] == 2
    assert apart[correction] == "token"


def test_separate_async_asks_for_cupy_and_for_all_its_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from train.backends.verl.compose import require_transfer
    from train.cluster.preflight import asked, mismatches

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    require_transfer(run_of("cluster.trainer=colocate_async").cluster)
    words = ["cluster.trainer=separate_async", "cluster.rollout_gpus_per_node=4"]
    with pytest.raises(ConfigError, match=r"pip install cupy-cuda13x==14\.0\.1"):
        require_transfer(run_of(*words).cluster)
    job = ["--backend", "verl", "cluster.gpus_per_node=4", *words]
    environ = {"SLURM_NNODES": "1", "SLURM_CPUS_PER_TASK": "64", "SLURM_GPUS_ON_NODE": "4"}
    (said,) = mismatches(asked("grpo", job), environ, 0)
    assert said.startswith("4 GPUs train and 4 draw rollouts")
    assert mismatches(asked("grpo", job), environ | {"SLURM_GPUS_ON_NODE": "8"}, 0) == []


def test_long_answers_are_ours_under_verl_too() -> None:
    assert made("rl.overlong=soft") == made()


def test_a_cluster_that_cannot_be_is_refused() -> None:
    for changes, said in [
        ({"nodes": 0}, "set 1 or more"),
        ({"tensor_parallel": 3}, "does not divide"),
        ({"server_memory": 1.5}, "between 0 and 1"),
        ({"zero_stage": 1}, "set 2 or 3"),
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


def test_rows_have_one_struct_whatever_the_tasks_carry(tmp_path: Path, tiny_folder: Path) -> None:
    pa = pytest.importorskip("pyarrow.parquet")
    from assay.task import Task, write_jsonl
    from train.backends.verl.data import prepare
    from train.model.order import batch_of

    tasks = [
        Task(
            f"t{i}",
            "refinement",
            "toy",
            "train",
            [{"role": "user", "content": "x"}],
            {"input_text": "x", "status": "KEEP", "text": "x", f"odd{i}": {"deep": [i]}},
            tools=("python_executor",) if i % 2 else (),
        )
        for i in range(6)
    ]
    write_jsonl(tmp_path / "t.jsonl", [t.to_json() for t in tasks])
    config = replace(
        run_of(
            f"data={tmp_path / 't.jsonl'}", "rl.steps=3", "rl.prompts_per_step=4", "rl.mini_batch=4"
        ),
        model=ModelConfig(path=str(tiny_folder)),
    )
    counts = prepare(config, tmp_path / "verl")
    rows = pa.read_table(tmp_path / "verl" / "train.parquet").to_pylist()
    assert counts == {"tasks": 6, "train": 12, "val": 0} and len(rows) == 12
    back = [Task.from_json(json.loads(row["reward_model"]["ground_truth"])) for row in rows]
    order = [i for step in range(3) for i in batch_of(step, 6, 4, config.seed)]
    assert back == [tasks[i] for i in order]  # and in the embedded loop's order
    assert all(set(row["extra_info"]) == {"index", "split", "task_id"} for row in rows)


def test_the_exported_model_has_the_record_of_what_it_was_trained_on(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow.parquet")
    import train.backends.verl.export as module
    from assay.task import Task, write_jsonl
    from train.backends.verl.data import prepare
    from train.run.trained_on import read_trained

    tasks = [
        Task(
            f"t{i}",
            "refinement",
            "toy",
            "train",
            [{"role": "user", "content": f"Clean {i}"}],
            {"input_text": f"text {i}", "status": "KEEP", "text": "x"},
        )
        for i in range(6)
    ]
    write_jsonl(tmp_path / "t.jsonl", [t.to_json() for t in tasks])
    words = ["rl.steps=1", "rl.prompts_per_step=4", "rl.mini_batch=4"]
    config = replace(
        run_of(f"data={tmp_path / 't.jsonl'}", *words), model=ModelConfig(path=str(tiny_folder))
    )
    prepare(config, tmp_path / "verl")

    def merge(actor: Path, target: Path) -> None:
        target.mkdir()
        (target / "model.safetensors").write_text("weights")

    monkeypatch.setattr(module, "_merge", merge)
    (tmp_path / "global_step_1" / "actor" / "huggingface").mkdir(parents=True)
    found = read_trained(module.export(tmp_path, 1))
    assert found is not None and str(found).endswith("then rl on 4 rows")
    assert sum(map(found.saw, tasks)) == 4


def test_training_and_held_out_tasks_may_lie_in_two_folders(
    tmp_path: Path, tiny_folder: Path
) -> None:
    pa = pytest.importorskip("pyarrow.parquet")
    from assay.task import Task, TaskError, write_jsonl
    from train.backends.verl.data import prepare

    words = [
        f"cluster.val_data={tmp_path / 'b' / 't.jsonl'}",
        f"data={tmp_path / 'a' / 't.jsonl'}",
        "rl.steps=1",
        "rl.prompts_per_step=1",
        "rl.mini_batch=1",
    ]
    config = replace(run_of(*words), model=ModelConfig(path=str(tiny_folder)))

    def write(tool: str) -> None:
        for name in "ab":
            (tmp_path / name).mkdir(exist_ok=True)
            task = Task(
                name,
                "table",
                "toy",
                "train",
                [{"role": "user", "content": "x"}],
                {},
                tools=(tool,),
                files={"t.csv": f"{name}.csv"},
            )
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
    from train.backends.verl.trainer import reward_metrics

    first = _next_log(tmp_path)
    first.touch()
    assert _next_log(tmp_path) != first
    found = reward_metrics([{"acc": 1.0, "part_rg": 0.5, "tool_calls": 2.0}, {"acc": 0.0}])
    assert found == {"outcome/mean": 0.5, "reward/rg/mean": 0.5, "rollout/tool_calls/mean": 2.0}


def test_the_trackers_that_were_asked_for_are_verls_too(tmp_path: Path) -> None:
    from train.backends.verl.main import environment

    assert made()["trainer.logger"] == ["console", "file"]
    asked = ("log.wandb=offline", "log.tensorboard=true", f"out={tmp_path}")
    assert made(*asked)["trainer.logger"] == ["console", "file", "wandb", "tensorboard"]
    variables = environment(run_of(*asked), tmp_path / "verl")
    assert variables["TENSORBOARD_DIR"] == str(tmp_path.resolve() / "tensorboard")
    assert variables["WANDB_MODE"] == "offline"


def test_a_step_without_a_rollout_is_one_sentence() -> None:
    from assay.task import TaskError
    from train.backends.verl.main import _start

    def fit() -> None:
        raise RuntimeError("Sync replay buffer selected groups with no materializable trajectories")

    with pytest.raises(TaskError, match="every rollout of a step was left out"):
        _start(fit)
    tries = iter([RuntimeError("The current node timed out during startup"), None])

    def slow() -> None:
        error = next(tries)
        if error:
            raise error

    _start(slow)  # Ray's start is tried again
    assert next(tries, "none left") == "none left"


def checkpoint(out: Path, step: int, whole: bool = True) -> None:
    folder = out / f"global_step_{step}"
    (folder / "actor").mkdir(parents=True)
    if whole:
        (folder / "data.pt").touch()


def test_the_newest_checkpoints_of_all_starts_are_kept(tmp_path: Path) -> None:
    from train.backends.verl.retention import TRACKER, last_step, prune, settle

    def left() -> list[str]:
        return sorted(p.name.removeprefix("global_step_") for p in tmp_path.glob("global_step_*"))

    for step in (2, 4, 6, 10):
        checkpoint(tmp_path, step)
    checkpoint(tmp_path, 12, whole=False)  # a save that was killed
    (tmp_path / TRACKER).write_text("6")
    settle(tmp_path)
    assert left() == ["10", "2", "4", "6"]  # what somebody went back from is theirs
    prune(tmp_path, 2)
    assert left() == ["10", "4", "6"]
    prune(tmp_path, 0)
    assert left() == ["10", "4", "6"]
    (tmp_path / TRACKER).write_text("")  # killed while it was written
    assert last_step(tmp_path) == 0
    settle(tmp_path)
    assert last_step(tmp_path) == 10 and left() == ["10", "4", "6"]


def test_a_first_save_that_was_killed_is_no_checkpoint(tmp_path: Path) -> None:
    from train.backends.verl.retention import last_step, settle

    checkpoint(tmp_path, 2, whole=False)
    settle(tmp_path)
    assert last_step(tmp_path) == 0 and not list(tmp_path.glob("global_step_*"))
