# shellcheck shell=bash
# What every job does alike: checks, signals, requeue, logs. No site facts; those are in env.sh.
#
# One path resumes after all four causes. Time limit near and preemption reach the batch shell as
# USR1 (and TERM); it asks the run to save, waits for it, and requeues the job. A step that does not
# return is not waited for beyond a margin before the time limit: what it did is then repeated from
# the newest checkpoint. A manual requeue and a lost node start the job again from there too.

# This job for Slurm's commands. The last task of an array has the array's own number as its
# SLURM_JOB_ID, which would mean all of its tasks.
this_job() {
  printf '%s' "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
}

say() {
  printf '%s job %s restart %s node %s | %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$(this_job)" \
    "${SLURM_RESTART_COUNT:-0}" "${SLURMD_NODENAME:-$(hostname -s)}" "$*"
}

die() {
  say "$1"
  exit "${2:-1}"
}

# Value of the last `out=DIR` among the arguments before any `--`.
out_of() {
  local word found=''
  for word in "$@"; do
    case $word in
      --) break ;;
      out=*) found=${word#out=} ;;
    esac
  done
  printf '%s' "$found"
}

# First lines of every job. $1: the folder of the run (made here), where DONE and checkpoints stand;
# then the `assay` command and its arguments, when they are to be checked against the job's nodes.
begin() {
  RUN_DIR=$1
  shift
  [ -n "$RUN_DIR" ] || die "no output folder: give out=DIR among the script's arguments" 2
  # inside a container it cannot be looked for from here
  [ -x "$ASSAY_PYTHON" ] || [ "${#ASSAY_RUN[@]}${#ASSAY_SRUN[@]}" != 00 ] ||
    die "$ASSAY_PYTHON cannot be run; set ASSAY_PYTHON in slurm/env.sh" 2
  [ "${SLURM_RESTART_COUNT:-0}" -le "$ASSAY_MAX_RESTARTS" ] ||
    die "restarted more than $ASSAY_MAX_RESTARTS times; raise ASSAY_MAX_RESTARTS to go on"
  cd "$ASSAY_ROOT" || die "$ASSAY_ROOT is not there; set ASSAY_ROOT in slurm/env.sh" 2
  mkdir -p "$RUN_DIR" || die "$RUN_DIR cannot be made" 2
  STARTED_AT=$(progress)
  # its default is to die
  trap 'ask_again "signal USR1 before the run had started" uncounted' USR1
  trap 'exit 0' TERM
  if [ -n "$ASSAY_SECRETS" ]; then
    [ "$(stat -c %a "$ASSAY_SECRETS")" = 600 ] || die "$ASSAY_SECRETS: wanted mode 0600" 2
    # shellcheck source=/dev/null
    . "$ASSAY_SECRETS"
  fi
  local cache
  cache=$ASSAY_SCRATCH/assay-${USER:-$(id -un)}
  export PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
  export PYTHONPATH=$ASSAY_ROOT${PYTHONPATH:+:$PYTHONPATH}
  export HF_HUB_OFFLINE=${HF_HUB_OFFLINE:-1} RAY_USAGE_STATS_ENABLED=0
  # caches that processes write go to the node; HF_HOME stays where the models are
  export HF_DATASETS_CACHE=${HF_DATASETS_CACHE:-$cache/datasets}
  export FLASHINFER_WORKSPACE_BASE=${FLASHINFER_WORKSPACE_BASE:-$cache}
  export TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$cache/triton}
  export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$cache/inductor}
  # Steps do not inherit the job's cores (since Slurm 22.05), and a site that binds tasks would leave
  # a whole run on one core: all of them, unbound, since every step here has one task a node.
  [ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  if scontrol show config 2>/dev/null | grep -q '^TaskPlugin  *=.*affinity'; then
    export SLURM_CPU_BIND=none
  fi
  # InfiniBand pins the memory that it reads
  ulimit -l unlimited 2>/dev/null || [ "${SLURM_NNODES:-1}" = 1 ] ||
    say "locked memory stays at $(ulimit -l) kB; InfiniBand wants unlimited"
  if [ -n "$ASSAY_INTERFACE" ]; then
    export NCCL_SOCKET_IFNAME=$ASSAY_INTERFACE GLOO_SOCKET_IFNAME=$ASSAY_INTERFACE
  fi
  say "start: $STARTED_AT in $RUN_DIR; nodes ${SLURM_JOB_NODELIST:-?}"
  run_on_node "$ASSAY_PYTHON" -m train.cluster.preflight "$@" || die "preflight failed" 2
  # once a run, and once an array
  if [ "$ASSAY_DOCTOR" = 1 ] && [ "${SLURM_RESTART_COUNT:-0}" = 0 ] &&
    [ "${SLURM_ARRAY_TASK_ID:-}" = "${SLURM_ARRAY_TASK_MIN:-}" ]; then
    run_on_node "$ASSAY_PYTHON" -m assay doctor || say "assay doctor failed; going on"
  fi
}

# One process on the batch node, in the container if there is one. Never reads this script's stdin.
run_on_node() {
  local -a first=()
  if [ "${#ASSAY_SRUN[@]}" != 0 ]; then # such a container exists in steps only
    first=(srun --overlap --nodes=1 --ntasks=1 --nodelist="$SLURMD_NODENAME" "${ASSAY_SRUN[@]}")
  fi
  "${first[@]}" "${ASSAY_RUN[@]}" "$@" </dev/null
}

