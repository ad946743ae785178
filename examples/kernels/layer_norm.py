"""Layer normalisation, forward and backward. The gradients of weight and bias are summed in groups of rows under a lock, then over the groups."""
import numpy as np

import tenon.triton as triton
import tenon.triton.language as tl


@triton.jit
def forward(x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + cols, mask=cols < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n, other=0.0).to(tl.float32)
        x = tl.where(cols < n, x - mean, 0.0)
        squares += x * x
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / n + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n
        w = tl.load(w_ptr + cols, mask=inside)
        b = tl.load(b_ptr + cols, mask=inside)
        x = tl.load(x_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(y_ptr + cols, (x - mean) * rstd * w + b, mask=inside)


@triton.jit
def backward_x(dx_ptr, dy_ptr, dw_ptr, db_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, lock_ptr, stride, n, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < n
    x = tl.load(x_ptr + row * stride + cols, mask=inside, other=0).to(tl.float32)
    dy = tl.load(dy_ptr + row * stride + cols, mask=inside, other=0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=inside).to(tl.float32)
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    xhat = tl.where(inside, (x - mean) * rstd, 0.0)
    wdy = tl.where(inside, w * dy, 0.0)
    c1 = tl.sum(xhat * wdy, axis=0) / n
    c2 = tl.sum(wdy, axis=0) / n
    tl.store(dx_ptr + row * stride + cols, (wdy - (xhat * c1 + c2)) * rstd, mask=inside)
    # One group's sums are one program's at a time: a lock, and a flag that says whether anything is there yet.
    group = row % GROUPS
    lock_ptr += group
    count_ptr = lock_ptr + GROUPS
    dw_ptrs = dw_ptr + group * n + cols
    db_ptrs = db_ptr + group * n + cols
    dw = dy * xhat
    db = dy
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    if tl.load(count_ptr) == 0:
        tl.atomic_xchg(count_ptr, 1)
    else:
        dw += tl.load(dw_ptrs, mask=inside)
        db += tl.load(db_ptrs, mask=inside)
    tl.store(dw_ptrs, dw, mask=inside)
    tl.store(db_ptrs, db, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def backward_wb(dw_parts, db_parts, dw_ptr, db_ptr, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    dw = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    db = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for i in range(0, m, BLOCK_M):
        rows = i + tl.arange(0, BLOCK_M)
        inside = (rows[:, None] < m) & (cols[None, :] < n)
        at = rows[:, None] * n + cols[None, :]
        dw += tl.load(dw_parts + at, mask=inside, other=0.0)
        db += tl.load(db_parts + at, mask=inside, other=0.0)
    tl.store(dw_ptr + cols, tl.sum(dw, axis=0), mask=cols < n)
    tl.store(db_ptr + cols, tl.sum(db, axis=0), mask=cols < n)


def check():
    rng = np.random.default_rng(4)
    eps = 1e-5
    for m, n in [(37, 512), (16, 1000), (3, 5)]:
        x = rng.standard_normal((m, n), dtype=np.float32) * 2 - 1
        w, b = rng.random(n, dtype=np.float32), rng.random(n, dtype=np.float32)
        dy = rng.standard_normal((m, n), dtype=np.float32)
        y, mean, rstd = np.empty_like(x), np.empty(m, np.float32), np.empty(m, np.float32)
        forward[(m,)](x, y, w, b, mean, rstd, n, n, eps, BLOCK=256)
        x64 = x.astype(np.float64)
        r = 1 / np.sqrt(x64.var(axis=1, keepdims=True) + eps)
        xhat = (x64 - x64.mean(axis=1, keepdims=True)) * r
        np.testing.assert_allclose(y, xhat * w + b, rtol=1e-5, atol=1e-5)

        groups = 4
        dx, dw, db = np.empty_like(x), np.empty(n, np.float32), np.empty(n, np.float32)
        dw_parts, db_parts, locks = np.zeros((groups, n), np.float32), np.zeros((groups, n), np.float32), np.zeros(2 * groups, np.int32)
        backward_x[(m,)](dx, dy, dw_parts, db_parts, x, w, mean, rstd, locks, n, n, GROUPS=groups, BLOCK=triton.next_power_of_2(n))
        backward_wb[(triton.cdiv(n, 128),)](dw_parts, db_parts, dw, db, min(groups, m), n, BLOCK_M=32, BLOCK_N=128)
        wdy = dy * w.astype(np.float64)
        c1, c2 = (xhat * wdy).mean(axis=1, keepdims=True), wdy.mean(axis=1, keepdims=True)
        np.testing.assert_allclose(dx, (wdy - (xhat * c1 + c2)) * r, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(dw, (dy * xhat).sum(axis=0), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(db, dy.sum(axis=0), rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    check()
    print("layer_norm: equal to NumPy, forward and backward")
