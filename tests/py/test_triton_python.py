"""tenon.triton as a user meets it: decorators, arguments of all kinds, names from elsewhere, autotune, errors, the checked mode."""
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

import tenon
import tenon.triton as triton
import tenon.triton.language as tl
import triton_helpers
import triton_twins
from tenon.triton import runtime, tensors
from tenon.triton.language import float16 as half
from tenon.triton.tools.tensor_descriptor import TensorDescriptor
from triton_helpers import scaled

HERE = pathlib.Path(__file__)
PACKAGE, EXAMPLES = HERE.parents[2] / "python", HERE.parents[2] / "examples" / "kernels"
FACTOR = tl.constexpr(3)
WIDE: tl.constexpr = 16
PLAIN = 5
UNLIKELY = [1, 2]


def zeros(n=16, dtype=np.int32):
    return np.zeros(n, dtype)


def line_of(text):
    """Number of the one line of this file that ends with the comment `# text`."""
    lines = [i for i, line in enumerate(HERE.read_text().splitlines(), 1) if line.endswith(f"# {text}")]
    assert len(lines) == 1, text
    return lines[0]


def refused(text, kernel, *arguments, error=tenon.Error, grid=(1,), **named):
    with pytest.raises(error, match=re.escape(text)) as caught:
        kernel[grid](*arguments, **named)
    return str(caught.value)


@triton.jit
def fill(x_ptr, value, BLOCK: tl.constexpr = 16):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.zeros([BLOCK], tl.int32) + value)


@triton.jit
def copy(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


def texts(kernel, *arguments, **named):
    return kernel.warmup(*arguments, grid=(1,), **named).texts


# ---- the decorator -----------------------------------------------------------------------------------------------------------


@triton.jit(debug=True, do_not_specialize=["n", 2], do_not_specialize_on_alignment=["m"], noinline=True, repr=None, version=1, launch_metadata=None)
def called(x_ptr, n, k, m):
    tl.store(x_ptr, n + k + m)
    tl.device_assert(n != 77, "seventy-seven")  # the assertion


def test_decorator_with_options():
    x = zeros()
    called[(1,)](x, 1, 16, 32)
    assert x[0] == 49
    assert texts(called, x, 1, 16, 32) == ["*i32:16", "i32", "i32", "i32"]
    assert texts(called, x, 2**40, 1, 1) == ["*i32:16", "i64", "i32", "i32=1"]
    message = refused("seventy-seven", called, x, 77, 0, 0)
    assert f"test_triton_python.py:{line_of('the assertion')}" in message


def test_decorator_as_a_function():
    def set_two(x_ptr):
        tl.store(x_ptr, 2)

    x = zeros()
    kernel = triton.jit(set_two)
    kernel[(1,)](x)
    assert x[0] == 2 and kernel.fn is set_two and kernel.__name__ == "set_two" and kernel.arg_names == ["x_ptr"]
    assert triton.jit(kernel) is kernel and "tl.store(x_ptr, 2)" in kernel.src


def test_decorator_wants_a_function():
    with pytest.raises(TypeError, match="takes a Python function, found 3"):
        triton.jit(3)


def test_a_kernel_is_no_function():
    with pytest.raises(RuntimeError, match=r"fill runs on a grid: fill\[grid\]"):
        fill(zeros(), 1)
    with pytest.raises(RuntimeError, match="triton.language.load can only be called in"):
        tl.load(zeros())


def test_text_of_exec_is_nowhere():
    scope = {"triton": triton, "tl": tl}
    with pytest.raises(tenon.Error, match="the text of lost can't be found; a kernel is compiled from its text"):
        exec("@triton.jit\ndef lost(x_ptr):\n    tl.store(x_ptr, 1)\n", scope)


@triton.jit
def any_number(*parts):
    return parts[0]


def test_any_number_of_parameters():
    refused("found *parts", any_number, zeros(), error=TypeError)


# ---- how arguments are bound ---------------------------------------------------------------------------------------------------


@triton.jit
def polynomial(x_ptr, a, b=3, *, c=5, BLOCK: tl.constexpr = 16, SIGN: tl.constexpr = 1):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, (a * at * at + b * at + c) * SIGN)


@pytest.mark.parametrize("given, wanted", [
    (dict(), (2, 3, 5)), (dict(b=4), (2, 4, 5)), (dict(c=-1, b=-7), (2, -7, -1)), (dict(BLOCK=8), (2, 3, 5)), (dict(SIGN=-1), (-2, -3, -5)),
    (dict(SIGN=tl.constexpr(-1)), (-2, -3, -5)), (dict(num_warps=8, num_stages=2, num_ctas=1, maxnreg=64, enable_fp_fusion=False), (2, 3, 5)),
])
def test_defaults_and_keywords(given, wanted):
    x, at = zeros(), np.arange(given.get("BLOCK", 16))
    polynomial[(1,)](x, a=2, **given)
    assert (x[: len(at)] == wanted[0] * at * at + wanted[1] * at + wanted[2]).all() and not x[len(at):].any()


def test_calls_that_do_not_fit():
    x = zeros()
    refused("polynomial() missing 1 required positional argument: 'a'", polynomial, x, error=TypeError)
    refused("got an unexpected keyword argument 'wraps'; its parameters are x_ptr, a, b, c, BLOCK, SIGN", polynomial, x, 1, wraps=4, error=TypeError)
    refused("takes from 3 to 4 positional arguments but 5 were given", polynomial, x, 1, 2, 3, error=TypeError)
    refused("polynomial() got multiple values for argument 'a'", polynomial, x, 1, a=1, error=TypeError)


@triton.jit
def own_options(x_ptr, num_warps: tl.constexpr, num_stages: tl.constexpr = 7):
    tl.store(x_ptr, num_warps)
    tl.store(x_ptr + 1, num_stages)


def test_options_that_are_parameters():
    x = zeros()
    own_options[(1,)](x, num_warps=2)
    assert x[:2].tolist() == [2, 7]


@triton.jit
def choose(x_ptr, bias_ptr, KIND: tl.constexpr, TYPE: tl.constexpr, SIZES: tl.constexpr):
    v = tl.full([1], 2.75, tl.float32).to(TYPE).to(tl.float32)
    if KIND == "none":
        v = v * 0
    elif KIND is None:
        v = v * 10
    if bias_ptr is not None:
        v += tl.load(bias_ptr)
    tl.store(x_ptr + tl.arange(0, 1), v + SIZES[0] * 100 + SIZES[1])


