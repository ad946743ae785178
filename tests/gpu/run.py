"""Runs kernels on an NVIDIA GPU: first right against float64 at odd sizes, then against a device copy or PyTorch in strict turns. One table.

    TENON_LIBRARY=libtenon.so PYTHONPATH=python python3 tests/gpu/run.py [--check] [--time] [--limit] [--triton] [NAME ...]

Needs the library, PyTorch and the driver. --limit: all turns queued, so that the GPU is at its power limit. --triton adds Triton's time of the same
text. Entries called tutorial_… run kernels of examples/kernels; where they have configurations, each side runs its own best of them. `launch` is what a
launch takes of the processor; graph_… are graphs. Exits with 1 if a result is wrong."""
import argparse
import functools
import importlib.util
import math
import pathlib
import statistics
import sys
import tempfile
import time
import traceback

import torch

import graphs
from timing import at_power_limit, milliseconds

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent.parent / "examples" / "kernels"
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def for_triton(path):
    """The same kernels for Triton."""
    text = path.read_text().replace("tenon.triton", "triton")
    copy = pathlib.Path(tempfile.mkdtemp()) / f"peer_{path.stem}.py"
    copy.write_text(text)
    return load(copy, copy.stem)


class Modules:
    """Of the kernels that entries name, Tenon's or, if `peer`, Triton's."""

    def __init__(self, peer):
        self.peer, self.loaded = peer, {}
        if peer:
            import triton
            triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))

    def of(self, entry):
        path = EXAMPLES / f"{entry.example}.py" if entry.example else HERE / "kernels.py"
        if path not in self.loaded:
            self.loaded[path] = for_triton(path) if self.peer else load(path, f"tenon_{path.stem}")
        return self.loaded[path]


