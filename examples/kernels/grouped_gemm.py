"""Several products of different sizes in one launch: a fixed number of programs deals the blocks of all of them among themselves. Addresses and sizes come from memory."""
import numpy as np

import tenon.triton as triton
import tenon.triton.language as tl


@triton.jit
def grouped_kernel(a_table, b_table, c_table, sizes_ptr, strides_ptr, groups, PROGRAMS: tl.constexpr,
                   BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    block = tl.program_id(0)
    done = 0
    for g in range(groups):
        m = tl.load(sizes_ptr + g * 3)
        n = tl.load(sizes_ptr + g * 3 + 1)
        k = tl.load(sizes_ptr + g * 3 + 2)
        blocks_n = tl.cdiv(n, BLOCK_N)
        blocks = tl.cdiv(m, BLOCK_M) * blocks_n
        while block >= done and block < done + blocks:
            lda = tl.load(strides_ptr + g * 3)
            ldb = tl.load(strides_ptr + g * 3 + 1)
            ldc = tl.load(strides_ptr + g * 3 + 2)
            a_ptr = tl.load(a_table + g).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(b_table + g).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(c_table + g).to(tl.pointer_type(tl.float16))
            at = block - done
            rows = (at // blocks_n) * BLOCK_M + tl.arange(0, BLOCK_M)
            cols = (at % blocks_n) * BLOCK_N + tl.arange(0, BLOCK_N)
            ks = tl.arange(0, BLOCK_K)
            a_ptrs = a_ptr + rows[:, None] * lda + ks[None, :]
            b_ptrs = b_ptr + ks[:, None] * ldb + cols[None, :]
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for start in range(0, k, BLOCK_K):
                left = k - start
                a = tl.load(a_ptrs, mask=(rows[:, None] < m) & (ks[None, :] < left), other=0.0)
                b = tl.load(b_ptrs, mask=(ks[:, None] < left) & (cols[None, :] < n), other=0.0)
                acc += tl.dot(a, b)
                a_ptrs += BLOCK_K
                b_ptrs += BLOCK_K * ldb
            c_ptrs = c_ptr + rows[:, None] * ldc + cols[None, :]
            tl.store(c_ptrs, acc.to(tl.float16), mask=(rows[:, None] < m) & (cols[None, :] < n))
            block += PROGRAMS
        done += blocks


def check():
    rng = np.random.default_rng(6)
    shapes = [(128, 96, 64), (33, 65, 17), (1, 200, 50), (256, 32, 128)]
    a = [(rng.standard_normal((m, k)) / np.sqrt(k)).astype(np.float16) for m, n, k in shapes]
    b = [rng.standard_normal((k, n)).astype(np.float16) for m, n, k in shapes]
    c = [np.empty((m, n), np.float16) for m, n, k in shapes]
    table = lambda arrays: np.array([x.ctypes.data for x in arrays], dtype=np.int64)
    sizes = np.array(shapes, dtype=np.int32)
    strides = np.array([(k, n, n) for m, n, k in shapes], dtype=np.int32)
    grouped_kernel[(6,)](table(a), table(b), table(c), sizes, strides, len(shapes), PROGRAMS=6, BLOCK_M=64, BLOCK_N=32, BLOCK_K=32)
    for x, y, z in zip(a, b, c):
        np.testing.assert_allclose(z, x.astype(np.float64) @ y.astype(np.float64), rtol=2e-3, atol=5e-3)


if __name__ == "__main__":
    check()
    print("grouped_gemm: equal to NumPy")
