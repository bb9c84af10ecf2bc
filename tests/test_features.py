"""Features of programs: the loop context and the relations of AutoTVM's paper, against its figure 3b and against counting."""

import itertools
import random
from math import log2, prod

import numpy as np
import pytest
import tvm_ffi
from conftest import TESTS
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import s_tir, te, tirx

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.tasks import WORKLOADS
from nni_tensor_tuners.tasks.device import GENERIC, find_device
from nni_tensor_tuners.tasks.features import FEATURES, code_size, longest_chain, loops_of, scalar_accesses, vector
from nni_tensor_tuners.tasks.features.indices import Sum, index_of
from nni_tensor_tuners.tasks.features.vectors import BUFFERS, THRESHOLDS
from nni_tensor_tuners.tasks.matmul import Matmul
from nni_tensor_tuners.tasks.program import Program
from nni_tensor_tuners.tasks.target import target_of

CPU = find_device("cpu")
TARGET = target_of(CPU)


def scheduled(tensors):
    """A schedule of TE tensors, and the loops of its last block."""
    schedule = s_tir.Schedule(te.create_prim_func(tensors))
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    return schedule, schedule.get_loops(block)


def transposed_product(n, m, k):
    """C[y][x] += A[k][y] * B[k][x]."""
    a, b = te.placeholder((k, n), name="A"), te.placeholder((k, m), name="B")
    axis = te.reduce_axis((0, k), name="k")
    return [a, b, te.compute((n, m), lambda y, x: te.sum(a[axis, y] * b[axis, x], axis=axis), name="C")]


def test_figure_3b():
    schedule, _ = scheduled(transposed_product(8, 8, 8))
    y, x, k = longest_chain(loops_of(schedule.mod))
    counts = [[loop.touched[buffer].count for buffer in range(3)] for loop in (y, x, k)]
    assert counts == [[64, 64, 64], [8, 8, 64], [1, 8, 8]]  # of C, A and B
    assert [loop.top_down for loop in (y, x, k)] == [1, 8, 64]
    assert [loop.bottom_up for loop in (y, x, k)] == [64, 8, 1]
    assert [k.touched[buffer].stride for buffer in range(3)] == [0, 8, 8]
    assert [k.touched[buffer].reuse for buffer in range(3)] == [8, 1, 1]


SPLIT = st.lists(st.sampled_from([1, 2, 3]), min_size=2, max_size=3)


