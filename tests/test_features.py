"""Features of programs: the loop context and the relations of AutoTVM's paper, against its figure 3b and against counting."""

import itertools
import json
import random
from collections import Counter
from math import log2, prod

import numpy as np
import pytest
import tvm_ffi
from conftest import TESTS
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import s_tir, te, tirx

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.frontends.local import LocalStudy
from nni_tensor_tuners.frontends.nni.settings import read_histories
from nni_tensor_tuners.search.described import Described
from nni_tensor_tuners.search.walkgp.program_sources import ProgramSources
from nni_tensor_tuners.search.walkgp.programs import Programs
from nni_tensor_tuners.study import Objective, Study, records
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


# Searches on features of programs.

SPACE = {"name": {"_type": "choice", "_value": list(range(512))}}
HIDDEN = random.Random(0).sample(range(512), 512)
SIGHTED = [("AutoTVM", {"batch_size": 8}), ("WalkGP", {})]


def hidden(config):
    """What a program is like, which its name does not tell; of odd ones there is none."""
    return None if config["name"] % 2 else np.array([HIDDEN[config["name"]]], dtype=float)


def told(search, features, class_args, seed=0):
    """The fitness of 64 configurations, the hidden number."""
    search = create_search(search, SearchSpace.from_json(SPACE), seed=seed, features=features, **class_args)
    settle = lambda config: None if hidden(config) is None else config  # noqa: E731
    study = Study(search, settle=settle, describe=lambda kind: hidden)
    return [trial.fitness for trial in study.run(lambda config: (float(HIDDEN[config["name"]]), None), 64)]


@pytest.mark.parametrize("search, class_args", SIGHTED)
def test_a_search_sees_programs(search, class_args):
    best = sorted((HIDDEN[name] for name in range(0, 512, 2)), reverse=True)
    seen = [told(search, "relation", class_args, seed) for seed in range(3)]
    for seed, sighted in enumerate(seen):
        blind = told(search, "configuration", class_args, seed)
        assert len(set(best[:16]) & set(sighted)) > len(set(best[:16]) & set(blind))
    assert max(seen[0]) == best[0]
    assert seen[0] == told(search, "relation", class_args)