# What the run has saved so far, as text that changes with every checkpoint; of a command that goes
# on from its own output, the size of that file (GROWS).
progress() {
  local found='' file
  for file in "$RUN_DIR"/checkpoints/*/latest "$RUN_DIR"/latest_checkpointed_iteration.txt; do
    [ -e "$file" ] && found="$found$(basename "$(dirname "$file")") $(cat "$file") "
  done
  [ -n "${GROWS:-}" ] && [ -s "$GROWS" ] && found="$found$(stat -c %s "$GROWS") bytes"
  printf '%s' "${found:-nothing saved}"
}

# Whether the arguments name verl as the backend and no Ray cluster that is there already.
wants_ray() {
  local word previous='' found=1
  for word in "$@"; do
    [ "$previous" != --backend ] || word=--backend=$word
    case $word in
      --backend=verl) found=0 ;;
      --backend=* | cluster.ray_address=?*) return 1 ;;
    esac
    previous=$word
  done
  return "$found"
}

# Run a command in the background under the job's signals; its exit status is the job's.
# Bash returns from `wait` on every trapped signal (SIGCONT too), so ask until the child is gone.
supervise() {
  "$@" </dev/null &
  pid=$!
  trap 'stop USR1' USR1
  trap 'stop TERM' TERM
  if [ -n "${AFTER_START:-}" ]; then "$AFTER_START"; fi
  reap
  trap - USR1 TERM
  [ "$code" = 75 ] && ask_again "the run stopped by itself after saving"
  rm -f "$RUN_DIR/.stalls"
  [ "$code" = 0 ] || say "failed with exit status $code"
  return "$code"
}

# Wait for the child and take its exit status. It is asked for once more after the child is gone:
# a `wait` that a signal ends gives the signal's number.
reap() {
  local there=yes
  while [ -n "$there" ]; do
    kill -0 "$pid" 2>/dev/null || there=''
    wait "$pid"
    code=$?
  done
}

# Seconds until the job's time limit; nothing when it has none, or Slurm does not answer.
# (SLURM_JOB_END_TIME is not set in Slurm 22.05, and does not follow a limit that is changed.)
time_left() {
  local text days=0 part total=0
  text=$(timeout 20 squeue -h -j "$(this_job)" -o %L 2>/dev/null)
  [ "$text" != INVALID ] || text=0:00 # the limit has passed
  case $text in
    '' | *[!0-9:-]*) return ;;
    *-*) days=${text%%-*} text=${text#*-} ;;
  esac
  for part in ${text//:/ }; do total=$((total * 60 + 10#$part)); done
  echo $((10#$days * 86400 + total))
}

# Wait for the child until a margin before the time limit. Status 1, with `left` in seconds: it has
# not returned by then. A signal that comes later than asked for leaves it half of the time.
reap_in_time() {
  local margin='' until=0 wanted=$((ASSAY_REQUEUE_MARGIN + ${CLEAR_SECONDS:-0}))
  while kill -0 "$pid" 2>/dev/null; do
    if [ "$SECONDS" -ge "$until" ]; then
      left=$(time_left)
      until=$((SECONDS + 30))
      if [ -n "$left" ]; then
        [ -n "$margin" ] || margin=$((wanted < left / 2 ? wanted : left / 2))
        [ "$left" -gt "$margin" ] || return 1
        until=$((SECONDS + left - margin)) # asked again then: the limit may have been changed
      fi
    fi
    sleep 0.2 # between two questions
  done
  reap
}

stop() {
  local left=''
  trap '' USR1 TERM
  say "signal $1: asking the run to save and stop"
  kill -USR1 "$pid" 2>/dev/null
  # After TERM alone Slurm requeues a preempted job by itself, and a cancelled one must not be.
  if [ "$1" = TERM ]; then
    reap
    say "stopped with exit status $code; $(progress)"
    exit 0
  fi
  if ! reap_in_time; then
    say "the step has not returned and the time limit is $left s away; its work since the last \
checkpoint ($(progress)) will be repeated. More time to save: sbatch --signal=B:USR1@SECONDS"
    ask_again "signal USR1, without waiting for the step"
  fi
  say "stopped with exit status $code; $(progress)"
  [ "$code" != 0 ] || exit 0 # it came to its end
  # 128 + USR1: the run had not come as far as listening to it. One that never listens is counted.
  if [ "$code" = 138 ] && [ -n "${SAVES_WHEN_ASKED:-}" ]; then
    ask_again "signal USR1 while the run was still starting" uncounted
  fi
  ask_again "signal USR1"
}

# ask_again WHY [uncounted]: requeue, unless the last starts saved nothing (this one is no such start
# when uncounted: it had no time to). Always ends the script: after `scontrol requeue` Slurm sends
# TERM, and a script that ran on would do its last lines twice.
ask_again() {
  local stalls=0
  if [ "$(progress)" != "$STARTED_AT" ]; then
    rm -f "$RUN_DIR/.stalls"
  elif [ "${2:-}" != uncounted ]; then
    stalls=$(($(cat "$RUN_DIR/.stalls" 2>/dev/null || echo 0) + 1))
    echo "$stalls" >"$RUN_DIR/.stalls"
    [ "$stalls" -lt "$ASSAY_MAX_STALLS" ] ||
      die "$stalls starts in a row saved nothing; not requeued. Checkpoint more often, or ask for more time"
  fi
  # what it has on other nodes: after the requeue Slurm starts no more steps for this job
  [ -z "${BEFORE_REQUEUE:-}" ] || "$BEFORE_REQUEUE"
  say "requeued after $1 (Slurm waits for its credentials to lapse, about two minutes)"
  for _ in 1 2 3; do
    scontrol requeue "$(this_job)" && exit 0
    sleep 0.5 # between two questions
  done
  die "scontrol does not requeue this job (its words are above); submit the same command to go on"
}