def cdiv(a, b):
    return -(-a // b)


def power(n):
    return 1 << max(0, n - 1).bit_length()


def warps_for(block):
    return max(1, min(32, block // 1024))


def random(*shape, dtype=BF16):
    return torch.randn(*shape, device="cuda", dtype=F32).to(dtype)


def poisoned(*shape, dtype=BF16):
    return torch.full(shape, float("nan"), device="cuda", dtype=dtype)


def error(out, ref):
    out, ref = out.double(), ref.double()
    if out.isnan().any() and not ref.isnan().any():
        return float("inf")
    scale = ref.norm()
    return ((out - ref).norm() / scale).item() if scale > 0 else (out - ref).norm().item()


# Each entry: sizes to check at; make(size, dtype) -> (inputs, outputs); launch(kernels, inputs, outputs, size); reference(inputs) in float64.
class Row:
    odd = [(1, 1), (3, 5), (7, 781), (33, 1024), (5, 1000), (3, 4097), (2, 16384)]
    big = [(1 << 18, 1 << 10), (1 << 16, 1 << 12), (1 << 14, 1 << 14), (1 << 12, 1 << 16)]
    dtypes = [BF16, F32]
    peer = "copy"
    example = None  # the file of examples/kernels that has the kernel; else kernels.py
    configs = [{}]  # named arguments of launch: each side is timed with its fastest

    def make(self, size, dtype):
        return [random(*size, dtype=dtype)], [poisoned(*size, dtype=dtype)]

    def moved(self, inputs, outputs):
        return sum(t.numel() * t.element_size() for t in inputs + outputs)


class Softmax(Row):
    def launch(self, k, i, o, size):
        block = power(size[1])
        k.softmax[(size[0],)](o[0], i[0], size[1], BLOCK=block, num_warps=min(16, warps_for(block)))

    def reference(self, i, size):
        return [torch.softmax(i[0].double(), 1)]


class LayerNorm(Row):
    def make(self, size, dtype):
        return [random(*size, dtype=dtype), random(size[1], dtype=dtype), random(size[1], dtype=dtype)], [poisoned(*size, dtype=dtype)]

    def launch(self, k, i, o, size):
        block = power(size[1])
        k.layer_norm[(size[0],)](i[0], i[1], i[2], o[0], size[1], 1e-5, BLOCK=block, num_warps=warps_for(block))

    def reference(self, i, size):
        return [torch.nn.functional.layer_norm(i[0].double(), (size[1],), i[1].double(), i[2].double(), 1e-5)]


class RmsNorm(LayerNorm):
    def launch(self, k, i, o, size):
        block = power(size[1])
        k.rms_norm[(size[0],)](i[0], i[1], o[0], size[1], 1e-5, BLOCK=block, num_warps=warps_for(block))

    def reference(self, i, size):
        x = i[0].double()
        return [x / (x.pow(2).mean(1, keepdim=True) + 1e-5).sqrt() * i[1].double()]


class RowSum(Row):
    def make(self, size, dtype):
        return [random(*size, dtype=dtype)], [poisoned(size[0], dtype=F32)]

    def launch(self, k, i, o, size):
        block = power(size[1])
        if block <= 1024:
            k.row_sums[(cdiv(size[0], 4),)](i[0], o[0], size[0], size[1], ROWS=4, BLOCK=block, num_warps=4)
        else:
            k.row_sum[(size[0],)](i[0], o[0], size[1], BLOCK=block, num_warps=warps_for(block))

    def reference(self, i, size):
        return [i[0].double().sum(1)]


class Scan(Row):
    big = [(1 << 18, 1 << 10)]

    def make(self, size, dtype):
        return [random(*size, dtype=dtype)], [poisoned(*size, dtype=F32)]

    def launch(self, k, i, o, size):
        block = power(size[1])
        k.scan_rows[(size[0],)](i[0], o[0], size[1], BLOCK=block, num_warps=warps_for(block))

    def reference(self, i, size):
        return [i[0].double().cumsum(1)]


class ArgMax(Row):
    big = []

    def make(self, size, dtype):
        return [random(*size, dtype=dtype)], [torch.full((size[0],), -1, device="cuda", dtype=torch.int32)]

    def launch(self, k, i, o, size):
        block = power(size[1])
        k.argmax_rows[(size[0],)](i[0], o[0], size[1], BLOCK=block, num_warps=warps_for(block))

    def reference(self, i, size):
        return [i[0].double().argmax(1)]


class ColumnSum(Row):
    odd = [(1, 1), (3, 5), (781, 7), (1024, 33), (1000, 136), (4097, 3)]
    strip = 2048

    def make(self, size, dtype):
        return [random(*size, dtype=dtype)], [poisoned(cdiv(size[0], self.strip), size[1], dtype=F32)]

    def launch(self, k, i, o, size):
        k.column_sum[(cdiv(size[1], 256), cdiv(size[0], self.strip))](i[0], o[0], size[0], size[1], ROWS=32, COLS=256, STRIP=self.strip, num_warps=8)

    def reference(self, i, size):
        return [torch.stack([part.double().sum(0) for part in i[0].split(self.strip)])]


class Transpose(Row):
    odd = [(1, 1), (3, 5), (65, 781), (128, 1000), (4097, 64), (144, 1040), (16, 4112)]

    def make(self, size, dtype):
        return [random(*size, dtype=dtype)], [poisoned(size[1], size[0], dtype=dtype)]

    def launch(self, k, i, o, size):
        k.transpose[(cdiv(size[0], 128), cdiv(size[1], 128))](i[0], o[0], size[0], size[1], ROWS=128, COLS=128, num_warps=8)

    def reference(self, i, size):
        return [i[0].double().t()]


class Flat(Row):
    odd = [(1,), (3,), (1023,), (1024,), (100003,)]
    big = [(1 << 28,)]


class Add(Flat):
    def make(self, size, dtype):
        return [random(*size, dtype=dtype), random(*size, dtype=dtype)], [poisoned(*size, dtype=dtype)]

    def launch(self, k, i, o, size):
        k.add[(cdiv(size[0], 2048),)](i[0], i[1], o[0], size[0], BLOCK=2048, num_warps=4)

    def reference(self, i, size):
        return [i[0].double() + i[1].double()]


class Gelu(Flat):
    def launch(self, k, i, o, size):
        k.gelu[(cdiv(size[0], 2048),)](i[0], o[0], size[0], BLOCK=2048, num_warps=4)

    def reference(self, i, size):
        return [torch.nn.functional.gelu(i[0].double(), approximate="tanh")]


class FullSum(Flat):
    """Of strips, then of what they gave."""
    strip = 32768

    def make(self, size, dtype):
        return [random(*size, dtype=dtype), poisoned(cdiv(size[0], self.strip), dtype=F32)], [poisoned(1, dtype=F32)]

    def moved(self, inputs, outputs):
        return inputs[0].numel() * inputs[0].element_size()

    def launch(self, k, i, o, size):
        parts = i[1].numel()
        k.strip_sum[(parts,)](i[0], i[1], size[0], BLOCK=4096, STRIP=self.strip, num_warps=4)
        k.strip_sum[(1,)](i[1], o[0], parts, BLOCK=4096, STRIP=4096 * cdiv(parts, 4096), num_warps=8)

    def reference(self, i, size):
        return [i[0].double().sum()[None]]


def odd_rows(row, *sizes):
    """The same kernel, timed where rows do not end with vectors of 16 bytes, or not all of them."""
    row.odd, row.big = [], list(sizes)
    return row


class Matmul(Row):
    odd = [(1, 8, 8), (257, 520, 200), (300, 1000, 72), (64, 64, 64), (33, 17, 5)]
    big = [(4096, 4096, 4096), (8192, 8192, 8192)]
    dtypes = [BF16, F16, F32]
    peer = "matmul"

    def make(self, size, dtype):
        m, n, k = size
        return [random(m, k, dtype=dtype), random(k, n, dtype=dtype)], [poisoned(m, n, dtype=dtype)]

    def launch(self, k, i, o, size):
        m, n, kk = size
        k.matmul[(cdiv(m, 128) * cdiv(n, 128),)](i[0], i[1], o[0], m, n, kk, BM=128, BN=128, BK=64 if i[0].element_size() == 2 else 32, GROUP=8, num_warps=8, num_stages=3)

    def reference(self, i, size):
        return [i[0].double() @ i[1].double()]

    def work(self, size):
        return 2 * size[0] * size[1] * size[2]

    def peer_run(self, i, o):
        torch.matmul(i[0], i[1], out=o[0])


class Precise(Matmul):
    """tf32, f8, int8; of the right factor rows of k (turned) or of n. Sums of int8 are exact."""
    odd = [(1, 16, 32), (257, 528, 208), (300, 1008, 384), (128, 128, 128), (33, 17, 5)]

    def __init__(self, dtype, turned, precision="ieee", right=None, limit=2e-3):
        self.dtypes, self.right, self.turned, self.precision, self.limit = [dtype], right or dtype, turned, precision, limit
        self.big = Matmul.big if dtype == F32 or (turned and dtype != torch.float8_e5m2) else []  # what PyTorch has too

    def make(self, size, dtype):
        m, n, k = size
        whole = dtype == torch.int8
        values = (lambda t, *s: torch.randint(-128, 128, s, device="cuda", dtype=t)) if whole else (lambda t, *s: random(*s, dtype=t))
        right = values(self.right, n, k).t() if self.turned else values(self.right, k, n)
        out = torch.full((m, n), -1, device="cuda", dtype=torch.int32) if whole else poisoned(m, n, dtype=F32)
        return [values(dtype, m, k), right], [out]

    def launch(self, k, i, o, size):
        m, n, kk = size
        tl = k.tl
        wide = i[0].element_size() == 4
        k.matmul_precise[(cdiv(m, 128) * cdiv(n, 128),)](i[0], i[1], o[0], m, n, kk, i[1].stride(0), i[1].stride(1), BM=128, BN=128, BK=32 if wide else 128, GROUP=8,
                                                         SUM=tl.int32 if o[0].dtype == torch.int32 else tl.float32, PRECISION=self.precision, num_warps=8, num_stages=3)

    def peer_run(self, i, o):
        if i[0].dtype == torch.int8:
            torch._int_mm(i[0], i[1], out=o[0])
        elif i[0].element_size() == 1:
            one = torch.ones((), device="cuda")
            torch._scaled_mm(i[0], i[1], scale_a=one, scale_b=one, out_dtype=BF16, use_fast_accum=True)
        else:
            torch.backends.cuda.matmul.allow_tf32 = self.precision == "tf32"
            torch.matmul(i[0], i[1], out=o[0])


class Scaled(Matmul):
    """f8 with a scale a row and 128 of k of the left factor, 128 x 128 of the right one; the peer has a scale a factor."""
    odd = [(1, 16, 128), (257, 528, 208), (300, 1008, 384), (128, 128, 128), (33, 17, 5)]
    dtypes = [torch.float8_e4m3fn]
    limit = 6e-3

    def make(self, size, dtype):
        m, n, k = size
        scales = lambda rows: torch.rand(rows, cdiv(k, 128), device="cuda") + 0.5  # noqa: E731
        return [random(m, k, dtype=dtype), random(n, k, dtype=dtype), scales(m), scales(cdiv(n, 128))], [poisoned(m, n)]

    def launch(self, k, i, o, size):
        m, n, kk = size
        k.matmul_scaled[(cdiv(m, 128) * cdiv(n, 128),)](*i, o[0], m, n, kk, BM=128, BN=128, BK=128, GROUP=8, num_warps=8, num_stages=4)

    def reference(self, i, size):
        m, n, k = size
        a = i[0].double() * i[2].double().repeat_interleave(128, 1)[:, :k]
        return [a @ (i[1].double() * i[3].double().repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k]).t()]

    def peer_run(self, i, o):
        one = torch.ones((), device="cuda")
        torch._scaled_mm(i[0], i[1].t(), scale_a=one, scale_b=one, out_dtype=BF16)


class Attention(Row):
    """[heads, length] of one HEAD, against PyTorch's own attention."""
    odd = [(1, 1), (2, 33), (3, 200), (2, 513)]
    big = [(16, 4096), (4, 16384)]
    dtypes = [BF16, F16]
    peer = "sdpa"
    limit = 6e-3

    def __init__(self, head, causal):
        self.head, self.causal, self.scale = head, causal, head ** -0.5

    def make(self, size, dtype):
        return [random(*size, self.head, dtype=dtype) for _ in range(3)], [poisoned(*size, self.head, dtype=dtype), poisoned(*size, dtype=F32)]

    def launch(self, k, i, o, size, BLOCK_M=128, BLOCK_N=128, warps=8):
        k.attention[(cdiv(size[1], BLOCK_M), size[0])](*i[:3], *o, self.scale, size[1], HEAD=self.head, CAUSAL=self.causal, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=warps)

    def exact(self, q, k, v):
        """Of one head: outputs, and logarithms to base 2 of the sums of exponents."""
        s = q.double() @ k.double().t() * self.scale
        if self.causal:
            s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -float("inf"))
        return torch.softmax(s, 1) @ v.double(), torch.logsumexp(s, 1) / math.log(2)

    def reference(self, i, size):
        return [torch.stack(x) for x in zip(*[self.exact(*head) for head in zip(*i[:3])])]

    def work(self, size):
        return 4 * size[0] * size[1] ** 2 * self.head / (2 if self.causal else 1)

    def peer_attention(self, q, k, v):
        with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.CUDNN_ATTENTION, torch.nn.attention.SDPBackend.FLASH_ATTENTION], set_priority=True):
            return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=self.causal)[0]

    def peer_run(self, i, o):
        self.peer_attention(*i)


