#!/usr/bin/env bash
# From your own documents to a trained and evaluated model.
#   examples/own_documents.sh DOCUMENTS.jsonl MODEL OUT
# A row of DOCUMENTS.jsonl is {"id", "domain", "source", "licence", "text"}. MODEL is a model folder.
# Settings go into the variables SFT, RL and EVAL, as in RL="rl.steps=20 rl.lr=5e-5".
set -euo pipefail
documents=$1 model=$2 out=$3

# Short refinement tasks: passages of the documents, each with a recipe and the gold answer.
# Held-out tasks come from other documents.
assay tasks demo --corpus "$documents" --out "$out/tasks" train_sft=48 train_rl=32 heldout=16

# Imitate the gold answers, then Dr.GRPO from there. (The settings are words: no quotes.)
assay sft --tasks "$out/tasks/train_sft.jsonl" --model "$model" --out "$out/sft" ${SFT:-}
assay grpo --tasks "$out/tasks/train_rl.jsonl" --model "$out/sft/model" --out "$out/rl" \
  ${RL:-rl.steps=2}

# The untouched and the trained model on the same held-out tasks, and the difference.
assay eval --model "$model" --tasks "$out/tasks/heldout.jsonl" --out "$out/before" ${EVAL:-}
assay eval --model "$out/rl/model" --tasks "$out/tasks/heldout.jsonl" --out "$out/after" ${EVAL:-}
assay compare "$out/before" "$out/after"
