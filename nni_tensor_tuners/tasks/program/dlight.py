"""DLight, TVM's default schedules for GPUs: what a program runs by where nothing was tuned. TVM is imported inside functions only."""

from ..target import target_of

# What stands for it in a configuration, in place of a sketch.
NAME = "DLight"


def scheduled(module, device):
    """A module whose programs that have no schedule have DLight's, for a GPU `Device`."""
    from tvm.s_tir import dlight

    gpu = dlight.gpu
    rules = gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback()
    with target_of(device):
        return dlight.ApplyDefaultSchedule(*rules)(module)
