# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
# (the extra `cluster` is not there where the rest is checked)
"""Our settings as verl 0.9.1 settings: a pure function, pinned by tests. Then verl's own
configuration with them, checked by verl; `--dry-run` shows it.

What is not here is as verl has it. Every line that differs for a reason that is easy to miss says
why. Facts and traps: `train/backends/verl/__init__.py`.

`cluster.verl.<path>=value` is given to verl as it stands: for what Assay has no setting of its own
for, such as `engine_kwargs.sglang`. What it does set, it sets for a reason, and a second value is
refused. What raw settings do to memory is in no estimate.
"""

from __future__ import annotations

import importlib.util
import runpy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from assay.console import near_miss
from assay.record import installed
from configs.loader import ConfigError
from configs.machine import ClusterConfig
from configs.schema import GrpoRunConfig, warmup_steps
from train.memory import grpo_report

VERSION = "0.9.1"
ADVANTAGE = "assay_group_mean"  # train/backends/verl/trainer.py
NO_CLIPPING = 1e9  # a gradient norm; with 0 verl would take every gradient away
LOOP = "assay_episode"  # train/backends/verl/loop.py
NO_DUAL_CLIP = 1e9
MODES = {"constant": "seq-mean-token-sum-norm", "sequence_mean": "seq-mean-token-mean"}


def lacking(cluster: ClusterConfig) -> Iterator[tuple[str, str]]:
    """(topic, sentence) of each package that a run needs and that is not here: found out before the
    servers have come up, and not by the first worker."""
    found = installed(("verl", "flash-attn"))
    if "verl" not in found:
        yield "package", "verl is not installed; install the extra `cluster` (docs/clusters.md)"
    elif found["verl"] != VERSION:
        yield (
            "package",
            f"verl {found['verl']} is here, and its settings change between releases; install "
            f"verl=={VERSION}",
        )
    # asked of the distribution: SGLang brings `flash-attn-4`, a namespace package that can be
    # imported as `flash_attn` and has nothing of flash-attn 2 in it
    flash = found.get("flash-attn", "")
    wanted = cluster.device == "cuda" and cluster.attention == "flash_attention_2"
    if wanted and flash.split(".")[0] != "2":
        yield (
            "flash-attn",
            "cluster.attention=flash_attention_2: flash-attn 2 is not installed"
            f"{f' (flash-attn {flash} is)' if flash else ''}; pip install "
            "flash-attn==2.8.3.post2 --no-build-isolation, or set cluster.attention=sdpa (with "
            "cluster.sequence_parallel=1)",
        )
    if cluster.trainer == "separate_async" and not importlib.util.find_spec("cupy"):
        yield (
            "cupy",
            "cluster.trainer=separate_async: verl sends the weights over NCCL with cupy, which is "
            "not installed; pip install cupy-cuda13x==14.0.1, or set "
            "cluster.trainer=colocate_async",
        )


def require_verl(cluster: ClusterConfig | None = None) -> None:
    """Raises `ConfigError` unless the one version that this backend was written for is there, and
    what `cluster` needs beside it."""
    for topic, sentence in lacking(cluster or ClusterConfig(attention="sdpa")):
        raise ConfigError(f"--backend verl: {sentence}" if topic == "package" else sentence)


# --- our settings in verl's words


def overrides(config: GrpoRunConfig, folder: Path) -> dict[str, Any]:
    """Dotted verl keys and their values. `folder` holds the files that `prepare` writes.

    Raises `ConfigError` for what verl's trainer cannot do.
    """
    _refuse(config)
    out = Path(config.out).resolve()
    made = _algorithm(config) | _actor(config) | _rollout(config, folder) | _data(config, folder)
    made |= {
        "trainer.default_local_dir": str(out),
        "trainer.project_name": config.log.project,
        "trainer.experiment_name": out.name,
        # the file is what resuming reads; the others are what was asked for
        "trainer.logger": [
            *("console", "file"),
            *(["wandb"] if config.log.wandb != "off" else []),
            *(["tensorboard"] if config.log.tensorboard else []),
        ],
        "trainer.nnodes": config.cluster.nodes,
        "trainer.n_gpus_per_node": config.cluster.gpus_per_node,
        "trainer.device": config.cluster.device,
        "trainer.total_training_steps": config.rl.steps,
        "trainer.total_epochs": 1_000_000,  # steps decide; the default of 30 would end a run early
        "trainer.save_freq": config.rl.save_every,
        "trainer.test_freq": config.eval.every if validates(config) else -1,
        "trainer.val_before_train": validates(config),
        "+trainer.keep_newest": config.checkpoint.keep,  # see trainer.py
        "trainer.validation_data_dir": str(out / "validation"),
        "trainer.rollout_data_dir": str(out / "rollouts") if config.log.rollouts else None,
        "trainer.v1.trainer_mode": config.cluster.trainer,
        "critic.enable": False,
        "transfer_queue.enable": True,
    }
    # left out, Ray would join a cluster that an older run has noted in /tmp/ray
    made["+ray_kwargs.ray_init.address"] = config.cluster.ray_address or "local"
    if config.cluster.trainer == "separate_async":
        made |= _separate(config)
    if config.cluster.device == "cpu":
        made |= cpu_device()["overrides"](config)
    return made


