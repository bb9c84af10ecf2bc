#!/usr/bin/env bash
# Everything that only a GPU can show, in one command of well under ten minutes; run again, it goes on where it stopped.
#   benchmarks/on_gpu.sh [FOLDER]      results go to FOLDER, default benchmarks/results
# An experiment on MM1 through NNI. Networks through NNI, beside PyTorch. Tensor programs, by TVM's sketches and our templates, beside
# TVM's default schedules and PyTorch. Every CUDA template against NumPy on the card; operators beside cuBLAS and cuDNN; the time
# left records a landscape.
# PYTHON names the interpreter, which has the packages of setup.cfg in the versions that it asks for; nothing is installed.
# TORCH_PYTHON names one that has PyTorch, if that one has not. NNI_TRIALS (48) is the budget of the experiment, NETWORK_TRIALS (200)
# that of each of NETWORKS (none), TRIALS (32) that of each search; 0 NNI_TRIALS is no experiment.
# PROGRAM_MINUTES (2) and MINUTES (4.5) are what the programs and OPERATORS may take, 0 for none; with LANDSCAPE= none is recorded.
set -eo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
out=$(mkdir -p "${1:-benchmarks/results}" && cd "${1:-benchmarks/results}" && pwd)
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" TENSOR_TUNERS_TARGET=cuda PYTHONUNBUFFERED=1
command -v nvidia-smi > /dev/null || { echo "make gpu: no nvidia-smi here; this wants an NVIDIA GPU" >&2; exit 2; }
command -v nvcc > /dev/null || { echo "make gpu: no nvcc here; the CUDA toolkit is needed to compile kernels" >&2; exit 2; }
programs=("matmul(n=1024,dtype='float16',out_dtype='float32')" "softmax(n=8192,m=1024)" "layer_norm(n=8192,m=1024)"
    "conv_bias_relu(batch=16)" "tbs(batch=12)" "dep(height=56,width=56,channels=128,batch=16)")
common=(--target cuda --trials "${TRIALS:-32}" --jobs 10 --rounds 1)
nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv | tee "$out/gpu.txt"
# Making a program's sketches takes a CPU core half a minute; they are kept for whoever asks next.
[ "${PROGRAM_MINUTES:-2}" = 0 ] || for program in "${programs[@]}"; do
    "$python" -m nni_tensor_tuners space program "$program" --target cuda > /dev/null 2>&1 &
done
"$python" -m nni_tensor_tuners register
if [ "${NNI_TRIALS:-48}" != 0 ]; then
    timeout 150 "$python" -m nni_tensor_tuners tune mm1 --trials "${NNI_TRIALS:-48}" --concurrency 8 --output runs/gpu-nni 2>&1 |
        tee "$out/gpu_nni.txt" || echo "make gpu: the experiment through NNI failed" >&2
fi
wait
for network in $NETWORKS; do
    "$python" -m nni_tensor_tuners tune "$network" --trials "${NETWORK_TRIALS:-200}" --concurrency 10 --output "runs/$network-gpu" 2>&1 |
        tee -a "$out/gpu_networks.txt" || echo "make gpu: $network through NNI failed" >&2
    "${TORCH_PYTHON:-$python}" benchmarks/torch_network.py "$network" 2>&1 | tee -a "$out/gpu_networks.txt" || true
done
# Their records name files of this machine: runs/ keeps them.
[ "${PROGRAM_MINUTES:-2}" = 0 ] || "$python" benchmarks/operators.py "${programs[@]}" "${common[@]}" --searches WalkGP --check 0 \
    --minutes "${PROGRAM_MINUTES:-2}" --output runs/gpu-programs 2>&1 | tee "$out/gpu_programs.txt"
[ "${MINUTES:-4.5}" = 0 ] || "$python" benchmarks/operators.py ${OPERATORS:-mm1 mm2 mm3 bmm1 bmm2 bmm3 c1 c2} "${common[@]}" \
    --searches OpEvo WalkGP WalkGP:extended --check 3 ${LANDSCAPE---landscape mm1 4000} --minutes "${MINUTES:-4.5}" \
    --output "$out" 2>&1 | tee -a "$out/gpu.txt"
