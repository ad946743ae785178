"""Networks of one kernel (products, attention, rows) on an NVIDIA GPU, bf16, against PyTorch's own kernel or a device copy of the same bytes. One table.

    python3 bench/gpu/kernels.py [--library libtenon.so] [--json] [--quick] [NAME ...]

Needs the library, PyTorch and the driver; the package onnx only to make build/bench/gpu/*.onnx, if they are not there. NAME is the start of a name.
Right first: against float64, outputs poisoned, two runs with the same bits. Then strict turns of both, all queued, so that the GPU stays at its power limit,
where ratios are steady: the ratio is the median over the turns. Exits with 1 if a result is wrong."""
import argparse
import ctypes
import json
import math
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "tests" / "gpu")]
import common  # noqa: E402
import models  # noqa: E402
import networks  # noqa: E402

BOUND = 6e-3  # of a relative error against float64, by norms: three roundings to bf16
L2_BYTES = 60 << 20


class Product:
    """[m, k] by [k, n], or by [n, k] transposed; linear: bias and GELU (tanh) behind it. The peer is PyTorch's bare product, linear or not. Few tiles: microseconds
    long, so that calls with one operand set after another are captured, as many as don't fit the L2 together."""

    def __init__(self, m, n, k, along="kn", linear=False, few=False):
        self.m, self.n, self.k, self.along, self.linear = m, n, k, along, linear
        self.name = f"{'linear_gelu' if linear else 'product'}_{m}x{n}x{k}{'' if along == 'kn' else '_nk'}"
        self.goal = 1.0 if few else 1.02 if linear else 1.03
        self.operations = 2 * m * n * k
        self.sets = min(32, 2 + L2_BYTES // (m * k + k * n)) if few else 1

    def onnx(self):
        b = models.Builder()
        a, w = b.input("a", [self.m, self.k]), b.input("b", [self.k, self.n] if self.along == "kn" else [self.n, self.k])
        y = b("MatMul", a, w if self.along == "kn" else b("Transpose", w, perm=[1, 0]))
        if self.linear:
            y = b("Gelu", b("Add", y, b.input("bias", [self.n])), approximate="tanh")
        b.output(y, [self.m, self.n])
        return b.model(self.name)

    def inputs(self, normal):
        given = {"a": normal(self.m, self.k), "b": normal(*((self.k, self.n) if self.along == "kn" else (self.n, self.k))).div_(math.sqrt(self.k))}
        if self.linear:
            given["bias"] = normal(self.n)
        return given

    def shape(self):
        return self.m, self.n

    def reference(self, torch, given):
        right = given["b"] if self.along == "kn" else given["b"].t()
        y = given["a"].double() @ right.double()
        return torch.nn.functional.gelu(y + given["bias"].double(), approximate="tanh") if self.linear else y

    def peer(self, torch, given, out):
        right = given["b"] if self.along == "kn" else given["b"].t()
        return lambda: torch.matmul(given["a"], right, out=out)


class Typed:
    """[n, n] by [n, n] transposed, of another type than bf16, against what PyTorch has for it."""
    operations, along = 0, "nk"
    TYPES = {"f16": ("f16", "f16", "float16", 2e-3), "tf32": ("f32", "f32", "float32", 2e-3), "f8e4m3": ("f8e4m3fn", "f32", "bfloat16", 3e-3), "i8": ("i8", "i32", "int32", 0)}

    def __init__(self, what, n):
        self.what, self.n, self.goal = what, n, 1.0
        self.name, self.operations = f"product_{what}_{n}", 2 * n ** 3
        self.factors, self.sums, self.type, self.bound = self.TYPES[what]
        self.options = {"matmul-precision": "tf32"} if what == "tf32" else {}

    def text(self):
        shape, sums = f"[{self.n}, {self.n}]", self.sums
        lines = [f"graph @{self.name}(%a: {self.factors}{shape}, %b: {self.factors}{shape}) -> (c) {{"]
        if self.factors != sums:
            lines += [f"  %{x}.wide = convert %{x}, dtype = {sums} : {sums}{shape}" for x in "ab"]
        a, b = ("%a", "%b") if self.factors == sums else ("%a.wide", "%b.wide")
        rounded = self.what == "f8e4m3"
        lines.append(f"  {'%s' if rounded else '%c'} = dot_general {a}, {b}, lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [1] : {sums}{shape}")
        if rounded:
            lines.append(f"  %c = convert %s, dtype = bf16 : bf16{shape}")
        return "\n".join([*lines, "  return %c", "}", ""])

    def inputs(self, normal):
        import torch
        kind = {"f16": torch.float16, "tf32": torch.float32, "f8e4m3": torch.float8_e4m3fn, "i8": torch.int8}[self.what]
        scale = 20 if self.what == "i8" else 1
        return {x: (normal(self.n, self.n) * scale).to(kind) for x in "ab"}

    def shape(self):
        return self.n, self.n

    def reference(self, torch, given):
        return given["a"].double() @ given["b"].double().t()

    def peer(self, torch, given, out):
        a, b = given["a"], given["b"].t()
        if self.what == "f8e4m3":
            one = torch.ones((), device="cuda")
            return lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)
        if self.what == "i8":
            return lambda: torch._int_mm(a, b)
        torch.backends.cuda.matmul.allow_tf32 = True
        return lambda: torch.matmul(a, b, out=out)


