#!/bin/sh
# What is worth knowing from one GPU, in one command of at most eight minutes: benchmarks/on_gpu.sh [FOLDER]
# Needs Python, torch, safetensors, numpy, PyYAML and msgspec; installs nothing and opens no connection.
# FOLDER (default: $OUT, else gpu-out) gets the measured device profile, raw results and a summary.
# More arguments go to on_gpu.py: --device cpu --quick tries it without a GPU.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
folder=${OUT:-gpu-out}
case ${1:-} in
  "" | -*) ;;
  *) folder=$1 && shift ;;
esac
mkdir -p "$folder"
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 timeout "${LIMIT_S:-470}" "${PYTHON:-python3}" "$root/benchmarks/on_gpu.py" "$folder" "$@"
