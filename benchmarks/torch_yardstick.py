"""Time a workload in PyTorch, in float32 without TF32: cuBLAS and cuDNN on a GPU, its CPU libraries (MKL, oneDNN) on a CPU.

usage: torch_yardstick.py KIND WORKLOAD    KIND: cuda or cpu; WORKLOAD: JSON as `Task.to_dict` writes it, or of a tensor program
{"program": NAME, "shapes": [...], "dtypes": [...]}
Prints JSON of the fastest way: latency_ms (median of 15 repeats of about 20 ms each) and library. On a GPU the repeats are
CUDA graphs, so that Python's launches are not timed. Needs PyTorch and nothing else.
"""

import json
import statistics
import sys
import time

import torch
from torch.nn import functional

# Runs of the workload in a CUDA graph.
CAPTURED = 20


def ways(workload, device):
    """Name -> a function that runs the workload once on random inputs; convolutions in each layout that PyTorch is fast in."""

    def random(*shape):
        return torch.rand(shape, device=device) * 2 - 1

    if "program" in workload:
        return ways_of_program(workload, random)
    if workload["operator"] in ("matmul", "batch_matmul"):
        batch = [workload["b"]] if "b" in workload else []
        n, k, m, layout = (workload[name] for name in ("n", "k", "m", "layout"))
        x = random(*batch, k, n).mT if layout[0] == "T" else random(*batch, n, k)
        y = random(*batch, m, k).mT if layout[1] == "T" else random(*batch, k, m)
        out = torch.empty(*batch, n, m, device=device)
        return {"": lambda: torch.matmul(x, y, out=out)}
    x = random(workload["batch"], workload["in_channels"], *workload["image"])
    channels = [workload["out_channels"], workload["in_channels"]]
    first, second = channels[::-1] if workload["transposed"] else channels
    w = random(first, second // workload["groups"], *workload["kernel"])
    options = {name: workload[name] for name in ("stride", "padding", "dilation", "groups")}
    dimensions = len(workload["image"])
    if workload["transposed"]:
        options["output_padding"] = workload["output_padding"]
    function = getattr(functional, f"conv{'_transpose' if workload['transposed'] else ''}{dimensions}d")
    return in_layouts(lambda x, w: function(x, w, **options), x, w)


def in_layouts(run, x, w):
    """A convolution of ``x`` by ``w`` with channels first and, but for one dimension, last."""
    found = {", channels first": lambda: run(x, w)}
    if x.ndim > 3:
        last = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
        x_last, w_last = x.to(memory_format=last), w.to(memory_format=last)
        found[", channels last"] = lambda: run(x_last, w_last)
    return found


def ways_of_program(workload, random):
    """As `ways`, of a program of `tasks.program.workloads`; none where this does not know it."""
    name, (*shapes, _) = workload["program"], workload["shapes"]
    inputs = [random(*shape).to(getattr(torch, dtype)) for shape, dtype in zip(shapes, workload["dtypes"])]
    if name == "conv_bias_relu":
        x, w, bias = inputs
        return in_layouts(
            lambda x, w: functional.relu(functional.conv2d(x, w, bias, padding=w.shape[-1] // 2)),
            x.permute(0, 3, 1, 2).contiguous(),
            w.permute(3, 2, 0, 1).contiguous(),
        )
    if name == "dep":
        x, w = inputs
        return in_layouts(
            lambda x, w: functional.conv2d(x, w, padding=w.shape[-1] // 2, groups=len(w)),
            x.permute(0, 3, 1, 2).contiguous(),
            w.permute(2, 0, 1)[:, None].contiguous(),
        )
    known = {
        "matmul": torch.matmul,
        "softmax": lambda x: torch.softmax(x, -1),
        "layer_norm": lambda x, gamma, beta: functional.layer_norm(x, x.shape[-1:], gamma, beta),
        "tbs": lambda query, key: torch.softmax(query.permute(0, 2, 1, 3) @ key.permute(0, 2, 3, 1), -1),
    }
    return {"": lambda: known[name](*inputs)} if name in known else {}


def captured(run):
    """A function that runs a workload CAPTURED times on a GPU, in one launch."""
    run()  # the libraries choose their algorithms before
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CAPTURED):
            run()
    return graph.replay


def main():
    kind, workload = sys.argv[1], json.loads(sys.argv[2])
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True  # cuDNN chooses its fastest algorithm, as its users have it
    wait = torch.cuda.synchronize if kind == "cuda" else lambda: None

    def seconds(run, number):
        wait()
        start = time.perf_counter()
        for _ in range(number):
            run()
        wait()
        return (time.perf_counter() - start) / number

    library = f"PyTorch {torch.__version__}" + (f", cuDNN {torch.backends.cudnn.version()}" if kind == "cuda" else "")
    latencies = {}
    for name, run in ways(workload, kind).items():
        runs = 1
        if kind == "cuda":
            run, runs = captured(run), CAPTURED
        seconds(run, 1)
        number = max(1, int(0.02 / max(1e-6, seconds(run, 1))))
        seconds(run, 10 * number)  # longer than idle cores take to come up to speed
        latencies[library + name] = statistics.median(seconds(run, number) for _ in range(15)) * 1e3 / runs
    if not latencies:
        sys.exit("it does not know this program")
    fastest = min(latencies, key=latencies.get)
    print(json.dumps({"latency_ms": latencies[fastest], "library": fastest}))


if __name__ == "__main__":
    main()
