"""ONNX networks at their edges, compiled: nothing to compute on, sums that leave f16, steps that overflow, loops that never run."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tenon_api import STATUS, Error, Model, Tensor, to_tensor

F16, F32, I64 = TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.INT64


def run(folder, nodes, arrays, outputs, constants=()):
    """arrays: {name: array}, static shapes; outputs: {name: element type}"""
    ins = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in arrays.items()]
    outs = [helper.make_tensor_value_info(n, kind, None) for n, kind in outputs.items()]
    graph = helper.make_graph(nodes, "graph", ins, outs, [numpy_helper.from_array(a, n) for n, a in dict(constants).items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "m.onnx")
    return Model(folder / "m.onnx")(*arrays.values())


@pytest.mark.parametrize("op,attributes", [("ReduceMean", {"axes": [2, 3]}), ("GlobalAveragePool", {}), ("AveragePool", {"kernel_shape": [300, 301]})])
def test_means_of_f16_are_not_sums_of_f16(op, attributes, tmp_path):
    x = np.full((1, 2, 300, 301), 10, np.float16)  # the sum and the count are beyond 65504
    y, = run(tmp_path, [helper.make_node(op, ["x"], ["y"], **attributes)], {"x": x}, {"y": F16})
    assert y.shape == (1, 2, 1, 1) and (y == 10).all()


def test_padding_is_not_counted_in_f16(tmp_path):
    x = np.full((1, 1, 60, 60), 30, np.float16)
    y, = run(tmp_path, [helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[50, 50], pads=[3, 3, 3, 3])], {"x": x}, {"y": F16})
    assert y.shape == (1, 1, 17, 17) and (y == 30).all()


def test_norm_of_f16(tmp_path):
    x = np.array([[300, 400]], np.float16)
    y, = run(tmp_path, [helper.make_node("ReduceL2", ["x"], ["y"], axes=[1], keepdims=0)], {"x": x}, {"y": F16})
    assert y.tolist() == [500]


LEAST, MOST = -2**63, 2**63 - 1


@pytest.mark.parametrize("start,end,step", [(-1, LEAST, LEAST), (1, MOST, MOST), (-1, LEAST, -MOST), (0, 3, 2), (-1, LEAST, -1), (0, 0, MOST), (2, 0, -2)])
def test_steps_known_at_run_time(start, end, step, tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    names = {"start": start, "end": end, "step": step}
    node = helper.make_node("Slice", ["x", "start", "end", "axis", "step"], ["y"])
    y, = run(tmp_path, [node], {"x": x} | {n: np.array([v], np.int64) for n, v in names.items()}, {"y": F32}, {"axis": np.array([0], np.int64)})
    np.testing.assert_array_equal(y, x[start:None if end == LEAST else end:step])


def test_a_step_of_zero_is_refused(tmp_path):
    arrays = {"x": np.zeros((3, 4), np.float32)} | {n: np.array([v], np.int64) for n, v in (("start", 0), ("end", 3), ("step", 0))}
    with pytest.raises(Error) as error:
        run(tmp_path, [helper.make_node("Slice", ["x", "start", "end", "axis", "step"], ["y"])], arrays, {"y": F32}, {"axis": np.array([0], np.int64)})
    assert error.value.status == "invalid"


def test_nothing_is_gathered_from_nothing(tmp_path):
    node = helper.make_node("Gather", ["x", "i"], ["y"], axis=1)
    x = np.zeros((2, 0, 3), np.float32)
    y, = run(tmp_path, [node], {"x": x, "i": np.zeros((0, 5), np.int64)}, {"y": F32})
    assert y.shape == (2, 0, 5, 3)
    with pytest.raises(Error, match="outside dimension 1 of size 0"):
        run(tmp_path, [node], {"x": x, "i": np.zeros((1,), np.int64)}, {"y": F32})


@pytest.mark.parametrize("trips,go,ran", [(0, True, 0), (3, False, 0), (-1, True, 0), (2, True, 2), (40, True, 40)])
@pytest.mark.parametrize("constant", [False, True])
def test_scan_outputs_of_loops_that_may_not_run(trips, go, ran, constant, tmp_path):
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["more"]), helper.make_node("Add", ["v", "one"], ["next"]), helper.make_node("Identity", ["next"], ["row"])], "body",
        [value("i", I64, []), value("c", TensorProto.BOOL, []), value("v", F32, [2])], [value("more", TensorProto.BOOL, []), value("next", F32, [2]), value("row", F32, [2])])
    control = {"m": np.array(trips, np.int64), "go": np.array(go)}
    x = {"x": np.array([1, 2], np.float32)}
    constants = {"one": np.ones(2, np.float32)} | (control if constant else {})
    last, rows = run(tmp_path, [helper.make_node("Loop", ["m", "go", "x"], ["last", "rows"], body=body)], x if constant else x | control, {"last": F32, "rows": F32}, constants)
    np.testing.assert_array_equal(last, x["x"] + ran)
    np.testing.assert_array_equal(rows, x["x"] + np.arange(1, ran + 1, dtype=np.float32).reshape(ran, 1))


def test_an_empty_output_tells_sizes_that_the_run_finds(tmp_path):
    nodes = [helper.make_node("NonZero", ["x"], ["all"]), helper.make_node("Slice", ["all", "zero", "zero"], ["y"])]
    y, = run(tmp_path, nodes, {"x": np.array([3, 0, 1, 2, 0], np.float32)}, {"y": I64}, {"zero": np.array([0], np.int64)})
    assert y.shape == (0, 3)


@pytest.mark.parametrize("attributes,word", [({"kernel_shape": [2**31, 1]}, "kernel_shape"), ({"kernel_shape": [2, 2], "strides": [2**62, 1]}, "strides")])
def test_windows_beyond_31_bits_are_refused_by_name(attributes, word, tmp_path):
    with pytest.raises(Error, match=f"`{word}` must be at least 1 and below 2\\^31"):
        run(tmp_path, [helper.make_node("MaxPool", ["x"], ["y"], **attributes)], {"x": np.zeros((1, 1, 5, 5), np.float32)}, {"y": F32})


@pytest.mark.parametrize("largest", [0, 1])
def test_nan_is_the_greatest_of_the_top(largest, tmp_path):
    rng = np.random.default_rng(3)
    x = rng.integers(-3, 4, (20, 33)).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = np.nan
    order = np.where(np.isnan(x), np.inf, x)
    expected = np.argsort(-order if largest else order, axis=1, kind="stable")[:, :9]
    values, places = run(tmp_path, [helper.make_node("TopK", ["x", "k"], ["v", "i"], largest=largest)], {"x": x}, {"v": F32, "i": I64}, {"k": np.array([9], np.int64)})
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 1))


def test_unique_among_nan(tmp_path):
    x = np.array([2, np.nan, 1, 2, np.nan, 1, 0, 2], np.float32)  # no NaN equals another
    values, counts = run(tmp_path, [helper.make_node("Unique", ["x"], ["y", "", "", "n"])], {"x": x}, {"y": F32, "n": I64})
    np.testing.assert_array_equal(values, np.array([0, 1, 2, np.nan, np.nan], np.float32))
    assert counts.tolist() == [1, 2, 3, 1, 1]


def test_a_tensor_without_a_shape_is_refused(tmp_path):
    value = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "graph", [value("x", F32, [3])], [value("y", F32, [3])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    model, x = Model(tmp_path / "m.onnx"), np.ones(3, np.float32)
    good, _ = to_tensor(x)
    bad = Tensor.from_buffer_copy(good)
    bad.shape = None
    for inputs, outputs, word in ((bad, Tensor(), b"input 0 'x': its shape is NULL"), (good, bad, b"output 0: its shape is NULL")):
        outputs = (Tensor * 1)(outputs)
        assert STATUS[model.lib.tn_run(model.context, (Tensor * 1)(inputs), 1, outputs, 1)] == "usage"
        assert word in model.lib.tn_context_error(model.context)


def run_symbolic(folder, nodes, arrays, outputs, constants=(), fixed=None, static=()):
    """As run(), but every size is a dimension NAME_0, NAME_1, … of its own, except those of `static`; fixed: {dimension: size} at load."""
    ins = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape if n in static else [f"{n}_{i}" for i in range(a.ndim)])
           for n, a in arrays.items()]
    outs = [helper.make_tensor_value_info(n, kind, None) for n, kind in outputs.items()]
    graph = helper.make_graph(nodes, "graph", ins, outs, [numpy_helper.from_array(a, n) for n, a in dict(constants).items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "m.onnx")
    return Model(folder / "m.onnx", dims=fixed)(*arrays.values())


@pytest.mark.parametrize("sizes,shape", [((2, 1, 3), (4, 1)), ((1, 3), (0, 3)), ((2, 3), (1, 1)), ((3,), (2, 3)), ((1, 5), (4, 5)), ((0, 2), (1, 2)), ((0,), (0,)), ((2,), (3, 1))])
def test_expand_to_a_shape_that_the_run_tells(sizes, shape, tmp_path):
    x = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
    arrays = {"x": x, "shape": np.array(shape, np.int64)}
    y, = run_symbolic(tmp_path, [helper.make_node("Expand", ["x", "shape"], ["y"])], arrays, {"y": F32}, static=["shape"])
    np.testing.assert_array_equal(y, np.broadcast_to(x, np.broadcast_shapes(sizes, shape)))


def test_expand_to_a_shape_that_does_not_fit(tmp_path):
    arrays = {"x": np.zeros((3, 2), np.float32), "shape": np.array([5, 2], np.int64)}
    with pytest.raises(Error, match="dimension 0 of the input is neither 1 nor what the shape says") as error:
        run_symbolic(tmp_path, [helper.make_node("Expand", ["x", "shape"], ["y"])], arrays, {"y": F32}, static=["shape"])
    assert error.value.status == "invalid"


@pytest.mark.parametrize("shape,fits", [((3, 2), True), ((1, 2), True), ((3, 1), True), ((1, 1), True), ((5, 2), False), ((3, 0), False)])
def test_expand_of_known_sizes(shape, fits, tmp_path):
    """They stay what they are: what is computed from the result knows them."""
    nodes = [helper.make_node("Expand", ["x", "shape"], ["e"]), helper.make_node("Split", ["e"], ["a", "b", "c"], axis=0), helper.make_node("Squeeze", ["b"], ["y"])]
    arrays = {"x": np.arange(6, dtype=np.float32).reshape(3, 2), "shape": np.array(shape, np.int64)}
    if fits:
        assert run(tmp_path, nodes, arrays, {"y": F32})[0].tolist() == [2, 3]
    else:
        with pytest.raises(Error, match="of the input is neither 1 nor what the shape says"):
            run(tmp_path, nodes, arrays, {"y": F32})


@pytest.mark.parametrize("sizes", [(2, 3), (0, 3)])
def test_squeeze_without_axes_takes_sizes_of_the_run_as_others_than_1(sizes, tmp_path):
    nodes = [helper.make_node("Unsqueeze", ["x", "axis"], ["u"]), helper.make_node("Squeeze", ["u"], ["y"])]
    x = np.ones(sizes, np.float32)
    y, = run_symbolic(tmp_path, nodes, {"x": x}, {"y": F32}, {"axis": np.array([1], np.int64)})
    np.testing.assert_array_equal(y, x)


def test_squeeze_without_axes_of_a_size_that_turns_out_to_be_1(tmp_path):
    with pytest.raises(Error, match=r"node 'y': Squeeze: dimension x_0 is 1 in this run") as error:
        run_symbolic(tmp_path, [helper.make_node("Squeeze", ["x"], ["y"])], {"x": np.ones((1, 3), np.float32)}, {"y": F32})
    assert error.value.status == "invalid"
    y, = run_symbolic(tmp_path, [helper.make_node("Squeeze", ["x"], ["y"])], {"x": np.ones((1, 3), np.float32)}, {"y": F32}, fixed={"x_0": 1})
    assert y.shape == (3,)


def test_sizes_of_1_that_broadcast_are_told_at_load(tmp_path):
    arrays = {"a": np.ones((2, 3), np.float32), "b": np.ones((1, 3), np.float32)}
    node = [helper.make_node("Add", ["a", "b"], ["y"])]
    with pytest.raises(Error, match="--dim NAME=1"):
        run_symbolic(tmp_path, node, arrays, {"y": F32})
    y, = run_symbolic(tmp_path, node, arrays, {"y": F32}, fixed={"b_0": 1})
    assert y.shape == (2, 3)


@pytest.mark.parametrize("attributes", [{}, {"axis": 0}, {"sorted": 0}])
def test_unique_of_nothing(attributes, tmp_path):
    x = np.zeros(0, np.float32)
    for run_as in (run, run_symbolic):
        y, first, inverse, counts = run_as(tmp_path, [helper.make_node("Unique", ["x"], ["y", "f", "i", "c"], **attributes)], {"x": x}, {"y": F32, "f": I64, "i": I64, "c": I64})
        assert y.shape == first.shape == inverse.shape == counts.shape == (0,)


def test_tables_of_grams_are_bounded(tmp_path):
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0, ngram_counts=[0],
                            ngram_indexes=[0, 2**30], pool_int64s=[1, 2])
    with pytest.raises(Error, match="bytes of constants") as error:
        run(tmp_path, [node], {"x": np.zeros(4, np.int64)}, {"y": F32})
    assert error.value.status == "unsupported"


def shaped(nodes, output):
    return helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info(output, F32, None)])


@pytest.mark.parametrize("flip", [False, True])
def test_branches_of_other_shapes_that_a_size_decides(flip, tmp_path):
    """As exporters write squeeze(1) of a size that only a run knows: a branch for 1, another for the rest."""
    squeeze, same = shaped([helper.make_node("Squeeze", ["x", "axis"], ["s"])], "s"), shaped([helper.make_node("Identity", ["x"], ["i"])], "i")
    nodes = [helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Gather", ["shape", "axis"], ["size"]), helper.make_node("Equal", ["size", "one"], ["is"])]
    if flip:
        nodes += [helper.make_node("Not", ["is"], ["other"]), helper.make_node("If", ["other"], ["y"], then_branch=same, else_branch=squeeze)]
    else:
        nodes += [helper.make_node("If", ["is"], ["y"], then_branch=squeeze, else_branch=same)]
    constants = {"axis": np.array([1], np.int64), "one": np.array([1], np.int64)}
    for sizes in ((2, 3, 4), (1, 2), (2, 0)):
        y, = run_symbolic(tmp_path, nodes, {"x": np.ones(sizes, np.float32)}, {"y": F32}, constants)
        assert y.shape == sizes
    thin = np.ones((2, 1, 4), np.float32)
    with pytest.raises(Error, match="If: dimension x_1 is 1 in this run"):
        run_symbolic(tmp_path, nodes, {"x": thin}, {"y": F32}, constants)
    y, = run_symbolic(tmp_path, nodes, {"x": thin}, {"y": F32}, constants, fixed={"x_1": 1})
    assert y.shape == (2, 4)


@pytest.mark.parametrize("sizes,axis,dtype", [((200_001,), 0, np.int64), ((3, 4097), -1, np.float32), ((65, 2), 0, np.int32), ((2, 0, 3), 1, np.float32), ((1,), 0, np.int32), ((5000,), 0, np.float16)])
@pytest.mark.parametrize("attributes", [{}, {"exclusive": 1, "reverse": 1}])
def test_running_sums_of_any_length(sizes, axis, dtype, attributes, tmp_path):
    """In blocks of 64, and blocks of blocks: the work grows as the length does."""
    x = np.random.default_rng(0).integers(0, 9, sizes)
    expected = np.flip(np.cumsum(np.flip(x, axis), axis), axis) - x if attributes else np.cumsum(x, axis)
    x = (x * (2.0**-9 if dtype == np.float16 else 1)).astype(dtype)
    expected = (expected * (2.0**-9 if dtype == np.float16 else 1)).astype(dtype)
    for run_as in (run, run_symbolic):
        y, = run_as(tmp_path, [helper.make_node("CumSum", ["x", "axis"], ["y"], **attributes)], {"x": x}, {"y": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))},
                    {"axis": np.array(axis, np.int64)})
        np.testing.assert_array_equal(y, expected)


def test_many_elements_are_sorted_out(tmp_path):
    x = np.random.default_rng(0).integers(-500, 500, 200_000).astype(np.float32)
    node = helper.make_node("Unique", ["x"], ["y", "f", "i", "c"])
    found = run_symbolic(tmp_path, [node], {"x": x}, {"y": F32, "f": I64, "i": I64, "c": I64})
    for y, expected in zip(found, np.unique(x, return_index=True, return_inverse=True, return_counts=True)):
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("half", [True, False])
def test_regions_sampled_by_their_size(half, tmp_path):
    """sampling_ratio 0: one sample a pixel of a bin, so that every region has its own number of them."""
    x = np.random.default_rng(0).random((2, 3, 6, 7)).astype(np.float32)
    rois = np.array([[0, 0, 4, 4], [1, 0.5, 5.7, 5], [0, 0, 0, 0], [-3, -2, 9, 12], [2, 2, 1, 1]], np.float32)
    batch, high, wide = np.array([0, 1, 1, 0, 0]), 2, 3

    def at(image, v, u):
        if not (-1 <= v <= image.shape[1] and -1 <= u <= image.shape[2]):
            return np.zeros(len(image))
        v, u = min(max(v, 0), image.shape[1] - 1), min(max(u, 0), image.shape[2] - 1)
        i, j = int(v), int(u)
        k, m = min(i + 1, image.shape[1] - 1), min(j + 1, image.shape[2] - 1)
        return (1 - v + i) * ((1 - u + j) * image[:, i, j] + (u - j) * image[:, i, m]) + (v - i) * ((1 - u + j) * image[:, k, j] + (u - j) * image[:, k, m])

    expected = np.zeros((5, 3, high, wide))
    for r, (left, top, right, bottom) in enumerate(rois - (0.5 if half else 0)):
        height, width = (bottom - top, right - left) if half else (max(bottom - top, 1), max(right - left, 1))
        rows, columns = max(int(np.ceil(height / high)), 0), max(int(np.ceil(width / wide)), 0)
        for i, j in np.ndindex(high, wide):
            for a, b in np.ndindex(rows, columns):
                expected[r, :, i, j] += at(x[batch[r]], top + height / high * (i + (a + 0.5) / rows), left + width / wide * (j + (b + 0.5) / columns))
            expected[r, :, i, j] /= max(rows * columns, 1)
    node = helper.make_node("RoiAlign", ["x", "rois", "batch"], ["y"], output_height=high, output_width=wide, sampling_ratio=0,
                            coordinate_transformation_mode="half_pixel" if half else "output_half_pixel")
    for run_as in (run, run_symbolic):
        y, = run_as(tmp_path, [node], {"x": x, "rois": rois, "batch": batch}, {"y": F32})
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 2, 0, 1), (-1, 0, 0, -2), (1, -1, -1, 2), (-1, -1, -1, -1)])
def test_pads_that_the_run_tells(mode, pads, tmp_path):
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    crop = [slice(max(-pads[i], 0), x.shape[i] - max(-pads[i + 2], 0)) for i in range(2)]
    expected = np.pad(x[tuple(crop)], [(max(pads[i], 0), max(pads[i + 2], 0)) for i in range(2)], mode=mode)
    for run_as in (run, lambda *given: run_symbolic(*given, static=["pads"])):
        y, = run_as(tmp_path, [helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode)], {"x": x, "pads": np.array(pads, np.int64)}, {"y": F32})
        np.testing.assert_array_equal(y, expected)
