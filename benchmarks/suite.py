"""Operators with constant weights, as networks have them, on a CPU: our kernels beside onnxruntime's and oneDNN's.

usage: suite.py [GROUP ...] [--trials 64] [--seed 0] [--rounds 5] [--output runs/suite]
       operators.py --suite cpu [GROUP ...]    the same

Each operator is a model of its own, tuned as a network is: weights packed, a default schedule first, WalkGP for the rest of the
trials. The best schedules are timed again, and the compiled model is timed in turns with onnxruntime on the same threads, and
with PyTorch (oneDNN, MKL) where TORCH_PYTHON (default: this interpreter) has it, onnx and threadpoolctl; each time in a fresh
process; answers are compared. The better of the libraries counts. An interrupted run goes on.
"""

import argparse
import os
import subprocess
import sys
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
        for batch, rows, inner, columns in [(12, 128, 64, 128), (12, 512, 32, 512), (12, 512, 512, 32)]
    }
    | {  # of OpEvo, at batch 12: the first is BERT's product of attention and values
        f"bmm{number}": f"batched(batch=12, rows=128, inner={inner}, columns={columns}, layout='{layout}')"
        for number, (inner, columns, layout) in enumerate([(128, 64, "NN"), (128, 64, "TN"), (64, 128, "NT")], 1)
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

COLUMNS = ["tuned", "default", "PyTorch", "onnxruntime"]


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


def batched(batch, rows, inner, columns, layout="NN"):
    """Products of two inputs; ``layout`` says which of them lie transposed (T)."""
    from tvm import relax

    def turned(operand, how):
        return relax.op.permute_dims(operand, [0, 2, 1]) if how == "T" else operand

    shapes = [(batch, rows, inner), (batch, inner, columns)]
    given = [(n, b, a) if how == "T" else (n, a, b) for (n, a, b), how in zip(shapes, layout)]
    return _model(given, lambda a, b, _: relax.op.matmul(turned(a, layout[0]), turned(b, layout[1])))


def torch_program():
    """The command that runs `torch_model.py`, where there is an interpreter for it, else None."""
    python = os.environ.get("TORCH_PYTHON", sys.executable)
    found = subprocess.run([python, "-c", "import torch, onnx, threadpoolctl"], capture_output=True, check=False)
    return [python, str(Path(__file__).with_name("torch_model.py"))] if found.returncode == 0 else None


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", default=list(SUITE), metavar="GROUP", help=", ".join(SUITE))
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("runs/suite"))
    args = parser.parse_args(arguments)
    if unknown := [group for group in args.groups if group not in SUITE]:
        parser.error(f"no group {unknown[0]!r}; there are {', '.join(SUITE)}")
    os.environ["TVM_NUM_THREADS"] = str(usable_cores())
    # TORCH_PYTHON need not have this package.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    device, torch = find_device("cpu"), torch_program()
    print(f"{device.name}, {usable_cores()} cores, at most {peak():.0f} GFLOPS (peak.py)")
    print(f"{args.trials} trials; ms, medians of {args.rounds} turns", flush=True)
    everything = []
    for group in args.groups:
        ratios = []
        print(f"\n{group:<20}" + "".join(f"{head:>13}" for head in COLUMNS) + "    better library / tuned", flush=True)
        for label, call in SUITE[group].items():
            folder = args.output / group / label.replace("/", "-")
            folder.mkdir(parents=True, exist_ok=True)
            text = f"{Path(__file__).resolve()}:{call}"
            network, found, _ = ours(text, "WalkGP", args.seed, args.trials, folder)
            module = lowered(text, None, device, network.description["winograd"])
            onnx = to_onnx(text, None, folder / "model.onnx")
            built = {
                "tuned": build(module, of_network(network, found), folder / "model.so"),
                "default": build(module, of_network(network, first_records(network, device)), folder / "default.so"),
                **({"PyTorch": onnx} if torch else {}),
                "onnxruntime": onnx,
            }
            times, differences = timed_in_turns(text, built, args.rounds, folder, {"PyTorch": torch})
            if max(differences.values()) > 1e-4:
                raise SystemExit(f"error: {group} {label}: answers differ by {max(differences.values()):.1e}")
            ratios.append(min(times[library] for library in COLUMNS[2:] if library in times) / times["tuned"])
            ms = (f"{times[name]:.4f}" if name in times else "" for name in COLUMNS)
            print(f"{label:<20}" + "".join(f"{each:>13}" for each in ms) + f"{ratios[-1]:10.2f}", flush=True)
        everything += ratios
        print(f"{'geometric mean':<72}{geometric_mean(ratios):10.2f}, least {min(ratios):.2f}", flush=True)
    print(f"\n{'all, geometric mean':<72}{geometric_mean(everything):10.2f}, least {min(everything):.2f}")


if __name__ == "__main__":
    main()