def cpu_device() -> dict[str, Any]:
    """The names of tests/support/verl_settings.py: what a run without a GPU has instead. Raises
    `ConfigError` where this is no checkout."""
    file = Path(__file__).resolve().parents[3] / "tests" / "support" / "verl_settings.py"
    if not file.is_file():
        raise ConfigError("cluster.device=cpu: for tests in a checkout; set cluster.device=cuda")
    return runpy.run_path(str(file))


def validates(config: GrpoRunConfig) -> bool:
    """Whether a file of validation tasks is named: verl looks for none beside the data."""
    return config.validation not in (None, "", "auto")


def _refuse(config: GrpoRunConfig) -> None:
    rl = config.rl
    if rl.dynamic_sampling:
        raise ConfigError(
            f"rl.dynamic_sampling={rl.dynamic_sampling}: verl refills groups by a rule of its own; "
            "set 0 and, for that rule, cluster.verl.algorithm.filter_groups.enable=true"
        )
    if rl.overlong == "mask":
        raise ConfigError(
            "rl.overlong=mask: verl computes advantages without knowing what was cut off; set "
            "keep or soft, or train with the embedded backend"
        )
    if rl.schedule == "linear":
        raise ConfigError("rl.schedule=linear: verl has constant and cosine; set one of them")
    if config.model.path is None:
        raise ConfigError("model.path is empty; name a Hugging Face folder that every node sees")
    if config.cluster.rollout == "vllm" and corrected(config) and (rl.top_p < 1 or rl.top_k):
        raise ConfigError(
            f"rl.top_p={rl.top_p:g}, rl.top_k={rl.top_k} with cluster.rollout=vllm: vLLM tells "
            "log-probabilities after both, and the correction of sampling would compare them with "
            "those before; set rl.top_p=1 and rl.top_k=0, or cluster.rollout=sglang"
        )
    if rl.warmup >= rl.steps > 0:
        raise ConfigError(f"rl.warmup={rl.warmup:g} is not below rl.steps={rl.steps}; lower it")
    rollouts, devices = rl.mini_batch * rl.rollouts_per_prompt, config.cluster.devices
    shares = devices // config.cluster.sequence_parallel
    if rollouts % shares:
        raise ConfigError(
            f"rl.mini_batch·rl.rollouts_per_prompt = {rollouts} rollouts cannot be shared out "
            f"evenly over {shares} data-parallel ranks; make it a multiple"
        )
    if config.cluster.micro_batch and rollouts // shares % config.cluster.micro_batch:
        raise ConfigError(
            f"cluster.micro_batch={config.cluster.micro_batch} does not divide the "
            f"{rollouts // shares} rollouts of a rank; set a divisor, or 0 to cut by tokens"
        )


def corrected(config: GrpoRunConfig) -> bool:
    """Whether each token is weighted by the policy's probability over the sampler's."""
    off_policy = config.cluster.trainer != "sync" and config.cluster.async_correction
    return off_policy or config.rl.sampling_correction == "token"


def _separate(config: GrpoRunConfig) -> dict[str, Any]:
    """Rollouts on GPUs of their own, which get new weights once a step, after all its updates."""
    cluster, rollout = config.cluster, "actor_rollout_ref.rollout"
    return {
        f"{rollout}.nnodes": cluster.rollout_nodes,
        f"{rollout}.n_gpus_per_node": cluster.rollout_gpus_per_node,
        f"{rollout}.checkpoint_engine.backend": "nccl",
        "trainer.v1.separate_async.parameter_sync_step": config.rl.prompts_per_step
        // config.rl.mini_batch,
        # without servers on the training GPUs verl 0.9.1 ends in a TypeError when it says so
        "actor_rollout_ref.hybrid_engine": True,
    }


def _algorithm(config: GrpoRunConfig) -> dict[str, Any]:
    rl = config.rl
    return {
        "algorithm.adv_estimator": ADVANTAGE,
        "algorithm.norm_adv_by_std_in_grpo": rl.divide_by_std,
        "algorithm.use_kl_in_reward": False,
        # verl recomputes log π_old; with a correction each token is weighted min(π_old / q, cap)
        "algorithm.rollout_correction.rollout_is": "token" if corrected(config) else None,
        "algorithm.rollout_correction.rollout_is_threshold": rl.correction_cap,
    }


