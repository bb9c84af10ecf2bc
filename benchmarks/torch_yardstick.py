"""Time a workload in PyTorch, in float32 without TF32: cuBLAS and cuDNN on a GPU, its CPU libraries (MKL, oneDNN) on a CPU.

usage: torch_yardstick.py KIND WORKLOAD    KIND: cuda or cpu; WORKLOAD: JSON as `Task.to_dict` writes it
Prints JSON of the fastest way: latency_ms (median of 15 repeats of about 20 ms each) and library. Needs PyTorch and nothing
else.
"""

import json
import statistics
import sys
import time

import torch


def ways(workload, device):
    """Name -> a function that runs the workload once on random inputs; convolutions in each layout that PyTorch is fast in."""

    def random(*shape):
        return torch.rand(shape, device=device) * 2 - 1

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
    function = getattr(torch.nn.functional, f"conv{'_transpose' if workload['transposed'] else ''}{dimensions}d")
    found = {", channels first": lambda: function(x, w, **options)}
    if dimensions > 1:
        last = torch.channels_last if dimensions == 2 else torch.channels_last_3d
        x_last, w_last = x.to(memory_format=last), w.to(memory_format=last)
        found[", channels last"] = lambda: function(x_last, w_last, **options)
    return found


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
        seconds(run, 1)
        number = max(1, int(0.02 / max(1e-6, seconds(run, 1))))
        seconds(run, 10 * number)  # longer than idle cores take to come up to speed
        latencies[library + name] = statistics.median(seconds(run, number) for _ in range(15)) * 1e3
    fastest = min(latencies, key=latencies.get)
    print(json.dumps({"latency_ms": latencies[fastest], "library": fastest}))


if __name__ == "__main__":
    main()
