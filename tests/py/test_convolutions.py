"""Convolutions and pools of odd shapes, compiled, against sums over taps written out here. Values are small whole numbers: whatever the order of a sum, it is exact."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tenon_api import Model

RANDOM = np.random.default_rng(7)


def whole(*shape):
    return RANDOM.integers(-3, 4, shape).astype(np.float32)


def taps(x, kernel, strides, dilations, pads, fill):
    """What each tap sees: [kernel[0], kernel[1]] + [n, c, rows, columns]."""
    top, left, bottom, right = pads
    x = np.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)], constant_values=fill)
    rows, columns = ((x.shape[2 + i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(2))
    return np.array([[x[:, :, i * dilations[0]:, j * dilations[1]:][:, :, ::strides[0], ::strides[1]][:, :, :rows, :columns] for j in range(kernel[1])]
                     for i in range(kernel[0])])


def convolution(x, w, groups, strides, dilations, pads):
    seen = taps(x, w.shape[2:], strides, dilations, pads, 0)
    i, j, n, c, rows, columns = seen.shape
    seen = seen.reshape(i, j, n, groups, c // groups, rows, columns)
    y = np.einsum("ijngcrs,gocij->ngors", seen, w.reshape(groups, -1, *w.shape[1:]))
    return y.reshape(n, -1, rows, columns)


def run(folder, nodes, x, constants, shape=None):
    ins = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape or x.shape)]
    outs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "graph", ins, outs, [numpy_helper.from_array(a, n) for n, a in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "m.onnx")
    y, = Model(folder / "m.onnx")(x)
    return y


CASES = {
    # channels, features, groups, kernel, strides, dilations, pads
    "one channel": (1, 1, 1, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "three to seven": (3, 7, 1, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
    "seven to 33": (7, 33, 1, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    "33 to 32": (33, 32, 1, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "33 to 48": (33, 48, 1, (3, 2), (1, 2), (1, 1), (0, 1, 2, 0)),
    "to 97": (5, 97, 1, (1, 3), (1, 1), (2, 2), (0, 2, 0, 2)),
    "to 200, pixels apart": (4, 200, 1, (1, 1), (3, 2), (1, 1), (0, 0, 0, 0)),
    "dilated": (7, 16, 1, (3, 3), (1, 1), (2, 3), (2, 3, 2, 3)),
    "groups": (6, 33, 3, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "groups of 34": (68, 68, 2, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    "depthwise 7": (7, 7, 7, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "depthwise 33": (33, 33, 33, (5, 3), (2, 1), (1, 1), (2, 1, 2, 1)),
    "depthwise 64": (64, 64, 64, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "depthwise 144": (144, 144, 144, (3, 3), (2, 2), (1, 1), (0, 0, 1, 1)),
    "depthwise, dilated": (48, 48, 48, (3, 3), (1, 1), (3, 2), (3, 2, 3, 2)),
    "depthwise, wide pads": (16, 16, 16, (3, 3), (1, 1), (1, 1), (4, 0, 5, 7)),
    "depthwise, unpadded": (80, 80, 80, (3, 3), (1, 1), (1, 1), (0, 0, 0, 0)),
    "depthwise, more features": (8, 16, 8, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
}


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_convolution(case, symbolic, tmp_path):
    channels, features, groups, kernel, strides, dilations, pads = case
    w, bias = whole(features, channels // groups, *kernel), whole(features)
    node = helper.make_node("Conv", ["x", "w", "b"], ["s"], group=groups, strides=strides, dilations=dilations, pads=pads, kernel_shape=kernel)
    for n, rows, columns in ((1, 9, 11), (2, 13, 7)):
        x = whole(n, channels, rows, columns)
        expected = np.maximum(convolution(x, w, groups, strides, dilations, pads) + bias[:, None, None], 0)
        y = run(tmp_path, [node, helper.make_node("Relu", ["s"], ["y"])], x, {"w": w, "b": bias}, ["n", channels, "h", "w"] if symbolic else None)
        np.testing.assert_array_equal(y, expected)


def test_a_chain_keeps_features_last(tmp_path):
    """Depthwise between two that are not, the channels shuffled: what ShuffleNet's units do."""
    w1, w2, w3 = whole(24, 3, 1, 1), whole(24, 1, 3, 3), whole(24, 12, 1, 1)
    x = whole(1, 6, 9, 10)
    nodes = [helper.make_node("Conv", ["x", "w1"], ["a"], group=2), helper.make_node("Reshape", ["a", "apart"], ["r"]),
             helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 1, 3, 4]), helper.make_node("Reshape", ["t", "joined"], ["s"]),
             helper.make_node("Conv", ["s", "w2"], ["d"], group=24, pads=[1, 1, 1, 1]), helper.make_node("Conv", ["d", "w3"], ["y"], group=2)]
    constants = {"w1": w1, "w2": w2, "w3": w3, "apart": np.array([1, 2, 12, 9, 10]), "joined": np.array([1, 24, 9, 10])}
    a = convolution(x, w1, 2, (1, 1), (1, 1), (0, 0, 0, 0))
    s = a.reshape(1, 2, 12, 9, 10).transpose(0, 2, 1, 3, 4).reshape(1, 24, 9, 10)
    d = convolution(s, w2, 24, (1, 1), (1, 1), (1, 1, 1, 1))
    np.testing.assert_array_equal(run(tmp_path, nodes, x, constants), convolution(d, w3, 2, (1, 1), (1, 1), (0, 0, 0, 0)))


