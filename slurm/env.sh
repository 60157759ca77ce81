# shellcheck shell=bash
# Everything that differs between sites. The only file here to change.
# Read on the login node by slurm/chain.sh and on the compute node by every script.
# A variable that is already set wins, so a single job can be given another value.

# The checkout, on a file system that every node sees, and its Python.
export ASSAY_ROOT=${ASSAY_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
export ASSAY_PYTHON=${ASSAY_PYTHON:-$ASSAY_ROOT/.venv/bin/python}

# Modules, as far as the site has any:
# module load cuda/13.0

# Where jobs go. sbatch reads these names by itself; options of a call win.
# export SBATCH_ACCOUNT=my-project
# export SBATCH_PARTITION=a100
# export SBATCH_TIMELIMIT=24:00:00

# A container for every process of a job; empty: none. It must see the checkout and the scratch
# folder, and should see little else (Apptainer binds the home folder and /tmp unless told not to):
#   ASSAY_RUN=(apptainer exec --nv --no-home --contain --pwd "$ASSAY_ROOT" -B "$ASSAY_ROOT"
#              -B "$ASSAY_SCRATCH" "$ASSAY_ROOT/assay.sif")
# Not --containall: it takes the job's environment away, and Ray's driver does not see the processes
# of its node. With enroot and pyxis the options belong to srun. A step begins in the image's own
# folder unless told where, and only a named container is unpacked once for all steps:
#   ASSAY_SRUN=(--container-image="$ASSAY_ROOT/assay.sqsh" --container-name=assay
#               --container-workdir="$ASSAY_ROOT" --no-container-mount-home
#               --container-mounts="$ASSAY_ROOT,$ASSAY_SCRATCH")
[ -n "${ASSAY_RUN+set}" ] || ASSAY_RUN=()
[ -n "${ASSAY_SRUN+set}" ] || ASSAY_SRUN=()

# Fast storage of the node, for caches, Ray and the sandbox. Short: Unix socket paths end at 107
# bytes.
export ASSAY_SCRATCH=${ASSAY_SCRATCH:-${SLURM_TMPDIR:-/tmp}}

# Network interface between nodes (`ip -br addr` shows them); empty: what the node's name resolves
# to. Used for Ray, Gloo and NCCL alike.
export ASSAY_INTERFACE=${ASSAY_INTERFACE:-}
# InfiniBand adapters that NCCL may use, where it picks others; NCCL_DEBUG=INFO says which it took.
# export NCCL_IB_HCA=mlx5

# A file of `export NAME=value` lines, mode 0600, such as WANDB_API_KEY. Never on a command line:
# every user of the node can read those.
export ASSAY_SECRETS=${ASSAY_SECRETS:-}

# A job is requeued at most this often, and no more when this many starts in a row saved nothing.
export ASSAY_MAX_RESTARTS=${ASSAY_MAX_RESTARTS:-20}
export ASSAY_MAX_STALLS=${ASSAY_MAX_STALLS:-3}

# Seconds before the time limit at which a job is requeued even when its step has not returned. More
# than Slurm's KillWait and what the controller takes to answer.
export ASSAY_REQUEUE_MARGIN=${ASSAY_REQUEUE_MARGIN:-60}

# 1: print what the node can do (GPUs, memory, sandbox level) at the job's first start.
export ASSAY_DOCTOR=${ASSAY_DOCTOR:-1}
