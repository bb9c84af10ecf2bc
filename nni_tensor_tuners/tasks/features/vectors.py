"""Programs as vectors of one length, for models: loop contexts, relations, and MetaSchedule's features.

All are functions of a scheduled IRModule, whose function is "main", and TVM's target. Where one comes to mean something else,
`recorded.FEATURES_VERSION` is raised.
"""

import numpy as np

from ..target import bare_context
from .loops import ANNOTATIONS, Touch, longest_chain, loops_of

# Of longer programs the innermost loops are seen, of more buffers the first ones (`Loop.touched`).
LOOPS, BUFFERS = 32, 4
# Numbers in the context of a loop.
WIDTH = 3 + len(ANNOTATIONS) + 3 * BUFFERS
# What the loops touch of a buffer that they do not access.
UNTOUCHED = Touch(10**18, 0.0, 0)
# beta of the relations: powers of two, in elements touched.
THRESHOLDS = tuple(2**power for power in range(1, 23))


def loop_context(module, target=None):
    """x of AutoTVM's figure 9: the contexts of all loops, flattened; the innermost of the last statement come last.

    Lengths, products, counts, reuse ratios and strides are logarithms of one more than they are.
    """
    rows = [_context(loop) for root in loops_of(module) for loop in _flat(root)][-LOOPS:]
    return np.concatenate([np.zeros((LOOPS - len(rows)) * WIDTH), *rows]).astype(np.float32)


def loop_tree(module, target=None):
    """For each of the first loops, outer before inner: the place of the loop around it, from 1, 0 where there is none, and its
    context; zeros after the last. A TreeGRU's input (figure 3d)."""
    found = np.zeros((LOOPS, 1 + WIDTH), dtype=np.float32)
    loops = [loop for root in loops_of(module) for loop in _flat(root)][:LOOPS]
    place_of = {id(loop): place for place, loop in enumerate(loops)}
    for place, loop in enumerate(loops):
        found[place, 1:] = _context(loop)
        for child in loop.children:
            if id(child) in place_of:
                found[place_of[id(child)], 0] = place + 1
    return found


def relation(module, target=None):
    """R of AutoTVM's section A.2.2, along the longest chain of loops: for every buffer and threshold beta

        R = max {Z_ki : Z_kj < beta},    (j, i) = (touch count, reuse ratio) and (touch count, top-down)

    over the loops k of the chain; logarithms, 0 where there is none.
    """
    chain = longest_chain(loops_of(module))
    touched = [[loop.touched.get(buffer, UNTOUCHED) for loop in chain] for buffer in range(BUFFERS)]
    counts = np.array([[touch.count for touch in each] for each in touched], dtype=float)[:, None, :, None]
    values = np.log2([[[1 + touch.reuse for touch in each], [1 + loop.top_down for loop in chain]] for each in touched])
    return (values[..., None] * (counts < THRESHOLDS)).max(axis=2, initial=0).astype(np.float32).ravel()


def per_store(module, target):
    """MetaSchedule's `PerStoreFeature`: of its 164 numbers for each write to a buffer the sum over the writes, and the most."""
    from tvm import s_tir
    from tvm.s_tir import meta_schedule as ms

    extractor = ms.feature_extractor.PerStoreFeature()
    candidate = ms.MeasureCandidate(s_tir.Schedule(module, debug_mask="none"), [])
    (found,) = extractor.extract_from(bare_context(module, target), [candidate])
    found = found.numpy()
    return np.concatenate([found.sum(axis=0), found.max(axis=0)]).astype(np.float32)


def _flat(loop):
    return [loop, *(each for child in loop.children for each in _flat(child))]


def _context(loop):
    touched = [loop.touched.get(buffer, (0, 0, 0)) for buffer in range(BUFFERS)]
    numbers = np.log2(1 + np.array([loop.length, loop.top_down, loop.bottom_up, *np.ravel(touched)], dtype=float))
    return np.append(numbers, [loop.annotation == each for each in ANNOTATIONS])


FEATURES = {"loop": loop_context, "relation": relation, "store": per_store, "tree": loop_tree}


def vector(kind, module, target):
    """The features of a module, of one shape for every module: (n,), of "tree" (loops, n); ``kind`` is one of `FEATURES`."""
    return FEATURES[kind](module, target)


def describer(kind, module_of, target):
    """Function from a configuration to the `vector` of its module, ``module_of(config)``; None where that raises anything."""

    def describe(config):
        try:
            return vector(kind, module_of(config), target)
        except Exception:  # TVM's ScheduleError is no ValueError
            return None

    return describe