def test_constants_of_all_kinds():
    x = zeros(dtype=np.float32)
    for kind, constant in (("none", 0), (None, 27.5), ("more", 2.75)):
        for bias in (None, np.ones(1, np.float32)):
            choose[(1,)](x, bias, kind, tl.float32, (1, 0.5))
            assert x[0] == constant + (0 if bias is None else 1) + 100.5
    for integer in (tl.int32, np.int32, np.dtype("int32")):
        choose[(1,)](x, None, "more", integer, SIZES=[2, 1])
        assert x[0] == 203
    refused("of type object can't be a constant of a kernel", choose, x, None, object(), tl.int32, (1, 2), error=TypeError)


@triton.jit
def constant(x_ptr, C: tl.constexpr):
    tl.store(x_ptr, tl.full([], 1.0, tl.float32) / C)


def test_equal_constants_that_differ():
    """1, 1.0 and True are equal in Python, so are 0.0 and -0.0; kernels for them are not."""
    x = zeros(1, np.float32)
    kernels = [constant[(1,)](x, C) for C in (2, 2.0, 1, True, 2, np.float32(2))]
    assert len({id(k) for k in kernels}) == 4 and kernels[0] is kernels[4] and kernels[1] is kernels[5]
    for C, wanted in ((0.0, np.inf), (-0.0, -np.inf), (float("inf"), 0), (-4.0, -0.25)):
        constant[(1,)](x, C)
        assert x[0] == wanted
    constant[(1,)](x, float("nan"))
    assert np.isnan(x[0])


@triton.jit
def apply(x_ptr, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, FUNCTION(at))


def test_functions_as_constants():
    x, at = zeros(), np.arange(16)
    for function, wanted in ((triton_helpers.scaled, (at + 7) * 14), (value, at * 0 + 1), (triton_twins.value, at * 0 + 2), (value, at * 0 + 1)):
        apply[(1,)](x, function, BLOCK=16)
        assert (x == wanted).all()
    assert len(apply._kernels) == 3


# ---- numbers ---------------------------------------------------------------------------------------------------------------------


@triton.jit
def widen(x_ptr, n):
    tl.store(x_ptr, n)


@pytest.mark.parametrize("n, text", [
    (1, "i32=1"), (0, "i32:16"), (16, "i32:16"), (24, "i32:8"), (1000, "i32:8"), (-12, "i32:4"), (50258, "i32:2"), (2**40 + 4, "i64:4"), (2**63 + 2, "u64:2"), (-16, "i32:16"), (-1, "i32"), (17, "i32"), (2**31 - 1, "i32"), (-(2**31), "i32:16"), (2**31, "i64:16"), (2**31 + 1, "i64"),
    (-(2**31) - 1, "i64"), (2**63 - 1, "i64"), (-(2**63), "i64:16"), (2**63, "u64:16"), (2**64 - 1, "u64"), (np.int8(-3), "i32"), (np.uint64(2**64 - 16), "u64:16"),
    (np.int64(1), "i32=1"), (np.bool_(True), "i1"), (True, "i1"), (False, "i1"), (tl.constexpr(9), "=9"),
])
def test_integers(n, text):
    x = zeros(1, np.uint64 if text.startswith("u") else np.int64)
    kernel = widen[(1,)](x, n)
    assert kernel.texts[1] == text
    assert int(x[0]) == int(n.value if isinstance(n, tl.constexpr) else n)


def test_integers_that_do_not_fit():
    refused("18446744073709551616 does not fit 64 bits", widen, zeros(1, np.int64), 2**64, error=OverflowError)
    refused("does not fit 64 bits", widen, zeros(1, np.int64), -(2**63) - 1, error=OverflowError)


def test_one_kernel_for_numbers_alike():
    x = zeros(1, np.int64)
    kernels = [widen[(1,)](x, n) for n in (3, 5, 32, 48, 1, 3)]
    assert [kernels.index(k) for k in kernels] == [0, 0, 2, 2, 4, 0]
    assert x[0] == 3


@pytest.mark.parametrize("v", [0.1, np.float32(0.1), np.float16(0.1), np.float64(0.1), ml_dtypes.bfloat16(0.1)])
def test_floats_are_f32(v):
    x = zeros(1, np.float64)
    assert widen[(1,)](x, v).texts[1] == "f32"
    assert x[0] == np.float64(np.float32(v))


def test_complex_numbers():
    refused("kernels take no complex numbers", widen, zeros(), np.complex64(1j), error=TypeError)


@triton.jit
def annotated(x_ptr, a: tl.int64, b: "tl.float64", c: "fp16", d: tl.tensor):
    tl.store(x_ptr, a + b + c + d)


def test_annotations_of_numbers():
    x = zeros(1, np.float64)
    assert annotated[(1,)](x, 1, 0.1, 0.1, 1).texts == ["*f64:16", "i64", "f64", "f16", "i32=1"]
    assert x[0] == 1 + 0.1 + np.float64(np.float16(0.1)) + 1
    annotated[(1,)](x, np.int32(16), 1, 2, 3)
    assert x[0] == 22
    refused("'float' object cannot be interpreted as an integer", annotated, x, 1.5, 0, 0, 0, error=TypeError)


# ---- tensors -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype, text", [
    (np.float32, "f32"), (np.float16, "f16"), (np.float64, "f64"), (np.int8, "i8"), (np.int16, "i16"), (np.int32, "i32"), (np.int64, "i64"), (np.uint8, "u8"),
    (np.uint16, "u16"), (np.uint32, "u32"), (np.uint64, "u64"), (np.bool_, "i1"), (ml_dtypes.bfloat16, "bf16"), (ml_dtypes.float8_e4m3fn, "f8e4m3"),
    (ml_dtypes.float8_e5m2, "f8e5m2"),
])
def test_element_types(dtype, text):
    x = (np.arange(40) % 7).astype(dtype)
    z = np.zeros_like(x)
    kernel = copy[(2,)](x, z, 37, BLOCK=32)
    assert kernel.texts[0] == f"*{text}:16"
    assert (z[:37] == x[:37]).all() and not z[37:].astype(bool).any()


def test_element_types_without_a_kernel():
    for x in (zeros(4, np.complex64), zeros(4, ">f4"), np.array(["a"]), np.array([None])):
        refused("a kernel can't take elements of type", copy, x, x, 1, BLOCK=1, error=TypeError)
    refused("an argument of type object is no number and no tensor", copy, object(), zeros(), 1, BLOCK=1, error=TypeError)


