"""What the CUDA templates share: the copies into shared memory, and the extended search space.

The extended space adds to a paper's what later cards profit from:

- ``vector``: float32 elements that one instruction copies from global memory, at most; the rows of an operand that are no
  multiple of it are copied element by element;
- ``pad``: elements added to the rows of shared memory, so that a column's elements lie in different banks;
- ``stages``: 2 loads the next tile into registers while this one is computed (a software pipeline).
"""

from ..space.constraints import Constraint

WARP = 32  # threads, on every CUDA device
VTHREADS = 64  # TVM unrolls virtual threads
ALIGNMENT = 64  # bytes, of a buffer in shared memory that TVM has allocated at the launch

EXTENDED = {
    "vector": {"_type": "discrete", "_value": [1, 2, 4]},
    "pad": {"_type": "discrete", "_value": [0, 4]},
    "stages": {"_type": "discrete", "_value": [1, 2]},
}


def most_shared(device):
    """Bytes of shared memory that two tiles may have on a device; in memory allocated at the launch the second is aligned."""
    return max(device.shared_bytes, device.shared_bytes_optin - ALIGNMENT)


def shared_scope(elements, config, device):
    """Where tiles are kept: in "shared" memory, or in "shared.dyn" if they take more of it than a kernel may have unasked.

    Parameters
    ----------
    elements
        Their float32 elements, as an expression in a configuration's parameters.
    device
        A `Device`; a static allocation has up to ``shared_bytes``, a dynamic one up to ``shared_bytes_optin``.
    """
    offered = device.shared_bytes_optin > device.shared_bytes
    needed = offered and not Constraint(f"4 * ({elements}) <= {device.shared_bytes}", config).holds(config)
    return "shared.dyn" if needed else "shared"


def bind(sch, loops, thread):
    """Fuse loops and bind them to a thread or block index; returns the loop, None where there are no loops."""
    if not loops:
        return None
    loop = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    sch.bind(loop, thread)
    return loop


def bind_unit_loop(sch, loop):
    """Put a loop of one turn around another and bind it to threadIdx.z, so that TVM leaves out no barrier; returns it.

    TVM 0.27 puts none between two accesses of shared memory with the same index if the index depends on the innermost thread
    index: it takes them for the same thread's. With two thread indices they need not be, and one thread overwrites what others
    have still to read. On this innermost one no index depends. The kernel is otherwise the same.
    """
    unit = sch.add_unit_loop(loop)
    sch.bind(unit, "threadIdx.z")
    return unit


def unroll(sch, scope, root, parts, steps, explicit=1):
    """Unroll loops, by TVM or by the compiler of CUDA, as long as the body stays below so many statements.

    Parameters
    ----------
    scope
        Of the tiles. In "shared.dyn" a loop around them must stay: each copy of its body would have tiles of its own.
    root
        The kernel's outermost loop, which stands for all.
    parts
        (block, depth) of what lies inside the loops that move the tiles: of each of these blocks the loop at that depth, if
        any, stands for it.
    """
    loops = [root]
    if scope == "shared.dyn":
        loops = [loop for block, depth in parts for loop in sch.get_loops(block)[depth : depth + 1]]
    for loop in loops:
        sch.annotate(loop, "pragma_auto_unroll_max_step", steps)
        sch.annotate(loop, "pragma_unroll_explicit", explicit)


def fetch_together(sch, block, dimensions, threads, vector):
    """Spread a copy into shared memory over all threads of the block.

    Parameters
    ----------
    block
        The copy, whose last ``dimensions`` loops are the tile's.
    threads
        Thread name -> extent, slowest first.
    vector
        Elements that a thread copies at once; divides the tile's last extent of more than 1.
    """
    elements, lanes = sch.fuse(*sch.get_loops(block)[-dimensions:]), None
    if vector > 1:
        # Split off first, so that which thread has nothing left to copy does not depend on the lane.
        elements, lanes = sch.split(elements, [None, vector])
    _, *loops = sch.split(elements, [None, *threads.values()])
    for loop, thread in zip(loops, threads):
        sch.bind(loop, thread)
    if lanes is not None:
        sch.vectorize(lanes)


def pad_rows(sch, block, axis, row, pad):
    """Lay out the buffer that a copy writes so that a step along ``axis``, ``row`` elements otherwise, is ``pad`` longer."""
    if pad:
        sch.storage_align(block, 0, axis, row + pad, 0)  # a multiple of this, the least that is no less than a row: this


def pipeline(sch, loop, copies):
    """Load the next tile into registers before this one is computed, and store it to shared memory after that.

    One buffer does: TVM puts a barrier before the store as well as after it, whether there are two or not.

    Parameters
    ----------
    loop
        Its body must be the copies, in order, and the computation.
    """
    for block in copies:
        sch.annotate(block, "tirx.manifest_shared_memory_local_stage", 1)
    count = len(copies)
    orders = [order for copy in range(count) for order in (copy, count + 1 + copy)]
    sch.annotate(loop, "software_pipeline_stage", [0] * (2 * count) + [1])
    sch.annotate(loop, "software_pipeline_order", [*orders, count])