class Attention:
    """softmax(q k^T / sqrt(size) + mask) v of one batch; groups: heads of keys and values."""

    def __init__(self, heads, words, size, causal=False, groups=None):
        self.heads, self.words, self.size, self.causal, self.groups = heads, words, size, causal, groups or heads
        self.name = f"attention_{size}_{words}x{heads}" + (f"_of_{groups}" if groups else "") + ("_causal" if causal else "")
        self.goal = 1.02 if size == 128 else 1.0
        self.operations = 4 * heads * words * words * size // (2 if causal else 1)

    def onnx(self):
        b = models.Builder()
        q = b.input("q", [1, self.heads, self.words, self.size])
        k, v = (b.input(n, [1, self.groups, self.words, self.size]) for n in "kv")
        mask = None
        if self.causal:
            places = b("Range", *(b.constant(models.np.array(i), b.I64) for i in (0, self.words, 1)))
            mask = b("Where", b("LessOrEqual", b("Unsqueeze", places, b.ints(0)), b("Unsqueeze", places, b.ints(1))), b.number(0.0), b.number(-3.3895e38))
        if self.groups != self.heads:
            wide = b.ints(1, self.groups, self.heads // self.groups, self.words, self.size)
            k, v = (b.reshape(b("Expand", b("Unsqueeze", x, b.ints(2)), wide), 1, self.heads, self.words, self.size) for x in (k, v))
        b.output(b.attention(q, b("Transpose", k, perm=[0, 1, 3, 2]), v, self.size, mask), [1, self.heads, self.words, self.size])
        return b.model(self.name)

    def inputs(self, normal):
        return {n: normal(1, self.heads if n == "q" else self.groups, self.words, self.size) for n in "qkv"}

    def shape(self):
        return 1, self.heads, self.words, self.size

    def reference(self, torch, given):
        """A head at a time: scores in f64 are many."""
        out = torch.empty(self.shape(), dtype=torch.float64, device="cuda")
        hidden = torch.ones(self.words, self.words, device="cuda", dtype=torch.bool).triu(1) if self.causal else None
        for h in range(self.heads):
            q, k, v = (given[n][0, h if n == "q" else h * self.groups // self.heads].double() for n in "qkv")
            scores = q @ k.t() / math.sqrt(self.size)
            out[0, h] = torch.softmax(scores.masked_fill(hidden, -math.inf) if self.causal else scores, -1) @ v
        return out

    def peer(self, torch, given, out):
        backends = [getattr(torch.nn.attention.SDPBackend, n) for n in ("CUDNN_ATTENTION", "FLASH_ATTENTION")]

        def run():
            with torch.nn.attention.sdpa_kernel(backends, set_priority=True):
                torch.nn.functional.scaled_dot_product_attention(*given.values(), is_causal=self.causal, enable_gqa=self.groups != self.heads)
        return run


class Rows:
    """2^28 elements in rows of so many; the peer is a copy of as many bytes as the kernel must move."""
    operations = 0

    def __init__(self, what, columns, elements=1 << 28):
        self.what, self.columns, self.rows = what, columns, elements // columns
        self.name = f"{what}_{columns}"
        self.goal = 0.95 if columns < 1 << 16 else 0.90

    def onnx(self):
        b = models.Builder()
        x, weights = b.input("x", [self.rows, self.columns]), lambda *names: [b.input(n, [self.columns]) for n in names]
        wide = lambda y: b("Cast", y, to=b.F32)  # noqa: E731
        if self.what == "softmax":
            y = b("Softmax", x, axis=-1)
        elif self.what == "layer_norm":
            y = b("LayerNormalization", x, *weights("weight", "bias"), axis=-1, epsilon=1e-5)
        elif self.what == "rms_norm":
            root = b("Sqrt", b("Add", b("ReduceMean", b("Pow", wide(x), b.number(2.0, b.F32)), b.ints(-1), keepdims=1), b.number(1e-5, b.F32)))
            y = b("Mul", b("Cast", b("Div", wide(x), root), to=b.BF16), *weights("weight"))
        elif self.what == "gelu":
            y = b.gelu(x)
        elif self.what == "transpose":
            y = b("Transpose", x, perm=[1, 0])
        elif self.what == "sum":
            y = b("ReduceSum", x, b.ints(0, 1), keepdims=0)
        else:
            y = b("ReduceSum", x, b.ints(0 if self.what == "column_sums" else 1), keepdims=0)
        b.output(y, list(self.shape()))
        return b.model(self.name)

    def inputs(self, normal):
        return {"x": normal(self.rows, self.columns)} | {n: normal(self.columns) for n in {"layer_norm": ("weight", "bias"), "rms_norm": ("weight",)}.get(self.what, ())}

    def shape(self):
        return {"transpose": (self.columns, self.rows), "column_sums": (self.columns,), "row_sums": (self.rows,), "sum": ()}.get(self.what, (self.rows, self.columns))

    def reference(self, torch, given):
        x = given["x"].double()
        if self.what == "softmax":
            return torch.softmax(x, -1)
        if self.what == "layer_norm":
            return torch.nn.functional.layer_norm(x, (self.columns,), given["weight"].double(), given["bias"].double(), 1e-5)
        if self.what == "rms_norm":
            return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * given["weight"].double()
        if self.what == "gelu":
            return torch.nn.functional.gelu(x)
        if self.what == "transpose":
            return x.t()
        return x.sum({"column_sums": 0, "row_sums": 1}.get(self.what))

    def peer(self, torch, given, out):
        half = (given["x"].numel() + math.prod(self.shape())) // 2
        self.bytes = 4 * half
        source, target = (torch.empty(half, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        return lambda: target.copy_(source)


FEW = (1, 8192, 8192), (16, 8192, 8192), (64, 8192, 8192), (8, 2048, 2048), (16, 4096, 11008), (32, 2560, 10240), (64, 4096, 4096), (128, 4096, 4096), (512, 512, 8192), \
      (256, 1024, 16384), (197, 768, 3072), (384, 768, 768), (384, 768, 3072), (1000, 768, 768), (1024, 1024, 1024), (2048, 2048, 2048)
LINEAR = (4096, 4096, 4096), (8192, 8192, 8192), (16384, 3072, 768), (8192, 4096, 1024), (4096, 14336, 4096), (2048, 8192, 2048)
ALL = [Product(*s) for s in ((4096, 4096, 4096), (8192, 8192, 8192), (16384, 3072, 768), (8192, 4096, 1024))] + \
      [Product(4096, 4096, 4096, "nk"), Product(8192, 8192, 8192, "nk")] + [Product(*s, linear=True) for s in LINEAR] + \
      [Typed(what, n) for what in Typed.TYPES for n in (4096, 8192)] + \
      [Attention(16, 4096, 128), Attention(16, 16384, 128), Attention(16, 4096, 64), Attention(16, 16384, 64)] + \
      [Attention(16, 4096, 128, True), Attention(16, 16384, 128, True), Attention(16, 4096, 64, True), Attention(16, 16384, 64, True)] + \
      [Attention(32, 4096, 128, True, 8), Attention(3, 1000, 128), Attention(3, 1000, 64, True)] + \
      [Product(*s, along, few=True) for s in FEW for along in ("kn", "nk")] + \
      [Rows(what, 1 << c) for what in ("softmax", "layer_norm", "rms_norm", "row_sums", "column_sums", "transpose") for c in (10, 12, 14, 16)] + \
      [Rows("gelu", 4096), Rows("sum", 4096)]


def captured(torch, calls, stream):
    """A replay of a graph of these calls. It keeps what they use."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for call in calls:  # what is made at a first call is not captured
            call()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    return lambda: calls and graph.replay()


def with_operands(torch, net, kernel, sets, out):
    """Of both sides, a graph of calls with one set of operands after another."""
    def run(given):
        arrays = (networks.DLTensor * net.ninputs)(*map(networks.tensor_of, given.values()))
        return lambda: given and net.check(net.c.tn_run(net.context, arrays, ctypes.c_size_t(net.ninputs), net.dl_outputs, ctypes.c_size_t(net.noutputs)))

    stream, other = torch.cuda.Stream(), torch.empty_like(out)
    net.check(net.c.tn_context_set_stream(net.context, ctypes.c_void_p(stream.cuda_stream)))
    net.stream = stream
    return captured(torch, [run(given) for given in sets], stream), captured(torch, [kernel.peer(torch, given, other) for given in sets], stream)


def one(torch, library, kernel, options):
    import timing  # needs PyTorch
    normal = lambda *shape: torch.randn(*shape, device="cuda").bfloat16()  # noqa: E731
    torch.cuda.empty_cache()
    given = kernel.inputs(normal)
    kind = getattr(torch, getattr(kernel, "type", "bfloat16"))
    out = torch.full(kernel.shape(), math.nan if kind.is_floating_point else -1, dtype=kind, device="cuda")
    net = library.load(models.file(kernel), 0, given, machine="cuda", outputs=[out], options=getattr(kernel, "options", None))
    torch.cuda.synchronize()
    first = out.clone()
    net.check(net.c.tn_context_set_stream(net.context, ctypes.c_void_p(1)))
    net.run()
    net.run()
    torch.cuda.synchronize()
    worst = common.error(out, kernel.reference(torch, given))
    fault = "differs from run to run" if not torch.equal(first, out) else f"WRONG {worst:.2e}" if not worst <= getattr(kernel, "bound", BOUND) else ""
    peer = kernel.peer(torch, given, torch.empty_like(out) if kernel.operations else None)
    runs, sets = [net.run, peer], getattr(kernel, "sets", 1)
    if sets > 1:
        runs = with_operands(torch, net, kernel, [given] + [kernel.inputs(normal) for _ in range(sets - 1)], out)
    (ours, theirs), (_, ratio) = timing.at_power_limit(runs, 5 if options.quick else 28, 30 if options.quick else 400)
    ours, theirs = ours / sets, theirs / sets
    unit, rate = ("TFLOP/s", lambda ms: kernel.operations / ms / 1e9) if kernel.operations else ("TB/s", lambda ms: kernel.bytes / ms / 1e9)
    if options.json:
        print(json.dumps({"name": kernel.name, "value": round(rate(ours), 3), "unit": unit, "limit": None if kernel.operations else round(rate(theirs), 3),
                          "peer": round(rate(theirs), 3), "ratio": round(ratio, 4), "goal": kernel.goal, "error": worst, "fault": fault}), flush=True)
    else:
        print(f"{kernel.name:34} {ours * 1e3:9.1f} us {rate(ours):8.2f} {unit}, peer {rate(theirs):8.2f}  ratio {ratio:.3f} (goal {kernel.goal})  error {worst:.2e} {fault}", flush=True)
    net.close()
    return not fault


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--library", default=os.environ.get("TENON_LIBRARY", "build/release/libtenon.so"))
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--quick", action="store_true", help="few turns, from a cooler GPU")
    options = parser.parse_args()
    import torch
    library = networks.Library(options.library)
    return common.every(ALL, lambda kernel: not options.names or kernel.name.startswith(tuple(options.names)), lambda kernel: one(torch, library, kernel, options))


if __name__ == "__main__":
    sys.exit(main())
