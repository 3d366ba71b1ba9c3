#!/bin/bash
#SBATCH --job-name=first
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --hint=nomultithread
#SBATCH --chdir=/home/me
#SBATCH --output=/home/me/runs/first/scheduler.log
#SBATCH --open-mode=append
# mnist on 1 IPU, written by ipulaunch: 1 IPU = 1 replica x 1; 1 instance x 1 replica; global batch 64 = micro-batch 64 x 1 replica x accumulation 1
# What is sourced lies on the cluster, and a $ between quotes is meant as it is.
# shellcheck disable=SC1090,SC1091,SC2016

set -u
run=/home/me/runs/first
if [ -e "$run/run/job.yaml" ]; then
  # Started again: the run continues at its newest checkpoint.
  set -- apptainer exec registry.example/ipulaunch:1.0 ipulaunch resume "$run/run" \
    --engine=openmpi \
    --ipus=1 \
    --num-instances=1
else
  set -- apptainer exec registry.example/ipulaunch:1.0 ipulaunch mnist \
    --engine=openmpi \
    --ipus=1 \
    --num-instances=1 \
    --num-replicas=1 \
    --ipus-per-replica=1 \
    --micro-batch-size=64 \
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
  echo "stopped; to continue: sbatch $run/job.sh"
fi
exit "$code"
