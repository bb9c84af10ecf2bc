"""Runs kernels of TVM's generated CUDA C on the CPU: proves without a GPU that what a template generates is right.

The threads of a block are fibers, each of which runs until the next barrier. They take turns once in ascending and once in
descending order, so that a missing barrier shows as a wrong result every time, not once in a while. What a GPU would refuse or
might get away with traps: an index beyond an array, a misaligned vector, memory outside the buffers, a barrier that some
threads do not reach. Shuffles within a warp are for all threads of a block alike, which TVM's reductions over threads are.
Each thread of a warp does the whole of a tensor instruction.
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
#include <cstring>
#include <immintrin.h>
#include <sys/mman.h>
#include <type_traits>
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
struct half {  // arithmetic is in float32, and rounded where it is kept
    uint16_t bits;
    half() = default;
    half(float value) : bits(_cvtss_sh(value, 0)) {}
    operator float() const { return _cvtsh_ss(bits); }
};
template <class T> struct alignas(2 * sizeof(T)) Two { T x, y; };
template <class T> struct Three { T x, y, z; };
template <class T> struct alignas(4 * sizeof(T)) Four { T x, y, z, w; };
#define VECTORS(T, NAME) \
    using NAME##2 = Two<T>; \
    using NAME##3 = Three<T>; \
    using NAME##4 = Four<T>; \
    static inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; } \
    static inline NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; } \
    static inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTORS(half, half)
VECTORS(float, float)
VECTORS(int, int)
VECTORS(uint, uint)
static inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
Index threadIdx, blockIdx;
enum { THREADS = 1024, STACK = 1 << 18, PAGE = 1 << 12 };
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
static char* buffer(size_t bytes, size_t alignment = 16) {
    bytes = (bytes + alignment - 1) / alignment * alignment;
    size_t pages = (bytes + PAGE - 1) / PAGE * PAGE;
    char* at = (char*)mmap(nullptr, pages + 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(at, PAGE, PROT_NONE);
    mprotect(at + PAGE + pages, PAGE, PROT_NONE);
    memset(at + PAGE, 0xff, pages);
    return at + PAGE + pages - bytes;
}
static char* read_buffer(size_t bytes) {
    char* data = buffer(bytes);
    if (fread(data, 1, bytes, stdin) != bytes) fail("too little input");
    return data;
}

// Groups of asynchronous copies, of which TVM makes none unless it is told to: the copies between are plain ones.
#define GROUPS(N) static void tvm_builtin_ptx_cp_async_wait_group_async_wait_group_##N() {}
GROUPS(0) GROUPS(1) GROUPS(2) GROUPS(3) GROUPS(4)
static void tvm_builtin_ptx_cp_async_commit_group_async_commit_group() {}

namespace nvcuda::wmma {
struct matrix_a; struct matrix_b; struct accumulator; struct row_major; struct col_major;
enum layout_t { mem_row_major, mem_col_major };
template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment { T at[16][16]; };

static void check_tile(const void* tile, size_t stride) {
    if ((size_t)tile % 32 || stride % 16) fail("a misaligned tile of a tensor instruction");
}
template <class Use, class T, class Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& to, const T* from, unsigned stride) {
    check_tile(from, stride * sizeof(T));
    constexpr bool rows = std::is_same_v<Layout, row_major>;
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 16; ++j) to.at[i][j] = rows ? from[i * stride + j] : from[j * stride + i];
}
template <class T>
void store_matrix_sync(T* to, const fragment<accumulator, 16, 16, 16, T>& from, unsigned stride, layout_t layout) {
    check_tile(to, stride * sizeof(T));
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 16; ++j) (layout == mem_row_major ? to[i * stride + j] : to[j * stride + i]) = from.at[i][j];
}
template <class T> void fill_fragment(fragment<accumulator, 16, 16, 16, T>& to, float value) {
    for (auto& row : to.at) std::fill(row, row + 16, value);
}
template <class T, class A, class B>
void mma_sync(fragment<accumulator, 16, 16, 16, T>& to, const fragment<matrix_a, 16, 16, 16, half, A>& a,
              const fragment<matrix_b, 16, 16, 16, half, B>& b, const fragment<accumulator, 16, 16, 16, T>& c) {
    float left[16][16], right[16][16];
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 16; ++j) left[i][j] = a.at[i][j], right[i][j] = b.at[i][j];
    for (int i = 0; i < 16; ++i) {
        float sums[16];
        for (int j = 0; j < 16; ++j) sums[j] = c.at[i][j];
        for (int k = 0; k < 16; ++k)
            for (int j = 0; j < 16; ++j) sums[j] += left[i][k] * right[k][j];
        for (int j = 0; j < 16; ++j) to.at[i][j] = sums[j];
    }
}
}
"""

