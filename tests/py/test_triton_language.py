"""Parts of the language that reach outside it: libdevice and its symbols, instructions of a GPU, what a kernel may ask about its target."""
import re

import numpy as np
import pytest

import tenon
import tenon.triton as triton
import tenon.triton.language as tl
from tenon.triton.language import core
from tenon.triton.language.extra import libdevice

# The functions of triton.language.extra.libdevice in Triton 3.6, by the number and types of their arguments: f fp32 or fp64, s fp32, d fp64, i int32, l int64.
NAMES = {
    "f": "abs floor rint ceil trunc sqrt rsqrt exp exp2 exp10 expm1 log log2 log10 log1p sin cos tan sinpi cospi asin acos atan sinh cosh tanh asinh acosh atanh cbrt "
         "rcbrt j0 j1 y0 y1 cyl_bessel_i0 cyl_bessel_i1 erf erfinv erfc erfcx erfcinv normcdfinv normcdf round nearbyint llrint llround ilogb logb signbit isnan isinf "
         "rcp_rn rcp_rz rcp_rd rcp_ru sqrt_rn sqrt_rz sqrt_rd sqrt_ru",
    "s": "saturatef rsqrt_rn fast_sinf fast_cosf fast_log2f fast_logf fast_expf fast_tanf fast_exp10f fast_log10f lgamma tgamma finitef float_as_int float_as_uint "
         + " ".join(f"float2{to}_{mode}" for to in ("int", "uint", "ll", "ull") for mode in ("rn", "rz", "rd", "ru")),
    "d": "rcp64h isfinited double2loint double2hiint double_as_longlong double2float_rn double2float_rz double2float_rd double2float_ru "
         + " ".join(f"double2{to}_{mode}" for to in ("int", "uint", "ll", "ull") for mode in ("rn", "rz", "rd", "ru")),
    "i": "clz popc brev ffs int_as_float uint_as_float int2double_rn uint2double_rn " + " ".join(f"{of}2float_{mode}" for of in ("int", "uint") for mode in ("rn", "rz", "rd", "ru")),
    "l": "clz popc brev ffs longlong_as_double " + " ".join(f"{of}2{to}_{mode}" for of in ("ll", "ull") for to in ("float", "double") for mode in ("rn", "rz", "rd", "ru")),
    "ff": "pow fmod atan2 copysign nextafter remainder hypot rhypot fdim " + " ".join(f"{of}_{mode}" for of in ("add", "sub", "mul", "div") for mode in ("rn", "rz", "rd", "ru")),
    "ss": "fast_dividef fast_powf", "ii": "mulhi mul24 hadd rhadd hiloint2double", "ll": "mulhi", "if": "jn yn", "fi": "ldexp scalbn pow", "iii": "byte_perm sad",
    "fff": "fma norm3d rnorm3d " + " ".join(f"fma_{mode}" for mode in ("rn", "rz", "rd", "ru")), "ffff": "norm4d rnorm4d",
}
KINDS = {"s": ["float32"], "d": ["float64"], "f": ["float32", "float64"], "i": ["int32"], "l": ["int64"]}


def test_every_name_of_libdevice(tmp_path):
    """Each compiles for each of its types, for a CPU."""
    names, body = set(), ""
    for kinds, text in NAMES.items():
        for name in text.split():
            names.add(name)
            for which in range(max(len(KINDS[k]) for k in kinds)):
                values = ", ".join(f"at.to(tl.{KINDS[k][which % len(KINDS[k])]})" for k in kinds)
                body += f"    tl.store(out + at, libdevice.{name}({values}).to(tl.float32))\n"
    assert len(names) == 197
    lines = body.splitlines(keepends=True)
    for i in range(0, len(lines), 60):
        (tmp_path / "many.py").write_text("import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n@triton.jit\ndef k(out):\n"
                                          "    at = tl.arange(0, 16)\n" + "".join(lines[i:i + 60]))
        compile_text(tmp_path / "many.py")


def compile_text(path):
    import ctypes

    from tenon import _library as c

    text, handle, unit, kernel = path.read_bytes(), c.c_void_p(), c.c_int(), c.c_void_p()
    with c.lock:
        c.check(c.lib.tn_module_new(c.session, ctypes.byref(handle)))
        c.check(c.lib.tn_module_add(handle, str(path).encode(), 1, text, len(text), ctypes.byref(unit)))
        options = c.KernelOptions(cache=b"", threads=1)
        c.check(c.lib.tn_kernel_compile(c.session, handle, unit, b"k", c.texts(["*f32"]), 1, ctypes.byref(options), ctypes.byref(kernel)))
        c.diagnostics()
        c.lib.tn_compiled_kernel_free(kernel)


# ---- extern_elementwise -----------------------------------------------------------------------------------------------------------------