@pytest.mark.parametrize("kind, class_args", [("AutoTVM", {"batch_size": 8}), ("WalkGP", {})])
def test_a_search_proposes_no_twin_of_what_it_has_proposed(kind, class_args):
    """Every four names have one program. What is asked for at once is all different, too; `WalkGP` finds out a twin once only."""
    first, found_out = {}, Counter()
    for name, number in enumerate(HIDDEN):
        first.setdefault(number // 4, name)

    def settle(config):
        built = first[HIDDEN[config["name"]] // 4]
        found_out[config["name"]] += built != config["name"]
        return {"name": built}

    search = create_search(kind, SearchSpace.from_json(SPACE), seed=0, features="relation", **class_args)
    search.see(lambda config: np.array([HIDDEN[config["name"]] // 4], dtype=float), settle)
    found = []
    for _ in range(12):
        proposed = search.ask(4)
        found += proposed
        for config in proposed:
            search.tell(config, float(HIDDEN[config["name"]] // 4))
            search.exclude(settle(config))
    assert kind == "AutoTVM" or max(found_out.values()) == 1
    by_model = found[16:]  # before, trees have learned nothing
    assert [settle(config) for config in by_model] == by_model
    seen_before = {settle(config)["name"] for config in found[:16]}
    assert len({config["name"] for config in by_model} - seen_before) == len(by_model)


def test_a_program_described_is_not_made_again_to_be_proposed(monkeypatch):
    """Nor to be measured, when it is asked about as what it is built as."""
    task = Program("softmax(n=16, m=48)")
    space = SearchSpace.from_json(task.search_space(CPU), task.constraints(CPU))
    describe, settle, rng = task.describer(CPU, "relation"), task.settler(CPU), random.Random(0)
    configs = [space.sample(rng) for _ in range(8)]
    made = [describe(config) for config in configs]
    monkeypatch.setattr("nni_tensor_tuners.tasks.program.sketches.schedule", None)
    described = [config for config, features in zip(configs, made) if features is not None]
    settled = [settle(config) for config in described]
    assert len(settled) > 4 and None not in settled and settled != described
    assert [settle(config) for config in settled] == settled


def test_programs_described_at_once_are_as_described_one_by_one():
    task = Program("softmax(n=16, m=32)")
    space = SearchSpace.from_json(task.search_space(CPU), task.constraints(CPU))
    rng = random.Random(0)
    points = list({space.random_point(rng): None for _ in range(24)})
    describe = task.describer(CPU, "relation")
    described, one_by_one = Described(space, describe), {point: describe(space.config(point)) for point in points}
    known = described.known(points)
    assert known == [point for point in points if one_by_one[point] is not None]
    assert np.array_equal(described.rows(known), [one_by_one[point] for point in known])


def test_no_score_has_a_part_in_what_is_predicted_for_it():
    rng = np.random.default_rng(0)
    noise, scores = rng.standard_normal((64, 8)), rng.standard_normal(64)
    points = [(number,) for number in range(64)]
    space = SearchSpace.from_json({"number": {"_type": "choice", "_value": list(range(96))}})
    describe = lambda config: rng.standard_normal(8) if config["number"] > 63 else noise[config["number"]]  # noqa: E731
    programs = Programs(space, Described(space, describe))
    assert programs.known(points) == points
    assert not programs.trend(points).any()
    programs.learn(points, scores)
    assert abs(np.corrcoef(programs.trend(points), scores)[0, 1]) < 0.4
    within = np.mean([model.inplace_predict(noise) for model in programs._models], axis=0)
    assert np.corrcoef(within, scores)[0, 1] > 0.8


def test_trees_learn_what_sources_leave_of_the_scores():
    """Of scores that are what sources say and a step, which they know nothing of, the step."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((128, 2))
    sources = ProgramSources([[*zip(features, np.exp(features[:, 0]))]])
    space = SearchSpace.from_json({"number": {"_type": "choice", "_value": list(range(128))}})
    programs = Programs(space, Described(space, lambda config: features[config["number"]]), sources)
    points = programs.known([(number,) for number in range(128)])
    step = np.sign(features[:, 1])
    scores = sources.mean(features) + step
    programs.learn(points, scores)
    assert np.corrcoef(programs.trend(points), step)[0, 1] > 0.9
    assert np.square(programs.trends(points).sum(axis=1) - scores).mean() < 0.1 * scores.var()


def test_programs_sources_and_failures_together():
    space = SearchSpace.from_json({"x": {"_type": "factor", "_value": [256, 3]}})
    fitness = lambda config: None if config["x"][1] > 32 else 1 / (1 + abs(config["x"][2] - 16))  # noqa: E731
    search = create_search("WalkGP", space, seed=0, features="relation")
    search.transfer([[(config, fitness(config)) for config in create_search("Random", space, seed=1).ask(30)]])
    describe = lambda config: np.array(config["x"], dtype=float)  # noqa: E731
    study = Study(search, describe=lambda kind: describe)
    found = [trial.fitness for trial in study.run(lambda config: (fitness(config), None), 24, batch=2)]
    assert max(filter(None, found)) == 1


def test_without_a_task_there_are_no_programs():
    search = create_search("AutoTVM", SearchSpace.from_json(SPACE), features="loop")
    with pytest.raises(ValueError, match="features: loop are of programs"):
        Study(search).ask([0])
    for elsewhere in ([({"name": 0}, 1.0)], [([1.0], 1.0), ([1.0, 2.0], 1.0)]):
        with pytest.raises(ValueError, match="transfer: expected features of programs, loop, all of one length"):
            search.transfer([elsewhere])
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


@pytest.mark.parametrize("name, class_args", [("AutoTVM", {"batch_size": 8, "epsilon": 0}), ("WalkGP", {"initial": 8})])
def test_what_programs_are_like_is_transferred_between_spaces_without_a_parameter_in_common(name, class_args):
    """What is known are features and their fitness: the first of them is the distance from what is good."""
    space = SearchSpace.from_json({"x": {"_type": "factor", "_value": [2**9, 3]}})
    describe = lambda config: np.array([abs(np.log2(config["x"][2]) - 4), np.log2(config["x"][0])])  # noqa: E731
    rng = np.random.default_rng(0)
    vectors = rng.integers(0, 9, (200, 2)).astype(float)
    elsewhere = [[(list(vector), 1 / (1 + vector[0])) for vector in vectors]]
    first = {}
    for told in (False, True):
        search = create_search(name, space, seed=0, features="relation", **class_args)
        if told:
            search.transfer(elsewhere)
        search.see(describe)
        first[told] = [describe(config)[0] for config in search.ask(8)]
    assert np.mean(first[True]) < 1 < np.mean(first[False])


def test_walkgp_begins_with_what_programs_elsewhere_call_best_of_random_ones_the_best_first():
    space = SearchSpace.from_json({"name": {"_type": "choice", "_value": list(range(256))}})
    search = create_search("WalkGP", space, seed=0, features="relation", initial=6)
    search.transfer([[([number], float(number)) for number in range(0, 256, 4)]])
    search.see(lambda config: np.array([config["name"]], dtype=float))
    first = [config["name"] for config in search.ask(12)]
    assert first == sorted(first, reverse=True) and first[-1] >= 256 * 14 // 16


def transferred_over_branches(initial, trials, fitness):
    """The numbers that WalkGP proposes in four branches of 64 numbers each, if elsewhere the higher number was the better."""
    numbers = [{"_type": "choice", "_value": list(range(first, first + 64))} for first in range(0, 256, 64)]
    branches = [{"_name": str(place), "number": each} for place, each in enumerate(numbers)]
    space = SearchSpace.from_json({"sketch": {"_type": "choice", "_value": branches}})
    search = create_search("WalkGP", space, seed=0, features="relation", initial=initial)
    search.transfer([[([number], float(number)) for number in range(0, 256, 4)]])
    search.see(lambda config: np.array([config["sketch"]["number"]], dtype=float))
    proposed = []
    for _ in range(trials):
        (config,) = search.ask(1)
        search.tell(config, fitness(config["sketch"]["number"]))
        proposed.append(config["sketch"]["number"])
    return proposed


def test_walkgp_follows_what_programs_elsewhere_say_where_it_is_so():
    """It has a look at other branches, and finds the best, which was not among the random ones that it began with."""
    by_model = transferred_over_branches(3, 12, float)[6:]
    assert max(by_model) == 255 and np.median(by_model) > 256 * 3 // 4


def test_walkgp_hears_that_programs_elsewhere_are_wrong_after_twice_as_many_trials_as_initial_says_whatever_the_branches():
    proposed = transferred_over_branches(4, 14, lambda number: 1 / (1 + number))
    assert min(proposed[:8]) > 256 * 3 // 4 > min(proposed[8:])


def test_walkgp_finds_the_best_where_programs_elsewhere_say_the_contrary():
    space = SearchSpace.from_json({"x": {"_type": "factor", "_value": [2**9, 3]}})
    far = lambda config: abs(np.log2(config["x"][2]) - 4)  # noqa: E731
    search = create_search("WalkGP", space, seed=0, features="relation")
    search.transfer([[([distance], float(distance)) for distance in range(6) for _ in range(4)]])
    search.see(lambda config: np.array([far(config)]))
    for _ in range(24):
        for config in search.ask(1):
            search.tell(config, 1 / (1 + far(config)))
    assert max(search.results.values()) == 1.0


def test_walkgp_learns_of_programs_elsewhere_where_two_trials_succeeded():
    search = create_search("WalkGP", SearchSpace.from_json(SPACE), features="relation")
    with pytest.raises(ValueError, match="transfer: fewer than two trials succeeded there"):
        search.transfer([[([1.0], 1.0), ([2.0], None)]])
    with pytest.raises(ValueError, match="transfer: expected features of programs, all of one length"):
        search.transfer([[([1.0], 1.0), ([2.0, 3.0], 2.0)]])
    search.transfer([[([1.0], 1.0), ([2.0], 2.0)]])
    with pytest.raises(ValueError, match="it is not known of which: give the task"):
        search.ask()


@pytest.mark.parametrize("stored", [True, False])
def test_records_of_one_operator_serve_another(stored, tmp_path, monkeypatch):
    """Measured: a product of matrices. Told: a convolution's search, by the programs' features, stored or made anew."""
    path = tmp_path / "records.jsonl"
    study = LocalStudy(Matmul(32, 32, 32), CPU, "Random", 0, {}, path, {}, features=["relation"] if stored else [])
    assert len(list(study.run(4))) == 4
    found = records.read(path)
    assert [set(record.get("features", {})) for record in found] == [{"relation"} if stored else set()] * 4
    made = [describe_by_hand(record) for record in found]
    if stored:
        monkeypatch.setattr("nni_tensor_tuners.tasks.recorded.from_dict", None)  # nothing is made
    (history,) = read_histories([str(path)], Objective(), "relation")
    np.testing.assert_array_equal([vector for vector, _ in history], made)
    assert [fitness for _, fitness in history] == [record["tflops"] for record in found]
    for name, class_args in SIGHTED:
        search = create_search(name, SearchSpace.from_json(SPACE), features="relation", **class_args)
        assert search.transfer_features == "relation"
        search.transfer([history])
    path.write_text(json.dumps({"config": {"x": 1}, "error_code": 0, "tflops": 1.0}) + "\n")
    with pytest.raises(ValueError, match="no record is of a program that can be made here, or has its relation features"):
        read_histories([str(path)], Objective(), "relation")


def describe_by_hand(record):
    return vector("relation", Matmul(32, 32, 32).module(record["config"], CPU), TARGET)
