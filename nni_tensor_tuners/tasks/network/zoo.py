"""Networks of the papers, made by Relax alone with seeded random weights: their speed is that of trained ones.

Batch normalisation is folded into the convolutions, as it is for inference. Images are (batch, channels, height, width), as models
come; `lower` lays them out anew. A function has the argument ``batch``, and returns an IRModule whose "main" takes the input
alone, weights bound. TVM is imported inside functions only.
"""

import zlib

NETWORKS = {}  # what users call it -> function


def _network(name):
    def add(function):
        NETWORKS[name] = function
        return function

    return add


class _Builder:
    """Emits layers of one network; weights are drawn by the seed and the order in which layers are made."""

    def __init__(self, name, shape, dtype="float32"):
        import numpy as np
        from tvm import relax

        self._np, self._relax, self.op = np, relax, relax.op
        self._rng = np.random.default_rng(zlib.crc32(name.encode()))
        self._builder = relax.BlockBuilder()
        self.input = relax.Var("data", relax.TensorType(shape, dtype))

    def module(self, layers):
        """The IRModule of ``layers``, a function of the input."""
        with self._builder.function("main", [self.input]):
            with self._builder.dataflow():
                output = self._builder.emit_output(layers(self.input))
            self._builder.emit_func_output(output)
        return self._builder.finalize()

    def emit(self, call):
        return self._builder.emit(call)

    def shape(self, x):
        return [int(extent) for extent in x.ty.shape]

    def weight(self, *shape, fan_in=1):
        """Uniform, so scaled that activations keep their size through layers with a ReLU."""
        bound = (6 / fan_in) ** 0.5 if fan_in > 1 else 0.05
        return self._relax.const(self._rng.uniform(-bound, bound, shape).astype("float32"))

    def conv(self, x, channels, kernel, stride=1, padding=0, groups=1, activation=None, bias=True):
        batch_and_in = self.shape(x)[1]
        dims = len(self.shape(x)) - 2
        each = batch_and_in // groups
        weight = self.weight(channels, each, *[kernel] * dims, fan_in=each * kernel**dims)
        convolve = {2: self.op.nn.conv2d, 3: self.op.nn.conv3d}[dims]
        x = self.emit(convolve(x, weight, strides=[stride] * dims, padding=[padding] * (2 * dims), groups=groups))
        if bias:
            x = self.emit(self.op.add(x, self.weight(1, channels, *[1] * dims)))
        return self.activated(x, activation)

    def activated(self, x, activation):
        if activation is None:
            return x
        const = lambda value: self._relax.const(value, "float32")  # noqa: E731
        if activation == "relu6":
            return self.emit(self.op.minimum(self.emit(self.op.nn.relu(x)), const(6.0)))
        if activation == "gelu":
            erf = self.emit(self.op.erf(self.emit(self.op.multiply(x, const(0.5**0.5)))))
            return self.emit(self.op.multiply(self.emit(self.op.multiply(x, const(0.5))), self.emit(self.op.add(erf, const(1.0)))))
        named = {"relu": self.op.nn.relu, "tanh": self.op.tanh, "sigmoid": self.op.sigmoid}
        return self.emit(named[activation](x))

    def dense(self, x, units, activation=None):
        inner = self.shape(x)[-1]
        x = self.emit(self.op.matmul(x, self.weight(inner, units, fan_in=inner)))
        return self.activated(self.emit(self.op.add(x, self.weight(units))), activation)

    def flat(self, x):
        batch, *rest = self.shape(x)
        extent = 1
        for each in rest:
            extent *= each
        return self.emit(self.op.reshape(x, (batch, extent)))

    def averaged(self, x):
        """The mean over an image, (batch, channels)."""
        return self.emit(self.op.mean(x, axis=list(range(2, len(self.shape(x))))))

    def norm(self, x):
        """Layer normalisation over the last dimension."""
        extent = self.shape(x)[-1]
        return self.emit(self.op.nn.layer_norm(x, self.weight(extent), self.weight(extent), axes=[-1]))


