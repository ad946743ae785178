"""Graphs as entries of run.py: operators at odd sizes, sizes that change between runs, a caller's stream and capture. Inputs and outputs are PyTorch's, on the GPU."""
import ctypes
import os
import pathlib
import sys
import tempfile

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import networks  # noqa: E402
from timing import at_power_limit  # noqa: E402

F32, BF16, I32, I64, E4M3 = torch.float32, torch.bfloat16, torch.int32, torch.int64, torch.float8_e4m3fn
NAMES = {F32: "f32", BF16: "bf16", I32: "i32", I64: "i64", E4M3: "f8e4m3fn"}
LIBRARY = None


def library():
    global LIBRARY
    LIBRARY = LIBRARY or networks.Library(os.environ["TENON_LIBRARY"])
    return LIBRARY


def typed(kind, shape):
    return f"{NAMES[kind]}[{', '.join(map(str, shape))}]"


class Case:
    """body: the graph's operations, in terms of %a, %b, …; its results are %y0, %y1, …. reference: of the inputs, in float64 or exact."""

    def __init__(self, name, inputs, results, body, reference, whole=0, options=None):
        self.name, self.inputs, self.results, self.body, self.reference, self.whole, self.options = name, inputs, results, body, reference, whole, options

    def __str__(self):
        return self.name

    def text(self):
        parameters = ", ".join(f"%{'abcd'[i]}: {typed(*x)}" for i, x in enumerate(self.inputs))
        names = [f"y{i}" for i in range(len(self.results))]
        return f"graph @f({parameters}) -> ({', '.join(names)}) {{\n{self.body}\n  return {', '.join('%' + n for n in names)}\n}}\n"

    def make(self):
        """Integers are below `whole`, or numbers of places."""
        one = lambda kind, shape: torch.randint(0, self.whole or 7, shape, device="cuda").to(kind) if kind in (I32, I64) else torch.randn(*shape, device="cuda").to(kind)  # noqa: E731
        return [one(*x) for x in self.inputs]

    def load(self, inputs, outputs):
        with tempfile.NamedTemporaryFile("w", suffix=".tn") as file:
            file.write(self.text())
            file.flush()
            return library().load(file.name, 0, dict(zip("abcd", inputs)), machine="cuda", outputs=outputs, options=self.options)


class Graphs:
    """Cases of one kind, each in two runs with the same bits."""
    example, configs, limit = None, [{}], 6e-3

    def __init__(self, *cases):
        self.odd, self.dtypes = cases, [F32]

    def make(self, case, dtype):
        return case.make(), [torch.full(shape, float("nan") if kind.is_floating_point else -77, dtype=kind, device="cuda") for kind, shape in case.results]

    def launch(self, kernels, inputs, outputs, case):
        net = case.load(inputs, outputs)
        torch.cuda.synchronize()
        first = [o.clone() for o in outputs]
        net.run()
        torch.cuda.synchronize()
        net.close()
        if not all(torch.equal(a, b) for a, b in zip(first, outputs)):
            raise ValueError("differs from run to run")

    def reference(self, inputs, case):
        return case.reference(*inputs)

    def time(self, name, **others):
        pass


class Captured(Graphs):
    """Runs in a caller's stream, then as part of the caller's graph, whose inputs change under it."""

    def launch(self, kernels, inputs, outputs, case):
        net, stream, graph = case.load(inputs, outputs), torch.cuda.Stream(), torch.cuda.CUDAGraph()
        net.check(net.c.tn_context_set_stream(net.context, ctypes.c_void_p(stream.cuda_stream)))
        with torch.cuda.stream(stream):
            for _ in range(3):
                net.run()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            net.run()
        for x in inputs:
            x.copy_(x.flip(0))
        for o in outputs:
            o.zero_()
        graph.replay()
        torch.cuda.synchronize()
        net.close()


