"""Scalar functions and casts on a GPU against float64.

    python tests/gpu/scalars.py emit DIR [--tenon build/release/tenon]   writes DIR/*.ptx and DIR/list.json; needs no GPU
    python tests/gpu/scalars.py check DIR                                runs them through PyTorch's tensors; needs no Tenon

Prints a line for each function, type and machine: the largest error in units of the last place of the result's type, where it is, and what docs/vector-math.md
allows; exit status 1 if one is larger. Narrow types are tried with all their values, f32 with random bit patterns, special values and the range that matters.
"""
import ctypes
import json
import math
import pathlib
import subprocess
import sys

THREADS = 128
LANES = {"f64": 2, "f32": 4, "bf16": 8, "f16": 8, "f8e4m3fn": 16, "f8e5m2": 16}
MACHINES = ["sm_80", "sm_90a"]

# name: range of the arguments, bound for f32, bound for f64 (None: not tried)
UNARY = {
    "neg": (-10, 10, 0, 0), "abs": (-10, 10, 0, 0), "sign": (-10, 10, 0, 0),
    "floor": (-1e3, 1e3, 0, 0), "ceil": (-1e3, 1e3, 0, 0), "trunc": (-1e3, 1e3, 0, 0), "round_even": (-1e3, 1e3, 0, 0), "round_away": (-1e3, 1e3, 0, 0),
    "sqrt": (0, 1e6, 0.5, 0.5), "rsqrt": (0, 1e6, 3, 1.5), "cbrt": (-1e6, 1e6, 1.5, 1.5),
    "exp": (-104, 89, 4, 2), "exp2": (-150, 128, 3, 2), "expm1": (-20, 89, 2, 2.5), "log": (0, 1e6, 1.5, 2), "log2": (0, 1e6, 2.5, 3), "log1p": (-1, 1e3, 2, 2.5),
    "logistic": (-104, 90, 6.5, 4.5), "tanh": (-10, 10, 4, 4), "erf": (-5, 5, 4, 3), "sin": (-1e5, 1e5, 3, 3), "cos": (-1e5, 1e5, 3, 3), "tan": (-1e5, 1e5, 4, 4.5),
    "asin": (-1, 1, 3, 3), "acos": (-1, 1, 3, 3), "atan": (-50, 50, 4, 2.5), "sinh": (-90, 90, 4, 4.5), "cosh": (-90, 90, 4, 4), "asinh": (-1e6, 1e6, 4, 3.5),
    "acosh": (1, 1e6, 4, 4), "atanh": (-1, 1, 4, 3.5),
}
BINARY = {
    "div": (-1e3, 1e3, 0.5, 0.5), "div_full": (-1e3, 1e3, 2.5, 0.5), "rem": (-1e5, 1e5, 0, 0), "pow": (0, 20, 4, 3.5), "atan2": (-10, 10, 4, 3),
    "max": (-10, 10, 0, 0), "min": (-10, 10, 0, 0), "maxnum": (-10, 10, 0, 0), "minnum": (-10, 10, 0, 0), "add": (-10, 10, 0.5, 0.5), "sub": (-10, 10, 0.5, 0.5), "mul": (-10, 10, 0.5, 0.5),
}
# What a narrow result may be off by, in its own units: half for the rounding.
NARROW = {"tanh": 0.64, "log": 0.53, "log2": 0.53}
DIGITS = {"f64": (53, -1022), "f32": (24, -126), "bf16": (8, -126), "f16": (11, -14), "f8e4m3fn": (4, -6), "f8e5m2": (3, -14)}
LARGEST = {"f64": 1.7976931348623157e308, "f32": 3.4028234e38, "bf16": 3.3895314e38, "f16": 65504.0, "f8e4m3fn": 448.0, "f8e5m2": 57344.0}
CASTS = [(a, b) for a in ("f32", "f64") for b in ("bf16", "f16", "f8e4m3fn", "f8e5m2")] + [(a, "f32") for a in ("bf16", "f16", "f8e4m3fn", "f8e5m2")]


def kernel(fn, source, result, lanes):
    typed = lambda dtype: f"{dtype}x{lanes}"
    operands = "%a, %b" if fn in BINARY else "%a"
    return f"""kernel @k(%x: global {source} readonly align 16, %z: global {source} readonly align 16, %y: global {result} align 16, %begin: index, %end: index) threads {THREADS} {{
  %one = const 1 : index
  %lanes = const {lanes} : index
  %block = const {lanes * THREADS} : index
  %t = thread : index
  %mine = mul %t, %lanes : index
  for %p = %begin to %end step %one grid {{
    %first = mul %p, %block : index
    %at = add %first, %mine : index
    %a = load %x[%at] : {typed(source)}
    %b = load %z[%at] : {typed(source)}
    %r = {fn} {operands} : {typed(result)}
    store %y[%at], %r
  }}
}}
"""


def cases():
    for fn in list(UNARY) + list(BINARY):
        for dtype in LANES:
            yield fn, dtype, dtype
    for source, result in CASTS:
        yield "cast", source, result


