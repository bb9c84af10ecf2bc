"""How long a network takes in PyTorch on a GPU: cuDNN and cuBLAS, float32 without TF32, random weights.

usage: torch_network.py NETWORK [BATCH]    NETWORK: resnet18, mobilenet-v2 or alexnet

Prints the median latency in ms of images channels first and last, launched by Python and as CUDA graphs. Needs torchvision.
"""

import sys
from statistics import median

import torch
import torchvision

from nni_tensor_tuners.networks.runner import times

SECONDS = 1.0


def main(network, batch="1"):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True  # the fastest algorithm of each convolution
    shown = []
    for layout in (torch.contiguous_format, torch.channels_last):
        model = getattr(torchvision.models, network.replace("-", "_"))(weights=None).eval().cuda().to(memory_format=layout)
        images = torch.rand(int(batch), 3, 224, 224, device="cuda").to(memory_format=layout)
        name = "channels last" if layout is torch.channels_last else "channels first"
        with torch.inference_mode():
            shown.append(f"{name} {timed(lambda: model(images)):.3f} ms")
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                model(images)
            shown.append(f"as a CUDA graph {timed(graph.replay):.3f} ms")
    print(f"{network}: PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}: {', '.join(shown)}")


def timed(run):
    """The median latency of a run in ms, after warming up for as long as it is timed."""

    def call():
        run()
        torch.cuda.synchronize()

    times(call, SECONDS / 2)
    return median(times(call, SECONDS / 2)) * 1e3


if __name__ == "__main__":
    main(*sys.argv[1:])