# CUDA's names of element types.
TYPES = {"float": np.dtype("float32"), "half": np.dtype("float16")}

# Every kernel in a namespace of its own, so that one compilation serves many.
KERNEL = """
namespace kernel%(number)d {
%(code)s
%(pointers)s
static void thread() { main_kernel(%(names)s); done[current] = true; }
static void launch() {
    %(reads)s
    for (int descending = 0; descending < 2; ++descending) {
        %(output)s = (decltype(%(output)s))buffer(%(bytes)d);
        for (int z = 0; z < %(grid_z)d; ++z)
            for (int y = 0; y < %(grid_y)d; ++y)
                for (int x = 0; x < %(grid_x)d; ++x) {
                    blockIdx = {x, y, z};
                    run_block(thread, {%(block_x)d, %(block_y)d, %(block_z)d}, descending);
                }
        fwrite(%(output)s, 1, %(bytes)d, stdout);
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


def kernels_in(source):
    """How many kernels the generated CUDA C has; `run` takes what has one."""
    return len(re.findall(r"__global__ void[^;{]*{", source))


def run(kernels, folder):
    """Run kernels of float32 and float16 buffers, one of them the output.

    Parameters
    ----------
    kernels
        (source, threads, inputs, shape, dynamic) of each: what TVM generated, what `cuda_limits.thread_extents` says, name ->
        array, the shape of the output, bytes of shared memory that are allocated at the launch.
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
    text, data, made = [BEFORE], [], []
    for number, (source, threads, inputs, shape, dynamic) in enumerate(kernels):
        code = source[source.index('extern "C" __global__') :].replace("__shared__ alignas(64)", "alignas(64) static")
        at_launch = r"extern __shared__ __align__\((\d+)\) uchar (\w+)\[\];"
        code = re.sub(at_launch, rf"static uchar* \2 = (uchar*)buffer({dynamic}, \1);", code)
        signature = re.search(r"main_kernel\(([^)]*)\)", code).group(1)
        parameters = re.findall(r"(\w+)\s*\*\s*(?:__restrict__\s*)?(\w+)", signature)
        types = {name.removesuffix("_ptr"): TYPES[each] for each, name in parameters}
        arrays = {name: np.ascontiguousarray(inputs[name], dtype) for name, dtype in types.items() if name in inputs}
        reads = [f"{name} = (decltype({name}))read_buffer({array.nbytes});" for name, array in arrays.items()]
        (output,) = types.keys() - inputs.keys()
        fields = {f"{kind}_{axis}": threads.get(f"{kind}Idx.{axis}", 1) for kind in ("block", "thread") for axis in "xyz"}
        fields = {key.replace("block", "grid").replace("thread", "block"): extent for key, extent in fields.items()}
        pointers = " ".join(f"static {each}* {name.removesuffix('_ptr')};" for each, name in parameters)
        made.append((shape, types[output]))
        fields.update(number=number, output=output, code=code.replace('extern "C" ', ""), bytes=_bytes(*made[-1]))
        fields.update(pointers=pointers, names=", ".join(types), reads=" ".join(reads))
        text.append(KERNEL % fields)
        data += [array.tobytes() for array in arrays.values()]
    text.append(AFTER % " ".join(f"kernel{number}::launch();" for number in range(len(kernels))))
    cpp, program = Path(folder) / "kernels.cpp", Path(folder) / "kernels"
    cpp.write_text("".join(text), encoding="utf-8")
    traps = ["-fsanitize=bounds,alignment", "-fsanitize-undefined-trap-on-error"]
    subprocess.run(["g++", "-std=c++17", "-w", "-O1", "-fno-strict-aliasing", "-mf16c", *traps, "-o", program, cpp], check=True)
    result = subprocess.run([program], input=b"".join(data), capture_output=True, timeout=120)
    if result.returncode:
        raise RuntimeError(f"a kernel failed with status {result.returncode}: {result.stderr.decode()}")
    outputs, at = [], 0
    for shape, dtype in made:
        outputs.append([])
        for _ in range(2):
            outputs[-1].append(np.frombuffer(result.stdout, dtype, int(np.prod(shape)), at).reshape(shape))
            at += _bytes(shape, dtype)
    return outputs


def _bytes(shape, dtype):
    return int(np.prod(shape)) * dtype.itemsize