def emit(folder, tenon):
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for fn, source, result in cases():
        lanes = min(LANES[source], LANES[result])
        for machine in MACHINES:
            name = f"{fn}-{source}-{result}-{machine}"
            text = folder / "kernel.tn"
            text.write_text(kernel(fn, source, result, lanes))
            made = subprocess.run([tenon, "opt", "--passes=simplify,expand,hoist,simplify", "--lower=asm", f"--machine={machine}", str(text)], capture_output=True, text=True)
            if made.returncode:
                sys.exit(f"{name}: {made.stderr}")
            (folder / f"{name}.ptx").write_text(made.stdout)
            listed.append([name, fn, source, result, lanes, machine])
    (folder / "list.json").write_text(json.dumps(listed))
    print(f"{len(listed)} kernels")


class Driver:
    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")

    def call(self, name, *args):
        status = getattr(self.cuda, name)(*args)
        if status:
            sys.exit(f"{name}: CUDA error {status}")

    def run(self, ptx, buffers, programs):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ptx + b"\0")
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"k")
        values = [ctypes.c_int64(b.data_ptr()) for b in buffers] + [ctypes.c_int64(0), ctypes.c_int64(programs)]
        params = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        self.call("cuLaunchKernel", function, programs, 1, 1, THREADS, 1, 1, 0, None, params, None)
        self.call("cuCtxSynchronize")
        self.call("cuModuleUnload", module)


def torch_type(torch, dtype):
    return {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f8e4m3fn": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2}[dtype]


SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0**-149, -(2.0**-149), 2.0**-126, 2.0**127, -(2.0**127), 0.5, -0.5, 88.73, -103.98, 3e38, -3e38, 464.0, 465.0,
           480.0, 448.0, 61440.0, 61439.0, 57344.0, 65520.0, 65519.0, 3.0, -3.0, 127.5, -149.5, 1e300, 5e-324]


def arguments(torch, fn, dtype, n):
    """Two tensors of n elements of the type, on the GPU."""
    generator = torch.Generator().manual_seed(1)
    kind = torch_type(torch, dtype)
    bits = DIGITS[dtype][0]
    if dtype in ("bf16", "f16", "f8e4m3fn", "f8e5m2"):
        word = torch.int16 if dtype in ("bf16", "f16") else torch.uint8
        count = 65536 if word == torch.int16 else 256
        x = (torch.arange(n) % count).to(torch.int32)
        z = (torch.arange(n) * 40503 // 7 % count).to(torch.int32)
        narrow = lambda v: (v - 65536 * (v >= 32768).int()).to(torch.int16).view(kind) if word == torch.int16 else v.to(torch.uint8).view(kind)
        return narrow(x).cuda(), narrow(z).cuda()
    lo, hi = (UNARY.get(fn) or BINARY.get(fn) or (-500, 500))[:2]
    result = []
    for turn in range(2):
        x = torch.rand(n, dtype=torch.float64, generator=generator) * (hi - lo) + lo
        word, full = (torch.int32, 1 << 32) if bits == 24 else (torch.int64, 1 << 63)
        patterns = torch.randint(-(full // 2), full // 2 - 1, (n,), generator=generator, dtype=torch.int64).to(word).view(kind)
        x = x.to(kind)
        x[n // 2:3 * n // 4] = patterns[n // 2:3 * n // 4]
        x[3 * n // 4:] = (x[3 * n // 4:].double() / max(abs(lo), abs(hi)) * 1.5).to(kind)
        pairs = torch.tensor(SPECIAL, dtype=torch.float64)
        k = len(SPECIAL)
        pairs = pairs.repeat(k) if turn else pairs.repeat_interleave(k)
        x[:k * k] = pairs.to(kind)
        result.append(x.cuda())
    return result


def exact(torch, fn, dtype, x, z):
    """As numpy's long double of f64, else as float64."""
    import numpy as np

    if dtype == "f64" and fn != "erf":
        wide = lambda v: v.cpu().numpy().astype(np.longdouble)
    else:
        wide = lambda v: v.double().cpu().numpy()
    a, b = wide(x), wide(z)
    one = a.dtype.type(1)
    with np.errstate(all="ignore"):
        forms = {
            "neg": lambda: -a, "abs": lambda: np.abs(a), "sign": lambda: np.where(a == 0, a, np.sign(a)), "floor": lambda: np.floor(a), "ceil": lambda: np.ceil(a),
            "trunc": lambda: np.trunc(a), "round_even": lambda: np.rint(a), "round_away": lambda: np.copysign(np.where(np.abs(a) < 2.0**52, np.trunc(np.abs(a)) + (np.abs(a) - np.trunc(np.abs(a)) >= 0.5), np.abs(a)), a),
            "sqrt": lambda: np.sqrt(a), "rsqrt": lambda: one / np.sqrt(a), "cbrt": lambda: np.cbrt(a), "exp": lambda: np.exp(a), "exp2": lambda: np.exp2(a),
            "expm1": lambda: np.expm1(a), "log": lambda: np.log(a), "log2": lambda: np.log2(a), "log1p": lambda: np.log1p(a),
            "logistic": lambda: np.where(a < 0, np.exp(a) / (one + np.exp(np.minimum(a, 0))), one / (one + np.exp(-a))), "tanh": lambda: np.tanh(a),
            "erf": lambda: torch.erf(torch.from_numpy(a)).numpy(), "sin": lambda: np.sin(a), "cos": lambda: np.cos(a), "tan": lambda: np.tan(a), "asin": lambda: np.arcsin(a),
            "acos": lambda: np.arccos(a), "atan": lambda: np.arctan(a), "sinh": lambda: np.sinh(a), "cosh": lambda: np.cosh(a), "asinh": lambda: np.arcsinh(a),
            "acosh": lambda: np.arccosh(a), "atanh": lambda: np.arctanh(a), "div": lambda: a / b, "div_full": lambda: a / b, "rem": lambda: np.fmod(a, b),
            "pow": lambda: np.power(a, b), "atan2": lambda: np.arctan2(a, b), "add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b,
            "max": lambda: np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), np.maximum(a, b)),
            "min": lambda: np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), np.minimum(a, b)),
            "maxnum": lambda: np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), np.fmax(a, b)),
            "minnum": lambda: np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), np.fmin(a, b)),
        }
        return forms[fn]()


