#!/usr/bin/env bash
# Everything that only a GPU can show, in one command: the CUDA template's real kernels against NumPy, then OpEvo on MM1.
#   benchmarks/on_gpu.sh [FOLDER]      results go to FOLDER, default benchmarks/results/gpu
# PYTHON names the interpreter; its packages are those of setup.cfg, with the extra "test".
set -eo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
out=$(mkdir -p "${1:-benchmarks/results/gpu}" && cd "${1:-benchmarks/results/gpu}" && pwd)
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" TENSOR_TUNERS_TARGET=cuda
nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv | tee "$out/device.txt"
"$python" -m pytest -q tests/test_cuda.py 2>&1 | tee "$out/tests.txt"
"$python" -m nni_tensor_tuners register
"$python" -m nni_tensor_tuners tune mm1 --trials "${TRIALS:-128}" --output "$out/mm1" 2>&1 | tee "$out/tune.txt"
