"""What a mistyped setting was probably meant to be: other trainers' words, and near spellings."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

# our settings for one thing, of which a run has one or more → the words of other trainers for it
OTHERS: dict[tuple[str, ...], str] = {
    ("sft.betas", "rl.betas"): "adam_beta1 adam_beta2",
    ("rl.kl_coef",): "beta kl_beta kl_loss_coef kl_penalty",
    ("rl.clip_low", "rl.clip_high"): "clip_range clip_ratio cliprange epsilon",
    ("data",): "dataset train_file",
    ("validation",): "eval_file val_data val_file validation_file",
    ("eval.every",): "eval_steps",
    ("engine.micro_tokens", "sft.batch_size"): "gradient_accumulation_steps",
    ("rl.rollouts_per_prompt",): "group_size n_generations n_rollouts num_generations "
    "num_rollouts num_samples rollout_n rollouts samples_per_prompt",
    ("sft.lr", "rl.lr"): "learning_rate",
    ("model.lora_rank",): "lora_r",
    ("rl.schedule",): "lr_scheduler_type",
    ("sft.warmup", "rl.warmup"): "lr_warmup_steps warmup_ratio warmup_steps",
    ("rl.max_new_tokens",): "max_completion_length max_response max_response_length max_tokens",
    ("sft.grad_clip", "rl.grad_clip"): "max_grad_norm",
    ("engine.slots",): "max_num_seqs",
    ("rl.max_length",): "max_prompt max_prompt_length",
    ("sft.max_length", "rl.max_length"): "max_seq_len max_seq_length seq_len sequence_length",
    ("rl.steps", "sft.epochs"): "max_steps num_steps",
    ("model.path",): "model_name model_name_or_path",
    ("sft.epochs",): "num_epochs num_train_epochs",
    ("out",): "output_dir",
    ("sft.batch_size", "engine.micro_tokens"): "per_device_train_batch_size",
    ("rl.mini_batch",): "ppo_mini_batch_size",
    ("rl.save_every", "sft.save_every"): "save_steps",
    ("rl.divide_by_std",): "scale_rewards",
    ("rl.prompts_per_step", "sft.batch_size"): "train_batch_size",
}
TERMS = {word: ours for ours, words in OTHERS.items() for word in words.split()}
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
