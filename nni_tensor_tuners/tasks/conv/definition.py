"""Convolution over one, two or three spatial dimensions, grouped, dilated or transposed (OpEvo appendix B.3, equation 6)."""

from dataclasses import dataclass
from math import prod

from ..extents import check_extent, check_extents
from ..task import TemplateTask, shape_field
from . import cpu, cuda


@dataclass(frozen=True)
class Conv(TemplateTask):
    """A convolution of images X with kernels W, channels first, in float32; shapes and fields as PyTorch's.

    X has shape (batch, in_channels, *image) and Z (batch, out_channels, *output). W has shape
    (out_channels, in_channels / groups, *kernel); transposed (in_channels, out_channels / groups, *kernel).

    Attributes
    ----------
    batch, in_channels, out_channels
        Number of images and of their channels.
    image, kernel
        Spatial extents, one to three of them. A single integer for ``kernel`` and the following stands for all dimensions.
    stride, padding, dilation
        Per dimension. Zeros are added on both sides. Transposed, they are those of the convolution whose gradient this is.
    output_padding
        Positions added to the end of a transposed convolution's output, less than the stride.
    groups
        Input and output channels are cut into so many groups, each convolved with its own; as many as channels: depthwise.
    transposed
        Whether this is the gradient of the convolution with respect to its input ("deconvolution").
    """

    batch: int = shape_field("conv: number of images")
    in_channels: int = shape_field("channels of an image")
    image: tuple = shape_field("its extents: one to three")
    out_channels: int = shape_field("channels of the output")
    kernel: tuple = shape_field("extents of the kernel; one number stands for all, here and below")
    stride: tuple = shape_field("(default: 1)", 1)
    padding: tuple = shape_field("zeros added at each end (default: 0)", 0, least=0)
    dilation: tuple = shape_field("(default: 1)", 1)
    groups: int = shape_field("as many as channels: depthwise (default: 1)", 1)
    transposed: bool = shape_field("a transposed convolution", False)
    output_padding: tuple = shape_field("positions added to a transposed one's output (default: 0)", 0, least=0)

    buffers = ("X", "W", "Z")
    templates = {"cuda": cuda, "cpu": cpu}

    def __post_init__(self):
        image = self.image
        if not isinstance(image, (tuple, list)) or not 1 <= len(image) <= 3:
            raise ValueError(f"conv: image must be 1 to 3 integers, got {image!r}")
        dimensions = len(image)
        operator = f"conv{dimensions}d"
        for name in ("batch", "in_channels", "out_channels", "groups"):
            check_extent(operator, name, getattr(self, name))
        for name in ("image", "kernel", "stride", "padding", "dilation", "output_padding"):
            least = 0 if "padding" in name else 1
            object.__setattr__(self, name, check_extents(operator, name, getattr(self, name), dimensions, least))
        for name in ("in_channels", "out_channels"):
            if getattr(self, name) % self.groups:
                raise ValueError(f"{operator}: groups must divide {name}, got {self.groups} for {getattr(self, name)}")
        if not isinstance(self.transposed, bool):
            raise ValueError(f"{operator}: transposed must be true or false, got {self.transposed!r}")
        if any(more >= stride if self.transposed else more for more, stride in zip(self.output_padding, self.stride)):
            raise ValueError(f"{operator}: output_padding must be less than the stride, and is for transposed ones only")
        if min(self.output) < 1:
            raise ValueError(f"{operator}: kernel {self.kernel} is larger than the padded image {self.image}")

    @property
    def operator(self):
        """ "conv1d", "conv2d" or "conv3d"."""
        return f"conv{len(self.image)}d"

    @property
    def output(self):
        """Spatial extents of Z."""
        if self.transposed:
            return tuple(
                (extent - 1) * stride - 2 * padding + dilation * (kernel - 1) + more + 1
                for extent, stride, padding, dilation, kernel, more in zip(
                    self.image, self.stride, self.padding, self.dilation, self.kernel, self.output_padding
                )
            )
        return tuple(
            (extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for extent, stride, padding, dilation, kernel in zip(
                self.image, self.stride, self.padding, self.dilation, self.kernel
            )
        )

    @property
    def flop(self):
        """Floating-point operations of one run, a multiplication and an addition counted as two; padding counts as data."""
        positions = prod(self.image if self.transposed else self.output)
        return 2 * self.batch * self.in_channels * self.out_channels // self.groups * positions * prod(self.kernel)

    @property
    def shapes(self):
        """Shapes of X, W and Z."""
        channels = (self.out_channels, self.in_channels)
        first, second = channels[::-1] if self.transposed else channels
        return [
            (self.batch, self.in_channels, *self.image),
            (first, second // self.groups, *self.kernel),
            (self.batch, self.out_channels, *self.output),
        ]

    def inputs(self, seed=0):
        """X and W, uniform in [-1, 1), float32, the same for the same seed."""
        import numpy as np

        rng = np.random.default_rng(seed)
        return [rng.random(shape, dtype=np.float32) * 2 - 1 for shape in self.shapes[:2]]

    def reference(self, x, w, out=None):
        """Z by NumPy, float32, written to ``out`` where one is given: each image as one matrix multiplication per group."""
        import numpy as np

        if out is None:
            out = np.empty(self.shapes[2], np.float32)
        w = w.reshape(self.groups, w.shape[0] // self.groups, *w.shape[1:])
        if self.transposed:
            for image, result in zip(x, out):
                result[...] = self._scatter(image, w).reshape(result.shape)
            return out
        dimensions = len(self.image)
        spatial = tuple(range(1, 1 + dimensions))
        reach = tuple(dilation * (kernel - 1) + 1 for dilation, kernel in zip(self.dilation, self.kernel))
        every = tuple(slice(None, None, step) for step in (*self.stride, *self.dilation))
        for image, result in zip(x, out):
            padded = np.pad(image, [(0, 0), *((p, p) for p in self.padding)])
            windows = np.lib.stride_tricks.sliding_window_view(padded, reach, spatial)[(slice(None), *every)]
            # (channel, *output, *kernel) -> (group, channel and kernel, output)
            columns = np.moveaxis(windows, spatial, range(-dimensions, 0)).reshape(self.groups, -1, prod(self.output))
            result[...] = (w.reshape(*w.shape[:2], -1) @ columns).reshape(result.shape)
        return out

    def _scatter(self, image, w):
        """The transposed convolution of one image: every input position adds a copy of the kernel to the output."""
        import numpy as np

        full = [extent + 2 * padding for extent, padding in zip(self.output, self.padding)]
        total = np.zeros((self.groups, self.out_channels // self.groups, *full), np.float32)
        flat = image.reshape(*w.shape[:2], -1)
        for tap in np.ndindex(*self.kernel):
            window = tuple(
                slice(at * dilation, at * dilation + stride * (extent - 1) + 1, stride)
                for at, dilation, stride, extent in zip(tap, self.dilation, self.stride, self.image)
            )
            total[(..., *window)] += (w[(..., *tap)].swapaxes(1, 2) @ flat).reshape(*total.shape[:2], *self.image)
        return total[(..., *(slice(p, p + extent) for p, extent in zip(self.padding, self.output)))]

    @property
    def axes(self):
        """Names of the spatial dimensions, slowest first: "yx" of two."""
        return "zyx"[-len(self.image) :]

    def space(self):
        """The parameters of TVM's conv2d_direct: the output's extents in 4 parts, the reduced ones in 2, and unrolling."""
        tiles = {"f": self.out_channels // self.groups, **dict(zip(self.axes, self.output))}
        reduced = {"rc": self.in_channels // self.groups, **{f"r{axis}": e for axis, e in zip(self.axes, self.kernel)}}
        return {
            **{f"tile_{name}": {"_type": "factor", "_value": [extent, 4]} for name, extent in tiles.items()},
            **{f"tile_{name}": {"_type": "factor", "_value": [extent, 2]} for name, extent in reduced.items()},
            **({"tile_g": {"_type": "factor", "_value": [self.groups, 2]}} if self.groups > 1 else {}),
            "auto_unroll_max_step": {"_type": "discrete", "_value": [0, 512, 1500]},
            "unroll_explicit": {"_type": "choice", "_value": [0, 1]},
        }

    @property
    def pads(self):
        """Whether the program has a stage that pads X, a block named "pad"."""
        return self.transposed or any(self.padding)

    def prim_func(self):
        """The operator as a TVM PrimFunc with the buffers X, W, Z and the block Z to schedule.

        Z's loops are batch, group, channel of the group, the output's dimensions; then the reduced ones: input channel of the
        group and the kernel's dimensions.
        """
        from tvm import s_tir, te

        x, w = (te.placeholder(shape, name=name) for shape, name in zip(self.shapes, "XW"))
        into, out_of = self.in_channels // self.groups, self.out_channels // self.groups
        padded = self.padded(x) if self.pads else x
        channel, *taps = self.reduce_axes()
        strides = [1] * len(taps) if self.transposed else self.stride

        def product(image, group, feature, *place):
            read = [p * stride + r * dilation for p, stride, r, dilation in zip(place, strides, taps, self.dilation)]
            data = padded[(image, group * into + channel, *read)]
            return te.sum(data * self.weight(w, group, feature, channel, taps), axis=[channel, *taps])

        z = te.compute((self.batch, self.groups, out_of, *self.output), product, name="Z")
        # TE has no way to say that group and channel are one dimension of what is written.
        sch = s_tir.Schedule(te.create_prim_func([x, w, z]), error_render_level="fast")
        sch.transform_layout("Z", ("write", 0), lambda n, g, f, *place: (n, g * out_of + f, *place))
        return sch.mod["main"]

    def reduce_axes(self):
        """TE's reduced axes: input channel of a group, then the kernel's dimensions."""
        from tvm import te

        extents = (self.in_channels // self.groups, *self.kernel)
        return [te.reduce_axis((0, extent), name=f"r{i}") for i, extent in enumerate(extents)]

    def weight(self, w, group, feature, channel, taps):
        """The element of W by which an input channel of a group counts for one of its output channels (features)."""
        if self.transposed:
            back = (extent - 1 - tap for extent, tap in zip(self.kernel, taps))
            return w[(group * (self.in_channels // self.groups) + channel, feature, *back)]
        return w[(group * (self.out_channels // self.groups) + feature, channel, *taps)]

    def padded(self, x, least=None):
        """A TE stage "pad": X with zeros around it; transposed, also between its elements, so that a plain convolution is left.

        Parameters
        ----------
        x
            X as a TE tensor.
        least
            Spatial extents to reach at least, by more zeros at the end.
        """
        from tvm import te, tirx

        reach = [dilation * (kernel - 1) for dilation, kernel in zip(self.dilation, self.kernel)]
        if self.transposed:
            steps = self.stride
            before = [r - p for r, p in zip(reach, self.padding)]
            extents = [extent + r for extent, r in zip(self.output, reach)]
        else:
            steps = [1] * len(self.image)
            before = self.padding
            extents = [extent + 2 * p for extent, p in zip(self.image, self.padding)]
        extents = list(map(max, extents, least or extents))

        def element(image, channel, *place):
            offsets = [p - b for p, b in zip(place, before)]
            inside = [offset >= 0 for offset in offsets]
            inside += [offset < step * extent for offset, step, extent in zip(offsets, steps, self.image)]
            inside += [offset % step == 0 for offset, step in zip(offsets, steps) if step > 1]
            read = [offset // step for offset, step in zip(offsets, steps)]
            return tirx.if_then_else(tirx.all(*inside), x[(image, channel, *read)], tirx.const(0, "float32"))

        return te.compute((*self.shapes[0][:2], *extents), element, name="pad")
