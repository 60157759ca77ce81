#!/bin/bash
# `assay tasks cdr` over many nodes: six jobs, each after the one before, arrays where documents or
# rows are gone through. From the checkout, on a login node:
#   slurm/cdr.sh SHARDS AT_ONCE OUT [options of assay tasks cdr but --out and those of shards]
#   slurm/cdr.sh 1000 200 runs/cdr --config configs/cdr_train.yaml --corpus 'docs/*.jsonl' --workers 4
# Cores and memory of the jobs: SBATCH_* variables and slurm/env.sh; --workers is what a task uses.
# Work that is there is kept, so the same line goes on after any accident.
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: slurm/cdr.sh SHARDS AT_ONCE OUT [options of assay tasks cdr]" >&2; exit 2; }
shards=$1 at_once=$2 out=$3
shift 3
cd "$(dirname "$0")/.." # relative paths start at the checkout
mkdir -p "$out/.jobs"
after=''
for stage in facts library traces plan rows merge; do
  asked=(--job-name="cdr-$stage" --parsable --output="$out/.jobs/$stage-%A_%a.log")
  words=(tasks cdr "$@" --out "$out" --shards "$shards" --stage "$stage")
  case $stage in
    facts | traces | rows)
      asked+=(--array="0-$((shards - 1))%$at_once")
      words+=(--shard '{task}')
      ;;
  esac
  [ -z "$after" ] || asked+=(--dependency="afterok:$after" --kill-on-invalid-dep=yes)
  after=$(sbatch "${asked[@]}" slurm/command.sbatch "out=$out/.jobs/$stage" -- "${words[@]}")
  after=${after%%;*}
  echo "$stage: job $after"
done
