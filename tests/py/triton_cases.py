"""Generated kernels in Triton's language with what NumPy says they must give: operators, types, shapes, masks.

A case is a kernel's text, its arguments, and the wanted contents of its results. The rules of types are written down here a second time, from the language's
description, so that the front end's are checked against something."""
import dataclasses
import itertools

import ml_dtypes
import numpy as np

BF16, E4M3, E5M2 = (np.dtype(t) for t in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2))
TYPES = {name: np.dtype(t) for name, t in dict(
    int1="bool", int8="i1", int16="i2", int32="i4", int64="i8", uint8="u1", uint16="u2", uint32="u4", uint64="u8", float16="f2", bfloat16=BF16, float32="f4",
    float64="f8", float8e4nv=E4M3, float8e5=E5M2).items()}
SPEC = dict(int1="i1", int8="i8", int16="i16", int32="i32", int64="i64", uint8="u8", uint16="u16", uint32="u32", uint64="u64", float16="f16", bfloat16="bf16",
            float32="f32", float64="f64", float8e4nv="f8e4m3", float8e5="f8e5m2")
INTEGERS = [t for t in TYPES if "int" in t and t != "int1"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
NAME_OF = {t: name for name, t in TYPES.items()}
EPS = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-23, "float64": 2**-52, "float8e4nv": 2**-3, "float8e5": 2**-2}


@dataclasses.dataclass
class Case:
    name: str
    source: str               # a kernel called `name`
    arguments: list           # arrays, ints, floats; (value,) is a constant
    wanted: dict              # argument index -> array
    tolerance: float = 0      # relative, and absolute of the largest
    grid: tuple = (1, 1, 1)


def is_int(t):
    return t in INTEGERS or t == "int1"


def is_signed(t):
    return t.startswith("int") and t != "int1"


def bits(t):
    return 1 if t == "int1" else TYPES[t].itemsize * 8


def promote(a, b, division=False):
    """The type in which a and b, both tiles, are computed; None: refused."""
    for t in ("float64", "float32"):
        if t in (a, b):
            return t
    if "float16" in (a, b):
        return "float32" if division else "float16"
    if "bfloat16" in (a, b):
        return "bfloat16" if a == b and not division else "float32"
    if "float8e4nv" in (a, b) or "float8e5" in (a, b):
        return None
    if division and is_signed(a) != is_signed(b):
        return None
    if is_signed(a) == is_signed(b):
        return max(a, b, key=bits)
    s, u = (a, b) if is_signed(a) else (b, a)
    return u if bits(u) >= bits(s) else s


def values(rng, t, n, small=False):
    """n values of a type: of all sizes, with the special ones among them."""
    d = TYPES[t]
    if t == "int1":
        return rng.integers(0, 2, n).astype(bool)
    if is_int(t):
        info = np.iinfo(d)
        x = rng.integers(max(info.min, -100), min(info.max, 100), n) if small else rng.integers(info.min, info.max, n, dtype=d, endpoint=True)
        x = np.asarray(x, dtype=d)
        if not small and n >= 4:
            x[:4] = [info.min, info.max, 0, 1]
        return x
    x = rng.standard_normal(n) * (4 if small else 30)
    return x.astype(d)


def convert(x, t):
    """Triton's conversion: to bool is != 0, floats to integers truncate, small floats saturate."""
    d = TYPES[t]
    if x.dtype == d:
        return x
    if t == "int1":
        return x.astype(np.float64) != 0 if not is_int(NAME_OF[x.dtype]) else x != 0
    if t in ("float8e4nv", "float8e5"):
        most = float(ml_dtypes.finfo(d).max)
        return np.clip(x.astype(np.float32), -most, most).astype(d)
    with np.errstate(all="ignore"):
        if is_int(t) and not is_int(NAME_OF[x.dtype]):
            return np.trunc(x.astype(np.float64)).astype(d)
        if x.dtype in (BF16, E4M3, E5M2) or d == BF16:
            wide = x.astype(np.float64 if x.dtype.itemsize == 8 or x.dtype in (np.int32, np.uint32) else np.float32)
            return wide.astype(np.float32).astype(d) if d == BF16 and x.dtype != np.float64 else wide.astype(d)
        return x.astype(d)


def computed(fn, t, *operands):
    """fn in type t, rounded once: half types through f32."""
    with np.errstate(all="ignore"):
        if t in ("float16", "bfloat16"):
            return fn(*(x.astype(np.float32) for x in operands)).astype(TYPES[t])
        return fn(*operands)


# ---- operators of two tiles -----------------------------------------------------------------------------------------------

def _truncated(q):
    """Integer division and remainder that truncate, from exact floor ones."""
    def apply(x, y):
        with np.errstate(all="ignore"):
            if np.issubdtype(x.dtype, np.floating):
                return np.fmod(x, y)
            quotient = np.floor_divide(x, y)
            inexact = (np.remainder(x, y) != 0) & ((x < 0) != (y < 0))
            quotient = quotient + inexact.astype(x.dtype)
            return quotient if q else x - quotient * y
    return apply