@_network("alexnet")
def alexnet(batch=1):
    """AlexNet as torchvision has it: images of 224 x 224, 1,000 classes (OpEvo, figure 6)."""
    net = _Builder("alexnet", (batch, 3, 224, 224))

    def layers(x):
        def pooled(x):
            return net.emit(net.op.nn.max_pool2d(x, pool_size=[3, 3], strides=[2, 2]))

        x = pooled(net.conv(x, 64, 11, 4, 2, activation="relu"))
        x = pooled(net.conv(x, 192, 5, 1, 2, activation="relu"))
        for channels in (384, 256, 256):
            x = net.conv(x, channels, 3, 1, 1, activation="relu")
        x = net.flat(pooled(x))
        return net.dense(net.dense(net.dense(x, 4096, "relu"), 4096, "relu"), 1000)

    return net.module(layers)


def _residual(net, x, channels, stride):
    """Two convolutions beside a shortcut."""
    shortcut = x if stride == 1 and net.shape(x)[1] == channels else net.conv(x, channels, 1, stride)
    y = net.conv(net.conv(x, channels, 3, stride, 1, activation="relu"), channels, 3, 1, 1)
    return net.emit(net.op.nn.relu(net.emit(net.op.add(y, shortcut))))


def _resnet18(name, shape, max_pool, classes):
    """ResNet-18 over images of any number of dimensions."""
    net, dims = _Builder(name, shape), len(shape) - 2

    def layers(x):
        x = net.conv(x, 64, 7, 2, 3, activation="relu")
        x = net.emit(getattr(net.op.nn, max_pool)(x, pool_size=[3] * dims, strides=[2] * dims, padding=[1] * (2 * dims)))
        for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            x = _residual(net, _residual(net, x, channels, stride), channels, 1)
        return net.dense(net.averaged(x), classes)

    return net.module(layers)


@_network("resnet18")
def resnet18(batch=1):
    """ResNet-18: images of 224 x 224, 1,000 classes (AutoTVM, figure 11)."""
    return _resnet18("resnet18", (batch, 3, 224, 224), "max_pool2d", 1000)


@_network("resnet3d18")
def resnet3d18(batch=1):
    """3D-ResNet-18: videos of 16 frames of 112 x 112, 400 classes (Bansor, table II)."""
    return _resnet18("resnet3d18", (batch, 3, 16, 112, 112), "max_pool3d", 400)


@_network("mobilenet-v2")
def mobilenet_v2(batch=1):
    """MobileNet-V2: images of 224 x 224, 1,000 classes."""
    net = _Builder("mobilenet-v2", (batch, 3, 224, 224))

    def block(x, channels, stride, expansion):
        into = net.shape(x)[1]
        wide = into * expansion
        y = net.conv(x, wide, 1, activation="relu6") if expansion > 1 else x
        y = net.conv(y, wide, 3, stride, 1, groups=wide, activation="relu6")
        y = net.conv(y, channels, 1)
        return net.emit(net.op.add(y, x)) if stride == 1 and into == channels else y

    def layers(x):
        x = net.conv(x, 32, 3, 2, 1, activation="relu6")
        for expansion, channels, count, stride in (
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        ):
            for number in range(count):
                x = block(x, channels, stride if number == 0 else 1, expansion)
        return net.dense(net.averaged(net.conv(x, 1280, 1, activation="relu6")), 1000)

    return net.module(layers)


