"""What a mistyped setting was probably meant to be: other trainers' words, and near spellings."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

# a word of the field → our settings for it, of which a run has one or more
TERMS: dict[str, tuple[str, ...]] = {
    "adam_beta1": ("sft.betas", "rl.betas"),
    "adam_beta2": ("sft.betas", "rl.betas"),
    "beta": ("rl.kl_coef",),
    "clip_range": ("rl.clip_low", "rl.clip_high"),
    "clip_ratio": ("rl.clip_low", "rl.clip_high"),
    "cliprange": ("rl.clip_low", "rl.clip_high"),
    "dataset": ("data",),
    "epsilon": ("rl.clip_low", "rl.clip_high"),
    "eval_file": ("validation",),
    "eval_steps": ("eval.every",),
    "gradient_accumulation_steps": ("engine.micro_tokens", "sft.batch_size"),
    "group_size": ("rl.rollouts_per_prompt",),
    "kl_beta": ("rl.kl_coef",),
    "kl_loss_coef": ("rl.kl_coef",),
    "kl_penalty": ("rl.kl_coef",),
    "learning_rate": ("sft.lr", "rl.lr"),
    "lora_r": ("model.lora_rank",),
    "lr_scheduler_type": ("rl.schedule",),
    "lr_warmup_steps": ("sft.warmup", "rl.warmup"),
    "max_completion_length": ("rl.max_new_tokens",),
    "max_grad_norm": ("sft.grad_clip", "rl.grad_clip"),
    "max_num_seqs": ("engine.slots",),
    "max_prompt": ("rl.max_length",),
    "max_prompt_length": ("rl.max_length",),
    "max_response": ("rl.max_new_tokens",),
    "max_response_length": ("rl.max_new_tokens",),
    "max_seq_len": ("sft.max_length", "rl.max_length"),
    "max_seq_length": ("sft.max_length", "rl.max_length"),
    "max_steps": ("rl.steps", "sft.epochs"),
    "max_tokens": ("rl.max_new_tokens",),
    "model_name": ("model.path",),
    "model_name_or_path": ("model.path",),
    "n_generations": ("rl.rollouts_per_prompt",),
    "n_rollouts": ("rl.rollouts_per_prompt",),
    "num_epochs": ("sft.epochs",),
    "num_generations": ("rl.rollouts_per_prompt",),
    "num_rollouts": ("rl.rollouts_per_prompt",),
    "num_samples": ("rl.rollouts_per_prompt",),
    "num_steps": ("rl.steps", "sft.epochs"),
    "num_train_epochs": ("sft.epochs",),
    "output_dir": ("out",),
    "per_device_train_batch_size": ("sft.batch_size", "engine.micro_tokens"),
    "ppo_mini_batch_size": ("rl.mini_batch",),
    "rollout_n": ("rl.rollouts_per_prompt",),
    "rollouts": ("rl.rollouts_per_prompt",),
    "samples_per_prompt": ("rl.rollouts_per_prompt",),
    "save_steps": ("rl.save_every", "sft.save_every"),
    "scale_rewards": ("rl.divide_by_std",),
    "seq_len": ("sft.max_length", "rl.max_length"),
    "sequence_length": ("sft.max_length", "rl.max_length"),
    "train_batch_size": ("rl.prompts_per_step", "sft.batch_size"),
    "train_file": ("data",),
    "val_data": ("validation",),
    "val_file": ("validation",),
    "validation_file": ("validation",),
    "warmup_ratio": ("sft.warmup", "rl.warmup"),
    "warmup_steps": ("sft.warmup", "rl.warmup"),
}
# settings that people expect, and why there is none
ABSENT: dict[str, str] = {
    "sft.steps": "SFT counts in epochs, there is no sft.steps; set sft.epochs",
    "sft.max_steps": "SFT counts in epochs, there is no sft.max_steps; set sft.epochs",
    **dict.fromkeys(
        ("rl.gold_state", "rl.gold_state_share", "rl.curriculum", "noise"),
        "it won nothing where it was measured (docs/results) and is gone; leave it out",
    ),
    "checkpoint.sft_every": "it is called sft.save_every now",
    "rl.epochs": "RL counts in steps, there is no rl.epochs; set rl.steps",
    "rl.batch_size": (
        "a step has rl.prompts_per_step · rl.rollouts_per_prompt rollouts, an optimiser step "
        "rl.mini_batch prompts; set those"
    ),
}


def hint(names: Sequence[str], prefix: str, key: str) -> str:
    """What to write for the unknown `prefix + key`, of the settings `names` (full dotted names)."""
    leaf, dotted = key.lower(), f"{prefix}{key}".lower()
    if dotted in ABSENT and any(n.startswith(prefix) for n in names):
        return ABSENT[dotted]
    return f"did you mean {' or '.join(_nearest(names, prefix, leaf)[:3])}?"


def _nearest(names: Sequence[str], prefix: str, leaf: str) -> list[str]:
    if terms := [n for n in TERMS.get(leaf, ()) if n in names]:
        return [n for n in terms if prefix and n.startswith(prefix)] or terms
    siblings = {n.removeprefix(prefix): n for n in names if n.startswith(prefix)}
    if near := difflib.get_close_matches(leaf, siblings, 1, cutoff=0.6):
        return [siblings[near[0]]]
    if same := [n for n in names if n.rsplit(".", 1)[-1] == leaf]:
        return same
    leaves = {n.rsplit(".", 1)[-1]: n for n in reversed(names)}
    if near := difflib.get_close_matches(leaf, leaves, 1, cutoff=0.6):
        return [leaves[near[0]]]
    return difflib.get_close_matches(prefix + leaf, names, 1, cutoff=0.0)
