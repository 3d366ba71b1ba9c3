#!/bin/bash
#SBATCH --job-name=first
#SBATCH --account=ab12
#SBATCH --partition=ipu,long
#SBATCH --time=12:00:00
#SBATCH --nodes=1
#SBATCH --nodelist=node7
#SBATCH --exclusive
#SBATCH --chdir=/home/me
#SBATCH --output=/home/me/runs/first/scheduler.log
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@360
#SBATCH --no-requeue
#SBATCH --mail-user=me@example.org
#SBATCH --mail-type=END,FAIL
#SBATCH --qos=high
# imagenet on pod16, written by ipulaunch: 16 IPUs = 4 replicas x 4; 4 instances x 1 replica; global batch 8192 = micro-batch 16 x 4 replicas x accumulation 128
# What is sourced lies on the cluster, and a $ between quotes is meant as it is.
# shellcheck disable=SC1090,SC1091,SC2016

# The environment.
module load poplar

set -u
run=/home/me/runs/first
if [ -e "$run/run/job.yaml" ]; then
  # Started again: the run continues at its newest checkpoint.
  set -- ipulaunch resume "$run/run" \
    --engine=poprun \
    --pod=16 \
    --num-instances=4 \
    --vipu-partition=p1 \
    --no-update-partition \
    --executable-cache-path='/scratch/it'"'"'s mine' \
    --env='TF_POPLAR_FLAGS=--a --b' \
    --verbose
else
  set -- ipulaunch imagenet \
    --engine=poprun \
    --pod=16 \
    --num-instances=4 \
    --num-replicas=4 \
    --ipus-per-replica=4 \
    --micro-batch-size=16 \
    --gradient-accumulation-count=128 \
    --no-rehearsal \
    --config=resnet50_16ipus_8k_bn_pipeline \
    --set=data.augment=false \
    --num-epochs=2 \
    --grace=300.0 \
    --dataset-path='/data/image net' \
    --vipu-partition=p1 \
    --no-update-partition \
    --executable-cache-path='/scratch/it'"'"'s mine' \
    --env='TF_POPLAR_FLAGS=--a --b' \
    --verbose \
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
