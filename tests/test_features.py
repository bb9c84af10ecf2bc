"""Features of programs: the loop context and the relations of AutoTVM's paper, against its figure 3b and against counting."""

import itertools
import random
from math import log2, prod

import numpy as np
import pytest
import tvm
from conftest import TESTS
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import s_tir, te

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.frontends.local import LocalStudy
from nni_tensor_tuners.study import Study
from nni_tensor_tuners.tasks import WORKLOADS
from nni_tensor_tuners.tasks.device import GENERIC, find_device
from nni_tensor_tuners.tasks.features import FEATURES, longest_chain, loops_of, vector
from nni_tensor_tuners.tasks.features.vectors import BUFFERS, THRESHOLDS
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
    # Extents apart, so that the buffers' numbers tell which is which.
    tensors = transposed_product(5 * prod(n), 7 * prod(m), 2 * prod(k))
    schedule, loops = scheduled(tensors)
    parts = [
        list(zip(itertools.repeat(axis), schedule.split(loop, [None, *factors]), [whole // prod(factors), *factors]))
        for axis, loop, factors, whole in zip("nmk", loops, (n, m, k), (5 * prod(n), 7 * prod(m), 2 * prod(k)))
    ]
    order = [part for axis in parts for part in axis]
    random.Random(seed).shuffle(order)
    schedule.reorder(*(loop for _, loop, _ in order))
    sizes = [prod(map(int, tensor.shape)) for tensor in tensors]
    numbers = [sorted(sizes, reverse=True).index(size) for size in sizes]
    if len(set(numbers)) < 3:
        return
    for place, loop in enumerate(longest_chain(loops_of(schedule.mod))):
        inside = {axis: prod(length for each, _, length in order[place:] if each == axis) for axis in "nmk"}
        expected = [inside["k"] * inside["n"], inside["k"] * inside["m"], inside["n"] * inside["m"]]
        turns = prod(inside.values())
        assert loop.length == order[place][2]
        assert [loop.touched[number].count for number in numbers] == expected
        assert [loop.touched[number].reuse for number in numbers] == [pytest.approx(turns / count) for count in expected]
        assert loop.top_down * turns == prod(length for _, _, length in order)


def test_windows_that_overlap_touch_their_elements_once():
    data, taps = te.placeholder((1, 19), name="data"), te.reduce_axis((0, 3), name="taps")
    rows = te.compute((1, 9), lambda n, x: te.sum(data[n, 2 * x + taps], axis=taps), name="rows")
    _, x, taps = longest_chain(loops_of(scheduled([data, rows])[0].mod))
    assert (x.touched[0].count, x.touched[0].stride) == (19, 2)
    assert (taps.touched[0].count, taps.touched[0].stride) == (3, 1)
    assert x.touched[0].reuse == pytest.approx(27 / 19)


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


@pytest.mark.parametrize("kind", FEATURES)
def test_vectors_of_different_programs_have_one_length(kind):
    lengths = set()
    for text in ("matmul(n=24, k=32, m=40)", "softmax(n=24, m=32)", f"{TESTS / 'my_ops.py'}:dense", "c1d(length=16)"):
        task = Program(text)
        space = SearchSpace.from_json(task.search_space(CPU), task.constraints(CPU))
        describe, settle, rng = task.describer(CPU, kind), task.settler(CPU), random.Random(0)
        configs = [settle(space.config(space.random_point(rng))) for _ in range(8)]
        found = [describe(config) for config in configs if config is not None]
        assert all(np.isfinite(each).all() for each in found)
        assert len({each.tobytes() for each in found}) > 1
        lengths |= {len(each) for each in found}
    assert len(lengths) == 1


# AutoTVM on features of programs.

SPACE = {"name": {"_type": "choice", "_value": list(range(512))}}
HIDDEN = random.Random(0).sample(range(512), 512)


def told(features):
    """Of 64 configurations the fitness: what a program is like is not in its name, and of odd ones there is none."""
    search = create_search("AutoTVM", SearchSpace.from_json(SPACE), seed=0, batch_size=8, features=features)
    describe = lambda config: None if config["name"] % 2 else np.array([HIDDEN[config["name"]]], dtype=float)  # noqa: E731
    settle = lambda config: None if describe(config) is None else config  # noqa: E731
    study = Study(search, settle=settle, describe=lambda kind: describe)
    return [trial.fitness for trial in study.run(lambda config: (float(HIDDEN[config["name"]]), None), 64)]


def test_autotvm_sees_programs():
    best = sorted((HIDDEN[name] for name in range(0, 512, 2)), reverse=True)
    sighted, blind = told("relation"), told("configuration")
    assert max(sighted) == best[0]
    assert len(set(best[:16]) & set(sighted)) > len(set(best[:16]) & set(blind))
    assert sighted == told("relation")


def test_without_a_task_there_are_no_programs():
    search = create_search("AutoTVM", SearchSpace.from_json(SPACE), features="loop")
    with pytest.raises(ValueError, match="features: loop are of programs"):
        Study(search).ask([0])
    with pytest.raises(ValueError, match="transfer: not with features: loop"):
        search.transfer([[({"name": 0}, 1.0)]])
    with pytest.raises(ValueError, match="features must be one of configuration, loop, relation, store"):
        create_search("AutoTVM", SearchSpace.from_json(SPACE), features="paper")


@pytest.mark.parametrize("search, class_args", [("AutoTVM", {}), ("Bansor", {"inner": "AutoTVM"})])
def test_a_program_tuned_by_its_features(search, class_args, tmp_path):
    own = {"batch_size": 4, "features": "relation"}
    class_args = {**class_args, "inner_args": own} if class_args else own
    task = Program("matmul(n=24, k=32, m=40)")
    study = LocalStudy(task, CPU, search, 0, class_args, tmp_path / "records.jsonl", {})
    records = list(study.run(10))
    assert len(records) == 10 and all(record["error_code"] == 0 for record in records)
