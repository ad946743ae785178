"""C = A @ B by a fixed number of programs that walk over the blocks of C: with pointers, and with tensor descriptors."""
import numpy as np

import tenon.triton as triton
import tenon.triton.language as tl


@triton.jit
def block_of(tile, in_group, blocks_m, GROUP: tl.constexpr):
    first = (tile // in_group) * GROUP
    rows = min(blocks_m - first, GROUP)
    return first + (tile % rows), (tile % in_group) // rows


@triton.jit
def with_pointers(a_ptr, b_ptr, c_ptr, M, N, K, lda, ldb, ldc, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
                  PROGRAMS: tl.constexpr):
    blocks_m = tl.cdiv(M, BLOCK_M)
    blocks_n = tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    offs_k = tl.arange(0, BLOCK_K)
    for tile in tl.range(tl.program_id(0), blocks_m * blocks_n, PROGRAMS, flatten=True):
        pid_m, pid_n = block_of(tile, GROUP * blocks_n, blocks_m, GROUP)
        rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        a_rows = tl.max_contiguous(tl.multiple_of(tl.where(rows < M, rows, 0), BLOCK_M), BLOCK_M)
        b_cols = tl.max_contiguous(tl.multiple_of(tl.where(cols < N, cols, 0), BLOCK_N), BLOCK_N)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(steps):
            ks = step * BLOCK_K + offs_k
            a = tl.load(a_ptr + a_rows[:, None] * lda + ks[None, :], mask=ks[None, :] < K, other=0.0)
            b = tl.load(b_ptr + ks[:, None] * ldb + b_cols[None, :], mask=ks[:, None] < K, other=0.0)
            acc = tl.dot(a, b, acc)
        tl.store(c_ptr + rows[:, None] * ldc + cols[None, :], acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def with_descriptors(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
                     PROGRAMS: tl.constexpr, HALVES: tl.constexpr):
    a_desc = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BLOCK_M, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, shape=[N, K], strides=[K, 1], block_shape=[BLOCK_N, BLOCK_K])
    c_desc = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N // 2 if HALVES else BLOCK_N])
    blocks_m = tl.cdiv(M, BLOCK_M)
    blocks_n = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), blocks_m * blocks_n, PROGRAMS):
        pid_m, pid_n = block_of(tile, GROUP * blocks_n, blocks_m, GROUP)
        row = pid_m * BLOCK_M
        col = pid_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(tl.cdiv(K, BLOCK_K)):
            a = a_desc.load([row, step * BLOCK_K])
            b = b_desc.load([col, step * BLOCK_K])
            acc = tl.dot(a, b.T, acc)
        if HALVES:
            parts = tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
            left, right = tl.split(parts)
            c_desc.store([row, col], left.to(c_ptr.dtype.element_ty))
            c_desc.store([row, col + BLOCK_N // 2], right.to(c_ptr.dtype.element_ty))
        else:
            c_desc.store([row, col], acc.to(c_ptr.dtype.element_ty))


def check():
    rng = np.random.default_rng(7)
    for m, n, k in [(256, 256, 128), (65, 48, 96), (130, 272, 40)]:
        a = (rng.standard_normal((m, k)) / np.sqrt(k)).astype(np.float16)
        b = rng.standard_normal((k, n)).astype(np.float16)
        wanted = a.astype(np.float64) @ b.astype(np.float64)
        blocks = dict(BLOCK_M=64, BLOCK_N=32, BLOCK_K=32, GROUP=4, PROGRAMS=3)
        c = np.empty((m, n), np.float16)
        with_pointers[(3,)](a, b, c, m, n, k, k, n, n, **blocks)
        np.testing.assert_allclose(c, wanted, rtol=2e-3, atol=5e-3)
        b_t = np.ascontiguousarray(b.T)
        for halves in (False, True):
            c = np.empty((m, n), np.float16)
            with_descriptors[(3,)](a, b_t, c, m, n, k, HALVES=halves, **blocks)
            np.testing.assert_allclose(c, wanted, rtol=2e-3, atol=5e-3)


if __name__ == "__main__":
    check()
    print("persistent_matmul: equal to NumPy")
