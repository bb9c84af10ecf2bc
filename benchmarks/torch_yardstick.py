"""Time a workload in PyTorch, in float32 without TF32: cuBLAS and cuDNN on a GPU, its CPU libraries (MKL, oneDNN) on a CPU.

usage: torch_yardstick.py KIND WORKLOAD    KIND: cuda or cpu; WORKLOAD: JSON as `workloads.to_dict` writes it
Prints JSON: latency_ms (median of 15 repeats of at least 20 ms each) and library. Needs PyTorch and nothing else.
"""

import json
import statistics
import sys
import time

import torch


def call(workload, device):
    """A function that runs the workload once on random inputs."""

    def random(*shape):
        return torch.rand(shape, device=device) * 2 - 1

    if workload["operator"] in ("matmul", "batch_matmul"):
        batch = [workload["b"]] if "b" in workload else []
        n, k, m, layout = (workload[name] for name in ("n", "k", "m", "layout"))
        x = random(*batch, k, n).mT if layout[0] == "T" else random(*batch, n, k)
        y = random(*batch, m, k).mT if layout[1] == "T" else random(*batch, k, m)
        out = torch.empty(*batch, n, m, device=device)
        return lambda: torch.matmul(x, y, out=out)
    x = random(workload["batch"], workload["in_channels"], *workload["image"])
    channels = [workload["out_channels"], workload["in_channels"]]
    first, second = channels[::-1] if workload["transposed"] else channels
    w = random(first, second // workload["groups"], *workload["kernel"])
    options = {name: workload[name] for name in ("stride", "padding", "dilation", "groups")}
    name = f"conv{'_transpose' if workload['transposed'] else ''}{len(workload['image'])}d"
    if workload["transposed"]:
        options["output_padding"] = workload["output_padding"]
    function = getattr(torch.nn.functional, name)
    return lambda: function(x, w, **options)


def main():
    kind, workload = sys.argv[1], json.loads(sys.argv[2])
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True  # cuDNN chooses its fastest algorithm, as its users have it
    wait = torch.cuda.synchronize if kind == "cuda" else lambda: None
    run = call(workload, kind)

    def seconds(number):
        wait()
        start = time.perf_counter()
        for _ in range(number):
            run()
        wait()
        return (time.perf_counter() - start) / number

    seconds(1)
    number = max(1, int(0.02 / max(1e-6, seconds(1))))
    seconds(number)
    library = f"PyTorch {torch.__version__}" + (f", cuDNN {torch.backends.cudnn.version()}" if kind == "cuda" else "")
    print(json.dumps({"latency_ms": statistics.median(seconds(number) for _ in range(15)) * 1e3, "library": library}))


if __name__ == "__main__":
    main()
