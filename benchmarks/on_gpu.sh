#!/usr/bin/env bash
# Everything that only a GPU can show, in one command of well under ten minutes; run again, it goes on where it stopped.
#   benchmarks/on_gpu.sh [FOLDER]      results go to FOLDER, default benchmarks/results
# Every CUDA template is checked against NumPy on the card; MM1 to MM3, BMM1 to BMM3, C1 and C2 are tuned and set beside cuBLAS
# and cuDNN; the time left records a landscape of MM1. Then tensor programs are tuned, by TVM's sketches and our templates.
# PYTHON names the interpreter, which has the packages of setup.cfg; nothing is installed.
# TORCH_PYTHON names one that has PyTorch, if that one has not. TRIALS (32) is the budget of each search, MINUTES (6) and
# PROGRAM_MINUTES (1.5) that of the two parts. NETWORKS (none) are tuned after that, 200 trials each: with NETWORKS=resnet18
# MINUTES=0.5 they are a call of their own.
set -eo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
out=$(mkdir -p "${1:-benchmarks/results}" && cd "${1:-benchmarks/results}" && pwd)
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" TENSOR_TUNERS_TARGET=cuda PYTHONUNBUFFERED=1
command -v nvidia-smi > /dev/null || { echo "make gpu: no nvidia-smi here; this wants an NVIDIA GPU" >&2; exit 2; }
command -v nvcc > /dev/null || { echo "make gpu: no nvcc here; the CUDA toolkit is needed to compile kernels" >&2; exit 2; }
common=(--target cuda --trials "${TRIALS:-32}" --jobs 10 --rounds 1)
nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv | tee "$out/gpu.txt"
"$python" benchmarks/operators.py mm1 mm2 mm3 bmm1 bmm2 bmm3 c1 c2 "${common[@]}" --searches OpEvo WalkGP WalkGP:extended \
    --check 3 --landscape mm1 4000 --minutes "${MINUTES:-6}" --output "$out" 2>&1 | tee -a "$out/gpu.txt"
# Their records name files of this machine: runs/ keeps them.
"$python" benchmarks/operators.py "matmul(n=1024,dtype='float16',out_dtype='float32')" "softmax(n=8192,m=1024)" \
    "layer_norm(n=8192,m=1024)" "conv_bias_relu(batch=16)" "tbs(batch=12)" "dep(height=56,width=56,channels=128,batch=16)" \
    "${common[@]}" --searches WalkGP --check 0 --minutes "${PROGRAM_MINUTES:-1.5}" --output runs/gpu-programs 2>&1 |
    tee "$out/gpu_programs.txt"
for network in $NETWORKS; do
    "$python" -m nni_tensor_tuners tune "$network" --local --trials 200 --output "runs/$network-gpu" 2>&1 | tee -a "$out/gpu.txt"
done
