"""Runs kernels of TVM's generated CUDA C on the CPU: proves without a GPU that what a template generates is right.

The threads of a block are fibers, each of which runs until the next barrier. They take turns once in ascending and once in
descending order, so that a missing barrier shows as a wrong result every time, not once in a while. What a GPU would refuse or
might get away with traps: an index beyond an array, a misaligned vector, memory outside the buffers, a barrier that some
threads do not reach. Shuffles within a warp are for all threads of a block alike, which TVM's reductions over threads are.
"""

import re
import subprocess
from pathlib import Path

import numpy as np

BEFORE = """
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <ucontext.h>
#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __shared__ static
using std::max;
using std::min;
typedef unsigned char uchar;
typedef unsigned int uint;
struct Index { int x, y, z; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
Index threadIdx, blockIdx;
enum { THREADS = 1024, STACK = 1 << 16, PAGE = 1 << 12 };
ucontext_t scheduler, fibers[THREADS];
bool done[THREADS];
int current;
void __syncthreads() { swapcontext(&fibers[current], &scheduler); }
static float lanes[THREADS];
static int block_size;
static unsigned __activemask() { return ~0u; }
static float shuffle(float value, int from, int width) {
    lanes[current] = value;
    __syncthreads();
    bool valid = from / width == current % 32 / width && current / 32 * 32 + from < block_size;
    float received = valid ? lanes[current / 32 * 32 + from] : value;
    __syncthreads();
    return received;
}
static float __shfl_down_sync(unsigned, float value, int delta, int width) {
    return shuffle(value, current % 32 + delta, width);
}
static float __shfl_sync(unsigned, float value, int lane, int width) {
    return shuffle(value, current % 32 / width * width + lane % width, width);
}
static void fail(const char* what) { fprintf(stderr, "%s\\n", what); exit(1); }
static char* stacks;

static void run_block(void (*thread)(), Index block, bool descending) {
    int count = block_size = block.x * block.y * block.z, left = count;
    for (int i = 0; i < count; ++i) {
        getcontext(&fibers[i]);
        fibers[i].uc_stack.ss_sp = stacks + i * STACK;
        fibers[i].uc_stack.ss_size = STACK;
        fibers[i].uc_link = &scheduler;
        makecontext(&fibers[i], thread, 0);
        done[i] = false;
    }
    while (left) {
        for (int turn = 0; turn < count; ++turn) {
            current = descending ? count - 1 - turn : turn;
            threadIdx = {current % block.x, current / block.x % block.y, current / block.x / block.y};
            swapcontext(&scheduler, &fibers[current]);
            left -= done[current];
        }
        if (left && left < count) fail("some threads of a block ended, others wait at a barrier");
    }
}

// A buffer that ends at an inaccessible page and begins after another; what alignment leaves is filled with NaN.
static float* buffer(size_t count) {
    size_t bytes = (count * sizeof(float) + 15) / 16 * 16, pages = (bytes + PAGE - 1) / PAGE * PAGE;
    char* at = (char*)mmap(nullptr, pages + 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(at, PAGE, PROT_NONE);
    mprotect(at + PAGE + pages, PAGE, PROT_NONE);
    for (float* element = (float*)(at + PAGE); element < (float*)(at + PAGE + pages); ++element) *element = NAN;
    return (float*)(at + PAGE + pages - bytes);
}
static float* read_buffer(size_t count) {
    float* data = buffer(count);
    if (fread(data, sizeof(float), count, stdin) != count) fail("too little input");
    return data;
}
"""

# Every kernel in a namespace of its own, so that one compilation serves many.
KERNEL = """
namespace kernel%(number)d {
%(code)s
static float *%(pointers)s;
static void thread() { main_kernel(%(names)s); done[current] = true; }
static void launch() {
    %(reads)s
    for (int descending = 0; descending < 2; ++descending) {
        %(output)s = buffer(%(count)d);
        for (int z = 0; z < %(grid_z)d; ++z)
            for (int y = 0; y < %(grid_y)d; ++y)
                for (int x = 0; x < %(grid_x)d; ++x) {
                    blockIdx = {x, y, z};
                    run_block(thread, {%(block_x)d, %(block_y)d, %(block_z)d}, descending);
                }
        fwrite(%(output)s, sizeof(float), %(count)d, stdout);
    }
}
}
"""

AFTER = """
int main() {
    stacks = (char*)malloc((size_t)THREADS * STACK);
    %s
}
"""


def run(kernels, folder):
    """Run kernels of float32 buffers, one of them the output.

    Parameters
    ----------
    kernels
        (source, threads, inputs, shape, dynamic) of each: what TVM generated, what `cuda_limits.thread_extents` says, name ->
        float32 array, the shape of the output, bytes of shared memory that are allocated at the launch.
    folder
        For what is compiled.

    Returns
    -------
    list
        For each kernel its output as it comes out of ascending and of descending turns.

    Raises
    ------
    RuntimeError
        If a kernel does what must not be done.
    """
    text, data = [BEFORE], []
    for number, (source, threads, inputs, shape, dynamic) in enumerate(kernels):
        code = source[source.index('extern "C" __global__') :].replace("__shared__ alignas(64)", "alignas(64) static")
        at_launch = r"extern __shared__ __align__\(\d+\) uchar (\w+)\[\];"
        code = re.sub(at_launch, rf"static uchar* \1 = (uchar*)buffer({dynamic // 4});", code)
        signature = re.search(r"main_kernel\(([^)]*)\)", code).group(1)
        names = re.findall(r"(\w+)_ptr", signature) or re.findall(r"(\w+)\s*(?:,|$)", signature)
        arrays = [np.ascontiguousarray(inputs[name], np.float32) for name in names if name in inputs]
        reads = [f"{name} = read_buffer({inputs[name].size});" for name in names if name in inputs]
        (output,) = (name for name in names if name not in inputs)
        fields = {f"{kind}_{axis}": threads.get(f"{kind}Idx.{axis}", 1) for kind in ("block", "thread") for axis in "xyz"}
        fields = {key.replace("block", "grid").replace("thread", "block"): extent for key, extent in fields.items()}
        fields.update(number=number, output=output, code=code.replace('extern "C" ', ""), count=int(np.prod(shape)))
        fields.update(pointers=", *".join(names), names=", ".join(names), reads=" ".join(reads))
        text.append(KERNEL % fields)
        data += [array.tobytes() for array in arrays]
    text.append(AFTER % " ".join(f"kernel{number}::launch();" for number in range(len(kernels))))
    cpp, program = Path(folder) / "kernels.cpp", Path(folder) / "kernels"
    cpp.write_text("".join(text), encoding="utf-8")
    traps = ["-fsanitize=bounds,alignment", "-fsanitize-undefined-trap-on-error"]
    subprocess.run(["g++", "-std=c++17", "-w", "-O1", *traps, "-o", program, cpp], check=True)
    result = subprocess.run([program], input=b"".join(data), capture_output=True, timeout=120)
    if result.returncode:
        raise RuntimeError(f"a kernel failed with status {result.returncode}: {result.stderr.decode()}")
    values, outputs = np.frombuffer(result.stdout, np.float32), []
    for _, _, _, shape, _ in kernels:
        count = int(np.prod(shape))
        outputs.append([values[:count].reshape(shape), values[count : 2 * count].reshape(shape)])
        values = values[2 * count :]
    return outputs