def test_addresses():
    raw = np.zeros(80, np.float32)
    start = -raw.ctypes.data // 4 % 4
    for shift in range(4):
        x = raw[start + shift:]
        x[:16] = np.arange(16) + shift
        z = zeros(16, np.float32)
        kernel = copy[(1,)](x, z, 16, BLOCK=16)
        assert kernel.texts[0] == ("*f32:16" if shift == 0 else "*f32") and (z == x[:16]).all()


def test_the_address_is_read_where_numpy_keeps_it():
    for x in (zeros(), zeros()[3:], zeros().reshape(4, 4).T, zeros(0), np.broadcast_to(np.float32(1), (3, 3))):
        assert (ctypes.c_void_p.from_address(id(x) + tensors.ADDRESS).value or 0) == x.ctypes.data


class Named(np.ndarray):
    """A class of its own, that is an array."""


def test_subclass_of_arrays():
    x = zeros().view(Named)
    assert fill[(1,)](x, 4).texts[0] == "*i32:16" and (x == 4).all()


@triton.jit
def transpose(x_ptr, z_ptr, m, n, sx0, sx1, sz0, sz1, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)[:, None]
    j = tl.arange(0, BLOCK)[None, :]
    inside = (i < m) & (j < n)
    tl.store(z_ptr + j * sz0 + i * sz1, tl.load(x_ptr + i * sx0 + j * sx1, mask=inside), mask=inside)


