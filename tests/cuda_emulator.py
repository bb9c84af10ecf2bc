"""Runs a kernel of TVM's generated CUDA C on the CPU, one thread for each of a block's: proves its arithmetic without a GPU."""

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np

BEFORE = """
#include <barrier>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
struct Index { int x, y, z; };
static thread_local Index threadIdx, blockIdx;
static std::barrier<>* whole_block;
#define __syncthreads() whole_block->arrive_and_wait()
"""

# Every thread goes through all the blocks, one after the other, so that "static" memory is shared by one block at a time.
AFTER = """
extern "C" void launch(%(parameters)s, int grid_x, int grid_y, int block_x, int block_y) {
    std::barrier<> barrier(block_x * block_y);
    whole_block = &barrier;
    std::vector<std::thread> threads;
    for (int y = 0; y < block_y; ++y)
        for (int x = 0; x < block_x; ++x)
            threads.emplace_back([=] {
                threadIdx = {x, y, 0};
                for (int by = 0; by < grid_y; ++by)
                    for (int bx = 0; bx < grid_x; ++bx) {
                        blockIdx = {bx, by, 0};
                        main_kernel(%(arguments)s);
                        __syncthreads();
                    }
            });
    for (auto& thread : threads) thread.join();
}
"""


def run(source, folder, grid, block, arrays):
    """Run ``main_kernel``.

    Parameters
    ----------
    source
        What TVM generated.
    folder
        For what is compiled.
    grid, block
        Extents (x, y).
    arrays
        Buffer name -> float32 array; outputs are written in place.
    """
    kernel = source[source.index('extern "C" __global__') :].replace("__shared__ alignas(64)", "alignas(64) static")
    signature = re.search(r"main_kernel\(([^)]*)\)", kernel).group(1)
    names = re.findall(r"(\w+)_ptr", signature) or re.findall(r"(\w+)\s*(?:,|$)", signature)
    parameters = ", ".join(f"float* {name}" for name in names)
    cpp, library = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
    cpp.write_text(BEFORE + kernel + AFTER % {"parameters": parameters, "arguments": ", ".join(names)}, encoding="utf-8")
    command = ["g++", "-std=c++20", "-w", "-O1", "-shared", "-fPIC", "-pthread", "-o", library, cpp]
    subprocess.run(command, check=True)
    pointers = [arrays[name].ctypes.data_as(ctypes.POINTER(ctypes.c_float)) for name in names]
    assert all(array.dtype == np.float32 and array.flags["C_CONTIGUOUS"] for array in arrays.values())
    ctypes.CDLL(str(library)).launch(*pointers, *grid, *block)
