#!/bin/bash
# The official tasks of the three benchmarks, asked of Qwen3-4B as it is. The releases lie in bench/,
# as docs/tutorials/evaluate.md says; DARE-bench's answers of instruction following are made once:
#   assay tasks dare --import bench/dare-bench --out tasks/dare_eval
#   slurm/benchmarks_qwen3_4b.sh --dry-run
OUT=runs/benchmarks4b
# shellcheck source=chain.sh
. "$(dirname "$0")/chain.sh"
GPU=(--time=24:00:00 --gpus-per-node=1 --cpus-per-task=8 --mem=64G)
MODEL=(--model Qwen/Qwen3-4B)

served cdr '' 8 "${GPU[@]}" -- "${MODEL[@]}" model.chat_template_kwargs.enable_thinking=false \
  --tasks cdr:bench/CDR-Bench tools.max_length=40960 sampling.max_new_tokens=32768
served dare '' 8 "${GPU[@]}" -- "${MODEL[@]}" model.chat_template_kwargs.enable_thinking=true \
  --tasks dare:tasks/dare_eval sampling.n=3 tools.turns=5 tools.max_length=32768 sampling.max_new_tokens=16384
served krama '' 8 "${GPU[@]}" -- "${MODEL[@]}" model.chat_template_kwargs.enable_thinking=true \
  --tasks krama:bench/Kramabench tools.max_length=32768 sampling.max_new_tokens=8192
