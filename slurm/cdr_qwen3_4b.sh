#!/bin/bash
# CDR-Bench's refinement tasks with Qwen3-4B: SFT on gold, then Dr.GRPO, then the held-out tasks.
# One node of eight A100 80 GB. The tasks (slurm/cdr.sh makes them over many nodes):
#   assay tasks cdr --config configs/cdr_train.yaml --corpus 'docs/*.jsonl' --out tasks/cdr
#   slurm/cdr_qwen3_4b.sh --dry-run
OUT=runs/cdr4b
# shellcheck source=chain.sh
. "$(dirname "$0")/chain.sh"
NODE=(--time=24:00:00 --gpus-per-node=8 --cpus-per-task=64 --mem=250G)
GPU=(--time=24:00:00 --gpus-per-node=1 --cpus-per-task=8 --mem=64G)

job sft '' "${NODE[@]}" --signal=B:USR1@600 slurm/sft.sbatch --backend deepspeed \
  --config configs/cdr_sft_qwen3_4b.yaml data=tasks/cdr/train.jsonl out=$OUT/sft
job grpo sft "${NODE[@]}" --signal=B:USR1@2400 slurm/grpo_1node.sbatch --backend verl \
  --config configs/cdr_grpo_qwen3_4b.yaml data=tasks/cdr/train.jsonl model.path=$OUT/sft/model \
  out=$OUT/grpo
served eval grpo 8 "${GPU[@]}" -- --model $OUT/grpo/model --tasks tasks/cdr/heldout.jsonl \
  sampling.max_new_tokens=8192
