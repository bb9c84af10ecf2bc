#!/usr/bin/env bash
# Everything that only a GPU can show, in one command of well under ten minutes; run again, it goes on where it stopped.
#   benchmarks/on_gpu.sh [FOLDER]      results go to FOLDER, default benchmarks/results
# Every CUDA template is checked against NumPy on the card; MM1 to MM3, BMM1 to BMM3, C1 and C2 are tuned and set beside cuBLAS
# and cuDNN; the time left records a landscape of MM1.
# PYTHON names the interpreter, which has the packages of setup.cfg; nothing is installed.
# TORCH_PYTHON names one that has PyTorch, if that one has not. TRIALS (24) is the budget of each search, MINUTES (8.5)
# that of all. NETWORKS (none) are tuned after that, 200 trials each: with NETWORKS=resnet18 MINUTES=0.5 they are a call of their own.
set -eo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
out=$(mkdir -p "${1:-benchmarks/results}" && cd "${1:-benchmarks/results}" && pwd)
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" TENSOR_TUNERS_TARGET=cuda PYTHONUNBUFFERED=1
command -v nvidia-smi > /dev/null || { echo "make gpu: no nvidia-smi here; this wants an NVIDIA GPU" >&2; exit 2; }
command -v nvcc > /dev/null || { echo "make gpu: no nvcc here; the CUDA toolkit is needed to compile kernels" >&2; exit 2; }
nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv | tee "$out/gpu.txt"
"$python" benchmarks/operators.py mm1 mm2 mm3 bmm1 bmm2 bmm3 c1 c2 --target cuda \
    --searches OpEvo WalkGP Random WalkGP:extended --trials "${TRIALS:-24}" --seeds-of mm2=3 --rounds 2 --check 3 \
    --landscape mm1 4000 --minutes "${MINUTES:-8.5}" --output "$out" 2>&1 | tee -a "$out/gpu.txt"
for network in $NETWORKS; do
    "$python" -m nni_tensor_tuners tune "$network" --local --trials 200 --output "runs/$network-gpu" 2>&1 | tee -a "$out/gpu.txt"
done