BINARY = {
    "add": ("x + y", np.add), "sub": ("x - y", np.subtract), "mul": ("x * y", np.multiply), "div": ("x / y", np.divide),
    "floordiv": ("x // y", _truncated(True)), "mod": ("x % y", _truncated(False)),
    "and": ("x & y", np.bitwise_and), "or": ("x | y", np.bitwise_or), "xor": ("x ^ y", np.bitwise_xor),
    "eq": ("x == y", np.equal), "ne": ("x != y", np.not_equal), "lt": ("x < y", np.less), "le": ("x <= y", np.less_equal), "gt": ("x > y", np.greater),
    "ge": ("x >= y", np.greater_equal), "minimum": ("tl.minimum(x, y)", np.minimum), "maximum": ("tl.maximum(x, y)", np.maximum),
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

TILE_1D = """
@triton.jit
def {name}(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    y = tl.load(y_ptr + at, mask=at < n)
    tl.store(z_ptr + at, {expression}, mask=at < n)
"""
TILE_2D = """
@triton.jit
def {name}(x_ptr, y_ptr, z_ptr, rows, cols, stride, R: tl.constexpr, C: tl.constexpr):
    i = tl.program_id(0) * R + tl.arange(0, R)
    j = tl.arange(0, C)
    at = i[:, None] * stride + j[None, :]
    inside = (i[:, None] < rows) & (j[None, :] < cols)
    x = tl.load(x_ptr + at, mask=inside)
    y = tl.load(y_ptr + j, mask=j < cols)
    tl.store(z_ptr + at, {expression}, mask=inside)
"""


def binary(op, a, b, flat, rng):
    expression, fn = BINARY[op]
    division = op in ("div", "floordiv", "mod")
    t = promote(a, b, division)
    if t is None or (op in ("and", "or", "xor") and not (is_int(a) and is_int(b))) or (op == "floordiv" and not (is_int(a) and is_int(b))):
        return None
    if op == "div" and is_int(a) and is_int(b):
        t = "float32"
    if t == "int1" and op not in ("and", "or", "xor", *COMPARISONS):
        return None
    rows, cols, stride, n = 5, 13, 17, 77
    count = n if flat else rows * stride
    x, y = values(rng, a, count, small=op == "mod"), values(rng, b, n if flat else cols, small=op == "mod")
    if division and is_int(b):
        y[y == 0] = 3
        if op in ("floordiv", "mod") and is_signed(b):
            y[y == -1] = 2  # the least number by -1 is undefined
    out = "int1" if op in COMPARISONS else t
    xt, yt = convert(x, t), convert(y, t)
    if flat:
        z = computed(fn, t, xt, yt) if op not in COMPARISONS else fn(xt.astype(np.float64) if t == "bfloat16" else xt, yt.astype(np.float64) if t == "bfloat16" else yt)
    else:
        full = np.broadcast_to(np.pad(yt, (0, stride - cols)), (rows, stride))
        xx = xt.reshape(rows, stride)
        full = np.where(full == 0, 1, full).astype(full.dtype) if division else full
        z = computed(fn, t, xx, full) if op not in COMPARISONS else fn(xx.astype(np.float64) if t == "bfloat16" else xx, full.astype(np.float64) if t == "bfloat16" else full)
    z = np.asarray(z, dtype=TYPES[out])
    wanted = np.zeros(count, TYPES[out])
    if flat:
        wanted[:] = z
        arguments = [x, y, np.zeros(count, TYPES[out]), n, (32,)]
        grid = (-(-n // 32), 1, 1)
    else:
        w = wanted.reshape(rows, stride)
        w[:, :cols] = z[:, :cols]
        arguments = [x, y, np.zeros(count, TYPES[out]), rows, cols, stride, (4,), (16,)]
        grid = (2, 1, 1)
    name = f"{op}_{a}_{b}_{'flat' if flat else 'rows'}"
    tolerance = 4 * EPS[t] if (division and t in EPS) else 0
    return Case(name, (TILE_1D if flat else TILE_2D).format(name=name, expression=expression), arguments, {2: wanted}, tolerance, grid)


def binary_cases(rng):
    plain = [t for t in TYPES if not t.startswith("float8")]
    for op in BINARY:
        pairs = [(t, t) for t in plain]
        others = [p for p in itertools.permutations(plain, 2)]
        pairs += [others[i] for i in rng.choice(len(others), 34, replace=False)]
        for i, (a, b) in enumerate(pairs):
            case = binary(op, a, b, i % 2 == 0, rng)
            if case:
                yield case


# ---- a tile and a constant or a scalar argument ------------------------------------------------------------------------------

TILE_SCALAR = """
@triton.jit
def {name}(x_ptr, z_ptr, s, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(z_ptr + at, {expression}, mask=at < n)
"""


def scalar_type(t, kind, division):
    """The type of a tile of t with a scalar or literal of kind int (i32) or float (f32)."""
    if kind == "float" and is_int(t):
        return "float32"
    if t in ("float16", "bfloat16") and division:
        return "float32"
    return t


def scalar_cases(rng):
    forms = {"add": ("{x} + {s}", np.add), "rsub": ("{s} - {x}", lambda x, s: np.subtract(s, x)), "mul": ("{x} * {s}", np.multiply), "less": ("{x} < {s}", np.less),
             "max": ("tl.maximum({x}, {s})", np.maximum), "mod": ("{x} % {s}", _truncated(False))}
    for (form, (text, fn)), t, kind, literal in itertools.product(forms.items(), INTEGERS + FLOATS, ("int", "float"), (True, False)):
        if form == "mod" and kind == "int" and is_int(t) and not is_signed(t) and not literal:
            continue  # i32 and unsigned: refused
        if form == "mod" and kind == "float" and t == "float64":
            continue
        s = 5 if kind == "int" else 2.5
        ct = scalar_type(t, kind, form == "mod")
        if form == "mod" and not is_int(ct) and literal and kind == "int":
            continue
        n = 45
        x = values(rng, t, n, small=True)
        xt, st = convert(x, ct), np.asarray(s).astype(TYPES[ct])
        z = computed(fn, ct, xt, st) if form != "less" else fn(xt.astype(np.float64), np.float64(s))
        out = "int1" if form == "less" else ct
        name = f"scalar_{form}_{t}_{kind}_{'literal' if literal else 'argument'}"
        expression = text.format(x="x", s=repr(s) if literal else "s")
        yield Case(name, TILE_SCALAR.format(name=name, expression=expression), [x, np.zeros(n, TYPES[out]), s, n, (64,)], {1: np.asarray(z, dtype=TYPES[out])},
                   4 * EPS[ct] if form == "mod" and ct in EPS else 0)


# ---- functions of one tile -----------------------------------------------------------------------------------------------------

TILE_UNARY = """
@triton.jit
def {name}(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other={other})
    tl.store(z_ptr + at, {expression}, mask=at < n)
"""


def _erf(x):
    import math

    return np.vectorize(math.erf, otypes=[np.float64])(x)


UNARY = {  # text, exact function on float64, domain
    "exp": ("tl.exp(x)", np.exp, (-20, 20)), "exp2": ("tl.exp2(x)", np.exp2, (-20, 20)), "log": ("tl.log(x)", np.log, (1e-3, 100)),
    "log2": ("tl.log2(x)", np.log2, (1e-3, 100)), "sin": ("tl.sin(x)", np.sin, (-10, 10)), "cos": ("tl.cos(x)", np.cos, (-10, 10)),
    "sqrt": ("tl.sqrt(x)", np.sqrt, (0, 100)), "rsqrt": ("tl.rsqrt(x)", lambda v: 1 / np.sqrt(v), (1e-3, 100)), "erf": ("tl.erf(x)", _erf, (-3, 3)),
    "floor": ("tl.floor(x)", np.floor, (-50, 50)), "ceil": ("tl.ceil(x)", np.ceil, (-50, 50)), "abs": ("tl.abs(x)", np.abs, (-50, 50)),
    "sigmoid": ("tl.sigmoid(x)", lambda v: 1 / (1 + np.exp(-v)), (-20, 20)), "tanh": ("libdevice.tanh(x)", np.tanh, (-5, 5)),
    "expm1": ("libdevice.expm1(x)", np.expm1, (-3, 3)), "log1p": ("libdevice.log1p(x)", np.log1p, (-0.5, 50)), "asin": ("libdevice.asin(x)", np.arcsin, (-1, 1)),
    "acos": ("libdevice.acos(x)", np.arccos, (-1, 1)), "atan": ("libdevice.atan(x)", np.arctan, (-50, 50)), "sinh": ("libdevice.sinh(x)", np.sinh, (-5, 5)),
    "cosh": ("libdevice.cosh(x)", np.cosh, (-5, 5)), "cbrt": ("libdevice.cbrt(x)", np.cbrt, (-50, 50)), "rint": ("libdevice.rint(x)", np.rint, (-50, 50)),
    "trunc": ("libdevice.trunc(x)", np.trunc, (-50, 50)), "fma": ("tl.fma(x, x, x)", lambda v: v * v + v, (-9, 9)), "neg": ("-x", np.negative, (-9, 9)),
    "clamp": ("tl.clamp(x, -1.5, 2.5)", lambda v: np.clip(v, -1.5, 2.5), (-9, 9)), "where": ("tl.where(x > 0, x, x * 0.5)", lambda v: np.where(v > 0, v, v * 0.5), (-9, 9)),
    "pow": ("libdevice.pow(x, x)", lambda v: v**v, (0.1, 5))
}


def unary_cases(rng):
    for (op, (text, fn, (low, high))), t, n in itertools.product(UNARY.items(), ("float32", "float64"), (1, 50)):
        x = rng.uniform(low, high, n).astype(TYPES[t])
        z = fn(x.astype(np.float64)).astype(TYPES[t])
        name = f"{op}_{t}_{n}"
        yield Case(name, TILE_UNARY.format(name=name, expression=text, other=1.0), [x, np.zeros(n, TYPES[t]), n, (32,)], {1: z}, 16 * EPS[t], (-(-n // 32), 1, 1))
    for t in INTEGERS:
        x = values(rng, t, 40)
        forms = [("invert", "~x", np.invert(x))] + ([("neg", "-x", np.negative(x)), ("abs", "tl.abs(x)", np.abs(x))] if is_signed(t) else [])
        for shift in (0, 1, bits(t) - 1):
            forms += [(f"shl{shift}", f"x << {shift}", np.left_shift(x, np.array(shift, x.dtype))), (f"shr{shift}", f"x >> {shift}", np.right_shift(x, np.array(shift, x.dtype)))]
        if bits(t) >= 32:
            wide = [int(v) * int(v) >> bits(t) for v in x.view(TYPES[f"uint{bits(t)}"])]
            if not is_signed(t):
                forms.append(("umulhi", "tl.umulhi(x, x)", np.array(wide, dtype=x.dtype)))
        for op, text, z in forms:
            name = f"{op}_{t}"
            yield Case(name, TILE_UNARY.format(name=name, expression=text, other=0), [x, np.zeros(40, TYPES[t]), 40, (64,)], {1: z})


def cast_cases(rng):
    for a, b in itertools.product(TYPES, TYPES):
        if a == b:
            continue
        n = 50
        x = values(rng, a, n, small=not is_int(b) or not is_int(a))
        if not is_int(a) and is_int(b):
            x = np.abs(x.astype(np.float32)).astype(TYPES[a]) if not is_signed(b) else x
        if b.startswith("float8"):
            x = np.where(np.arange(n) % 7 == 0, np.asarray(x, np.float64) * 100, np.asarray(x, np.float64))
            x = convert(x.astype(np.float32), a) if not is_int(a) else values(rng, a, n, small=True)
        z = convert(x, b)
        name = f"cast_{a}_{b}"
        yield Case(name, TILE_UNARY.format(name=name, expression=f"x.to(tl.{b})", other=0), [x, np.zeros(n, TYPES[b]), n, (64,)], {1: z})
    for a, b in [("float32", "int32"), ("int32", "float32"), ("float16", "int16"), ("int16", "bfloat16"), ("float64", "int64"), ("uint64", "float64"), ("uint8", "int8"),
                 ("uint32", "int32"), ("bfloat16", "uint16"), ("int64", "uint64"), ("float8e5", "int8"), ("uint8", "float8e4nv")]:
        n = 33
        x = values(rng, a, n)
        name = f"bitcast_{a}_{b}"
        yield Case(name, TILE_UNARY.format(name=name, expression=f"x.to(tl.{b}, bitcast=True)", other=0), [x, np.zeros(n, TYPES[b]), n, (64,)], {1: x.view(TYPES[b])})


# ---- reductions and scans ------------------------------------------------------------------------------------------------------------

REDUCE_1D = """
@triton.jit
def {name}(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n{other})
    tl.store(z_ptr, {expression})
"""
REDUCE_2D = """
@triton.jit
def {name}(x_ptr, z_ptr, rows, cols, R: tl.constexpr, C: tl.constexpr):
    i = tl.arange(0, R)
    j = tl.arange(0, C)
    x = tl.load(x_ptr + i[:, None] * cols + j[None, :], mask=(i[:, None] < rows) & (j[None, :] < cols){other})
    k = {kept}
    tl.store(z_ptr + k, {expression}, mask=k < {limit})
"""


def reduce_cases(rng):
    def total(x, axis):
        t = NAME_OF[x.dtype]
        if is_int(t) and bits(t) < 32:
            return x.astype(np.int32 if is_signed(t) else np.uint32).sum(axis=axis, dtype=np.int32 if is_signed(t) else np.uint32)
        return x.astype(np.float64).sum(axis=axis).astype(x.dtype) if not is_int(t) else x.sum(axis=axis, dtype=x.dtype)

    forms = {"sum": (total, 0), "max": (lambda x, a: x.max(axis=a), None), "min": (lambda x, a: x.min(axis=a), None),
             "argmax": (lambda x, a: x.argmax(axis=a).astype(np.int32), None), "argmin": (lambda x, a: x.argmin(axis=a).astype(np.int32), None),
             "xor_sum": (lambda x, a: np.bitwise_xor.reduce(x, axis=a), 0)}
    for (op, (fn, neutral)), t, axis in itertools.product(forms.items(), INTEGERS + FLOATS, (None, 0, 1)):
        if op == "xor_sum" and not is_int(t):
            continue
        masked = axis != 1 or op == "sum"  # lanes past the end are absent: no reduction sees them
        rows, cols, n = (5, 13, 50) if masked else (8, 16, 64)
        x = values(rng, t, n if axis is None else rows * cols, small=op == "sum" and not is_int(t))
        z = np.atleast_1d(fn(x if axis is None else x.reshape(rows, cols), axis))
        if is_int(t) and bits(t) < 32 and op in ("max", "min"):
            z = z.astype(np.int32 if is_signed(t) else np.uint32)
        elif t in ("float16", "bfloat16") and op in ("max", "min"):
            z = z.astype(np.float32)
        name = f"{op}_{t}_{'flat' if axis is None else axis}"
        tolerance = 32 * EPS[t] if op == "sum" and t in EPS else 0
        if axis is None:
            source = REDUCE_1D.format(name=name, expression=f"tl.{op}(x, axis=0)", other="")
            arguments = [x, np.zeros(1, z.dtype), n, (64,)]
        else:
            kept = "i" if axis == 1 else "j"
            source = REDUCE_2D.format(name=name, expression=f"tl.{op}(x, axis={axis})", other="", kept=kept, limit="rows" if axis == 1 else "cols")
            arguments = [x, np.zeros(rows if axis == 1 else cols, z.dtype), rows, cols, (8,), (16,)]
        yield Case(name, source, arguments, {1: z}, tolerance)


SCAN = """
@triton.jit
def {name}_combine(a, b):
    return {combine}


@triton.jit
def {name}(x_ptr, z_ptr, R: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(z_ptr + at, {expression})
"""


def scan_cases(rng):
    forms = {"cumsum": ("tl.cumsum(x, axis={axis}, reverse={reverse})", "a + b", np.add), "cumprod": ("tl.cumprod(x, axis={axis}, reverse={reverse})", "a * b", np.multiply),
             "scan_max": ("tl.associative_scan(x, {axis}, {name}_combine, reverse={reverse})", "tl.maximum(a, b)", np.maximum),
             "scan_sum": ("tl.associative_scan(x, {axis}, {name}_combine, reverse={reverse})", "a + b", np.add)}
    for (op, (text, combine, fn)), t, axis, reverse in itertools.product(forms.items(), ("int32", "int64", "uint32", "float32", "float64"), (0, 1), (False, True)):
        r, c = 4, 16
        x = values(rng, t, r * c, small=True) if op != "cumprod" or is_int(t) else (1 + 0.2 * rng.standard_normal(r * c)).astype(TYPES[t])
        m = x.reshape(r, c).astype(np.float64) if not is_int(t) else x.reshape(r, c)
        m = np.flip(m, axis) if reverse else m
        with np.errstate(all="ignore"):
            z = fn.accumulate(m, axis=axis, dtype=m.dtype)
        z = (np.flip(z, axis) if reverse else z).astype(TYPES[t])
        name = f"{op}_{t}_{axis}_{'back' if reverse else 'on'}"
        yield Case(name, SCAN.format(name=name, combine=combine, expression=text.format(axis=axis, reverse=reverse, name=name)),
                   [x, np.zeros(r * c, TYPES[t]), (r,), (c,)], {1: z.reshape(-1)}, 64 * EPS.get(t, 0))


# ---- shapes ------------------------------------------------------------------------------------------------------------------------------

SHAPE = """
@triton.jit
def {name}(x_ptr, z_ptr, A: tl.constexpr, B: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, A)[:, None] * B + tl.arange(0, B)[None, :])
    z = {expression}
    tl.store(z_ptr + tl.arange(0, {n}), tl.reshape(z, ({n},)))
"""
SHAPES = {
    "trans": ("tl.trans(x)", lambda x: x.T), "trans_method": ("x.T", lambda x: x.T), "permute": ("tl.permute(x, (1, 0))", lambda x: x.T),
    "reshape": ("tl.trans(tl.reshape(x, (B, A)))", lambda x: x.reshape(x.shape[1], x.shape[0]).T), "ravel": ("tl.ravel(x)", lambda x: x),
    "flip0": ("tl.flip(x, 0)", lambda x: x[::-1]), "flip1": ("tl.flip(x, 1)", lambda x: x[:, ::-1]),
    "expand": ("tl.broadcast_to(tl.expand_dims(x, 1), (A, 2, B))", lambda x: np.broadcast_to(x[:, None, :], (x.shape[0], 2, x.shape[1]))),
    "join": ("tl.join(x, x + x)", lambda x: np.stack([x, x + x], -1)), "interleave": ("tl.interleave(x, x + x)", lambda x: np.stack([x, x + x], -1)),
    "permute3": ("tl.permute(tl.reshape(x, (A, 2, B // 2)), (2, 0, 1))", lambda x: x.reshape(x.shape[0], 2, -1).transpose(2, 0, 1)),
    "row": ("x + tl.sum(x, axis=0)[None, :]", lambda x: x + x.sum(0, dtype=x.dtype)[None, :]), "column": ("x + tl.max(x, axis=1, keep_dims=True)", lambda x: x + x.max(1, keepdims=True)),
    "cat": ("tl.cat(tl.ravel(x), tl.ravel(x + x), can_reorder=True)", lambda x: np.concatenate([x.ravel(), (x + x).ravel()])),
}


def shape_cases(rng):
    for (op, (text, fn)), t, (a, b) in itertools.product(SHAPES.items(), ("int32", "int64", "float32"), ((1, 4), (8, 2), (4, 32))):
        if t == "float32" and op == "row":
            continue
        x = np.round(values(rng, t, a * b, small=True)).astype(TYPES[t])
        z = np.ascontiguousarray(fn(x.reshape(a, b))).reshape(-1).astype(TYPES[t])
        name = f"{op}_{t}_{a}x{b}"
        yield Case(name, SHAPE.format(name=name, expression=text, n=z.size), [x, np.zeros(z.size, TYPES[t]), (a,), (b,)], {1: z})
    split = """
@triton.jit
def {name}(x_ptr, y_ptr, z_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    first, second = tl.split(tl.load(x_ptr + at[:, None] * 2 + tl.arange(0, 2)[None, :]))
    tl.store(y_ptr + at, first)
    tl.store(z_ptr + at, second)
"""
    for t, n in itertools.product(("int8", "int32", "float16", "float64"), (1, 16)):
        x = values(rng, t, 2 * n)
        name = f"split_{t}_{n}"
        yield Case(name, split.format(name=name), [x, np.zeros(n, TYPES[t]), np.zeros(n, TYPES[t]), (n,)], {1: x[::2], 2: x[1::2]})


# ---- memory ----------------------------------------------------------------------------------------------------------------------------------

STRIDED = """
@triton.jit
def {name}(x_ptr, z_ptr, rows, cols, sx0, sx1, sz0, sz1, R: tl.constexpr, C: tl.constexpr):
    i = tl.program_id(0) * R + tl.arange(0, R)
    j = tl.program_id(1) * C + tl.arange(0, C)
    inside = (i[:, None] < rows) & (j[None, :] < cols)
    x = tl.load(x_ptr + i[:, None] * sx0 + j[None, :] * sx1, mask=inside, other={other})
    tl.store(z_ptr + i[:, None] * sz0 + j[None, :] * sz1, x{extra}, mask=inside)
"""
BLOCKS = """
@triton.jit
def {name}(x_ptr, z_ptr, rows, cols, R: tl.constexpr, C: tl.constexpr):
    x_block = tl.make_block_ptr(x_ptr, (rows, cols), (cols, 1), (tl.program_id(0) * R, 0), (R, C), (1, 0))
    z_block = tl.make_block_ptr(z_ptr, (rows, cols), (cols, 1), (tl.program_id(0) * R, 0), (R, C), (1, 0))
    for j in range(0, cols, C):
        x = tl.load(x_block, boundary_check=(0, 1), padding_option="zero")
        tl.store(z_block, x + x, boundary_check=(0, 1))
        x_block = tl.advance(x_block, (0, C))
        z_block = tl.advance(z_block, (0, C))
"""
DESCRIPTORS = """
@triton.jit
def {name}(x_ptr, z_ptr, rows, cols, R: tl.constexpr, C: tl.constexpr):
    x_desc = tl.make_tensor_descriptor(x_ptr, [rows, cols], [cols, 1], [R, C])
    z_desc = tl.make_tensor_descriptor(z_ptr, [rows, cols], [cols, 1], [R, C])
    i = tl.program_id(0) * R
    for j in range(0, cols, C):
        z_desc.store([i, j], x_desc.load([i, j]) + {add})
"""
INDEXED = """
@triton.jit
def {name}(x_ptr, index_ptr, z_ptr, n, width, BLOCK: tl.constexpr, W: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(index_ptr + at, mask=at < n, other=0)
    j = tl.arange(0, W)
    inside = (at[:, None] < n) & (j[None, :] < width)
    x = tl.load(x_ptr + row[:, None] * width + j[None, :], mask=inside)
    tl.store(z_ptr + at[:, None] * width + j[None, :], x, mask=inside)
"""
WALKED = """
@triton.jit
def {name}(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + cols
    total = tl.zeros([BLOCK], tl.{t})
    for k in range(0, tl.cdiv(n, BLOCK)):
        total += tl.load(x_ptrs, mask=cols < n - k * BLOCK, other=0)
        x_ptrs += BLOCK
    tl.store(z_ptr + cols, total)
"""


def memory_cases(rng):
    types = ("int8", "int16", "int32", "int64", "uint8", "float16", "bfloat16", "float32", "float64")
    for t, order, (rows, cols) in itertools.product(types, ("rows", "columns", "turned", "gaps"), ((7, 13), (1, 1), (16, 32))):
        x = values(rng, t, 4 * rows * cols)
        sx = (cols, 1) if order != "columns" else (1, rows)
        sx = (2 * cols, 2) if order == "gaps" else sx
        sz = (cols, 1) if order != "turned" else (1, rows)
        view = lambda buffer, s: np.lib.stride_tricks.as_strided(buffer, (rows, cols), tuple(v * buffer.itemsize for v in s))
        z = np.zeros(4 * rows * cols, TYPES[t])
        wanted = z.copy()
        view(wanted, sz)[:] = view(x, sx)
        name = f"strided_{t}_{order}_{rows}x{cols}"
        yield Case(name, STRIDED.format(name=name, other=0, extra=""), [x, z, rows, cols, *sx, *sz, (4,), (16,)], {1: wanted}, 0, (-(-rows // 4), -(-cols // 16), 1))
    for t, (rows, cols), form in itertools.product(types, ((9, 21), (4, 16), (1, 3)), ("blocks", "descriptors")):
        x = values(rng, t, rows * cols, small=True)
        name = f"{form}_{t}_{rows}x{cols}"
        text = (BLOCKS if form == "blocks" else DESCRIPTORS).format(name=name, add="x_desc.load([i, j])")
        yield Case(name, text, [x, np.zeros(rows * cols, TYPES[t]), rows, cols, (4,), (16,)], {1: computed(np.add, t, x, x)}, 0, (-(-rows // 4), 1, 1))
    for t, index, n in itertools.product(types, ("int32", "int64"), (1, 19)):
        width, height = 11, 23
        x, at = values(rng, t, height * width), rng.integers(0, height, n).astype(TYPES[index])
        name = f"indexed_{t}_{index}_{n}"
        yield Case(name, INDEXED.format(name=name), [x, at, np.zeros(n * width, TYPES[t]), n, width, (8,), (16,)], {2: x.reshape(height, width)[at].reshape(-1)}, 0, (-(-n // 8), 1, 1))
    for t, n in itertools.product(("int32", "int64", "float32", "float64"), (0, 1, 16, 75, 128)):
        x = np.round(values(rng, t, max(n, 1), small=True)).astype(TYPES[t])
        padded = np.zeros(-(-n // 16) * 16, TYPES[t])
        padded[:n] = x[:n]
        name = f"walked_{t}_{n}"
        yield Case(name, WALKED.format(name=name, t=t), [x, np.zeros(16, TYPES[t]), n, (16,)], {1: padded.reshape(-1, 16).sum(0, dtype=TYPES[t])})


HASHED = """
@triton.jit
def {name}(z_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(z_ptr + i, i + 1, mask={hash} > n)
"""


def hash_cases(rng):
    """Masks of numbers that wrap around: 32-bit arithmetic is taken as written there."""
    for at, (text, factor, term) in enumerate((("i * 1103515245 + 12345", 1103515245, 12345), ("i * -1640531527", -1640531527, 0), ("(i + 2000000000) * 7", 7, 14000000000))):
        i = np.arange(1024, dtype=np.int64)
        h = ((i * factor + term) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        name = f"hashed_{at}"
        yield Case(name, HASHED.format(name=name, hash=text), [np.zeros(1024, np.int32), 5, (1024,)], {0: np.where(h > 5, i + 1, 0).astype(np.int32)})


ATOMIC = """
@triton.jit
def {name}(x_ptr, at_ptr, z_ptr, old_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0)
    at = tl.load(at_ptr + i, mask=i < n, other=0)
    old = tl.atomic_{op}(z_ptr + at, x, mask=i < n)
    tl.store(old_ptr + i, old, mask=i < n)
"""


def atomic_cases(rng):
    forms = {"add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "xchg": lambda old, x: x}
    for (op, fn), t in itertools.product(forms.items(), ("int32", "uint32", "int64", "uint64", "float32", "float64")):
        if op in ("and", "or", "xor") and not is_int(t):
            continue
        n, places = 61, 16
        x = np.round(values(rng, t, n, small=True)).astype(TYPES[t])
        at = rng.integers(0, places, n).astype(np.int32) if op != "xchg" else np.arange(n, dtype=np.int32)
        z = np.round(values(rng, t, max(places, n), small=True)).astype(TYPES[t])
        wanted = z.copy()
        for i in range(n):
            wanted[at[i]] = fn(wanted[at[i]], x[i])
        name = f"atomic_{op}_{t}"
        results = {2: wanted} if op != "xchg" else {2: wanted, 3: z[:n].copy()}
        yield Case(name, ATOMIC.format(name=name, op=op), [x, at, z, np.zeros(n, TYPES[t]), n, (16,)], results, 0, (4, 1, 1))


# ---- products, sorting, control --------------------------------------------------------------------------------------------------------------------

DOT = """
@triton.jit
def {name}(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = {b}
    c = tl.dot(a, b{more})
    tl.store(c_ptr + m[:, None] * N + n[None, :], c)
"""


def dot_cases(rng):
    for t, (m, n, k), turned in itertools.product(("float16", "bfloat16", "float32", "float64", "int8", "float8e4nv", "float8e5"), ((16, 16, 16), (32, 16, 64), (64, 128, 32)), (False, True)):
        a, b = values(rng, t, m * k, small=True), values(rng, t, k * n, small=True)
        out = "int32" if t == "int8" else "float64" if t == "float64" else "float32"
        kind = np.int64 if t == "int8" else np.float64
        right = b.astype(kind).reshape(n, k).T if turned else b.astype(kind).reshape(k, n)
        c = (a.astype(kind).reshape(m, k) @ right).astype(TYPES[out]).reshape(-1)
        name = f"dot_{t}_{m}x{n}x{k}{'_turned' if turned else ''}"
        load = "tl.trans(tl.load(b_ptr + n[:, None] * K + k[None, :]))" if turned else "tl.load(b_ptr + k[:, None] * N + n[None, :])"
        yield Case(name, DOT.format(name=name, b=load, more=", out_dtype=tl.float64" if t == "float64" else ""), [a, b, np.zeros(m * n, TYPES[out]), (m,), (n,), (k,)], {2: c},
                   0 if is_int(out) else 64 * EPS[out])


SORT = """
@triton.jit
def {name}(x_ptr, z_ptr, R: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(z_ptr + at, tl.sort(tl.load(x_ptr + at), descending={descending}))
"""
HISTOGRAM = """
@triton.jit
def {name}(x_ptr, z_ptr, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(z_ptr + tl.arange(0, BINS), tl.histogram(x, BINS))
"""
GATHER = """
@triton.jit
def {name}(x_ptr, i_ptr, z_ptr, R: tl.constexpr, C: tl.constexpr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :])
    {load}
    tl.store(z_ptr + at, tl.gather(x, tl.load(i_ptr + at), axis={axis}))
"""


def order_cases(rng):
    for t, (r, c), descending in itertools.product(("int8", "int32", "int64", "uint16", "uint32", "float16", "float32", "float64"), ((1, 2), (4, 32), (2, 128)), (False, True)):
        x = values(rng, t, r * c)
        z = np.sort(x.reshape(r, c), axis=1)
        name = f"sort_{t}_{r}x{c}_{'down' if descending else 'up'}"
        yield Case(name, SORT.format(name=name, descending=descending), [x, np.zeros(r * c, TYPES[t]), (r,), (c,)], {1: (z[:, ::-1] if descending else z).reshape(-1)})
    for t, n, bins in itertools.product(("int32", "int64", "uint32"), (1, 64, 200), (2, 16, 64)):
        x = rng.integers(0, bins, n).astype(TYPES[t])
        block = 1 << (n - 1).bit_length()
        name = f"histogram_{t}_{n}_{bins}"
        yield Case(name, HISTOGRAM.format(name=name), [x, np.zeros(bins, np.int32), n, (block,), (bins,)], {1: np.bincount(x.astype(np.int64), minlength=bins).astype(np.int32)})
    for t, axis, n in itertools.product(("int16", "int32", "float32", "float64"), (0, 1), (2, 16)):
        r, c = 8, 4
        x = values(rng, t, r * c)
        shape = (n, c) if axis == 0 else (r, n)
        index = rng.integers(0, (r, c)[axis], shape).astype(np.int32)
        z = np.take_along_axis(x.reshape(r, c), index, axis)
        load = "at = tl.arange(0, N)[:, None] * C + tl.arange(0, C)[None, :]" if axis == 0 else "at = tl.arange(0, R)[:, None] * N + tl.arange(0, N)[None, :]"
        name = f"gather_{t}_{axis}_{n}"
        yield Case(name, GATHER.format(name=name, axis=axis, load=load), [x, index.reshape(-1), np.zeros(z.size, TYPES[t]), (r,), (c,), (n,)], {2: z.reshape(-1)})


CONTROL = {
    "collatz": ("""
    x = tl.load(x_ptr + tl.program_id(0))
    steps = 0
    while x > 1:
        if x % 2 == 0:
            x = x // 2
        else:
            x = 3 * x + 1
        steps += 1
    tl.store(z_ptr + tl.program_id(0), steps.to(x.dtype))
""", lambda x, n: _collatz(x)),
    "early_return": ("""
    i = tl.program_id(0)
    x = tl.load(x_ptr + i)
    if x % 3 == 0:
        return
    tl.store(z_ptr + i, x * 2)
""", lambda x, n: np.where(x % 3 == 0, 0, x * 2)),
    "nested": ("""
    i = tl.program_id(0)
    total = tl.load(x_ptr + i) * 0
    for a in range(0, n, 3):
        for b in range(a):
            if b % 2 == 1:
                total += a * b
    tl.store(z_ptr + i, total)
""", lambda x, n: x * 0 + sum(a * b for a in range(0, n, 3) for b in range(a) if b % 2)),
    "down": ("""
    i = tl.program_id(0)
    total = tl.load(x_ptr + i)
    for a in range(n, 0, -2):
        total = total * 3 + a
    tl.store(z_ptr + i, total)
""", lambda x, n: _down(x, n)),
    "unrolled": ("""
    i = tl.program_id(0)
    total = tl.load(x_ptr + i)
    for a in tl.static_range(0, 5):
        total += a * a if a % 2 else a
    tl.store(z_ptr + i, total)
""", lambda x, n: x + 0 + 1 + 2 + 9 + 4),
    "choice": ("""
    i = tl.program_id(0)
    x = tl.load(x_ptr + i)
    y = x + 1 if i % 2 == 0 else x - 1
    if i > 3 and x > 10 or n == 0:
        y, x = x, y
    tl.store(z_ptr + i, y * 2 + x)
""", lambda x, n: _choice(x)),
}


def _collatz(x):
    out = []
    for v in x.tolist():
        steps = 0
        while v > 1:
            v = v // 2 if v % 2 == 0 else 3 * v + 1
            steps += 1
        out.append(steps)
    return np.array(out)


def _down(x, n):
    x = x.astype(np.int64)
    for a in range(n, 0, -2):
        x = x * 3 + a
    return x


def _choice(x):
    out = []
    for i, v in enumerate(x.tolist()):
        y = v + 1 if i % 2 == 0 else v - 1
        if i > 3 and v > 10:
            y, v = v, y
        out.append(y * 2 + v)
    return np.array(out)


def control_cases(rng):
    for (op, (body, fn)), t, n in itertools.product(CONTROL.items(), ("int32", "int64", "uint32"), (0, 7, 10)):
        if t == "uint32" and op not in ("early_return", "unrolled") or (op == "choice" and n == 0):
            continue
        x = rng.integers(1, 40, 9).astype(TYPES[t])
        if t == "uint32" and op == "early_return":
            continue
        name = f"{op}_{t}_{n}"
        z = fn(x.astype(np.int64), n).astype(TYPES[t])
        yield Case(name, f"\n@triton.jit\ndef {name}(x_ptr, z_ptr, n):{body}", [x, np.zeros(9, TYPES[t]), n], {1: z}, 0, (9, 1, 1))


FAMILIES = {"binary": binary_cases, "scalar": scalar_cases, "unary": unary_cases, "cast": cast_cases, "reduce": reduce_cases, "scan": scan_cases, "shape": shape_cases,
            "memory": memory_cases, "hash": hash_cases, "atomic": atomic_cases, "dot": dot_cases, "order": order_cases, "control": control_cases}


def cases(family, seed=2026):
    return list(FAMILIES[family](np.random.default_rng([seed, list(FAMILIES).index(family)])))
