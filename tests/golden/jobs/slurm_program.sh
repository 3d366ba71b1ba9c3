#!/bin/bash
#SBATCH --job-name=first
#SBATCH --partition=p64
#SBATCH --time=01:00:00
#SBATCH --nodes=1
#SBATCH --ipus=16
#SBATCH --chdir=/home/me
#SBATCH --output=/home/me/runs/first/scheduler.log
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@90
#SBATCH --requeue
# program on pod16, written by ipulaunch: 16 IPUs = 16 replicas x 1; 8 instances x 2 replicas
# What is sourced lies on the cluster, and a $ between quotes is meant as it is.
# shellcheck disable=SC1090,SC1091,SC2016

# The environment.
source /software/graphcore/poplar_sdk/3.1.0/enable
source ~/venvs/tf2/bin/activate

set -u
run=/home/me/runs/first
if [ -e "$run/run/program.json" ]; then
  # Started again: the run continues.
  set -- ipulaunch resume "$run/run" \
    --engine=poprun \
    --pod=16 \
    --num-instances=8 \
    --vipu-partition="slurm_${SLURM_JOB_ID}" \
    --poprun-verbose
else
  set -- ipulaunch run \
    --engine=poprun \
    --pod=16 \
    --num-instances=8 \
    --num-replicas=16 \
    --ipus-per-replica=1 \
    --max-restarts=2 \
    --grace=30 \
    --vipu-partition="slurm_${SLURM_JOB_ID}" \
    --poprun-verbose \
    --run-dir="$run/run" \
    -- python3 my_train.py --data='/a b' --pod 16
fi

stop=
woken=0
launcher=
# TERM reaches every process of the job by itself; USR1 comes to this shell alone.
trap 'stop=USR1 woken=1; [ -z "$launcher" ] || kill -USR1 "$launcher"' USR1
trap 'stop=TERM woken=1' TERM

"$@" &
launcher=$!
# It may have come before there was a launcher.
[ "$stop" != USR1 ] || kill -USR1 "$launcher"

# A signal ends the waiting, not the launcher.
while true; do
  woken=0 code=0
  wait "$launcher" || code=$?
  if [ "$woken" -eq 0 ]; then break; fi
done
# It ends by the signal itself where it has not begun to listen yet.
if [ "$code" -eq 138 ] && [ "$stop" = USR1 ]; then code=75; fi
if [ "$code" -eq 75 ] && [ "$stop" != TERM ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
