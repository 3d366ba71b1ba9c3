#!/bin/bash
#PBS -N cosmoflow
#PBS -l select=2:ncpus=4:mpiprocs=1
#PBS -l place=scatter
#PBS -j oe
#PBS -o /home/me/runs/first/scheduler.log
# cosmoflow on pod16, written by ipulaunch: 16 IPUs = 16 replicas x 1; 8 instances x 2 replicas; global batch 16 = 1 micro-batch x 16 replicas x 1 accumulation
# shellcheck disable=SC1090,SC1091

cd /home/me || exit 4

set -u
run=/home/me/runs/first
if [ -e "$run/run/job.yaml" ]; then
  # Started again: the run continues at its newest checkpoint.
  set -- ipulaunch resume "$run/run" \
    --engine=openmpi \
    --pod=16 \
    --num-instances=8 \
    --hostfile="$PBS_NODEFILE"
else
  set -- ipulaunch cosmoflow \
    --engine=openmpi \
    --pod=16 \
    --num-instances=8 \
    --num-replicas=16 \
    --ipus-per-replica=1 \
    --micro-batch-size=1 \
    --gradient-accumulation-count=1 \
    --rehearsal \
    --hostfile="$PBS_NODEFILE" \
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

# A signal ends the waiting, not the launcher.
while true; do
  woken=0 code=0
  wait "$launcher" || code=$?
  if [ "$woken" -eq 0 ]; then break; fi
done
if [ "$code" -eq 75 ] && [ "$stop" = USR1 ]; then
  echo "stopped with a checkpoint; to continue: qsub $run/job.sh"
fi
exit "$code"