@pytest.mark.parametrize("view", ["rows", "columns", "backward", "every third", "broadcast"])
def test_arrays_with_strides(view):
    base = np.arange(40 * 40, dtype=np.float32).reshape(40, 40)
    x = {"rows": base[3:12, 5:18], "columns": base.T[3:12, 5:18], "backward": base[20:11:-1, 30:17:-1], "every third": base[::5, ::3],
         "broadcast": np.broadcast_to(base[7, :13], (9, 13))}[view]
    z = np.full((x.shape[1], x.shape[0]), -1, np.float32)
    for checked in (False, True):
        strides = [s // 4 for s in (*x.strides, *z.strides)]
        if not checked or view != "backward":
            transpose[(1,)](x, z, *x.shape, *strides, BLOCK=16, check=checked)
        assert (z == x.T).all()


class Capsule:
    """Speaks DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **named):
        return self.array.__dlpack__(**named)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint64, np.float16, np.float64, np.bool_])
def test_dlpack(dtype):
    x, z = (np.arange(20) % 5).astype(dtype), zeros(20, dtype)
    kernel = copy[(1,)](Capsule(x[4:]), Capsule(z), 16, BLOCK=16)
    assert (z[:16] == x[4:]).all()
    assert kernel.texts[0].split(":")[0] == "*" + tensors._NAMES[np.dtype(dtype).name]
    assert tensors.elements(Capsule(x.reshape(4, 5)[:, ::2])) == 20
    refused("elements of type complex64", copy, Capsule(zeros(4, np.complex64)), z, 1, BLOCK=1, error=TypeError)


def test_torch():
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2):
        x = (torch.arange(40) % 2).to(dtype)
        z = torch.zeros(40).to(dtype)
        copy[(2,)](x, z, 37, BLOCK=32)
        assert (z[:37].float() == x[:37].float()).all() and not z[37:].float().any()
    x = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    z = torch.zeros(3, 2)
    transpose[(1,)](x, z, 2, 3, *x.stride(), *z.stride(), BLOCK=4)
    assert torch.equal(z, x.detach().T)
    assert tensors.elements(x.T) == 6 and tensors.elements(torch.zeros(0, 3)) == 0
    choose[(1,)](torch.zeros(1), None, "more", torch.int32, (1, 2))
    refused("a tensor on meta: kernels run on CPUs and on NVIDIA GPUs", fill, torch.zeros(4, device="meta"), 1, error=TypeError)
    refused("a kernel can't take elements of type complex64", fill, torch.zeros(4, dtype=torch.complex64), 1, error=TypeError)


def test_torch_types_stand_for_tensors_in_warmup():
    torch = pytest.importorskip("torch")
    assert copy.warmup(torch.float32, torch.float16, 5, BLOCK=16, grid=(1,)).texts == ["*f32:16", "*f16:16", "i32", "=16"]


@triton.jit
def add_blocks(x_desc, y_desc, scale, z_ptr, n: tl.constexpr, m: tl.constexpr):
    i = tl.program_id(0) * n
    block = x_desc.load([i, 0]) * scale + y_desc.load([i, 0])
    at = (i + tl.arange(0, n))[:, None] * m + tl.arange(0, m)[None, :]
    tl.store(z_ptr + at, block)


def test_descriptors():
    x = np.arange(6 * 20, dtype=np.float32).reshape(6, 20)
    y = np.ones((8, 16), np.float32)
    z = np.zeros((8, 16), np.float32)
    x_desc = TensorDescriptor(x, [6, 15], [20, 1], [4, 16])
    y_desc = TensorDescriptor.from_tensor(y, [4, 16])
    for checked in (False, True):
        kernel = add_blocks[(2,)](x_desc, y_desc, 2, z, 4, 16, check=checked)
        wanted = np.ones((8, 16), np.float32)
        wanted[:6, :15] += 2 * x[:, :15]
        assert (z == wanted).all() and kernel.texts[:2] == ["desc<f32[4x16]>"] * 2
        z[:] = 0
    for arguments, message in (([x, [6], [20, 1], [4, 16]], "must have one length"), ([x, [6, 20], [1, 6], [4, 16]], "the last stride must be 1, found 6"),
                               ([x, [6, 20], [20, 1], [4, 16], "nan"], "padding must be 'zero'")):
        with pytest.raises(ValueError, match=message):
            TensorDescriptor(*arguments)


# ---- grids ---------------------------------------------------------------------------------------------------------------------------


@triton.jit
def mark(x_ptr):
    at = tl.program_id(0) + tl.num_programs(0) * (tl.program_id(1) + tl.num_programs(1) * tl.program_id(2))
    tl.store(x_ptr + at, at + 1)


@pytest.mark.parametrize("grid, n", [
    ((5,), 5), ((2, 3), 6), ((2, 3, 4), 24), (7, 7), ([3, 2], 6), ((np.int64(4),), 4), (lambda meta: (3,), 3), (lambda meta: 2, 2), ((0,), 0), ((3, 0), 0), ((2, 1, 0), 0),
])
def test_grids(grid, n):
    x = zeros(32)
    mark[grid](x)
    assert x[:n].tolist() == list(range(1, n + 1)) and not x[n:].any()


def test_grids_that_are_none():
    for grid in ((), (1, 1, 1, 1), (1.5,), ("1",)):
        refused("a grid has one to three sizes, all integers; found", mark, zeros(), grid=grid, error=TypeError)
    refused("sizes are not negative", mark, zeros(), grid=(-1,))


def test_a_grid_of_the_arguments():
    x, seen = zeros(48), []
    grid = lambda meta: seen.append(meta) or (triton.cdiv(48, meta["BLOCK"]),)
    fill[grid](x, 3, BLOCK=32 // 2, num_warps=2)
    assert (x == 3).all() and seen[0]["value"] == 3 and seen[0]["x_ptr"] is x and seen[0]["num_warps"] == 2
    fill.run(x, 4, grid=grid)
    assert (x == 4).all()


# ---- names from elsewhere ---------------------------------------------------------------------------------------------------------------


@triton.jit
def outer(x_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, inner(at) * FACTOR + tl.where(at < WIDE, 0, 1000), mask=at < WIDE)


@triton.jit
def inner(x, by: tl.constexpr = FACTOR):
    return innermost(x) + by


@triton.jit
def innermost(x):
    return tl.where(x % 2 == 0, x, -x)


def test_functions_and_constants():
    x, at = zeros(), np.arange(16)
    outer[(1,)](x, BLOCK=32)
    assert (x == (np.where(at % 2 == 0, at, -at) + 3) * 3).all()


@triton.jit
def from_elsewhere(x_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, scaled(at, 2) + triton_helpers.shifted(at) * triton_helpers.OFFSET + scaled(at).to(half).to(tl.int32))


def test_functions_of_other_files():
    x, at = zeros(), np.arange(16)
    from_elsewhere[(1,)](x, BLOCK=16)
    assert (x == (at + 7) * 2 + (at + 7) * 7 + (at + 7) * 14).all()


@triton.jit
def twins(x_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, at * 0 + 1)


def test_one_name_in_two_files():
    x, y = zeros(), zeros()
    first, second = twins[(1,)](x, BLOCK=16), triton_twins.twins[(1,)](y, BLOCK=16)
    assert (x == 1).all() and (y == 2).all() and first is not second
    both[(1,)](x, BLOCK=16)
    assert (x == 3).all()


@triton.jit
def value(x):
    return x * 0 + 1


@triton.jit
def both(x_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, value(at) + triton_twins.value(at))


def make(function, bound, add):
    OFFSET = tl.constexpr(add)

    @triton.jit
    def closed(x_ptr, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        if bound is None:
            tl.store(x_ptr + at, function(at) + OFFSET)
        else:
            tl.store(x_ptr + at, function(at) + OFFSET, mask=at < bound)

    return closed


def test_closures():
    x, at = zeros(), np.arange(16)
    first, second = make(innermost, tl.constexpr(None), 10), make(value, tl.constexpr(5), 20)
    first[(1,)](x, BLOCK=16)
    assert (x == np.where(at % 2 == 0, at, -at) + 10).all()
    second[(1,)](x, BLOCK=16)
    assert (x[:5] == 21).all() and x[5] == 5


@triton.jit
def reads_plain(x_ptr):
    tl.store(x_ptr, PLAIN)  # plain


@triton.jit
def reads_list(x_ptr):
    tl.store(x_ptr, UNLIKELY[0])  # list


@triton.jit
def calls_plain(x_ptr):
    tl.store(x_ptr, zeros(1))  # function


@triton.jit
def reads_module(x_ptr):
    tl.store(x_ptr, np.pi)  # module


@triton.jit
def reads_nothing(x_ptr):
    tl.store(x_ptr, nobody)  # nothing  # noqa: F821


@pytest.mark.parametrize("kernel, place, column, text", [
    (reads_plain, "plain", 21, "'PLAIN' is a global variable (line {}), and a kernel sees only those that are constants"),
    (reads_list, "list", 21, "'UNLIKELY' is a global variable (line {})"), (calls_plain, "function", 21, "zeros is no @triton.jit function"),
    (reads_module, "module", 21, "numpy is a module of the host program"), (reads_nothing, "nothing  # noqa: F821", 21, "the name 'nobody' is not defined"),
])
def test_names_that_kernels_do_not_see(kernel, place, column, text):
    lines = HERE.read_text().splitlines()
    assigned = next((i for i, line in enumerate(lines, 1) if "{}" in text and line.startswith(text.split("'")[1] + " =")), 0)
    message = refused(text.format(assigned), kernel, zeros())
    assert message.startswith(f"{HERE}:{line_of(place)}:{column}: error: "), message


def test_errors_point_into_functions_that_are_called():
    @triton.jit
    def call(x_ptr):
        tl.store(x_ptr, wrong(1))  # the call

    message = refused("has no attribute 'no_such_thing'", call, zeros())
    lines = message.splitlines()
    assert lines[0].startswith(f"{HERE}:{line_of('the fault')}:12: error: ") and f"note: in wrong, called from {HERE}:{line_of('the call')}:25" in lines[-1], message


@triton.jit
def wrong(x):
    return x.no_such_thing  # the fault


def test_after_an_error_all_is_well():
    x = zeros()
    for _ in range(2):
        refused("global variable", reads_plain, x)
        fill[(1,)](x, 6)
    assert (x == 6).all()


# ---- compiled kernels ----------------------------------------------------------------------------------------------------------------------


def test_warmup_launches_nothing():
    x = zeros()
    kernel = fill.warmup(x, 9, BLOCK=16, grid=(1,))
    assert not x.any() and kernel is fill[(1,)](x, 9, BLOCK=16)
    assert (x == 9).all() and kernel.num_warps == 4 and kernel.num_stages == 3 and kernel.compile_seconds > 0


def test_stages():
    kernel = fill.warmup(zeros(), 9, grid=(1,), num_warps=8)
    assert kernel.num_warps == 8
    assert kernel.asm["tile"].startswith("kernel @fill(") and "define " in kernel.asm["llvm"] and "fill" in kernel.asm["asm"]
    assert kernel.asm["obj"].startswith(b"\x7fELF") and len(kernel.asm["loop"]) > 100
    with pytest.raises(KeyError, match="ttir: the stages are tile, loop, llvm, asm, obj"):
        kernel.asm["ttir"]


def test_options_make_kernels_of_their_own():
    x = zeros()
    kernels = {fill[(1,)](x, 3, **options) for options in (dict(), dict(threads=1), dict(num_warps=2), dict(num_warps=2), dict(debug=True))}
    assert len(kernels) == 4
    refused("unknown machine 'vax'", fill, x, 3, machine="vax")


def test_kernels_go_with_their_function():
    import gc
    import weakref

    x = zeros()
    kernel = make(value, tl.constexpr(5), 1)
    gone = weakref.ref(kernel[(1,)](x, BLOCK=16))
    del kernel
    gc.collect()
    assert gone() is None


def test_threads_launch_at_once():
    fresh = triton.jit(fill.fn)
    wrong = []

    def work(number):
        x = zeros(64)
        for i in range(50):
            fresh[(4,)](x, number * 1000 + i)
            if not (x == number * 1000 + i).all():
                wrong.append((number, i))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and {key[1] for key in fresh._kernels} == {"i32", "i32:2", "i32:4", "i32:8", "i32:16", "i32=1"}


# ---- autotune, heuristics --------------------------------------------------------------------------------------------------------------------


def tuned(configs, key=("n",), best=None, **options):
    """A kernel that adds BLOCK to all elements; `best` is measured as the fastest."""
    log = []

    def measure(launch, quantiles):
        launch()
        log.append(launch)
        return [1.0 if measured[-1].kwargs.get("BLOCK") == best else 2.0] * 3

    measured = []

    def hook(config):
        def called(by_name):
            measured.append(config)
            assert by_name["BLOCK"] == config.kwargs["BLOCK"] and by_name["num_warps"] == config.num_warps

        return called

    for config in configs:
        config.pre_hook = hook(config)

    @triton.autotune(configs=configs, key=list(key), do_bench=measure, **options)
    @triton.jit
    def add_block(x_ptr, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + BLOCK, mask=at < n)

    return add_block, measured, log


GRID = lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)


def configurations():
    return [triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 16}, num_warps=8), triton.Config({"BLOCK": 32})]


def test_autotune_keeps_the_fastest():
    kernel, measured, log = tuned(configurations(), best=16, reset_to_zero=["x_ptr"])
    x = zeros(40)
    compiled = kernel[GRID](x, 40)
    assert (x == 16).all() and len(log) == 3 and kernel.best_config.kwargs == {"BLOCK": 16} and compiled.num_warps == 8
    assert str(kernel.best_config) == "BLOCK: 16, num_warps: 8, num_stages: 3"
    assert [m.kwargs["BLOCK"] for m in measured] == [8, 16, 32, 16]
    kernel[GRID](x, 40)
    assert (x == 32).all() and len(log) == 3  # known
    kernel[GRID](x, n=24)
    assert len(log) == 6  # a new key
    kernel[GRID](x.astype(np.int64), 40)
    assert len(log) == 9  # a new element type
    assert len(kernel.cache) == 3 and kernel.base.name == "add_block" and kernel.__name__ == "add_block"


def test_autotune_by_the_type_of_a_tensor():
    kernel, _, log = tuned(configurations(), key=["x_ptr", "n"], best=16)
    for dtype, n, measured in ((np.int32, 40, 3), (np.int64, 40, 6), (np.int32, 40, 6), (np.int32, 24, 9)):
        kernel[GRID](zeros(40, dtype), n)
        assert len(log) == measured


def test_autotune_measures_no_checked_runs():
    kernel, _, log = tuned(configurations(), best=16)
    x = zeros(40)
    kernel[GRID](x, 40, check=True)
    assert not log and not kernel.cache and (x == 8).all()


def test_autotune_restores_values():
    kernel, _, log = tuned(configurations(), best=8, restore_value=["x_ptr"])
    x = np.arange(40, dtype=np.int32)
    kernel[GRID](x, 40)
    assert (x == np.arange(40) + 8).all() and len(log) == 3


def test_autotune_with_hooks():
    calls = []
    kernel, _, log = tuned(configurations(), best=8, pre_hook=lambda by_name, reset_only=False: calls.append(reset_only),
                           post_hook=lambda by_name, exception: calls.append(exception))
    kernel[GRID](zeros(40), 40)
    assert calls == [False, None] * 3 + [True]


def test_autotune_prunes():
    early = lambda configs, arguments, **named: [c for c in configs if c.kwargs["BLOCK"] < arguments["n"] and named["flag"] == 1]
    with pytest.raises(TypeError, match="unexpected keyword argument 'flag'"):
        tuned(configurations(), best=8, prune_configs_by={"early_config_prune": early})[0][GRID](zeros(40), 20, flag=1)
    early = lambda configs, arguments, **named: [c for c in configs if c.kwargs["BLOCK"] < arguments["n"]]
    kernel, _, log = tuned(configurations(), best=8, prune_configs_by={"early_config_prune": early})
    kernel[GRID](zeros(40), 20)
    assert len(log) == 2
    kernel[GRID](zeros(40), 10)
    assert len(log) == 2 and kernel.best_config.kwargs["BLOCK"] == 8  # one is left: nothing to measure
    with pytest.raises(ValueError, match="early_config_prune left none"):
        kernel[GRID](zeros(40), 1)
    model = lambda n, BLOCK, num_warps, **more: -BLOCK
    kernel, _, log = tuned(configurations(), best=8, prune_configs_by={"perf_model": model, "top_k": 2})
    kernel[GRID](zeros(40), 40)
    assert len(log) == 2 and [c.kwargs["BLOCK"] for c in kernel.timings] == [32, 16]


def test_autotune_passes_over_what_does_not_compile():
    @triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["SMALLEST"], warmup=1, rep=1)
    @triton.jit
    def at_least(x_ptr, BLOCK: tl.constexpr, SMALLEST: tl.constexpr):
        tl.static_assert(BLOCK >= SMALLEST, "too small")
        tl.store(x_ptr + tl.arange(0, BLOCK), BLOCK)

    x = zeros(64)
    at_least[(1,)](x, SMALLEST=64)
    assert at_least.best_config.kwargs["BLOCK"] == 64 and (x == 64).all() and sorted(t[0] for t in at_least.timings.values())[1:] == [float("inf")] * 2
    refused("static assertion failed: too small", at_least, x, SMALLEST=128)


def test_autotune_refuses_constants_given_twice():
    kernel, _, _ = tuned(configurations())
    refused("autotune's configurations give BLOCK; a launch can't", kernel, zeros(), 4, BLOCK=8, error=ValueError)


def test_autotune_measures_by_itself():
    @triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 1024})], key=["n"], warmup=1, rep=2)
    @triton.jit
    def count(x_ptr, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x_ptr + at, at, mask=at < n)

    x = zeros(3000)
    count[GRID](x, 3000)
    assert (x == np.arange(3000)).all() and all(len(t) == 3 and 0 < t[1] <= t[0] <= t[2] for t in count.timings.values())
    assert [k.texts[2] for k in count.warmup(x, 3000, grid=(1,))] == ["=16", "=1024"]


def test_heuristics():
    seen = []

    @triton.heuristics({"BLOCK": lambda by_name: triton.next_power_of_2(by_name["n"]), "EVEN": lambda by_name: seen.append(by_name) or by_name["n"] % by_name["BLOCK"] == 0})
    @triton.jit
    def count(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        at = tl.arange(0, BLOCK)
        if EVEN:
            tl.store(x_ptr + at, at + 1)
        else:
            tl.store(x_ptr + at, at + 2, mask=at < n)

    for n in (16, 13):
        x = zeros(20)
        kernel = count[(1,)](x, n)
        assert (x[:n] == np.arange(n) + (1 if n == 16 else 2)).all() and not x[n:].any()
        assert kernel.texts[2:] == ["=16", f"={n == 16}"]
    assert seen[0]["BLOCK"] == 16 and seen[0]["n"] == 16 and count.base.name == "count" and count.__name__ == "count"


def test_heuristics_over_autotune():
    @triton.autotune([triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 16})], key=["n"], do_bench=lambda launch, quantiles: launch() or [1.0] * 3)
    @triton.heuristics({"TWICE": lambda by_name: by_name["BLOCK"] * 2})
    @triton.jit
    def store(x_ptr, n, BLOCK: tl.constexpr, TWICE: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x_ptr + at, tl.zeros([BLOCK], tl.int32) + TWICE, mask=at < n)

    x = zeros(20)
    store[GRID](x, 20)
    assert (x == 16).all() and isinstance(store.base, triton.JITFunction)


@triton.jit
def calls_tuned(x_ptr, n):
    triton_helpers.tuned_helper(x_ptr, n, 8)


def test_tuned_functions_are_called_as_they_are():
    x = zeros()
    calls_tuned[(1,)](x, 16)
    assert (x[:8] == 5).all() and not x[8:].any()


# ---- the checked mode ----------------------------------------------------------------------------------------------------------------------------


@triton.jit
def copy_all(x_ptr, z_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)  # a load
    tl.store(z_ptr + at, x)


@triton.jit
def all_to_one(x_ptr):
    tl.store(x_ptr, tl.program_id(0))  # a race


@triton.jit
def lost_lanes(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    for i in range(2):  # undefined
        x += i
    tl.store(z_ptr + at, x)


def test_check_reports_accesses_outside():
    x, z = zeros(20), zeros(32)
    copy_all[(1,)](x, z, BLOCK=16, check=True)
    message = refused("outside", copy_all, x, z, BLOCK=16, grid=(2,), check=True)
    assert message.startswith(f"{HERE}:{line_of('a load')}:") and "program (1, 0, 0): load: element 20 lies outside buffer %x_ptr of 20 elements" in message


def test_check_reports_races():
    message = refused("a race", all_to_one, zeros(), grid=(2,), check=True)
    assert message.startswith(f"{HERE}:{line_of('a race')}:") and "program (1, 0, 0): store" in message
    all_to_one[(1,)](zeros(), check=True)


def test_check_warns_of_undefined_lanes(capfd):
    lost_lanes[(1,)](np.ones(16, np.int32), zeros(), 13, BLOCK=16, check=True)
    told = capfd.readouterr().err
    assert "masked lanes without `other`" in told and f"{HERE.name}:{line_of('undefined')}" in told
    lost_lanes[(1,)](np.ones(16, np.int32), zeros(), 16, BLOCK=16, check=True)
    assert not capfd.readouterr().err


def test_check_reports_assertions():
    refused("seventy-seven", called, zeros(), 77, 0, 0, check=True)


def test_check_of_the_environment(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import numpy as np\nimport tenon.triton as triton\nimport tenon.triton.language as tl\n\n\n@triton.jit\ndef far(x_ptr):\n"
                       "    tl.store(x_ptr + 4, 1)\n\n\nx = np.zeros(8, np.int32)\nfar[(1,)](x[:4])\nprint('unseen')\n")
    environment = dict(os.environ, PYTHONPATH=str(PACKAGE))
    for checked in "01":
        done = subprocess.run([sys.executable, program], env=dict(environment, TENON_CHECK=checked), capture_output=True, text=True, timeout=60)
        if checked == "0":
            assert done.returncode == 0 and done.stdout == "unseen\n", done.stderr
        else:
            assert done.returncode == 1 and f"{program}:8:5: error: kernel @far, program (0, 0, 0): store: element 4 lies outside" in done.stderr


# ---- testing, helpers ------------------------------------------------------------------------------------------------------------------------------


def test_do_bench():
    calls = []
    once = triton.testing.do_bench(lambda: calls.append(1), warmup=1, rep=2)
    assert 0 < once < 1 and len(calls) > 10
    low, high = triton.testing.do_bench(lambda: None, warmup=1, rep=1, quantiles=(0.1, 0.9))
    assert low <= high
    for mode in ("mean", "median", "min", "max"):
        assert triton.testing.do_bench(lambda: None, warmup=1, rep=1, return_mode=mode) > 0
    assert isinstance(triton.testing.do_bench(lambda: None, warmup=1, rep=1, return_mode="all"), list)


def test_perf_report(tmp_path, capsys):
    benchmark = triton.testing.Benchmark(x_names=["n"], x_vals=[1, 2], line_arg="provider", line_vals=["a", "b"], line_names=["A", "B"], plot_name="plot", args={"k": 10})

    @triton.testing.perf_report(benchmark)
    def report(n, k, provider):
        return (n * k, 0, 0) if provider == "a" else n + 0.5

    report.run(print_data=True, save_path=tmp_path)
    assert "A" in capsys.readouterr().out
    assert (tmp_path / "plot.csv").read_text() == "n,A,B\n1,10,1.5\n2,20,2.5\n"
    assert report.run(return_df=True) == [[1, 10, 1.5], [2, 20, 2.5]]


def test_assert_close():
    triton.testing.assert_close([1.0], [1.005])
    with pytest.raises(AssertionError):
        triton.testing.assert_close([1.0], [1.1])


def test_helpers():
    assert triton.cdiv(10, 4) == 3 and [triton.next_power_of_2(n) for n in (0, 1, 2, 3, 1025)] == [1, 1, 2, 4, 2048]
    assert isinstance(tl.constexpr(3) * 2, tl.constexpr) and (FACTOR + 1).value == 4 and FACTOR == 3 and bool(tl.constexpr(0)) is False and [0, 1, 2, 5][FACTOR] == 5
    assert tl.float32 == tl.float32 and tl.float32 != tl.float16 and repr(tl.int32) == "triton.language.int32"
    assert triton.CompilationError is tenon.Error and re.match(r"\d+\.\d+", tenon.__version__)


@pytest.mark.parametrize("v, text", [
    (3, "3"), (True, "True"), (None, "None"), ("it's", '"it\'s"'), (0.1, "0.1"), (float("-inf"), "float('-inf')"), (tl.float16, "tl.float16"), (np.float16, "tl.float16"),
    (np.dtype(bool), "tl.int1"), ((1, (2, "x")), "(1, (2, 'x', ), )"), (tl.constexpr(4), "4"), (np.int64(7), "7"), ([], "()"), (ml_dtypes.float8_e4m3fn, "tl.float8e4nv"),
])
def test_literals(v, text):
    assert runtime.literal(v) == text


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_example(name):
    done = subprocess.run([sys.executable, EXAMPLES / f"{name}.py"], env=dict(os.environ, PYTHONPATH=str(PACKAGE)), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith(f"{name}: "), done.stderr


def test_one_version():
    assert f'version = "{tenon.__version__}"' in (PACKAGE / "pyproject.toml").read_text()


# ---- waiting ---------------------------------------------------------------------------------------------------------------------------------


@triton.jit
def wait_plainly(flag, turns, out):
    n = 0
    while tl.load(flag) != 7:
        n += 1
    tl.store(turns, n)
    tl.store(out, tl.load(out + 1) + 1)


@triton.jit
def wait_by_a_copy(flag, turns, out):
    seen = tl.load(flag + tl.arange(0, 2), cache_modifier=".cg")
    while tl.max(seen) != 7:
        seen = tl.load(flag + tl.arange(0, 2), mask=tl.arange(0, 2) < 1, other=0, volatile=True)
    tl.store(out, tl.load(out + 1) + 1)


@pytest.mark.parametrize("kernel", [wait_plainly, wait_by_a_copy])
def test_a_loop_sees_what_others_store(kernel):
    flag, turns, out = zeros(2), zeros(1), zeros(2)
    kernel.warmup(flag, turns, out, grid=(1,))
    thread = threading.Thread(target=lambda: kernel[(1,)](flag, turns, out), daemon=True)
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    out[1] = 41
    flag[0] = 7
    thread.join(20)
    assert not thread.is_alive() and out[0] == 42


def test_loads_of_now():
    for kernel in wait_plainly, wait_by_a_copy:
        text = kernel.warmup(zeros(2), zeros(1), zeros(2), grid=(1,)).asm["tile"]
        assert text.count("atomic_load") == 1 and "acquire.sys" in text
    ptx = wait_plainly.warmup(zeros(2), zeros(1), zeros(2), grid=(1,), machine="sm_80").asm["ptx"]
    assert ptx.count("ld.volatile.global") == 1


def test_tensors_apart():
    """What lets a kernel on a GPU assume that its tensors do not overlap: storages, not tensors."""
    torch = pytest.importorskip("torch")
    from tenon.triton.tensors import apart_on_gpu

    x, y = torch.zeros(64), torch.zeros(64)
    assert apart_on_gpu((x, y)) and apart_on_gpu((x, 3, None, 1.5, True, y[8:]))
    assert not apart_on_gpu((x, y, x)) and not apart_on_gpu((x[:8], x[8:]))
    assert not apart_on_gpu((x, torch.from_dlpack(x[16:])))  # another storage in the same memory
    assert not apart_on_gpu((x, np.zeros(4)))


# ---- what changes behind a kernel's back, and what it must not write --------------------------------------------------------

OFFSET = tl.constexpr(3)
STEP: tl.constexpr = 4
plain_shape = 1  # an attribute of the same name is no reason to look at it


@triton.jit
def moved(v):
    return v + STEP


@triton.jit
def uses_globals(x_ptr, BLOCK: tl.constexpr = 16):
    tl.store(x_ptr + tl.arange(0, BLOCK), moved(tl.zeros([BLOCK], tl.int32) + OFFSET))


def test_globals_that_change_are_refused(monkeypatch):
    x, here = zeros(), sys.modules[__name__]
    uses_globals[(1,)](x)
    assert (x == 7).all()
    monkeypatch.setattr(here, "OFFSET", tl.constexpr(3))  # the same again
    uses_globals[(1,)](x)
    monkeypatch.setattr(here, "OFFSET", tl.constexpr(5))
    refused("'OFFSET' has changed since the kernel was compiled, from constexpr[3] to constexpr[5]", uses_globals, x, error=RuntimeError)
    refused("'OFFSET' has changed", uses_globals, x, error=RuntimeError, BLOCK=8)  # of another kernel of the same text too
    monkeypatch.setattr(here, "OFFSET", tl.constexpr(3))
    monkeypatch.setattr(here, "STEP", 5)  # read by a function that is called
    refused("'STEP' has changed since the kernel was compiled, from 4 to 5", uses_globals, x, error=RuntimeError)
    monkeypatch.setattr(here, "STEP", 4)
    monkeypatch.setattr(here, "moved", scaled)
    refused("'moved' is another function now", uses_globals, x, error=RuntimeError)
    monkeypatch.undo()
    uses_globals[(1,)](x)


def test_closures_that_change_are_refused():
    size = tl.constexpr(2)

    @triton.jit
    def kernel(x_ptr):
        tl.store(x_ptr, tl.zeros([], tl.int32) + size)

    x = zeros()
    kernel[(1,)](x)
    size = tl.constexpr(6)
    refused("'size' has changed", kernel, x, error=RuntimeError)


@triton.jit
def by_pointers(x_ptr, i_ptr, z_ptr, n, which, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    p = x_ptr if which == 1 else z_ptr
    tl.atomic_add(p + tl.load(i_ptr + at, mask=at < n), 1, mask=at < n)


def locked(array):
    array.flags.writeable = False
    return array


def test_arrays_that_nobody_may_write():
    x, z, index = np.arange(16, dtype=np.int32), zeros(), locked(np.arange(16, dtype=np.int32))
    copy[(1,)](locked(x), z, 16, BLOCK=16)
    copy[(1,)](x, z, 16, BLOCK=16)
    assert (z == x).all()
    before = z.copy()
    for _ in range(2):
        refused("copy: argument 'z_ptr' is a read-only array, and the kernel stores to it", copy, x, locked(z), 16, error=TypeError, BLOCK=16)
    assert (z == before).all()
    refused("argument 'x_ptr' is a read-only array", by_pointers, x, index, zeros(), 16, 0, error=TypeError, BLOCK=16)
    refused("argument 'z_ptr' is a read-only array", by_pointers, zeros(), index, z, 16, 0, error=TypeError, BLOCK=16)
    with pytest.raises(TypeError, match="'z_ptr' is a read-only array"):
        copy.warmup(x, z, 16, BLOCK=16)


def test_descriptors_of_arrays_that_nobody_may_write():
    @triton.jit
    def kernel(a, b):
        b.store([0, 0], a.load([0, 0]))

    x, z = locked(np.ones((16, 16), np.float32)), np.zeros((16, 16), np.float32)
    describe = lambda array: TensorDescriptor.from_tensor(array, [16, 16])  # noqa: E731
    kernel[(1,)](describe(x), describe(z))
    assert (z == 1).all()
    refused("argument 'b' is a read-only array", kernel, describe(x), describe(locked(z)), error=TypeError)


class Exporter:
    """Speaks DLPack of a version, of none before 1.0."""

    def __init__(self, array, old=False):
        self.array, self.old = array, old

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        if self.old and "max_version" in options:
            raise TypeError("unexpected max_version")
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("old", [False, True])
def test_versions_of_dlpack(old):
    x, z = np.arange(16, dtype=np.int32), zeros()
    copy[(1,)](Exporter(x, old), Exporter(z, old), 16, BLOCK=16)
    assert (z == x).all()
    z.fill(0)
    if not old:  # before 1.0 nobody could say so, and NumPy exports none
        copy[(1,)](Exporter(locked(x)), Exporter(z), 16, BLOCK=16)
        assert (z == x).all()
        refused("argument 'z_ptr' is a read-only array", copy, Exporter(x), Exporter(locked(z)), 16, error=TypeError, BLOCK=16)


@pytest.mark.parametrize("value,text", [([1, 2], "type list is no number and no tensor"), (np.zeros(3, np.complex64), "elements of type complex64"),
                                        (Exporter(np.zeros(3, np.complex64)), "elements of type complex64"), (2**70, "does not fit 64 bits"), (np.zeros(3, ">f4"), "elements of type >f4")])
def test_arguments_at_fault_are_named(value, text):
    error = OverflowError if value.__class__ is int else TypeError
    assert text in refused("copy: argument 'z_ptr': ", copy, zeros(), value, 3, error=error, BLOCK=16)
    assert text in refused("copy: argument 'x_ptr': ", copy, value, zeros(), 3, error=error, BLOCK=16)


def test_devices_without_kernels():
    torch = pytest.importorskip("torch")
    refused("argument 'z_ptr': a tensor on meta", copy, zeros(), torch.zeros(3, device="meta"), 3, error=TypeError, BLOCK=16)
    refused("argument 'z_ptr': a tensor of layout torch.sparse_coo", copy, zeros(), torch.zeros(3).to_sparse(), 3, error=TypeError, BLOCK=16)


# ---- functions of one element -----------------------------------------------------------------------------------------------


@triton.jit
def piecewise(a, b, K: tl.constexpr):
    y = a
    if a > K:
        if b > 0:
            return a / 2
        y = a + b
    elif a < 1:
        y = 7.0
    else:
        return b * 1.0
    return y * 3


@triton.jit
def larger(a, b):
    c = a if a > b else b
    if a > b:
        return c, 1
    return c, 0


@triton.jit
def by_elements(x_ptr, y_ptr, z_ptr, K: tl.constexpr):
    at = tl.arange(0, 16)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    most, first = tl.map_elementwise(larger, x, 2.0)
    tl.store(z_ptr + at, most)
    tl.store(z_ptr + 16 + at, first)
    tl.store(z_ptr + 32 + at[:, None] * 16 + at[None, :], tl.map_elementwise(piecewise, x[:, None], y[None, :], K))


def test_conditions_of_elements():
    x, y = (np.random.default_rng(seed).normal(0, 3, 16).astype(np.float32) for seed in (0, 1))
    z = np.zeros(32 + 256, np.float32)
    by_elements[(1,)](x, y, z, 1.5)

    def expected(a, b):
        if a > 1.5:
            return a / 2 if b > 0 else (a + b) * 3
        return 21 if a < 1 else b

    np.testing.assert_array_equal(z[:16], np.maximum(x, 2))
    np.testing.assert_array_equal(z[16:32], x > 2)
    np.testing.assert_allclose(z[32:].reshape(16, 16), [[expected(a, b) for b in y] for a in x], rtol=1e-6)


@triton.jit
def stores_some(a, p):
    if a > 1:
        tl.store(p, 1.0)
    return a


@triton.jit
def halves(a):
    while a > 1:
        a = a / 2
    return a


@triton.jit
def maps(x_ptr, f: tl.constexpr, TWO: tl.constexpr):
    at = tl.arange(0, 16)
    if TWO:
        tl.store(x_ptr + at, tl.map_elementwise(f, tl.load(x_ptr + at), x_ptr))
    else:
        tl.store(x_ptr + at, tl.map_elementwise(f, tl.load(x_ptr + at)))


def test_functions_of_elements_only_compute():
    refused("it can't load, store or loop", maps, zeros(), stores_some, True)
    refused("the condition of `while` must be one value", maps, zeros(), halves, False)
