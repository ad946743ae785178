"""Every generated kernel of triton_cases.py, compiled by Tenon for this CPU, against NumPy."""
import ctypes
import dataclasses
import functools
import struct

import numpy as np
import pytest

import triton_cases

HEAD = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n"


@functools.cache
def all_cases(family):
    return {case.name: case for case in triton_cases.cases(family)}


@functools.cache
def module(family):
    """The family's kernels as one text, parsed once."""
    from tenon import _library as c

    text = (HEAD + "".join(case.source for case in all_cases(family).values())).encode()
    handle, unit = c.c_void_p(), c.c_int()
    with c.lock:
        c.check(c.lib.tn_module_new(c.session, ctypes.byref(handle)))
        c.check(c.lib.tn_module_add(handle, f"{family}.py".encode(), 1, text, len(text), ctypes.byref(unit)))
    return handle, unit


def launch(family, case):
    from tenon import _library as c

    handle, unit = module(family)
    arrays, texts, values, kinds = [], [], [], ""
    for v in case.arguments:
        if isinstance(v, tuple):
            texts.append(f"={v[0]!r}")
            continue
        if isinstance(v, np.ndarray):
            arrays.append(v.copy())
            texts.append("*" + triton_cases.SPEC[triton_cases.NAME_OF[v.dtype]])
            values.append(arrays[-1].ctypes.data)
        else:
            arrays.append(None)
            texts.append("f32" if isinstance(v, float) else "i32=1" if v == 1 else "i32:16" if v % 16 == 0 else "i32")
            values.append(v)
        kinds += "d" if isinstance(v, float) else "q"
    kernel = c.c_void_p()
    with c.lock:
        options = c.KernelOptions(cache=b"", threads=1)
        c.check(c.lib.tn_kernel_compile(c.session, handle, unit, case.name.encode(), c.texts(texts), len(texts), ctypes.byref(options), ctypes.byref(kernel)))
        c.diagnostics()
    status = c.lib.tn_kernel_launch(kernel, struct.pack("3q", *case.grid), struct.pack(kinds, *values), len(values))
    c.lib.tn_compiled_kernel_free(kernel)
    assert status == 0, c.lib.tn_kernel_error().decode()
    return arrays


def same(found, wanted, tolerance):
    if wanted.dtype == bool or np.issubdtype(wanted.dtype, np.integer):
        np.testing.assert_array_equal(found, wanted)
        return
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    largest = np.max(np.abs(wanted), initial=0, where=np.isfinite(wanted))
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * largest)


@pytest.mark.parametrize("family, name", [(f, name) for f in triton_cases.FAMILIES for name in all_cases(f)])
def test_case(family, name):
    case = all_cases(family)[name]
    arrays = launch(family, case)
    for i, wanted in case.wanted.items():
        same(arrays[i], wanted, case.tolerance)


def test_gather_of_any_index():
    """What an index outside gives is not said; the process lives, and the other elements are right."""
    case = all_cases("order")["gather_float32_0_16"]
    index = case.arguments[1].copy()
    index[:8] = [2**31 - 1, -(2**31), -1, 8, 10**9, -5, 100, 64]
    arrays = launch("order", dataclasses.replace(case, arguments=[case.arguments[0], index, *case.arguments[2:]]))
    np.testing.assert_array_equal(arrays[2][8:], case.wanted[2][8:])


def test_enough():
    assert sum(len(all_cases(family)) for family in triton_cases.FAMILIES) >= 1500
