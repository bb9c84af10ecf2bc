"""Permutations of axes in registers compute what NumPy's transpose does."""

import numpy as np
import pytest
import tvm
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tvm import relax

from nni_tensor_tuners.tasks.device import find_device
from nni_tensor_tuners.tasks.network import lower
from nni_tensor_tuners.tasks.network.permuted import permutation
from nni_tensor_tuners.tasks.target import target_of

CPU = find_device("cpu")


@st.composite
def permutations(draw):
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 20, 33]), min_size=2, max_size=4))
    return shape, draw(st.permutations(range(len(shape))))


@settings(max_examples=40, deadline=None)
@given(permutations(), st.sampled_from([4, 8, 16]))
@example(([1, 33, 7, 20], [0, 2, 3, 1]), 16)  # blocks of 16 that divide neither axis
@example(([1, 7, 9, 16], [0, 3, 1, 2]), 8)
@example(([5, 4, 17], [2, 0, 1]), 16)
def test_a_permutation_is_numpy_s(case, lanes):
    shape, axes = case
    function = permutation(shape, axes, lanes)
    short = min(shape[-1], shape[axes[-1]]) < 4
    assert (function is None) == (axes[-1] == len(shape) - 1 or short)
    if function is None:
        return
    data = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    result = tvm.runtime.tensor(np.full(data.transpose(axes).shape, np.nan, "float32"))
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    tvm.compile(module, target=target_of(CPU)).mod["main"](tvm.runtime.tensor(data), result)
    np.testing.assert_array_equal(result.numpy(), data.transpose(axes))


@pytest.mark.parametrize("axes", [(0, 2, 3, 1), None])
def test_a_model_s_permutation_is_one_task_in_registers(axes):
    builder, data = relax.BlockBuilder(), relax.Var("data", relax.TensorType((4, 24, 9, 10), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            output = builder.emit_output(relax.op.permute_dims(data, axes))
        builder.emit_func_output(output)
    module = lower.lowered(builder.finalize(), CPU)
    ((_, function, count),) = lower.tasks(module, CPU)
    assert count == 1 and "Shuffle" in function.script()
    given = np.random.default_rng(0).uniform(-1, 1, (4, 24, 9, 10)).astype("float32")
    machine = relax.VirtualMachine(lower.build(module, [], CPU), tvm.cpu())
    np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(given)).numpy(), np.transpose(given, axes))
