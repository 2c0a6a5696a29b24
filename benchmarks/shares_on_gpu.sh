#!/bin/sh
# Whether modules that share a GPU gain from it, in one command of at most five minutes: benchmarks/shares_on_gpu.sh [FOLDER]
# Needs Python, torch with green contexts (CUDA 12.8 or later), numpy, PyYAML and msgspec; installs nothing, opens no
# connection. FOLDER (default: $OUT, else gpu-out) gets shares.json: curves alone on four shares, six pairs, and one step of
# two towers in turn and side by side. `--device cpu` tries it on halves of a CPU. It has not run on a GPU yet.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
folder=${OUT:-gpu-out}
case ${1:-} in
  "" | -*) ;;
  *) folder=$1 && shift ;;
esac
mkdir -p "$folder"
OMP_WAIT_POLICY=passive PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 \
  timeout "${LIMIT_S:-290}" "${PYTHON:-python3}" "$root/benchmarks/shares_on_gpu.py" "$folder" "$@"