@core.extern
def my_sine(arg0, _semantic=None):
    return core.extern_elementwise("", "", [arg0], {
        (core.dtype("fp32"), ): ("__nv_sinf", core.dtype("fp32")),
        (core.dtype("fp64"), ): ("__nv_sin", core.dtype("fp64")),
    }, is_pure=True, _semantic=_semantic)


@tl.core.extern
def my_fma(a, b, c, _builder=None):
    return tl.extern_elementwise("libdevice", "", [a, b, c], {(tl.float32, tl.float32, tl.float32): ("__nv_fmaf_rd", tl.float32)}, is_pure=True, _builder=_builder)


@triton.jit
def external(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at)
    tl.store(out + at, my_sine(v))
    tl.store(out + BLOCK + at, my_fma(v, v[:1] if False else 3.0, v))
    bits = tl.extern_elementwise("", "", [v], {(tl.float32,): ("__nv_isnanf", tl.int32)}, is_pure=True)
    tl.static_assert(bits.dtype == tl.int32)
    greatest = tl.extern_elementwise("", "", [v[:, None], v[None, :]], {(tl.float32, tl.float32): ("__nv_fmaxf", tl.float32)}, is_pure=True)
    tl.store(out + 2 * BLOCK + at, tl.sum(greatest, 1) + bits)


def test_symbols_of_libdevice():
    x, out = np.linspace(-2, 2, 16, dtype=np.float32), np.zeros(48, np.float32)
    external[(1,)](x, out, 16)
    np.testing.assert_allclose(out[:16], np.sin(x.astype(np.float64)), rtol=2e-7)
    exact = x.astype(np.float64) * 3 + x
    down = exact.astype(np.float32)
    np.testing.assert_array_equal(out[16:32], np.where(down > exact, np.nextafter(down, np.float32(-np.inf)), down))
    np.testing.assert_allclose(out[32:], np.maximum(x[:, None], x[None, :]).sum(1, dtype=np.float64), rtol=1e-5)


@triton.jit
def unknown(x, SYMBOL: tl.constexpr, RESULT: tl.constexpr):
    v = tl.load(x)
    tl.store(x, tl.extern_elementwise("mine", "/mine.bc", [v], {(tl.float32,): (SYMBOL, RESULT)}, is_pure=True))


@pytest.mark.parametrize("symbol, result, dtype, message", [
    ("my_function", tl.float32, np.float32, "the symbol 'my_function' is none of libdevice's"), ("__nv_sinff", tl.float32, np.float32, "'__nv_sinff'"),
    ("__nv__fmin", tl.float32, np.float32, "'__nv__fmin'"), ("__nv_sinf", tl.float64, np.float32, "gives fp32, not fp64"),
    ("__nv_sin", tl.float64, np.float64, "no row for (fp64)"),
])
def test_symbols_that_are_unknown(symbol, result, dtype, message):
    with pytest.raises(tenon.Error, match=re.escape(message)):
        unknown[(1,)](np.zeros(4, dtype), symbol, result)


# ---- the target -------------------------------------------------------------------------------------------------------------------------


@triton.jit
def asks(out):
    cuda: tl.constexpr = tl.target_info.is_cuda()
    tl.store(out, cuda)
    tl.store(out + 1, tl.target_info.is_hip())
    tl.store(out + 2, tl.target_info.cuda_capability_geq(8, 0))
    tl.store(out + 3, tl.target_info.cuda_capability_geq(9))
    tl.store(out + 4, tl.extra.cuda.num_warps())
    tl.store(out + 5, tl.extra.cuda.num_threads())


@triton.jit
def answers(CUDA: tl.constexpr, HOPPER: tl.constexpr):
    tl.static_assert(tl.target_info.is_cuda() == CUDA)
    tl.static_assert(tl.target_info.cuda_capability_geq(8) == CUDA)
    tl.static_assert(tl.target_info.cuda_capability_geq(9, 0) == HOPPER)
    tl.static_assert(not tl.target_info.cuda_capability_geq(10))


@triton.jit
def old_float8():
    tl.extra.cuda.convert_custom_float8_sm80(tl.full((4,), 1.0, tl.float32), tl.float16)


def test_what_a_kernel_asks():
    out = np.zeros(8, np.int32)
    asks[(1,)](out, num_warps=8)
    assert list(out) == [0, 0, 0, 0, 8, 256, 0, 0]
    answers.warmup(CUDA=False, HOPPER=False)
    answers.warmup(CUDA=True, HOPPER=False, machine="sm_80")
    answers.warmup(CUDA=True, HOPPER=True, machine="sm_90a")
    with pytest.raises(tenon.Error, match="convert_custom_float8_sm80: "):
        old_float8.warmup()


@triton.jit
def directed(x, y, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, libdevice.add_rd(a, b))
    tl.store(out + BLOCK + at, libdevice.fma_rz(a, b, a))
    tl.store(out + 2 * BLOCK + at, libdevice.div_ru(a, b) + libdevice.sqrt_rz(a) + libdevice.rcp_rd(b))