def _bert(name, depth, batch, length, width=768, heads=12):
    net = _Builder(name, (batch, length, width))
    op, emit = net.op, net.emit
    dim = width // heads

    def split(x, axes):
        return emit(op.permute_dims(emit(op.reshape(x, (batch, length, heads, dim))), axes))

    def attention(x):
        query, key, value = (net.dense(x, width) for _ in range(3))
        scores = emit(op.matmul(split(query, [0, 2, 1, 3]), split(key, [0, 2, 3, 1])))
        scores = emit(op.multiply(scores, net._relax.const(dim**-0.5, "float32")))
        mixed = emit(op.matmul(emit(op.nn.softmax(scores)), split(value, [0, 2, 1, 3])))
        joined = emit(op.reshape(emit(op.permute_dims(mixed, [0, 2, 1, 3])), (batch, length, width)))
        return net.dense(joined, width)

    def layers(x):
        for _ in range(depth):
            x = net.norm(emit(op.add(x, attention(x))))
            x = net.norm(emit(op.add(x, net.dense(net.dense(x, 4 * width, "gelu"), width))))
        return x

    return net.module(layers)


@_network("bert")
def bert(batch=1, length=128):
    """The encoder of BERT base, 12 layers, on embeddings (batch, length, 768) (Bansor, table II)."""
    return _bert("bert", 12, batch, length)


@_network("bert-4")
def bert_4(batch=1, length=128):
    """The first 4 layers of `bert`."""
    return _bert("bert", 4, batch, length)


@_network("dcgan")
def dcgan(batch=1):
    """DCGAN's generator: 100 numbers to an image of 64 x 64 (Bansor, table II)."""
    net = _Builder("dcgan", (batch, 100))

    def layers(x):
        x = net.emit(net.op.reshape(net.dense(x, 1024 * 16, "relu"), (batch, 1024, 4, 4)))
        for channels, activation in ((512, "relu"), (256, "relu"), (128, "relu"), (3, "tanh")):
            into = net.shape(x)[1]
            weight = net.weight(into, channels, 4, 4, fan_in=into * 4)
            x = net.emit(net.op.nn.conv2d_transpose(x, weight, strides=[2, 2], padding=[1, 1, 1, 1]))
            x = net.activated(net.emit(net.op.add(x, net.weight(1, channels, 1, 1))), activation)
        return x

    return net.module(layers)


@_network("lstm")
def lstm(batch=1, length=8, width=650):
    """Two LSTM layers of a language model over (batch, length, 650) (AutoTVM, figure 11)."""
    net = _Builder("lstm", (batch, length, width))
    op, emit = net.op, net.emit

    def layer(steps):
        weight, bias = net.weight(2 * width, 4 * width, fan_in=2 * width), net.weight(4 * width)
        state = memory = net._relax.const(net._np.zeros((batch, width), "float32"))
        outputs = []
        for x in steps:
            gates = emit(op.add(emit(op.matmul(emit(op.concat([x, state], axis=1)), weight)), bias))
            into, forget, new, out = (
                emit(op.strided_slice(gates, axes=[1], begin=[part * width], end=[(part + 1) * width])) for part in range(4)
            )
            kept = emit(op.multiply(emit(op.sigmoid(forget)), memory))
            memory = emit(op.add(kept, emit(op.multiply(emit(op.sigmoid(into)), emit(op.tanh(new))))))
            state = emit(op.multiply(emit(op.sigmoid(out)), emit(op.tanh(memory))))
            outputs.append(state)
        return outputs

    def layers(x):
        steps = [
            emit(op.reshape(emit(op.strided_slice(x, axes=[1], begin=[t], end=[t + 1])), (batch, width))) for t in range(length)
        ]
        return layer(layer(steps))[-1]

    return net.module(layers)


@_network("dqn")
def dqn(batch=1):
    """The deep Q-network that plays Atari: 4 frames of 84 x 84, 18 actions (AutoTVM, figure 11)."""
    net = _Builder("dqn", (batch, 4, 84, 84))

    def layers(x):
        for channels, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            x = net.conv(x, channels, kernel, stride, activation="relu")
        return net.dense(net.dense(net.flat(x), 512, "relu"), 18)

    return net.module(layers)
