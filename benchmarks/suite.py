"""Operators with constant weights, as networks have them, on a CPU: our kernels beside onnxruntime's.

usage: suite.py [GROUP ...] [--trials 64] [--seed 0] [--rounds 5] [--output runs/suite]

Each operator is a model of its own, tuned as a network is: weights packed, a default schedule first, WalkGP for the rest of the
trials. The best schedules are timed again, and the compiled model is timed in turns with onnxruntime on the same threads, each time
in a fresh process; answers are compared. An interrupted run goes on.
"""

import argparse
import os
from pathlib import Path
from statistics import geometric_mean

from networks import build, of_network, ours, timed_in_turns
from onnx_of import to_onnx
from peak import peak

from nni_tensor_tuners.networks.earlier import first_records
from nni_tensor_tuners.networks.prepare import lowered
from nni_tensor_tuners.tasks.device import find_device, usable_cores

SUITE = {
    "resnet": {
        f"c{number}": f"conv(channels={into}, image=({size},{size}), filters={out}, kernel={kernel}, strides={strides})"
        for number, (size, into, out, kernel, strides) in enumerate(
            [
                (224, 3, 64, 7, 2),
                (56, 64, 64, 3, 1),
                (56, 64, 64, 1, 1),
                (56, 64, 128, 3, 2),
                (56, 64, 128, 1, 2),
                (28, 128, 128, 3, 1),
                (28, 128, 256, 3, 2),
                (28, 128, 256, 1, 2),
                (14, 256, 256, 3, 1),
                (14, 256, 512, 3, 2),
                (14, 256, 512, 1, 2),
                (7, 512, 512, 3, 1),
            ],
            1,
        )
    },
    "depthwise": {
        f"{channels}/{strides}": f"conv(channels={channels}, image=({size},{size}), filters={channels}, kernel=3, strides={strides}, "
        f"groups={channels})"
        for size, channels in [(112, 32), (56, 144), (28, 192), (14, 384), (7, 960)]
        for strides in (1, 2)
    },
    "pointwise": {
        f"{into}-{out}": f"conv(channels={into}, image=({size},{size}), filters={out}, kernel=1)"
        for size, into, out in [(56, 24, 144), (28, 192, 32), (14, 384, 96), (7, 960, 320)]
    },
    "transposed": {
        f"{into}-{out}": f"conv(channels={into}, image=({size},{size}), filters={out}, kernel=4, strides=2, transposed=True)"
        for size, into, out in [(4, 1024, 512), (8, 512, 256), (16, 256, 128), (32, 128, 3)]
    },
    "products": {
        f"{rows}x{inner}x{columns}": f"product(rows={rows}, inner={inner}, columns={columns})"
        for rows, inner, columns in [
            (128, 768, 768),
            (128, 768, 2304),
            (128, 768, 3072),
            (128, 3072, 768),
            (512, 1024, 1024),
            (512, 1024, 4096),
            (512, 4096, 1024),
        ]
    },
    "batched": {
        f"{batch}x{rows}x{inner}x{columns}": f"batched(batch={batch}, rows={rows}, inner={inner}, columns={columns})"
        for batch, rows, inner, columns in [(12, 128, 64, 128), (12, 128, 128, 64), (12, 512, 32, 512), (12, 512, 512, 32)]
    },
    "alexnet": {
        "c1": "conv(channels=3, image=(227,227), filters=64, kernel=11, strides=4, padding=0)",
        "c2": "conv(channels=64, image=(27,27), filters=192, kernel=5)",
    },
    "1d, 3d": {
        "c1d": "conv(channels=64, image=(256,), filters=128, kernel=3, strides=2)",
        "c3d": "conv(channels=3, image=(16,224,224), filters=64, kernel=7, strides=2)",
    },
}


def _model(inputs, compute):
    """A Relax module of one operator; ``compute`` is given the inputs and a function that makes constant weights."""
    import numpy as np
    from tvm import relax

    rng = np.random.default_rng(0)

    def weight(*shape):
        return relax.const(rng.uniform(-0.2, 0.2, shape).astype("float32"))

    builder = relax.BlockBuilder()
    data = [relax.Var(f"data{place}", relax.TensorType(shape, "float32")) for place, shape in enumerate(inputs)]
    with builder.function("main", data):
        with builder.dataflow():
            output = builder.emit_output(compute(*data, weight))
        builder.emit_func_output(output)
    return builder.finalize()


def conv(channels, image, filters, kernel, strides=1, groups=1, transposed=False, padding=None):
    """A convolution, of half the kernel's size of padding if not said otherwise; a transposed one doubles the image."""
    from tvm import relax

    dims = len(image)
    name = f"conv{dims}d" + ("_transpose" if transposed else "")
    if padding is None:
        padding = 1 if transposed else kernel // 2
    shape = (channels, filters) if transposed else (filters, channels // groups)

    def compute(data, weight):
        constant = weight(*shape, *[kernel] * dims)
        return getattr(relax.op.nn, name)(data, constant, strides=[strides] * dims, padding=[padding] * 2 * dims, groups=groups)

    return _model([(1, channels, *image)], compute)


def product(rows, inner, columns):
    from tvm import relax

    return _model([(rows, inner)], lambda data, weight: relax.op.matmul(data, weight(inner, columns)))


def batched(batch, rows, inner, columns):
    from tvm import relax

    return _model([(batch, rows, inner), (batch, inner, columns)], lambda a, b, _: relax.op.matmul(a, b))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", default=list(SUITE), metavar="GROUP", help=", ".join(SUITE))
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("runs/suite"))
    args = parser.parse_args()
    if unknown := [group for group in args.groups if group not in SUITE]:
        parser.error(f"no group {unknown[0]!r}; there are {', '.join(SUITE)}")
    os.environ["TVM_NUM_THREADS"] = str(usable_cores())
    device = find_device("cpu")
    print(f"{device.name}, {usable_cores()} cores, at most {peak():.0f} GFLOPS (peak.py)")
    print(f"{args.trials} trials; ms, medians of {args.rounds} turns", flush=True)
    everything = []
    for group in args.groups:
        ratios = []
        print(f"\n{group:<20}{'tuned':>10}{'default':>10}{'onnxruntime':>13}{'':>4}onnxruntime / tuned", flush=True)
        for label, call in SUITE[group].items():
            folder = args.output / group / label.replace("/", "-")
            folder.mkdir(parents=True, exist_ok=True)
            text = f"{Path(__file__).resolve()}:{call}"
            network, found, _ = ours(text, "WalkGP", args.seed, args.trials, folder)
            module = lowered(text, None, device, network.description["winograd"])
            built = {
                "tuned": build(module, of_network(network, found), folder / "model.so"),
                "default": build(module, of_network(network, first_records(network, device)), folder / "default.so"),
                "onnxruntime": to_onnx(text, None, folder / "model.onnx"),
            }
            times, differences = timed_in_turns(text, built, args.rounds, folder)
            if max(differences.values()) > 1e-4:
                raise SystemExit(f"error: {group} {label}: answers differ by {max(differences.values()):.1e}")
            ratios.append(times["onnxruntime"] / times["tuned"])
            print(f"{label:<20}{times['tuned']:10.4f}{times['default']:10.4f}{times['onnxruntime']:13.4f}{ratios[-1]:10.2f}", flush=True)
        everything += ratios
        print(f"{'geometric mean':<53}{geometric_mean(ratios):10.2f}, least {min(ratios):.2f}", flush=True)
    print(f"\n{'all, geometric mean':<53}{geometric_mean(everything):10.2f}, least {min(everything):.2f}")


if __name__ == "__main__":
    main()