@pytest.mark.parametrize("dtype, name", [(np.float32, "f32"), (np.float64, "f64")])
def test_a_gpu_rounds_by_its_instructions(dtype, name):
    x = np.zeros(128, dtype)
    ptx = directed.warmup(x, x, np.zeros(384, dtype), BLOCK=128, machine="sm_80").asm["ptx"]
    for instruction in ("add.rm", "fma.rz", "div.rp", "sqrt.rz", "rcp.rm"):
        assert f"{instruction}.{name}" in ptx, instruction


# ---- instructions -----------------------------------------------------------------------------------------------------------------------


@triton.jit
def flags(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at)
    inverse = tl.inline_asm_elementwise("not.b32 $0, $1;", "=r,r", [v > 0], dtype=tl.int1, is_pure=True, pack=4)
    tl.store(out + at, inverse)


def test_bools_are_packed_bit_by_bit():
    x, out = np.zeros(128, np.float32), np.zeros(128, bool)
    tile = flags.warmup(x, out, BLOCK=128, machine="sm_80").asm["tile"]
    assert tile.count("= asm") == 1 and "32 x u32" in tile


# ---- small parts ------------------------------------------------------------------------------------------------------------------------

# triton.language.__all__ of Triton 3.6, less what docs/triton.md says is refused.
LANGUAGE = """PropagateNan TRITON_MAX_TENSOR_NUMEL load_tensor_descriptor store_tensor_descriptor make_tensor_descriptor tensor_descriptor abs add advance arange argmax
argmin associative_scan assume atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor bfloat16 bitonic_merge block_type broadcast
broadcast_to cat cast cdiv ceil clamp condition constexpr cos cumprod cumsum debug_barrier device_assert device_print div_rn dot dot_scaled dtype erf exp exp2 expand_dims
extra fdiv flip float16 float32 float64 float8e4nv float8e5 floor fma full gather histogram inline_asm_elementwise interleave int1 int16 int32 int64 int8 join load log log2
make_block_ptr map_elementwise math max max_constancy max_contiguous maximum min minimum mul multiple_of num_programs pair_uniform_to_normal permute philox philox_impl
pi32_t pointer_type program_id rand rand4x randint randint4x randn randn4x range ravel reduce reduce_or reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn
static_assert static_print static_range store sub sum swizzle2d target_info tensor topk trans tuple uint16 uint32 uint64 uint8 uint_to_uniform_float umulhi view where xor_sum
zeros zeros_like""".split()
REFUSED = ["const", "constexpr_type", "float8e4b15", "float8e4b8", "float8e5b16", "slice", "void"]


@triton.jit
def has(out, NAMES: tl.constexpr):
    for name in tl.static_range(len(NAMES)):
        tl.store(out + name, hasattr(tl, NAMES[name]))


def test_names():
    names = LANGUAGE + REFUSED
    assert len(names) == 140
    out = np.zeros(len(names), np.int32)
    has[(1,)](out, tuple(names))
    assert [name for name, found in zip(names, out) if not found] == REFUSED


@triton.jit
def parts(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    i = n
    while tl.condition(i > 3, disable_licm=True):
        i -= 3
    pair = tl.tuple((i, at))
    v = tl.load(x + pair[1])
    tl.store(out + at, tl.bitonic_merge(v, descending=True) + pair[0])
    key: tl.constexpr = tl.core.get_int_dtype(bitwidth=v.dtype.primitive_bitwidth, signed=True)
    tl.static_assert(key == tl.int32 and tl.core.get_int_dtype(8, False) == tl.uint8)
    tl.static_assert(key.get_int_max_value() == 2147483647 and tl.int8.get_int_min_value() == -128 and tl.uint64.get_int_max_value() == 18446744073709551615)
    tl.static_assert(not v.dtype.is_fp8e4b15() and not v.dtype.is_void() and v.type.nbytes == 4 * BLOCK)
    a, b, c, d = tl.rand4x(seed=3, offsets=at)
    tl.store(out + BLOCK + at, a + d)


def test_small_parts():
    x, out = np.random.default_rng(1).standard_normal(16).astype(np.float32), np.zeros(32, np.float32)
    parts[(1,)](x, out, 11, 16)
    np.testing.assert_allclose(out[:16], np.sort(x)[::-1] + 2, rtol=1e-6)
    assert ((out[16:] > 0) & (out[16:] < 2)).all()


@triton.jit
def speaks(x, BLOCK: tl.constexpr):
    tl.static_print("BLOCK =", BLOCK)
    tl.store(x + tl.arange(0, BLOCK), BLOCK)


def test_what_is_printed_while_a_kernel_is_compiled(capfd):
    x = np.zeros(8, np.int32)
    speaks[(1,)](x, 8)
    speaks[(1,)](x, 8)
    assert capfd.readouterr().out == "BLOCK = 8\n"
