"""Blocks of networks as ONNX models, written out operator by operator as exporters write them. A shape may name its sizes: ["b", "s", 768]."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Block:
    """Operators one after the other; weights are initialisers. Values are known by name."""

    def __init__(self, seed=0):
        self.nodes, self.constants, self.random = [], {}, np.random.default_rng(seed)

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def weight(self, *shape):
        return self.constant((self.random.standard_normal(shape) * 0.1).astype(np.float32))

    def number(self, value):
        return self.constant(np.float32(value))

    def op(self, kind, *inputs, name=None, **attributes):
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=name or f"/{kind}_{len(self.nodes)}", **attributes))
        return out

    def save(self, path, shape, result, result_shape=None, result_kind=TensorProto.FLOAT):
        self.nodes.append(helper.make_node("Identity", [result], ["y"], name="/Identity"))
        values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), helper.make_tensor_value_info("y", result_kind, result_shape or shape)]
        graph = helper.make_graph(self.nodes, "block", values[:1], values[1:], [numpy_helper.from_array(a, n) for n, a in self.constants.items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
        return path


def padded_attention(b, x, words, size, kind):
    """Heads of x on themselves in type `kind`, under a mask that is added and has the lowest number for the first 200 words, and for all of row 7."""
    hidden = np.zeros((words, words), np.float32)
    hidden[:, :200] = hidden[7] = -3.3895e38 if kind == TensorProto.BFLOAT16 else np.finfo(np.float32).min
    x, mask, scale = (b.op("Cast", v, to=kind) for v in (x, b.constant(hidden), b.number(size ** -0.5)))
    scores = b.op("Add", b.op("Mul", b.op("MatMul", x, b.op("Transpose", x, perm=[0, 2, 1])), scale), mask)
    return b.op("MatMul", b.op("Softmax", scores, axis=-1), x)


def linear(b, x, inputs, outputs, bias=True):
    y = b.op("MatMul", x, b.weight(inputs, outputs))
    return b.op("Add", y, b.weight(outputs)) if bias else y


def dequantised_linear(b, x, inputs, outputs, block=0, zero=False, turned=False):
    """A weight of 8 bits times scales: of columns, or of blocks of so many inputs; less a zero point; perhaps stored with its outputs first."""
    shape = [outputs, inputs] if turned else [inputs, outputs]
    axis = 1 if turned else 0
    few = [n if i != axis else 1 for i, n in enumerate(shape)]
    if block:
        shape[axis : axis + 1] = [inputs // block, block]
        few[axis : axis + 1] = [inputs // block, 1]
    w = b.op("Cast", b.constant(b.random.integers(-100, 100, shape).astype(np.int8)), to=TensorProto.INT32 if zero else TensorProto.FLOAT)
    if zero:
        w = b.op("Cast", b.op("Sub", w, b.constant(b.random.integers(-9, 9, few).astype(np.int32))), to=TensorProto.FLOAT)
    w = b.op("Mul", w, b.weight(*few))
    if block:
        w = b.op("Reshape", w, b.constant(np.array([outputs, inputs] if turned else [inputs, outputs], np.int64)))
    return b.op("MatMul", x, b.op("Transpose", w, perm=[1, 0]) if turned else w)


def layer_norm(b, x, width):
    mean = b.op("ReduceMean", x, axes=[-1], keepdims=1)
    centred = b.op("Sub", x, mean)
    variance = b.op("ReduceMean", b.op("Pow", centred, b.number(2)), axes=[-1], keepdims=1)
    y = b.op("Div", centred, b.op("Sqrt", b.op("Add", variance, b.number(1e-5))))
    return b.op("Add", b.op("Mul", y, b.weight(width)), b.weight(width))


def layer_norm_operator(b, x, width):
    return b.op("LayerNormalization", x, b.weight(width), b.weight(width), axis=-1)


def channels(b, width):
    return b.constant((b.random.standard_normal((width, 1, 1)) * 0.1).astype(np.float32))


def group_norm(b, x, width, groups, space):
    """Groups of channels as rows, then back to channels with their own scale and bias. space: sizes of the image."""
    rows = b.op("Reshape", x, b.constant(np.array([0, groups, -1], np.int64)))
    mean = b.op("ReduceMean", rows, axes=[-1], keepdims=1)
    centred = b.op("Sub", rows, mean)
    variance = b.op("ReduceMean", b.op("Mul", centred, centred), axes=[-1], keepdims=1)
    y = b.op("Div", centred, b.op("Sqrt", b.op("Add", variance, b.number(1e-5))))
    y = b.op("Reshape", y, b.constant(np.array([0, width, *space], np.int64)))
    return b.op("Add", b.op("Mul", y, channels(b, width)), channels(b, width))


def exported_group_norm(b, x, width, groups):
    """As PyTorch exports it to ONNX."""
    rows = b.op("Reshape", x, b.constant(np.array([0, groups, -1], np.int64)))
    ones, zeros = b.constant(np.ones(groups, np.float32)), b.constant(np.zeros(groups, np.float32))
    y = b.op("Reshape", b.op("InstanceNormalization", rows, ones, zeros, epsilon=1e-5), b.op("Shape", x))
    return b.op("Add", b.op("Mul", y, channels(b, width)), channels(b, width))


def instance_norm(b, x, width, space):
    """Images of all channels as rows of one batch."""
    rows = b.op("Reshape", x, b.constant(np.array([1, -1, *space], np.int64)))
    centred = b.op("Sub", rows, b.op("ReduceMean", rows, axes=[2, 3], keepdims=1))
    variance = b.op("ReduceMean", b.op("Mul", centred, centred), axes=[2, 3], keepdims=1)
    y = b.op("Div", centred, b.op("Sqrt", b.op("Add", variance, b.number(1e-5))))
    y = b.op("Reshape", y, b.constant(np.array([-1, width, *space], np.int64)))
    return b.op("Add", b.op("Mul", y, channels(b, width)), channels(b, width))


def gelu(b, x):
    e = b.op("Erf", b.op("Div", x, b.number(2**0.5)))
    return b.op("Mul", b.op("Mul", x, b.op("Add", e, b.number(1))), b.number(0.5))


def gelu_mlp(b, x, width, hidden):
    return linear(b, gelu(b, linear(b, x, width, hidden)), hidden, width)


def swiglu_mlp(b, x, width, hidden):
    gate, up = (linear(b, x, width, hidden, bias=False) for _ in range(2))
    return linear(b, b.op("Mul", b.op("Mul", gate, b.op("Sigmoid", gate)), up), hidden, width, bias=False)


def attention_block(b, x, width, heads):
    """x + attention(layer norm(x)), with three products for queries, keys and values."""
    normed = layer_norm(b, x, width)
    split = b.constant(np.array([0, -1, heads, width // heads], np.int64))
    q, k, v = (b.op("Reshape", linear(b, normed, width, width), split) for _ in range(3))
    q, k, v = (b.op("Transpose", t, perm=p) for t, p in ((q, [0, 2, 1, 3]), (k, [0, 2, 3, 1]), (v, [0, 2, 1, 3])))
    scores = b.op("Div", b.op("MatMul", q, k), b.number((width // heads) ** 0.5))
    mixed = b.op("Transpose", b.op("MatMul", b.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    mixed = b.op("Reshape", mixed, b.constant(np.array([0, -1, width], np.int64)))
    return b.op("Add", x, linear(b, mixed, width, width))


def convolution(b, x, inputs, outputs, size, stride=1, relu=True):
    """Convolution, batch norm, and perhaps relu."""
    y = b.op("Conv", x, b.weight(outputs, inputs, size, size), kernel_shape=[size, size], pads=[size // 2] * 4, strides=[stride, stride])
    y = b.op("BatchNormalization", y, *(b.weight(outputs) for _ in range(3)), b.constant(np.full(outputs, 0.7, np.float32)))
    return b.op("Relu", y) if relu else y


def bottleneck(b, x, inputs, middle):
    y = convolution(b, convolution(b, x, inputs, middle, 1), middle, middle, 3)
    return b.op("Relu", b.op("Add", convolution(b, y, middle, inputs, 1, relu=False), x))
