# shellcheck shell=bash
# A chain of jobs, each after others. A script sets OUT, the folder of the chain, and sources this:
#   job NAME 'AFTER …' [options of sbatch, --name=value] slurm/X.sbatch ARGS…
#   served NAME 'AFTER …' PARTS [options of sbatch] -- [words of assay eval]
# AFTER names jobs that must have succeeded. `served` asks a model the parts of an evaluation, each
# with a server on a GPU of its own, and puts them together in $OUT/NAME; NAME-gather comes after it.
# Words of the script: `--dry-run` checks every job and prints the calls of sbatch; other words are
# options of sbatch for every job, such as --partition=a100. All jobs are checked before the first is
# submitted. Submitted again, a chain skips what is finished.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." # relative paths start at the checkout
# shellcheck source=env.sh
. slurm/env.sh
DRY_RUN='' EVERY=()
SMALL=(--time=01:00:00) # of jobs without a GPU; where these have a partition: its --partition too
declare -A ID
for word in "$@"; do
  case $word in
    --dry-run) DRY_RUN=yes ;;
    --*=* | --exclusive) EVERY+=("$word") ;;
    *) echo "${0##*/}: $word: wanted --dry-run or options of sbatch, --name=value" >&2 && exit 2 ;;
  esac
done
if [ -z "$DRY_RUN" ]; then
  bash "$0" --dry-run "${EVERY[@]}" >/dev/null
  mkdir -p "$OUT/logs"
  there=$(cat "$OUT/submitted" 2>/dev/null || true) # two chains must not share a folder
  there=$([ -z "$there" ] || squeue --noheader --format=%A --jobs="${there//$'\n'/,}" 2>/dev/null || true)
  if [ -n "$there" ]; then
    echo "$OUT: jobs of the last submission are still there; wait for them, or: scancel ${there//$'\n'/ }" >&2
    exit 2
  fi
  : >"$OUT/submitted"
  trap '[ $? = 0 ] || echo "already submitted:" $(cat "$OUT/submitted") >&2' EXIT
fi

job() {
  local name=$1 after=$2 log=%x-%j waits='' one
  shift 2
  case " $* " in *" --array="*) log=%x-%A_%a ;; esac
  local -a call=(sbatch --parsable --job-name="${OUT##*/}-$name" --output="$OUT/logs/$log.log")
  # without --kill-on-invalid-dep a job whose predecessor fails would wait for ever
  for one in $after; do waits+=:${ID[$one]}; done
  [ -z "$waits" ] || call+=(--dependency="afterok$waits" --kill-on-invalid-dep=yes)
  if [ -n "$DRY_RUN" ]; then
    "$ASSAY_PYTHON" -m train.cluster.preflight --job "${EVERY[@]}" "$@" </dev/null
    ID[$name]="<$name>"
    printf '%q ' "${call[@]}" "${EVERY[@]}" "$@"
    echo
    return
  fi
  ID[$name]=$("${call[@]}" "${EVERY[@]}" "$@")
  ID[$name]=${ID[$name]%%;*}
  echo "${ID[$name]}" >>"$OUT/submitted"
  echo "$name: job ${ID[$name]}"
}

served() {
  local name=$1 after=$2 parts=$3 word
  local -a options=()
  shift 3
  for word in "$@"; do
    shift
    [ "$word" != -- ] || break
    options+=("$word")
  done
  job "$name" "$after" --array="0-$((parts - 1))" "${options[@]}" slurm/serve_eval.sbatch \
    out="$OUT/$name" --parts "$parts" -- "$@"
  job "$name-gather" "$name" "${SMALL[@]}" slurm/command.sbatch out="$OUT/$name" -- \
    slurm gather out="$OUT/$name" --parts "$parts"
}