@settings(deadline=None, max_examples=30)
@given(SPLIT, SPLIT, SPLIT, st.integers(0, 2**32))
def test_a_tiled_product_touches_what_its_tiles_do(n, m, k, seed):
    schedule, loops = scheduled(transposed_product(5 * prod(n), 7 * prod(m), 2 * prod(k)))
    parts = [
        list(zip(itertools.repeat(axis), schedule.split(loop, [None, *factors]), [whole // prod(factors), *factors]))
        for axis, loop, factors, whole in zip("nmk", loops, (n, m, k), (5 * prod(n), 7 * prod(m), 2 * prod(k)))
    ]
    order = [part for axis in parts for part in axis]
    random.Random(seed).shuffle(order)
    schedule.reorder(*(loop for _, loop, _ in order))
    for place, loop in enumerate(longest_chain(loops_of(schedule.mod))):
        inside = {axis: prod(length for each, _, length in order[place:] if each == axis) for axis in "nmk"}
        expected = [inside["n"] * inside["m"], inside["k"] * inside["n"], inside["k"] * inside["m"]]  # of C, A and B
        turns = prod(inside.values())
        assert loop.length == order[place][2]
        assert [loop.touched[buffer].count for buffer in range(3)] == expected
        assert [loop.touched[buffer].reuse for buffer in range(3)] == [pytest.approx(turns / count) for count in expected]
        assert loop.top_down * turns == prod(length for _, _, length in order)


VARIABLES = [tirx.Var(name, "int32") for name in "abc"]
LENGTHS = {0: 4, 1: 3, 2: 5}


def indices():
    """(A TIR expression of the variables, what it is of their values)."""
    leaves = st.one_of(
        st.sampled_from([(variable, lambda at, i=i: at[i]) for i, variable in enumerate(VARIABLES)]),
        st.integers(0, 9).map(lambda n: (tirx.IntImm("int32", n), lambda at: n)),
    )
    by = st.integers(1, 7)

    def wider(inner):
        added = st.tuples(inner, inner).map(lambda p: (tirx.Add(p[0][0], p[1][0]), lambda at: p[0][1](at) + p[1][1](at)))
        times = st.tuples(inner, by).map(
            lambda p: (tirx.Mul(p[0][0], tirx.IntImm("int32", p[1])), lambda at: p[0][1](at) * p[1])
        )
        over = st.tuples(inner, by).map(
            lambda p: (tirx.FloorDiv(p[0][0], tirx.IntImm("int32", p[1])), lambda at: p[0][1](at) // p[1])
        )
        rest = st.tuples(inner, by).map(
            lambda p: (tirx.FloorMod(p[0][0], tirx.IntImm("int32", p[1])), lambda at: p[0][1](at) % p[1])
        )
        return st.one_of(added, times, over, rest)

    return st.recursive(leaves, wider, max_leaves=6)


@settings(deadline=None, max_examples=200)
@given(indices(), st.sets(st.sampled_from([0, 1, 2])))
def test_bounds_of_an_index_hold_all_its_values(index, moving):
    expression, evaluate = index
    found = index_of(expression, {variable: Sum({i: 1}) for i, variable in enumerate(VARIABLES)})
    lengths = {i: LENGTHS[i] for i in moving}
    values = {evaluate(at) for at in itertools.product(*(range(lengths.get(i, 1)) for i in range(3)))}
    low, high = found.bounds(lengths)
    assert low <= min(values) and max(values) <= high
    assert len(values) <= found.values(lengths)
    for i in range(3):
        assert found.slope(i) == evaluate([int(i == j) for j in range(3)]) - evaluate([0, 0, 0])
    if all(isinstance(term, int) and factor > 0 for term, factor in found.terms.items()):
        assert (low, high) == (min(values), max(values))


def test_what_a_constant_bounds_is_read_as_if_it_had_no_bound():
    x, y, _ = VARIABLES
    values = {x: Sum({0: 1}), y: Sum({1: 1})}
    bounded = tirx.Max(tirx.IntImm("int32", 0), tirx.Min(3 * x + y - 1, tirx.IntImm("int32", 7)))
    assert index_of(bounded, values) == index_of(3 * x + y - 1, values)
    assert index_of(tirx.Max(x, y), values) == Sum({})


def test_windows_that_overlap_touch_their_elements_once():
    data, taps = te.placeholder((1, 19), name="data"), te.reduce_axis((0, 3), name="taps")
    rows = te.compute((1, 9), lambda n, x: te.sum(data[n, 2 * x + taps], axis=taps), name="rows")
    _, x, taps = longest_chain(loops_of(scheduled([data, rows])[0].mod))
    assert (x.touched[1].count, x.touched[1].stride) == (19, 2)
    assert (taps.touched[1].count, taps.touched[1].stride) == (3, 1)
    assert x.touched[1].reuse == pytest.approx(27 / 19)


@pytest.mark.parametrize("size, channels", [(20, 2), (4, 30)])
def test_a_buffer_has_the_number_of_what_it_is_for(size, channels):
    """A convolution's: what is written, the padded image, the kernel, the image; whichever is the largest."""
    image, kernel = te.placeholder((size, size, 3), name="image"), te.placeholder((3, 3, 3, channels), name="kernel")
    padded = te.compute(
        (size + 2, size + 2, 3),
        lambda y, x, c: tirx.if_then_else(
            tirx.all(y >= 1, y <= size, x >= 1, x <= size), image[y - 1, x - 1, c], tirx.FloatImm("float32", 0)
        ),
        name="padded",
    )
    v, u, c = (te.reduce_axis((0, 3), name=name) for name in "vuc")
    product = te.compute(
        (size, size, channels),
        lambda y, x, f: te.sum(padded[y + v, x + u, c] * kernel[v, u, c, f], axis=[v, u, c]),
        name="product",
    )
    roots = loops_of(s_tir.Schedule(te.create_prim_func([image, kernel, product])).mod)
    outermost = longest_chain(roots)[0]
    counts = [outermost.touched[buffer].count for buffer in range(3)]
    assert counts == [size * size * channels, (size + 2) ** 2 * 3, 27 * channels]
    assert roots[0].touched[3].count == size * size * 3


@pytest.mark.parametrize("inner", [3, 4, 8])
def test_fused_loops(inner):
    source = te.placeholder((6, 8), name="source")
    schedule, loops = scheduled([source, te.compute((6, 8), lambda i, j: source[i, j] + 1.0, name="copy")])
    outer, rest = schedule.split(schedule.fuse(*loops), [None, inner])
    schedule.parallel(outer)
    schedule.vectorize(rest)
    around, inside = longest_chain(loops_of(schedule.mod))
    assert around.touched[0].count == 48
    assert inside.touched[0].count == inner  # what a run of the inner loop reaches from the first row's start
    assert (around.annotation, inside.annotation) == ("parallel", "vectorized")


def test_loops_that_tvm_unrolls_are_unrolled():
    schedule, loops = scheduled(transposed_product(8, 8, 4))
    schedule.annotate(loops[0], "pragma_auto_unroll_max_step", 32)
    assert [loop.annotation for loop in longest_chain(loops_of(schedule.mod))] == ["serial", "unrolled", "unrolled"]


@pytest.mark.parametrize("gaps, instructions", [(False, 2), (True, 32)])
@pytest.mark.parametrize("limit", [15, 16, 31, 32, 63, 64])
def test_the_code_is_as_long_as_tvm_unrolls_it(gaps, instructions, limit):
    """A vector is one statement; an instruction takes 16 of its turns, or one where it reads with gaps."""
    source = te.placeholder((64, 32), name="source")
    shape = (32, 64) if gaps else (64, 32)
    copy = te.compute(shape, (lambda i, j: source[j, i]) if gaps else (lambda i, j: source[i, j]), name="copy")
    schedule, (i, j) = scheduled([source, copy])
    outer, _ = schedule.split(i, [None, 16])
    schedule.vectorize(schedule.split(j, [None, 32])[1])
    schedule.annotate(outer, "pragma_auto_unroll_max_step", limit)
    schedule.annotate(outer, "pragma_unroll_explicit", 1)
    assert code_size(loops_of(schedule.mod)) == instructions * stores_of_tvm(schedule.mod)


@pytest.mark.parametrize("unrolled, turns", [("", 1), ("k", 3), ("kK", 12), ("xkK", 7 * 12), ("xk", 3), ("yxkK", 0)])
@pytest.mark.parametrize("vectors", [False, True])
def test_accesses_of_loops_that_llvm_may_vectorize(unrolled, turns, vectors):
    """Each of a product's statements reads and writes an element of C and reads one of A and one of B."""
    schedule, (y, x, k) = scheduled(transposed_product(5, 14, 12))
    x, vector = schedule.split(x, [7, 2])
    outer, k = schedule.split(k, [4, 3])
    schedule.reorder(y, x, outer, k, vector)
    (schedule.vectorize if vectors else schedule.unroll)(vector)
    for name in unrolled:
        schedule.unroll({"y": y, "x": x, "K": outer, "k": k}[name])
    assert scalar_accesses(loops_of(schedule.mod)) == (0 if vectors else 4 * 2 * turns)


def stores_of_tvm(module):
    """How many statements write to buffers after TVM's own lowering."""
    lowered = tirx.transform.BindTarget(TARGET.with_host(TARGET))(module)
    lowered, found = tirx.get_default_tir_pipeline(TARGET)[0](lowered), []
    tvm_ffi.structural_walk(lowered["main"].body, (tirx.BufferStore, found.append))
    return len(found)


def test_threads_of_a_gpu():
    task = WORKLOADS["mm1"]
    space = SearchSpace.from_json(task.search_space(GENERIC["cuda"]), task.constraints(GENERIC["cuda"]))
    module = task.module(space.config(space.random_point(random.Random(0))), GENERIC["cuda"])
    annotations = {loop.annotation for loop in longest_chain(loops_of(module))}
    assert {"blockIdx", "threadIdx"} <= annotations


def test_the_relation_is_the_most_below_a_threshold():
    schedule, _ = scheduled(transposed_product(8, 8, 8))
    found = vector("relation", schedule.mod, TARGET).reshape(BUFFERS, 2, len(THRESHOLDS))
    at = THRESHOLDS.index(16)
    # Of A (number 1) loops x and k touch 8 elements: reuse 8 and 1, top-down 8 and 64.
    assert found[1, :, at] == pytest.approx([log2(1 + 8), log2(1 + 64)])
    assert found[2, :, at] == pytest.approx([log2(1 + 1), log2(1 + 64)])  # of B only k does
    assert not found[1:3, :, THRESHOLDS.index(8)].any()  # fewer than 8 none
    assert not found[3].any()  # there is no fourth buffer
    assert (np.diff(found, axis=-1) >= 0).all()


def test_the_tree_of_a_program():
    """A loop is inside the one that the tree says is around it: its turns are as many as those of that one."""
    for task in (Matmul(64, 64, 64), Program("softmax(n=24, m=32)")):
        space = SearchSpace.from_json(task.search_space(CPU), task.constraints(CPU))
        settle, rng = task.settler(CPU), random.Random(0)
        module = task.module(next(filter(None, (settle(space.sample(rng)) for _ in range(99)))), CPU)
        rows = vector("tree", module, TARGET)
        loops = [loop for root in loops_of(module) for loop in nested(root)]
        there = rows[rows[:, 1] > 0]
        assert len(there) == len(loops)
        for (around, length, top_down, *_), loop in zip(there, loops):
            assert (length, top_down) == pytest.approx((log2(1 + loop.length), log2(1 + loop.top_down)))
            outside = loops[int(around) - 1] if around else None
            assert loop.top_down == (outside.top_down * outside.length if outside else 1)
            assert outside is None or loop in outside.children


def nested(loop):
    return [loop, *(each for child in loop.children for each in nested(child))]


@pytest.mark.parametrize("kind", FEATURES)
def test_vectors_of_different_programs_have_one_shape(kind):
    shapes = set()
    for text in ("matmul(n=24, k=32, m=40)", "softmax(n=24, m=32)", f"{TESTS / 'my_ops.py'}:dense", "c1d(length=16)"):
        task = Program(text)
        space = SearchSpace.from_json(task.search_space(CPU), task.constraints(CPU))
        describe, settle, rng = task.describer(CPU, kind), task.settler(CPU), random.Random(0)
        configs = [settle(space.config(space.random_point(rng))) for _ in range(8)]
        found = [describe(config) for config in configs if config is not None]
        assert all(np.isfinite(each).all() for each in found)
        assert len({each.tobytes() for each in found}) > 1
        shapes |= {each.shape for each in found}
    assert len(shapes) == 1
