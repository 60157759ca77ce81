# shellcheck shell=bash
# A Ray cluster inside a job: brought up by asking, watched, taken down by step. Sourced after lib.sh.
# Sets HEAD (node name) and RAY_ADDRESS. Kills nothing by name, and nothing of another job.

# step_on NODE: STEP becomes the start of a command for one process there, beside whatever else runs.
# An array and not a function: a function in the background is a shell of its own, and signals to it
# would not reach srun.
step_on() {
  STEP=(srun --overlap --nodes=1 --ntasks=1 --nodelist="$1" --kill-on-bad-exit=1
    "${ASSAY_SRUN[@]}" "${ASSAY_RUN[@]}")
}

ray_tool() { # asks on the head node
  step_on "$HEAD"
  "${STEP[@]}" "$ASSAY_PYTHON" -m train.cluster.ray_cluster "$@" </dev/null
}

ray_up() {
  local -a nodes
  local i base gpus
  # `("$(…)")` would make one element with newlines in it
  mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  [ "${#nodes[@]}" = "$SLURM_NNODES" ] || die "${#nodes[@]} nodes for a job of $SLURM_NNODES"
  HEAD=${nodes[0]}
  for i in "${!nodes[@]}"; do
    say "${nodes[i]}: $([ "$i" = 0 ] && echo 'Ray head, driver' || echo 'Ray worker')"
  done
  # Unix socket paths end at 107 bytes: short, on the node, gone at the end.
  RAY_DIR=$ASSAY_SCRATCH/r$SLURM_JOB_ID
  [ "${#RAY_DIR}" -le 40 ] || die "ASSAY_SCRATCH=$ASSAY_SCRATCH is too long for Ray's sockets" 2
  ulimit -n 65536 2>/dev/null || say "open files stay at $(ulimit -n); Ray wants 65536"
  export RAY_AUTH_MODE=${RAY_AUTH_MODE:-disabled} RAY_DEDUP_LOGS=0 RAY_worker_niceness=0
  # some sites hand out whole nodes and do not count GPUs
  gpus=${ASSAY_RAY_GPUS:-${SLURM_GPUS_ON_NODE:-$(find /dev -maxdepth 1 -name 'nvidia[0-9]*' | wc -l)}}
  STORE=${ASSAY_RAY_STORE:-$(ray_store)}
  [ "$STORE" -ge 80000000 ] || die "/dev/shm has $((STORE / 500000)) MB free on $HEAD, where Ray keeps \
its objects: 160 MB at least; mount a larger one, or set ASSAY_RAY_STORE to bytes" 2
  RAY_PIDS=() WATCHED=''
  export ASSAY_RAY_UP=${RUN_DIR:-.}/.ray-up-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}
  trap ray_down EXIT
  export BEFORE_REQUEUE=ray_clear CLEAR_SECONDS=60 # what ray_clear takes at most
  ip=$(ray_tool address) || die "no address on $HEAD; set ASSAY_INTERFACE in slurm/env.sh"
  base=$(ray_tool port "$SLURM_JOB_ID" "${SLURM_RESTART_COUNT:-0}") || die "no free ports on $HEAD"
  export RAY_ADDRESS=$ip:$base
  ray_start 0 "$gpus" --head --node-ip-address="$ip" --port="$base" \
    --include-dashboard=false --ray-client-server-port=$((base + 1))
  ray_ready 1 "$gpus" "the Ray head on $HEAD did not come up"
  [ "$SLURM_NNODES" != 1 ] || return 0
  for ((i = 1; i < SLURM_NNODES; i++)); do ray_start "$i" "$gpus" --address="$RAY_ADDRESS"; done
  ray_ready "$SLURM_NNODES" $((SLURM_NNODES * gpus)) "not all Ray nodes came up"
}