class AttentionBack(Attention):
    """The way back of the same: of what the forward pass keeps, and of the outputs' derivatives."""
    odd = [(1, 17), (2, 33), (3, 200), (2, 513)]

    def make(self, size, dtype):
        tensors = [random(*size, self.head, dtype=dtype) for _ in range(4)]
        out, lse = Attention.reference(self, tensors, size)
        rows = cdiv(size[1], 128) * 128
        kept = [poisoned(size[0], rows, dtype=F32), poisoned(size[0], rows, dtype=F32), poisoned(size[0], self.head, rows, dtype=F32)]
        return tensors + [out.to(dtype), lse.float()] + kept, [poisoned(*size, self.head, dtype=dtype) for _ in range(3)]

    def launch(self, k, i, o, size, rows=(128, 128, 8), keys=None, once=False):
        """By blocks of keys and then of rows, seven products a pair of blocks; or at once, five, with q's sums in memory, in f32: `once`."""
        q, key, value, do, out, lse, row_lse, delta, sums = i
        heads, length = size
        constants, common = dict(HEAD=self.head, CAUSAL=self.causal), (q, key, value, do, row_lse, delta)
        keys = keys or (64, 128, 8)
        k.attention_delta[(delta.shape[1] // 64, heads)](out, do, lse, row_lse, delta, sums, length, HEAD=self.head, BLOCK=64, CLEAR=once)
        blocks = dict(BLOCK_M=keys[0], BLOCK_N=keys[1], num_warps=keys[2])
        if once:
            k.attention_back[(cdiv(length, keys[1]), heads)](*common, sums, *o[1:], self.scale, length, **constants, **blocks)
            k.turned_sums[(delta.shape[1] // 64, heads)](sums, o[0], self.scale, length, HEAD=self.head, BLOCK=64, num_warps=4)
            return
        k.attention_kv[(cdiv(length, keys[1]), heads)](*common, *o[1:], self.scale, length, **constants, **blocks)
        k.attention_q[(cdiv(length, rows[0]), heads)](*common, o[0], self.scale, length, **constants, BLOCK_M=rows[0], BLOCK_N=rows[1], num_warps=rows[2])

    def reference(self, i, size):
        found = []
        for head in zip(*i[:4]):
            leaves = [x.double().requires_grad_() for x in head[:3]]
            found.append(torch.autograd.grad(self.exact(*leaves)[0], leaves, head[3].double()))
        return [torch.stack(x) for x in zip(*found)]

    def work(self, size):
        return Attention.work(self, size) * 5 / 2

    def peer_run(self, i, o):
        if getattr(self, "of", None) is not i:
            self.of, self.leaves = i, [x.detach().requires_grad_() for x in i[:3]]
            self.out = self.peer_attention(*self.leaves)
        torch.autograd.grad(self.out, self.leaves, i[3], retain_graph=True)


class AttentionOnce(AttentionBack):
    big = []

    def launch(self, k, i, o, size):
        AttentionBack.launch(self, k, i, o, size, keys=(64, 128, 8) if self.head == 128 else (64, 64, 4), once=True)


class TutorialMatmul(Matmul):
    """Grouped blocks, columns and rows modulo the sizes, leaky relu."""
    example, dtypes = "matmul", [F16]
    odd = [(1, 1, 1), (17, 33, 65), (257, 520, 200), (300, 1000, 72)]
    big = [(2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192)]
    configs = [dict(BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, num_stages=stages, num_warps=warps)
               for m, n, k, stages, warps in ((128, 256, 64, 3, 8), (64, 256, 32, 4, 4), (128, 128, 32, 4, 4), (128, 128, 64, 4, 4), (128, 64, 32, 4, 4))]

    def launch(self, k, i, o, size, **config):
        m, n, kk = size
        config = config or self.configs[0]
        k.matmul_kernel.fn[(cdiv(m, config["BLOCK_M"]) * cdiv(n, config["BLOCK_N"]),)](*i, *o, m, n, kk, kk, 1, n, 1, n, 1, GROUP=8, ACTIVATION="leaky_relu", **config)

    def reference(self, i, size):
        return [torch.nn.functional.leaky_relu(i[0].double() @ i[1].double(), 0.01)]


class Persistent(Matmul):
    """A program a processor, which walks over blocks: by pointers, or by descriptors with the right factor along k."""
    example, dtypes = "persistent_matmul", [F16]
    configs = [dict(BLOCK_M=128, BLOCK_N=256, BLOCK_K=64, num_stages=3, num_warps=8), dict(BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, num_stages=4, num_warps=8)]

    def launch(self, k, i, o, size, **config):
        m, n, kk = size
        programs = torch.cuda.get_device_properties(0).multi_processor_count
        k.with_pointers[(programs,)](*i, *o, m, n, kk, kk, n, n, GROUP=8, PROGRAMS=programs, **config or self.configs[0])


class PersistentDescriptors(Persistent):
    odd = [(1, 8, 8), (257, 520, 200), (300, 1000, 72), (64, 64, 64)]
    configs = Persistent.configs + [dict(Persistent.configs[0], HALVES=True)]

    def make(self, size, dtype):
        m, n, k = size
        return [random(m, k, dtype=dtype), random(n, k, dtype=dtype)], [poisoned(m, n, dtype=dtype)]

    def launch(self, k, i, o, size, HALVES=False, **config):
        m, n, kk = size
        programs = torch.cuda.get_device_properties(0).multi_processor_count
        k.with_descriptors[(programs,)](*i, *o, m, n, kk, GROUP=8, PROGRAMS=programs, HALVES=HALVES, **config or self.configs[0])

    def reference(self, i, size):
        return [i[0].double() @ i[1].double().t()]

    def peer_run(self, i, o):
        torch.matmul(i[0], i[1].t(), out=o[0])


class Grouped(Matmul):
    """Products of several sizes in one launch; addresses and sizes come from memory."""
    example, dtypes = "grouped_gemm", [F16]
    odd = [((128, 96, 64), (33, 65, 17), (1, 200, 50), (256, 32, 128)), ((257, 520, 200), (64, 64, 64))]
    big = [tuple((n, n, n) for n in (1024, 512, 256, 128)), ((4096, 4096, 4096),) * 4]
    configs = [dict(BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, num_stages=stages, num_warps=warps)
               for m, n, k, stages, warps in ((128, 128, 64, 3, 8), (128, 128, 64, 3, 4), (128, 128, 32, 3, 4), (64, 64, 32, 3, 4))]

    def make(self, size, dtype):
        left, right = [random(m, k, dtype=dtype) for m, n, k in size], [random(k, n, dtype=dtype) for m, n, k in size]
        out = [poisoned(m, n, dtype=dtype) for m, n, k in size]
        tables = [torch.tensor([x.data_ptr() for x in group], device="cuda") for group in (left, right, out)]
        numbers = [torch.tensor(rows, device="cuda", dtype=torch.int32) for rows in (size, [(k, n, n) for m, n, k in size])]
        return [*tables, *numbers, left, right], out

    def launch(self, k, i, o, size, **config):
        programs = torch.cuda.get_device_properties(0).multi_processor_count
        k.grouped_kernel[(programs,)](*i[:5], len(size), PROGRAMS=programs, **config or self.configs[0])

    def reference(self, i, size):
        return [a.double() @ b.double() for a, b in zip(*i[5:])]

    def work(self, size):
        return sum(2 * m * n * k for m, n, k in size)

    def peer_run(self, i, o):
        for a, b, c in zip(*i[5:], o):
            torch.matmul(a, b, out=c)


class TutorialNorm(Row):
    """The way there, in strips if rows are long."""
    example, dtypes = "layer_norm", [F16, F32]
    odd = [(1, 1), (3, 5), (37, 512), (16, 1000), (5, 4097)]
    big = [(4096, 1024), (4096, 4096), (4096, 8192), (4096, 15872)]

    def make(self, size, dtype):
        values = [random(*size, dtype=dtype), random(size[1], dtype=dtype), random(size[1], dtype=dtype)]
        return values, [poisoned(*size, dtype=dtype), poisoned(size[0], dtype=F32), poisoned(size[0], dtype=F32)]

    def launch(self, k, i, o, size):
        block = min(power(size[1]), 65536 // i[0].element_size())
        k.forward[(size[0],)](i[0], o[0], i[1], i[2], o[1], o[2], size[1], size[1], 1e-5, BLOCK=block, num_warps=min(max(block // 256, 1), 8))

    def reference(self, i, size):
        x = i[0].double()
        mean, rstd = x.mean(1), 1 / (x.var(1, correction=0) + 1e-5).sqrt()
        return [(x - mean[:, None]) * rstd[:, None] * i[1].double() + i[2].double(), mean, rstd]


class TutorialNormBack(TutorialNorm):
    """The way back: sums of weights' derivatives in groups of rows under a lock, then over the groups. Of one column the derivative is 0, by rounding alone."""
    odd = TutorialNorm.odd[1:]

    def make(self, size, dtype):
        x, dy, w = random(*size, dtype=dtype), random(*size, dtype=dtype), random(size[1], dtype=dtype)
        mean, rstd = x.double().mean(1).float(), (1 / (x.double().var(1, correction=0) + 1e-5).sqrt()).float()
        groups = 64 if size[1] > 8192 else 96 if size[1] > 4096 else 128 if size[1] > 1024 else 256
        sums = [poisoned(groups, size[1], dtype=F32) for _ in range(2)]
        locks = torch.zeros(2 * groups, device="cuda", dtype=torch.int32)
        return [x, dy, w, mean, rstd, *sums, locks], [poisoned(*size, dtype=dtype), poisoned(size[1], dtype=F32), poisoned(size[1], dtype=F32)]

    def moved(self, i, o):
        return 3 * i[0].numel() * i[0].element_size()

    def launch(self, k, i, o, size):
        (x, dy, w, mean, rstd, dw, db, locks), groups, n = i, i[5].shape[0], size[1]
        block = power(n)
        locks.zero_()
        k.backward_x[(size[0],)](o[0], dy, dw, db, x, w, mean, rstd, locks, n, n, GROUPS=groups, BLOCK=block, num_warps=min(max(block // 256, 1), 8))
        k.backward_wb[(cdiv(n, 128),)](dw, db, *o[1:], min(groups, size[0]), n, BLOCK_M=32, BLOCK_N=128)

    def reference(self, i, size):
        leaves = [i[0].double().requires_grad_(), i[2].double().requires_grad_(), torch.zeros(size[1], device="cuda", dtype=torch.float64, requires_grad=True)]
        y = torch.nn.functional.layer_norm(leaves[0], (size[1],), *leaves[1:], 1e-5)
        return torch.autograd.grad(y, leaves, i[1].double())


class Dropout(Flat):
    """By a seed: which elements stay is Philox's to say, bit for bit."""
    example, dtypes, seed, part = "dropout", [F32], 123, 0.35

    def launch(self, k, i, o, size):
        k.dropout_kernel[(cdiv(size[0], 1024),)](*i, *o, size[0], self.part, self.seed, BLOCK=1024)

    def reference(self, i, size):
        uniform = load(EXAMPLES / "dropout.py", "tenon_dropout").uniform(self.seed, size[0])
        keep = torch.from_numpy(uniform).cuda() > torch.tensor(self.part, dtype=F32)
        return [torch.where(keep, i[0].double() / (1 - self.part), 0)]


class Asin(Flat):
    example, dtypes = "libdevice", [F32]

    def make(self, size, dtype):
        return [torch.rand(*size, device="cuda") * 2 - 1], [poisoned(*size, dtype=dtype)]

    def launch(self, k, i, o, size):
        k.asin_kernel[(cdiv(size[0], 1024),)](*i, *o, size[0], BLOCK=1024)

    def reference(self, i, size):
        return [torch.asin(i[0].double())]


class Launch(Flat):
    """What a launch takes of the processor: three tensors and a number, 16 elements, 10,000 times without waiting."""
    example, big, dtypes = "vector_add", [(16,)], [F32]

    def make(self, size, dtype):
        return [random(*size, dtype=dtype), random(*size, dtype=dtype)], [poisoned(*size, dtype=dtype)]

    def launch(self, k, i, o, size):
        k.vector_add[(cdiv(size[0], 16),)](*i, *o, size[0], BLOCK=16)

    def reference(self, i, size):
        return [i[0].double() + i[1].double()]

    def time(self, name, kernels, peer):
        i, o = self.make((16,), F32)
        x, y, z = *i, *o
        sides = [module.vector_add for module in (kernels, peer) if module]

        def microseconds(kernel):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(1000):
                kernel[(1,)](x, y, z, 16, BLOCK=16)
            return (time.perf_counter() - start) * 1e3

        for kernel in sides:
            microseconds(kernel)
        table = [[microseconds(kernel) for kernel in sides] for _ in range(10)]
        medians = [statistics.median(column) for column in zip(*table)]
        print(f"{name:12} {medians[0]:6.2f} us" + (f"   triton {medians[1]:6.2f} us  {medians[1] / medians[0]:6.3f}" if peer else ""), flush=True)


E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
ENTRIES = {"tf32": Precise(F32, True, "tf32"), "tf32_rows": Precise(F32, False, "tf32"), "tf32x3": Precise(F32, True, "tf32x3", limit=4e-6),
           "f32": Precise(F32, False, "ieee", limit=2e-6), "e4m3": Precise(E4M3, True), "e4m3_rows": Precise(E4M3, False), "e5m2": Precise(E5M2, True),
           "mixed_f8": Precise(E4M3, True, right=E5M2), "scaled_f8": Scaled(), "int8": Precise(torch.int8, True, limit=0), "int8_rows": Precise(torch.int8, False, limit=0)}
ENTRIES = ENTRIES | {"add": Add(), "gelu": Gelu(), "softmax": Softmax(), "layer_norm": LayerNorm(), "rms_norm": RmsNorm(), "row_sum": RowSum(), "column_sum": ColumnSum(),
           "transpose": Transpose(), "scan": Scan(), "argmax": ArgMax(), "full_sum": FullSum(), "matmul": Matmul(),
           "softmax_odd": odd_rows(Softmax(), (1 << 18, 1000), (1 << 18, 1001), (1 << 16, 4100), (4096, 65000), (4096, 65001)),
           "norm_odd": odd_rows(LayerNorm(), (1 << 18, 1000), (1 << 18, 1001), (1 << 16, 5000), (1 << 14, 16001))}
ENTRIES = ENTRIES | {f"{name}_{head}{'_causal' * causal}": make(head, causal) for name, make in (("attention", Attention), ("back", AttentionBack), ("back_once", AttentionOnce)) for head in (64, 128)
                     for causal in (False, True)}
ENTRIES = ENTRIES | {"tutorial_matmul": TutorialMatmul(), "tutorial_persistent": Persistent(), "tutorial_descriptors": PersistentDescriptors(), "tutorial_grouped": Grouped(),
                     "tutorial_norm": TutorialNorm(), "tutorial_norm_back": TutorialNormBack(), "tutorial_dropout": Dropout(), "tutorial_asin": Asin(), "launch": Launch()} | graphs.ENTRIES
LIMITS = {BF16: 6e-3, F16: 1e-3, F32: 2e-6}


def check(name, entry, kernels):
    worst, wrong = 0.0, []
    for dtype in entry.dtypes:
        for size in entry.odd:
            inputs, outputs = entry.make(size, dtype)
            limit = entry.limit if hasattr(entry, "limit") else LIMITS[dtype] if name != "matmul" or dtype != F32 else 2e-3  # tf32
            try:
                entry.launch(kernels, inputs, outputs, size)
                torch.cuda.synchronize()
                e = max(error(out, ref) for out, ref in zip(outputs, entry.reference(inputs, size)))
            except Exception as problem:
                wrong.append(f"{size} {dtype}: {str(problem).splitlines()[0][:160]}")
                if "unspecified launch failure" in str(problem) or "illegal" in str(problem):
                    raise
                continue
            worst = max(worst, e / limit if limit else e)
            if not e <= limit:
                wrong.append(f"{size} {dtype}: error {e:.2e}")
    return worst, wrong


def turns(runs, rounds=9, times=5):
    for run in runs:
        milliseconds(run, 2)
    table = [[milliseconds(run, times) for run in runs] for _ in range(rounds)]
    medians = [statistics.median(column) for column in zip(*table)]
    return medians, [statistics.median(row[k] / row[0] for row in table) for k in range(len(runs))]


def fastest(entry, kernels, inputs, outputs, size):
    """A launch with that of the entry's configurations that takes least time here."""
    runs = [functools.partial(entry.launch, kernels, inputs, outputs, size, **config) for config in entry.configs]
    if len(runs) == 1:
        return runs[0]
    times = {}
    for i, run in enumerate(runs):
        try:
            milliseconds(run, 2)
            times[i] = min(milliseconds(run, 5) for _ in range(3))
        except Exception as problem:  # more shared memory than there is
            if "illegal" in str(problem) or "unspecified" in str(problem):
                raise
    return runs[min(times, key=times.get)]


def timed(name, entry, kernels, peer, limit):
    for size in entry.big:
        dtype = entry.dtypes[0]
        inputs, outputs = entry.make(size, dtype)
        runs = [fastest(entry, kernels, inputs, outputs, size)]
        if entry.peer == "copy":
            half = entry.moved(inputs, outputs) // 2
            source, target = torch.empty(half, dtype=torch.uint8, device="cuda").random_(), torch.empty(half, dtype=torch.uint8, device="cuda")
            runs.append(lambda: target.copy_(source))
        else:
            runs.append(lambda: entry.peer_run(inputs, outputs))
        if peer:
            runs.append(fastest(entry, peer, inputs, outputs, size))
        medians, ratios = at_power_limit(runs, 9) if limit else turns(runs)
        shown = size if isinstance(size[0], int) else [part[0] for part in size]
        row = f"{name:12} {'x'.join(map(str, shown)):18} {medians[0]:8.3f} ms   {entry.peer} {medians[1]:8.3f} ms  {ratios[1]:6.3f}"
        if entry.peer != "copy":
            row += f"   {entry.work(size) / medians[0] / 1e9:6.0f} TFLOP/s"
        else:
            row += f"   {entry.moved(inputs, outputs) / medians[0] / 1e9:6.2f} TB/s"
        if peer:
            row += f"   triton {medians[2]:8.3f} ms  {ratios[2]:6.3f}"
        if len(entry.configs) > 1:
            row += "   " + " | ".join("x".join(str(int(value)) for value in run.keywords.values()) for run in (runs[0], *runs[2:]))
        print(row, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--limit", action="store_true")
    parser.add_argument("--triton", action="store_true")
    options = parser.parse_args()
    modules, peers = Modules(False), Modules(True) if options.triton else None
    failed = 0
    for name in options.names or ENTRIES:
        try:
            entry = ENTRIES[name]
            kernels, peer = modules.of(entry), peers.of(entry) if peers else None
            if not options.time or options.check:
                worst, wrong = check(name, entry, kernels)
                failed += len(wrong)
                print(f"{name:12} {'right' if not wrong else 'WRONG'}   worst error / limit {worst:.2f}" + "".join(f"\n    {w}" for w in wrong), flush=True)
            if not options.check or options.time:
                (entry.time if hasattr(entry, "time") else functools.partial(timed, entry=entry, limit=options.limit))(name, kernels=kernels, peer=peer)
        except Exception:
            failed += 1
            print(f"{name:12} FAILED\n" + traceback.format_exc()[-1500:], flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