def _actor(config: GrpoRunConfig) -> dict[str, Any]:
    rl, cluster, actor = config.rl, config.cluster, "actor_rollout_ref.actor"
    fsdp = f"{actor}.fsdp_config"
    made: dict[str, Any] = {
        "actor_rollout_ref.model.path": str(config.model.path),
        "actor_rollout_ref.model.enable_gradient_checkpointing": cluster.device == "cuda",
        "+actor_rollout_ref.model.override_config.attn_implementation": cluster.attention,
        # Chat models often pad with their end of turn, which stands in every prompt; an embedding's
        # padding row would get no gradient (`learn_padding`). verl packs: no padding.
        "+actor_rollout_ref.model.override_config.pad_token_id": None,
        f"{actor}.strategy": "fsdp2",
        f"{actor}.loss_agg_mode": MODES[rl.normaliser],
        # Unset, each micro-batch would be divided by its own longest answer.
        f"{actor}.loss_scale_factor": rl.max_new_tokens,
        f"{actor}.clip_ratio": rl.clip_low,
        f"{actor}.clip_ratio_low": rl.clip_low,
        f"{actor}.clip_ratio_high": rl.clip_high,
        f"{actor}.clip_ratio_c": NO_DUAL_CLIP,  # its default of 3 is one more clip, not in Dr.GRPO
        f"{actor}.use_kl_loss": rl.kl_coef > 0,
        f"{actor}.kl_loss_coef": rl.kl_coef,
        f"{actor}.ppo_mini_batch_size": rl.mini_batch,  # prompts; verl multiplies by n
        f"{actor}.use_dynamic_bsz": not cluster.micro_batch,
        f"{actor}.ppo_max_token_len_per_gpu": cluster.micro_tokens,
        f"{actor}.ulysses_sequence_parallel_size": cluster.sequence_parallel,
        f"{actor}.optim.lr": rl.lr,
        f"{actor}.optim.lr_warmup_steps": warmup_steps(rl.warmup, rl.steps),
        f"{actor}.optim.lr_scheduler_type": rl.schedule,
        f"{actor}.optim.weight_decay": rl.weight_decay,
        f"{actor}.optim.betas": list(rl.betas),
        f"{actor}.optim.clip_grad": rl.grad_clip or NO_CLIPPING,
        f"{fsdp}.param_offload": cluster.offload,
        f"{fsdp}.optimizer_offload": cluster.offload,
    }
    if cluster.micro_batch:
        made[f"{actor}.ppo_micro_batch_size_per_gpu"] = cluster.micro_batch
        for part in ("rollout", "ref"):  # of ref only read where there is a KL term
            made[f"actor_rollout_ref.{part}.log_prob_micro_batch_size_per_gpu"] = (
                cluster.micro_batch
            )
    return made | (_adapters(config) if config.model.lora_rank else {})


def _adapters(config: GrpoRunConfig) -> dict[str, Any]:
    """verl's own adapters, on the layers that have them in the embedded loops."""
    model = "actor_rollout_ref.model"
    return {
        f"{model}.lora_rank": config.model.lora_rank,
        f"{model}.lora_alpha": config.model.lora_alpha,
        f"{model}.target_modules": "all-linear",
        # rollout servers get plain weights, with the adapters added in
        f"{model}.lora.merge": True,
        # not the base model with every checkpoint: it is in model.path, unchanged
        "+actor_rollout_ref.actor.checkpoint.save_lora_only": True,
    }


def _rollout(config: GrpoRunConfig, folder: Path) -> dict[str, Any]:
    rl, cluster, rollout = config.rl, config.cluster, "actor_rollout_ref.rollout"
    return {
        f"{rollout}.name": cluster.rollout,
        f"{rollout}.n": rl.rollouts_per_prompt,
        f"{rollout}.temperature": rl.temperature,
        f"{rollout}.top_p": rl.top_p,
        f"{rollout}.top_k": rl.top_k or -1,
        f"{rollout}.calculate_log_probs": True,
        f"{rollout}.tensor_model_parallel_size": cluster.tensor_parallel,
        f"{rollout}.gpu_memory_utilization": cluster.server_memory,
        f"{rollout}.max_model_len": rl.max_length,
        f"{rollout}.log_prob_use_dynamic_bsz": not cluster.micro_batch,
        f"{rollout}.log_prob_max_token_len_per_gpu": cluster.micro_tokens,
        f"{rollout}.agent.default_agent_loop": LOOP,
        f"{rollout}.agent.agent_loop_config_path": str(folder / "loops.yaml"),
        f"{rollout}.agent.num_workers": cluster.rollout_workers,
        f"{rollout}.multi_turn.enable": True,
        # The loop scores its own episodes, where their files still are; this serves what does not
        # come from it.
        "reward.custom_reward_function.path": "pkg://rewards.adapters",
        "reward.custom_reward_function.name": "verl_compute_score",
        "reward.num_workers": 1,
    }