class Scaled(Graphs):
    """Timed in strict turns with PyTorch's product of the same scales, and the user's kernel of them, ours and Triton's."""
    big = [(4096, 4096, 4096), (8192, 8192, 8192)]

    def time(self, name, kernels, peer):
        for m, n, k in self.big:
            case = scaled(m, n, k)
            inputs, outputs = self.make(case, F32)
            net = case.load(inputs, outputs)
            net.check(net.c.tn_context_set_stream(net.context, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream or 1)))
            a, rows, b, blocks = inputs
            by_rows = rows.t().contiguous().t()
            runs = {"ours": net.run,
                    "torch": lambda: torch._scaled_mm(a, b.t(), scale_a=by_rows, scale_b=blocks.t(), out_dtype=BF16)}
            for side, module in (("user's", kernels), ("triton", peer)):
                if module:
                    runs[side] = lambda module=module: module.matmul_scaled[(-(-m // 128) * -(-n // 128),)](
                        a, b, rows, blocks, outputs[0], m, n, k, BM=128, BN=128, BK=128, GROUP=8, num_warps=8, num_stages=4)
            medians, ratios = at_power_limit(list(runs.values()), 9)
            print(f"{name:12} {case.name:26}" + "".join(f"   {side} {ms:.3f} ms {ratio:.3f}" for side, ms, ratio in zip(runs, medians, ratios))
                  + f"   {2 * m * n * k / medians[0] / 1e9:.0f} TFLOP/s", flush=True)
            net.close()


def dot(kind, m, n, k, turned=False):
    right = (n, k) if turned else (k, n)
    body = f"  %y0 = dot_general %a, %b, lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [{int(turned)}] : {typed(kind, (m, n))}"
    return Case(f"dot {m}x{n}x{k}", [(kind, (m, k)), (kind, right)], [(kind, (m, n))], body, lambda a, b: [a.double() @ (b.double().t() if turned else b.double())])


def scaled(m, n, k, block=128, rows=False):
    """[m, k] by [n, k] transposed, of f8, with scales by blocks of k: of each row of the left factor, of `block` x `block` of the right one or of its rows. In f32 as an importer has them."""
    blocks, whole = k // block, lambda kind, *shape: typed(kind, shape)
    right = (n, blocks) if rows else (n // block, blocks)
    wide = (n, blocks, block) if rows else (n // block, block, blocks, block)
    body = f"""  %aw = convert %a, dtype = f32 : {whole(F32, m, k)}
  %bw = convert %c, dtype = f32 : {whole(F32, n, k)}
  %as = broadcast_in_dim %b, shape = [{m}, {blocks}, {block}], broadcast_dimensions = [0, 1] : {whole(F32, m, blocks, block)}
  %ar = reshape %as, shape = [{m}, {k}] : {whole(F32, m, k)}
  %ax = multiply %aw, %ar : {whole(F32, m, k)}
  %bs = broadcast_in_dim %d, shape = [{', '.join(map(str, wide))}], broadcast_dimensions = [0, {1 if rows else 2}] : {whole(F32, *wide)}
  %br = reshape %bs, shape = [{n}, {k}] : {whole(F32, n, k)}
  %bx = multiply %bw, %br : {whole(F32, n, k)}
  %s = dot_general %ax, %bx, lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [1] : {whole(F32, m, n)}
  %y0 = convert %s, dtype = bf16 : {whole(BF16, m, n)}"""

    def reference(a, b, c, d):
        y = c.double() * (d if rows else d.repeat_interleave(block, 0)).double().repeat_interleave(block, 1)
        return [(a.double() * b.double().repeat_interleave(block, 1)) @ y.t()]
    return Case(f"scaled {m}x{n}x{k}, {block}{' rows' * rows}", [(E4M3, (m, k)), (F32, (m, blocks)), (E4M3, (n, k)), (F32, right)], [(BF16, (m, n))], body, reference,
                options={"numerics": "fast"})


def sort(lines, n):
    kinds = [(F32, (lines, n)), (I32, (lines, n))]
    keys, places = (typed(*x) for x in kinds)
    body = (f"  %y0, %y1 = sort %a, %b, dimension = 1, stable = true : {keys}, {places} {{\n  ^(%p: f32[], %q: f32[], %i: i32[], %j: i32[]):\n"
            "    %c = compare %p, %q, direction = GT, total_order = false : bool[]\n    return %c\n  }")

    def reference(a, b):
        values, order = torch.sort(a, dim=1, descending=True, stable=True)
        return [values.double(), torch.gather(b, 1, order).double()]
    return Case(f"sort {lines}x{n}", kinds, kinds, body, reference, whole=1000)


def scatter(rows, columns, updates):
    whole = typed(F32, (rows, columns))
    body = (f"  %y0 = scatter %a, %b, %c, update_window_dims = [1], inserted_window_dims = [0], input_batching_dims = [], scatter_indices_batching_dims = [], "
            f"scatter_dims_to_operand_dims = [0], index_vector_dim = 1 : {whole} {{\n  ^(%p: f32[], %q: f32[]):\n    %s = add %p, %q : f32[]\n    return %s\n  }}")
    return Case(f"scatter {rows}x{columns}, {updates}", [(F32, (rows, columns)), (I64, (updates, 1)), (F32, (updates, columns))], [(F32, (rows, columns))], body,
                lambda a, b, c: [a.double().index_add(0, b[:, 0], c.double())], whole=rows)


def softmax(rows, columns):
    flat, wide = typed(F32, (rows,)), typed(F32, (rows, columns))
    fold = lambda of, start, fn: f"reduce {of}, {start}, dimensions = [1] : {flat} {{\n  ^(%p: f32[], %q: f32[]):\n    %r = {fn} %p, %q : f32[]\n    return %r\n  }}"  # noqa: E731
    spread = lambda of: f"broadcast_in_dim {of}, shape = [{rows}, {columns}], broadcast_dimensions = [0] : {wide}"  # noqa: E731
    body = (f"  %low = constant dense<-1e30> : f32[]\n  %zero = constant dense<0> : f32[]\n  %m = {fold('%a', '%low', 'maximum')}\n  %mm = {spread('%m')}\n"
            f"  %d = subtract %a, %mm : {wide}\n  %e = exponential %d : {wide}\n  %s = {fold('%e', '%zero', 'add')}\n  %ss = {spread('%s')}\n  %y0 = divide %e, %ss : {wide}")
    return Case(f"softmax {rows}x{columns}", [(F32, (rows, columns))], [(F32, (rows, columns))], body, lambda a: [torch.softmax(a.double(), 1)])


def turned(*shape):
    body = f"  %t = transpose %a, permutation = [2, 0, 1] : {typed(F32, (shape[2], shape[0], shape[1]))}\n  %y0 = negate %t : {typed(F32, (shape[2], shape[0], shape[1]))}"
    return Case(f"transpose {shape}", [(F32, shape)], [(F32, (shape[2], shape[0], shape[1]))], body, lambda a: [-a.double().permute(2, 0, 1)])


ENTRIES = {
    "graph_dot": Graphs(*(dot(BF16, *s) for s in ((1, 72, 1000), (16, 4096, 4096), (64, 4096, 4096), (65, 100, 1304), (128, 768, 3072), (300, 520, 200), (1000, 768, 768), (2049, 1032, 520))),
                        *(dot(BF16, *s, turned=True) for s in ((8, 2048, 2048), (64, 1000, 4096), (257, 264, 776))), dot(F32, 33, 65, 127)),
    "graph_sort": Graphs(*(sort(*s) for s in ((3, 1), (5, 37), (4096, 64), (3, 5000), (4, 32000), (1, 300007)))),
    "graph_scatter": Graphs(*(scatter(*s) for s in ((7, 70, 9), (100, 4097, 64), (3, 1, 50)))),
    "graph_rows": Graphs(*(softmax(*s) for s in ((1, 1), (7, 781), (33, 1024), (3, 40000)))),
    "graph_turned": Graphs(turned(3, 65, 129), turned(16, 64, 128), turned(1, 7, 5)),
    "graph_scaled": Scaled(*(scaled(*s) for s in ((1, 128, 128), (17, 256, 384), (200, 384, 640), (257, 1152, 1024), (1000, 4096, 2048), (65, 48, 80, 16), (33, 96, 96, 32))),
                           *(scaled(*s, rows=True) for s in ((257, 200, 640), (130, 1000, 1152), (2049, 520, 256)))),
    "graph_captured": Captured(dot(BF16, 64, 128, 8192), sort(4, 32000)),
}
