#!/usr/bin/env bash
# From a folder of your own tables to a trained and evaluated model.
#   examples/own_tables.sh TABLES MODEL OUT
# TABLES holds csv, tsv, parquet or SQLite files. MODEL is a model folder.
# Settings go into the variables SFT and EVAL, as in SFT="sft.epochs=1".
set -euo pipefail
tables=$1 model=$2 out=$3

# Tasks that ask for code: clean a table, train a model on it, predict. One table in four is held
# out to test on.
assay tasks dare --tables "$tables" --out "$out/tasks" --short --heldout-share 0.25

# A scripted agent solves the training tasks in the same sandbox as a model would. Rollouts that
# are right (strategy FV) become the training set.
assay rollout --tasks "$out/tasks/train.jsonl" --solver reference --model "$model" sampling.n=1 \
  --out "$out/traces.jsonl"
assay select --rollouts "$out/traces.jsonl" --strategy fv --out "$out/traces.parquet"

# Train (lengths are fitted to the data), then answer the tasks of the tables that were held out; what
# the model was trained on would be left out. (The settings are words: no quotes.)
assay sft --tasks "$out/traces.parquet" --model "$model" --out "$out/sft" ${SFT:-}
assay eval --model "$out/sft/model" --tasks "$out/tasks/heldout.jsonl" --out "$out/eval" ${EVAL:-}
