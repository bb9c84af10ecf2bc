"""Convolution over one, two or three spatial dimensions."""

from .definition import Conv

OPERATORS = {"conv1d": Conv, "conv2d": Conv, "conv3d": Conv}


def _resnet18(image, in_channels, out_channels, kernel, stride):
    """A convolution of ResNet-18 on one image; padding keeps the image's size at stride 1."""
    return Conv(1, in_channels, (image, image), out_channels, (kernel, kernel), stride, kernel // 2)


WORKLOADS = {
    # From AlexNet: OpEvo appendix B.3.
    "c1": Conv(512, 3, (227, 227), 64, (11, 11), 4, 0),
    "c2": Conv(512, 64, (27, 27), 192, (5, 5), 1, 2),
    # ResNet-18 on one image, as the network has them: table 1 of the AutoTVM paper. Table II of the NoSE paper lists the same
    # twelve, but prints padding 1 for the four with 1 x 1 kernels (C3, C5, C8, C11), which have 0 in the network and here. The
    # numbers of configurations that it prints are those of as many output channels as input channels, wherever the two differ.
    "resnet18-c1": _resnet18(224, 3, 64, 7, 2),
    "resnet18-c2": _resnet18(56, 64, 64, 3, 1),
    "resnet18-c3": _resnet18(56, 64, 64, 1, 1),
    "resnet18-c4": _resnet18(56, 64, 128, 3, 2),
    "resnet18-c5": _resnet18(56, 64, 128, 1, 2),
    "resnet18-c6": _resnet18(28, 128, 128, 3, 1),
    "resnet18-c7": _resnet18(28, 128, 256, 3, 2),
    "resnet18-c8": _resnet18(28, 128, 256, 1, 2),
    "resnet18-c9": _resnet18(14, 256, 256, 3, 1),
    "resnet18-c10": _resnet18(14, 256, 512, 3, 2),
    "resnet18-c11": _resnet18(14, 256, 512, 1, 2),
    "resnet18-c12": _resnet18(7, 512, 512, 3, 1),
}

__all__ = ["OPERATORS", "WORKLOADS", "Conv"]
