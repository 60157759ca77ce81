#!/bin/bash
# DARE-bench's RL as the paper has it (Table 6, "Qwen3-4B RL"): Dr.GRPO on the base model with the
# release's training split, and the evaluation split asked three times before and after. Nodes of
# eight A100 80 GB: one, or four with NODES=4. The tasks:
#   assay tasks dare --import Snowflake/dare-bench --split train --out tasks/dare_train
#   assay tasks dare --import bench/dare-bench --out tasks/dare_eval
#   NODES=4 slurm/dare_rl_qwen3_4b.sh --dry-run
NODES=${NODES:-1}
OUT=runs/dare4b_rl
# shellcheck source=chain.sh
. "$(dirname "$0")/chain.sh"
NODE=(--time=24:00:00 --gpus-per-node=8 --cpus-per-task=64 --mem=250G --signal=B:USR1@3000)
GPU=(--time=24:00:00 --gpus-per-node=1 --cpus-per-task=8 --mem=64G)
EVAL=(model.chat_template_kwargs.enable_thinking=true --tasks dare:tasks/dare_eval sampling.n=3
  tools.turns=5 tools.max_length=32768 sampling.max_new_tokens=16384)

if [ "$NODES" = 1 ]; then
  job grpo '' "${NODE[@]}" slurm/grpo_1node.sbatch --backend verl \
    --config configs/dare_qwen3_4b.yaml data=tasks/dare_train/tasks.jsonl out=$OUT/grpo
else # workers of verl's rollouts and jails of the sandbox are counted over all nodes
  job grpo '' --nodes="$NODES" "${NODE[@]}" slurm/grpo_multinode.sbatch \
    --config configs/dare_qwen3_4b_4nodes.yaml data=tasks/dare_train/tasks.jsonl \
    cluster.nodes="$NODES" out=$OUT/grpo
fi
served base '' 8 "${GPU[@]}" -- --model Qwen/Qwen3-4B "${EVAL[@]}"
served eval grpo 8 "${GPU[@]}" -- --model $OUT/grpo/model "${EVAL[@]}"
