#!/bin/bash
#PBS -N program
#PBS -l select=2:ncpus=4:mpiprocs=1
#PBS -l place=scatter
#PBS -j oe
#PBS -o /home/me/runs/first/scheduler.log
# program on pod16, written by ipulaunch: 16 IPUs = 16 replicas x 1; 8 instances x 2 replicas
# What is sourced lies on the cluster, and a $ between quotes is meant as it is.
# shellcheck disable=SC1090,SC1091,SC2016

cd /home/me || exit 4

set -u
run=/home/me/runs/first
if [ -e "$run/run/program.json" ]; then
  # Started again: the run continues.
  set -- ipulaunch resume "$run/run" \
    --engine=openmpi \
    --pod=16 \
    --num-instances=8 \
    --hostfile="$PBS_NODEFILE"
else
  set -- ipulaunch run \
    --engine=openmpi \
    --pod=16 \
    --num-instances=8 \
    --num-replicas=16 \
    --ipus-per-replica=1 \
    --hostfile="$PBS_NODEFILE" \
    --run-dir="$run/run" \
    -- ./mine
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
  echo "stopped; to continue: qsub $run/job.sh"
fi
exit "$code"
