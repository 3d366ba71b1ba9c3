#!/bin/bash
#SBATCH --job-name=first
#SBATCH --time=00:10:00
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=1
#SBATCH --hint=nomultithread
#SBATCH --chdir=/home/me
#SBATCH --output=/home/me/runs/first/scheduler.log
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
# cosmoflow on pod4, written by ipulaunch: 4 IPUs = 4 replicas x 1; 4 instances x 1 replica; global batch 4 = micro-batch 1 x 4 replicas x accumulation 1
# What is sourced lies on the cluster, and a $ between quotes is meant as it is.
# shellcheck disable=SC1090,SC1091,SC2016

set -u
run=/home/me/runs/first
if [ -e "$run/run/job.yaml" ]; then
  # Started again: the run continues at its newest checkpoint.
  set -- ipulaunch resume "$run/run" \
    --engine=openmpi \
    --pod=4 \
    --num-instances=4
else
  set -- ipulaunch cosmoflow \
    --engine=openmpi \
    --pod=4 \
    --num-instances=4 \
    --num-replicas=4 \
    --ipus-per-replica=1 \
    --micro-batch-size=1 \
    --gradient-accumulation-count=1 \
    --rehearsal \
    --run-dir="$run/run"
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
if [ "$code" -eq 75 ] && [ "$stop" = USR1 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