def _data(config: GrpoRunConfig, folder: Path) -> dict[str, Any]:
    rl = config.rl
    return {
        "data.train_files": str(folder / "train.parquet"),
        "data.val_files": str(folder / "val.parquet"),
        "data.train_batch_size": rl.prompts_per_step,
        "data.max_prompt_length": rl.max_length - rl.max_new_tokens,
        # everything after the prompt, tool output included; the episode's own budget is max_length
        "data.max_response_length": rl.max_length - 1,
        "data.shuffle": False,  # the rows are in the order of the embedded loop already
        "data.seed": config.seed,
        "data.dataloader_num_workers": 0,
    }


# --- verl's own configuration


def compose(made: Mapping[str, Any], raw: Mapping[str, Any] | None = None) -> Any:
    """The whole configuration (OmegaConf) with what `overrides` made. Raises `ConfigError` for what
    verl does not know. `raw`: keys of `cluster.verl`, which may stand in verl's free sections too.
    """
    require_verl()
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    with initialize_config_module("verl.trainer.config", version_base=None):
        config: Any = hydra_compose("ppo_trainer")
    known: Any = OmegaConf.to_container(config, resolve=False)
    try:
        for key, value in (dict(made) | signed(raw or {}, known)).items():
            OmegaConf.update(config, key.lstrip("+"), value, force_add=key.startswith("+"))
    except OmegaConfBaseException as error:
        raise ConfigError(f"verl refuses a setting: {' '.join(str(error).split())}") from None
    return config


def raw_settings(verl: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    """The settings below `cluster.verl`, by dotted key. Raises `ConfigError` for one that Assay
    sets itself, in `made`."""
    found = dict(_leaves(verl))
    ours = {key.lstrip("+"): value for key, value in made.items()}
    for key in found:
        taken = [k for k in ours if k == key or k.startswith(f"{key}.") or key.startswith(f"{k}.")]
        if taken:
            raise ConfigError(
                f"cluster.verl.{key}: Assay sets {taken[0]}={ours[taken[0]]} from its own settings "
                "(--dry-run shows all of them); change those, and remove this"
            )
    return found


def signed(raw: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """`raw` with a plus before each key in one of verl's free sections, such as
    `engine_kwargs.sglang`, which verl's file does not have. `known` is verl's own configuration.
    Raises `ConfigError` for a key that it does not have."""
    made: dict[str, Any] = {}
    for key, value in raw.items():
        place: Any = known
        for name in key.split("."):
            if place == {}:  # whatever stands in it is passed on
                break
            if not isinstance(place, Mapping) or name not in place:
                near = near_miss(name, list(place) if isinstance(place, Mapping) else [])
                raise ConfigError(f"cluster.verl.{key}: verl has no {name} there{near}")
            place = place[name]
        made[f"+{key}" if place == {} else key] = value
    return made


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def check(config: Any) -> None:
    """verl's own `validate_config`. Raises `ConfigError`."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    try:
        validate_config(
            config=config,
            use_reference_policy=need_reference_policy(config),
            use_critic=need_critic(config),
        )
    except (AssertionError, ValueError) as error:
        raise ConfigError(f"verl refuses the settings: {' '.join(str(error).split())}") from None


def show(config: GrpoRunConfig) -> None:
    """Print the arithmetic, then verl's own resolved configuration where verl is installed.

    Raises `ConfigError` for settings that verl refuses or that cannot fit into the GPUs.
    """
    made = overrides(config, (Path(config.out) / "verl").resolve())
    raw = raw_settings(config.cluster.verl, made)
    print(grpo_report(config), flush=True)
    if raw:
        print("\ngiven to verl as they stand (cluster.verl; no estimate knows of them):")
        print("\n".join(f"{key}={value}" for key, value in raw.items()))
    if not installed(("verl",)).get("verl"):
        print("\nverl is not installed here; what it would be given:")
        print("\n".join(f"{key}={value}" for key, value in made.items()))
        return
    composed = compose(made, raw)
    check(composed)
    from omegaconf import OmegaConf

    print("\nverl's configuration, checked by verl:\n" + OmegaConf.to_yaml(composed))
