"""Small kernels for the tests of `tenon kernel`: what each argument form means, and what is wrong on purpose."""
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside), mask=inside)


@triton.jit
def scale(x, out, n, alpha, BLOCK: tl.constexpr = 64, ACTIVATION: tl.constexpr = "none"):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    value = tl.load(x + offsets, mask=inside).to(tl.float32) * alpha
    if ACTIVATION == "relu":
        value = tl.maximum(value, 0)
    tl.store(out + offsets, value, mask=inside)


@triton.jit
def row_sums(x, out, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * stride + columns, mask=columns < n, other=0.0)
    tl.store(out + row, tl.sum(total, 0))


@triton.jit
def programs(out):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    index = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    tl.store(out + index, x + 10 * y + 100 * z)


@triton.jit
def grid_names(out, grid_x, begin, end):
    """Parameters that are called like what a kernel knows anyway."""
    tl.store(out + tl.program_id(0), grid_x + 10 * begin + 100 * end + 1000 * tl.num_programs(0))


@triton.jit
def past_the_end(x, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets))


@triton.jit
def same_element(out):
    tl.store(out, tl.program_id(0))


@triton.jit
def reads_fresh(out):
    tl.store(out, tl.load(out) + 1)


@triton.jit
def asserts(x, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n, other=0)
    tl.device_assert(value >= 0, "x is not negative")
    tl.store(x + offsets, value, mask=offsets < n)


@triton.jit
def not_in_the_language(x):
    with open("file") as f:
        tl.store(x, 1)


@triton.autotune(configs=[triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"])
@triton.jit
def tuned(out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, BLOCK, mask=offsets < n)


@triton.jit
def increments(counter):
    tl.atomic_add(counter, 1)


@triton.jit
def never_released(lock):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass


@triton.jit
def wraps(x, out, stride):
    row = tl.program_id(0) * 65536
    tl.store(out + tl.program_id(0), tl.load(x + row * stride))