def errors(got, want, dtype):
    """In units of the last place; what is wrong in kind (NaN, infinity, sign of zero) counts as infinite."""
    import numpy as np

    digits, least = DIGITS[dtype]
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(np.where(np.isfinite(want) & (want != 0), want, 1))
        unit = np.ldexp(np.ones_like(want), np.maximum(exponent - 1, least) - digits + 1)
        unit = np.where(want == 0, np.ldexp(np.ones_like(want), least - digits + 1), unit)
        error = np.abs(got.astype(want.dtype) - want) / unit
        beyond = np.abs(want) > LARGEST[dtype]
        if dtype == "f8e4m3fn":
            error = np.where(beyond & np.isnan(got), 0, error)
        else:
            error = np.where(beyond & np.isinf(got) & (np.signbit(got) == np.signbit(want)), 0, error)
        error = np.where(np.isnan(got) & np.isnan(want), 0, error)
        error = np.where((got == 0) & (want == 0), np.where(np.signbit(got) == np.signbit(want), 0, np.inf), error)
        return np.where(np.isnan(error), np.inf, error)


def bound(fn, dtype):
    rows = UNARY.get(fn) or BINARY.get(fn)
    if dtype in ("f32", "f64"):
        return rows[2 if dtype == "f32" else 3]
    return NARROW.get(fn, 0.51) if rows[2] else 0


def check(folder):
    import numpy as np
    import torch

    torch.cuda.init()
    torch.empty(1, device="cuda")
    driver, failed = Driver(), 0
    capability = torch.cuda.get_device_capability()
    for name, fn, source, result, lanes, machine in json.loads((folder / "list.json").read_text()):
        if machine == "sm_90a" and capability != (9, 0):
            continue
        n = {"f64": 1 << 16, "f32": 1 << 20}.get(source, 1 << 17)
        x, z = arguments(torch, fn, source, n)
        y = torch.empty(n, dtype=torch_type(torch, result), device="cuda")
        driver.run((folder / f"{name}.ptx").read_bytes(), [x, z, y], n // (lanes * THREADS))
        got = y.cpu().double().numpy()
        if fn == "cast":
            want, allowed = x.cpu().double().numpy(), 0.5
            error = errors(got, want, result)
            if source == "f32":
                peer = x.cpu().to(torch_type(torch, result)).double().numpy()
                if result == "f8e4m3fn":  # past its largest number is NaN; PyTorch's versions differ
                    peer = np.where(np.abs(want) > 464, np.nan, peer)
                error = np.where((got == peer) & (np.signbit(got) == np.signbit(peer)) | np.isnan(got) & np.isnan(peer), error, np.inf)
        else:
            want = exact(torch, fn, source, x, z)
            error, allowed = errors(got, want, result), bound(fn, result)
            if result == "bf16" and fn in ("exp", "exp2", "logistic"):  # results that are denormal in f32 may be 0
                error = np.where((got == 0) & (np.abs(want) < 2.0**-126), 0, error)
        worst = int(np.argmax(error))
        good = error[worst] <= allowed
        failed += not good
        at = f"{x[worst].double().item()!r}" + (f", {z[worst].double().item()!r}" if fn in BINARY else "")
        print(f"{'ok  ' if good else 'FAIL'} {name:34} {float(error[worst]):10.4g} ulp (at most {allowed}) at {at}: {got[worst]!r}", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("emit", "check"):
        sys.exit(__doc__)
    where = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "emit":
        emit(where, sys.argv[4] if len(sys.argv) > 4 else "build/release/tenon")
    else:
        sys.exit(check(where))
