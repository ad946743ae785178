import triton
import triton.language as tl
from triton.language.extra import libdevice

BLOCK = tl.constexpr(16)


@triton.jit
def helper(a, b):
    if a > b:
        return a, b
    return b, a


@triton.autotune(configs=[triton.Config({"N": n}, num_warps=w) for n in (16, 32) for w in (1, 4)], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
@triton.jit
def k(p, o, n, N: tl.constexpr = 16, EVEN: tl.constexpr = False):
    """A row's softmax, sum and extrema."""
    row = tl.program_id(0)
    i = tl.arange(0, N)
    total = tl.zeros((N,), dtype=tl.float32)
    for start in range(0, n, N):
        mask = start + i < n
        total += tl.load(p + row * n + start + i, mask=mask, other=0.0)
    x = tl.softmax(total) + libdevice.tanh(total) * tl.rand(7, i)
    value, index = tl.max(x, 0, return_indices=True)
    first, second = helper(value, tl.sum(x, axis=0))
    while second > first and index != 0:
        second = second - 1.0
    if EVEN:
        tl.device_print("row", row)
    tl.store(o + row * 3 + i, tl.where(i < 2, first if N > 8 else second, tl.cumsum(x)), mask=i < 3)
