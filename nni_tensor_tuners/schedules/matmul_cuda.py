"""The CUDA matrix multiplication of OpEvo appendix B.1, as TVM's own schedule policy does it (dense, TVM v0.6).

The configuration is three factorisations:

- ``X`` = (n1, n2, n3, n4) of n and ``Y`` = (m1, m2, m3, m4) of m: n1 x m1 thread blocks, of n3 x m3 threads, each computing
  n2 x m2 basic tiles (virtual threads) of n4 x m4 elements;
- ``K`` = (k1, k2, k3) of k: stages of data from global memory to shared memory to registers.
"""

# Code size: loops are unrolled explicitly as long as the body stays below this many statements.
UNROLL_STEPS = 512

# Threads and static shared memory of a block, and registers of a thread, on every CUDA device since compute capability 3.5.
THREADS = 1024
WARP = 32
SHARED_BYTES = 49152
REGISTERS = 255


def search_space(workload, extended=False):
    """Search-space JSON."""
    batch = {"B": {"_type": "factor", "_value": [workload.b, 2]}} if workload.operator == "batch_matmul" else {}
    return {
        **batch,
        "X": {"_type": "factor", "_value": [workload.n, 4]},
        "Y": {"_type": "factor", "_value": [workload.m, 4]},
        "K": {"_type": "factor", "_value": [workload.k, 3]},
    }


def constraints(workload, device, extended=False):
    """What a device can run: threads in a block (and a warp of them at least, where the workload's divisors allow one), virtual
    threads, shared memory, and registers held by one thread.

    Parameters
    ----------
    device
        A `Device`; all of NVIDIA's share these limits.
    """
    blocks = [x * y for x in divisors(workload.n) for y in divisors(workload.m) if x * y <= THREADS]
    rows = "X[1] * X[2] * X[3]"
    columns = "Y[1] * Y[2] * Y[3]"
    return [
        f"{min(WARP, max(blocks))} <= X[2] * Y[2] <= {THREADS}",
        "X[1] * Y[1] <= 64",
        f"4 * K[1] * K[2] * ({rows} + {columns}) <= {SHARED_BYTES}",
        # A thread's accumulators, and the slices of X and Y it holds while it adds to them.
        f"X[1] * X[3] * Y[1] * Y[3] + K[2] * (X[1] * X[3] + Y[1] * Y[3]) <= {REGISTERS}",
    ]


def divisors(number):
    """The divisors of a positive integer, ascending."""
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def schedule(workload, config):
    """The s_tir.Schedule of a workload under a configuration."""
    from tvm import s_tir

    sch = s_tir.Schedule(workload.prim_func(), error_render_level="fast")
    z = sch.get_sblock("Z")
    z_local = sch.cache_write(z, 0, "local")
    x_shared, x_local = sch.cache_read(z, 0, "shared"), sch.cache_read(z, 0, "local")
    y_shared, y_local = sch.cache_read(z, 1, "shared"), sch.cache_read(z, 1, "local")

    i, j, k = sch.get_loops(z)
    block_y, vthread_y, thread_y, tile_y = sch.split(i, config["X"])
    block_x, vthread_x, thread_x, tile_x = sch.split(j, config["Y"])
    k_global, k_shared, k_register = sch.split(k, config["K"])
    sch.reorder(block_y, block_x, vthread_y, vthread_x, thread_y, thread_x, k_global, k_shared, k_register, tile_y, tile_x)
    for loop, thread in (
        (block_y, "blockIdx.y"),
        (block_x, "blockIdx.x"),
        (vthread_y, "vthread.y"),
        (vthread_x, "vthread.x"),
        (thread_y, "threadIdx.y"),
        (thread_x, "threadIdx.x"),
    ):
        sch.bind(loop, thread)

    sch.reverse_compute_at(z_local, thread_x, preserve_unit_loops=True)
    # The consumer of each pair first: once the shared copy is placed, the local one could no longer be moved inside it.
    for local, shared in ((x_local, x_shared), (y_local, y_shared)):
        sch.compute_at(local, k_shared, preserve_unit_loops=True)
        sch.compute_at(shared, k_global, preserve_unit_loops=True)
        _fetch_together(sch, shared, config["X"][2], config["Y"][2])
    sch.annotate(block_y, "pragma_auto_unroll_max_step", UNROLL_STEPS)
    sch.annotate(block_y, "pragma_unroll_explicit", 1)
    sch.decompose_reduction(z, k_global)
    return sch


def _fetch_together(sch, block, threads_y, threads_x):
    """Spread the copy into shared memory over all threads of the block."""
    elements = sch.fuse(*sch.get_loops(block)[-2:])
    _, y, x = sch.split(elements, [None, threads_y, threads_x])
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")