# ray_start INDEX GPUS OPTIONS...: every port is fixed; each node has its own, so that two may share
# a host. Workers' ports stay below the range the system hands out by itself.
ray_start() {
  local i=$1 gpus=$2 base=$((${RAY_ADDRESS##*:} + 2 + ($1 % 2) * 8)) low=$((10000 + ($1 % 16) * 500))
  local -a nodes
  shift 2
  mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  step_on "${nodes[i]}"
  "${STEP[@]}" "$ASSAY_PYTHON" -m train.cluster.ray_cluster start "$@" --block \
    --num-cpus="${ASSAY_RAY_CPUS:-${SLURM_CPUS_PER_TASK:-${SLURM_CPUS_ON_NODE:-1}}}" --num-gpus="$gpus" \
    --object-store-memory="$STORE" --temp-dir="$RAY_DIR" \
    --node-manager-port="$base" --object-manager-port=$((base + 1)) \
    --runtime-env-agent-port=$((base + 2)) --dashboard-agent-grpc-port=$((base + 3)) \
    --dashboard-agent-listen-port=$((base + 4)) --metrics-export-port=$((base + 5)) \
    --min-worker-port="$low" --max-worker-port=$((low + 499)) --disable-usage-stats </dev/null &
  RAY_PIDS+=($!)
}

# Bytes of the object store: half of /dev/shm, at most 20 GB. Ray's own default is a share of the
# node's memory, which need not be the job's.
ray_store() {
  local free
  free=$(df --output=avail -B1 /dev/shm | tail -1)
  [ $((free / 2)) -lt 20000000000 ] && echo $((free / 2)) || echo 20000000000
}

ray_ready() { # NODES GPUS MESSAGE: ask until they are there, or a start has died, or time is up
  local asking
  step_on "$HEAD"
  "${STEP[@]}" "$ASSAY_PYTHON" -m train.cluster.ray_cluster wait "$RAY_ADDRESS" \
    --nodes "$1" --gpus "$2" --seconds "${ASSAY_RAY_WAIT:-300}" </dev/null &
  asking=$!
  while kill -0 "$asking" 2>/dev/null; do
    for one in "${RAY_PIDS[@]}"; do
      kill -0 "$one" 2>/dev/null || { kill "$asking"; die "$3: a step ended early; its words are above"; }
    done
    sleep 0.5 # between two questions, not instead of one
  done
  wait "$asking" || die "$3 in ${ASSAY_RAY_WAIT:-300} s"
}

# Started when the driver is: ends it when Ray has declared a node dead, and the job goes on elsewhere.
ray_watch() {
  WATCHED=$(date +%s)
  touch "$ASSAY_RAY_UP"
  NODE_PIDS=("${RAY_PIDS[@]}")
  (
    step_on "$HEAD"
    "${STEP[@]}" "$ASSAY_PYTHON" -m train.cluster.ray_cluster watch "$RAY_ADDRESS" \
      --nodes "$SLURM_NNODES" --since "$WATCHED" </dev/null &
    watching=$!
    trap 'kill "$watching" 2>/dev/null; exit 0' TERM
    wait "$watching"
    if [ $? = 3 ]; then
      touch "$RUN_DIR/.lost"
      kill -TERM "${pid:?set by supervise}" 2>/dev/null # srun then ends the step at once
    fi
  ) &
  RAY_PIDS+=($!)
}

# Whether a driver that failed (exit status $1) did so because a node was lost. Its actors' errors
# often come before Ray or Slurm knows of it, so: does a Ray node's step end within a few seconds, has
# Ray declared a node dead since the driver began, does every node still run a step?
ray_lost() {
  local one until=$((SECONDS + 10))
  [ ! -e "$RUN_DIR/.lost" ] || return 0
  [ -n "$WATCHED" ] && [ "$1" != 0 ] && [ "$1" != 2 ] || return 1
  while [ "$SECONDS" -lt "$until" ]; do
    for one in "${NODE_PIDS[@]}"; do
      kill -0 "$one" 2>/dev/null || return 0
    done
    sleep 0.5 # between two questions
  done
  step_on "$HEAD"
  timeout 60 "${STEP[@]}" "$ASSAY_PYTHON" -m train.cluster.ray_cluster lost "$RAY_ADDRESS" \
    --nodes "$SLURM_NNODES" --since "$WATCHED" </dev/null
  [ $? != 3 ] || return 0
  ! timeout 30 srun --overlap --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" \
    --ntasks-per-node=1 true </dev/null
}

# Slurm's KILL comes KillWait (30 s) after its TERM: everything is asked to end at once.
ray_down() {
  local code=$? lost=''
  trap - EXIT
  trap '' USR1 TERM
  ! ray_lost "$code" || lost=yes
  ray_clear
  if [ -n "$lost" ] && [ "$code" != 0 ]; then
    rm -f "$RUN_DIR/.lost"
    ask_again "a lost node"
  fi
  exit "$code"
}

# Logs kept, processes ended, folders gone, on every node; the second time it does nothing.
ray_clear() {
  [ -n "${RAY_DIR:-}" ] || return 0
  # shellcheck disable=SC2016 # the node's own shell fills them in
  each_node 'to=$1/ray-logs/$SLURMD_NODENAME; mkdir -p "$to" && cp -r "$2/session_latest/logs/." "$to/"'
  ray_end 10 TERM
  ray_end 5 KILL
  # shellcheck disable=SC2016
  each_node 'rm -rf "$2"'
  rm -f "$ASSAY_RAY_UP"
  RAY_DIR=''
}

# One shell on every node, $1 the run's folder, $2 Ray's; only here when the job can start no steps.
each_node() {
  timeout 20 srun --overlap --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" --ntasks-per-node=1 \
    bash -c "$1" _ "$RUN_DIR" "$RAY_DIR" </dev/null 2>/dev/null ||
    bash -c "$1" _ "$RUN_DIR" "$RAY_DIR" </dev/null 2>/dev/null
}

ray_end() { # SECONDS SIGNAL: signal what is left, wait for it at most so long
  local one until=$((SECONDS + $1))
  for one in "${RAY_PIDS[@]}"; do kill -"$2" "$one" 2>/dev/null; done
  for one in "${RAY_PIDS[@]}"; do
    while kill -0 "$one" 2>/dev/null && [ "$SECONDS" -lt "$until" ]; do sleep 0.1; done
  done
}