def test_few_features_stay_first(tmp_path):
    """Depthwise convolutions of three features, a pool, then one over features."""
    w1, w2, w3 = whole(3, 1, 3, 3), whole(3, 1, 2, 2), whole(8, 3, 3, 3)
    x = whole(2, 3, 21, 18)
    nodes = [helper.make_node("Conv", ["x", "w1"], ["a"], group=3, pads=[1, 1, 1, 1]), helper.make_node("Relu", ["a"], ["r"]),
             helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 1]), helper.make_node("Conv", ["p", "w2"], ["d"], group=3, dilations=[2, 1]),
             helper.make_node("Conv", ["d", "w3"], ["y"])]
    r = np.maximum(convolution(x, w1, 3, (1, 1), (1, 1), (1, 1, 1, 1)), 0)
    p = taps(r, (2, 2), (2, 1), (1, 1), (0, 0, 0, 0), 0).max(axis=(0, 1))
    d = convolution(p, w2, 3, (1, 1), (2, 1), (0, 0, 0, 0))
    np.testing.assert_array_equal(run(tmp_path, nodes, x, {"w1": w1, "w2": w2, "w3": w3}), convolution(d, w3, 1, (1, 1), (1, 1), (0, 0, 0, 0)))


POOLS = {
    "3x3": (64, (3, 3), (2, 2), (1, 1, 1, 1)),
    "2x2": (33, (2, 2), (2, 2), (0, 0, 0, 0)),
    "7 features": (7, (3, 2), (1, 1), (1, 0, 1, 1)),
    "seven high": (80, (7, 7), (1, 1), (3, 3, 3, 3)),
}


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("case", POOLS.values(), ids=POOLS.keys())
def test_pool(op, case, symbolic, tmp_path):
    channels, kernel, strides, pads = case
    x, w = whole(1, channels, 12, 9), whole(channels, channels, 1, 1)  # a convolution before it: features are last
    node = helper.make_node(op, ["c"], ["y"], kernel_shape=kernel, strides=strides, pads=pads)
    c = convolution(x, w, 1, (1, 1), (1, 1), (0, 0, 0, 0))
    if op == "MaxPool":
        expected = taps(c, kernel, strides, (1, 1), pads, -np.inf).max(axis=(0, 1))
    else:
        expected = taps(c, kernel, strides, (1, 1), pads, 0).sum(axis=(0, 1)) / taps(np.ones_like(c), kernel, strides, (1, 1), pads, 0).sum(axis=(0, 1))
    y = run(tmp_path, [helper.make_node("Conv", ["x", "w"], ["c"]), node], x, {"w": w}, ["n", channels, "h", "w"] if symbolic else None)
    np.testing.assert_allclose(y, expected, rtol=0 if op == "MaxPool" else 1e-6)
