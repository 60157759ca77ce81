#!/bin/bash
# The official tasks of the three benchmarks, asked of Qwen3-4B as it is. The releases lie in bench/,
# as docs/tutorials/benchmarks.md says; DARE-bench's answers of instruction following are made once:
#   assay tasks dare --import bench/dare-bench --out tasks/dare_eval
#   slurm/benchmarks_qwen3_4b.sh --dry-run
OUT=runs/benchmarks4b
# shellcheck source=chain.sh
. "$(dirname "$0")/chain.sh"
GPU=(--time=24:00:00 --gpus-per-node=1 --cpus-per-task=8 --mem=64G)
MODEL=(--model Qwen/Qwen3-4B --chat-template-kwargs)

served cdr '' 8 "${GPU[@]}" -- "${MODEL[@]}" '{"enable_thinking": false}' \
  --tasks cdr:bench/CDR-Bench --max-length 40960 --max-new-tokens 32768
served dare '' 8 "${GPU[@]}" -- "${MODEL[@]}" '{"enable_thinking": true}' \
  --tasks dare:tasks/dare_eval --n 3 --turns 5 --max-length 32768 --max-new-tokens 16384
served krama '' 8 "${GPU[@]}" -- "${MODEL[@]}" '{"enable_thinking": true}' \
  --tasks krama:bench/Kramabench --max-length 32768 --max-new-tokens 8192
